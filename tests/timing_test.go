package tests

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// TestWrongTokensTellNothingByTime tries tokens that are wrong from the first
// character on, and tokens that are right but for their last characters, by turns on
// one connection.
func TestWrongTokensTellNothingByTime(t *testing.T) {
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=0")
	for _, test := range []struct {
		name, token string
		public      int // characters that are known to everybody
	}{
		{"a static token", token, 0},
		{"an issued token", issue(t, url), len("pst_")},
	} {
		t.Run(test.name, func(t *testing.T) {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			sameTime(t, test.name, 10_000, func(n int, prefix bool) {
				try := []byte(test.token)
				if !prefix {
					try[test.public] = 'X'
				}
				// None of these begins or ends a token, for they are capitals.
				try[len(try)-1] = byte('A' + n%16)
				r, err := s.tryOn(transport, "GET", "/plants", nil, as(string(try))...)
				if err != nil || r.status != 401 {
					t.Fatalf("%v, %v", r, err)
				}
			})
		})
	}
}

// sameTime calls try by turns with true and with false, tries times each, and
// reports where the medians of the times differ by more than they do between parts
// of the same kind.
func sameTime(t *testing.T, what string, tries int, try func(n int, prefix bool)) {
	t.Helper()
	median := func(times []time.Duration) time.Duration {
		times = slices.Clone(times)
		slices.Sort(times)
		return times[len(times)/2]
	}
	const parts = 10
	var times [2][]time.Duration
	var inParts [2][parts][]time.Duration
	for n := range tries {
		for turn := range 2 {
			kind := (n + turn) % 2 // neither is always the first
			begin := time.Now()
			try(n, kind == 1)
			took := time.Since(begin)
			times[kind] = append(times[kind], took)
			// The parts take turns, too: other work on the machine, which comes and
			// goes, is the same for all.
			part := &inParts[kind][n/2%parts]
			*part = append(*part, took)
		}
	}
	noise := time.Microsecond
	for kind := range inParts {
		var medians []time.Duration
		for _, part := range inParts[kind] {
			medians = append(medians, median(part))
		}
		noise = max(noise, slices.Max(medians)-slices.Min(medians))
	}
	wrong, right := median(times[0]), median(times[1])
	t.Logf("%s, %d tries of each kind: all wrong %v, all but the end right %v, noise %v", what, tries, wrong, right, noise)
	if difference := (right - wrong).Abs(); difference > noise {
		t.Errorf("%s: right but for the end takes %v, wrong %v, and noise is %v", what, right, wrong, noise)
	}
}
