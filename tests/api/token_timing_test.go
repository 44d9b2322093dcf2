package api

import (
	"net/http"
	"slices"
	"testing"
	"time"

	"plantstore/tests/service"
)

// TestWrongTokensTellNothingByTime sends tokens that are wrong from the start and tokens
// with only their last characters wrong, in turns on one connection, to the program as it is
// released: the race detector would hide a difference below its own noise.
func TestWrongTokensTellNothingByTime(t *testing.T) {
	s := service.StartPlain(t, "PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=0")
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for range 3 { // other load on the machine may slow down one kind for a while
		if sameTime(t, 5_000, func(n int, prefix bool) {
			try := []byte(service.Token)
			if !prefix {
				try[0] = 'X'
			}
			try[len(try)-1] = byte('A' + n%16) // the token has no capitals
			r, err := s.TryOn(transport, "GET", "/plants", nil, service.As(string(try))...)
			if err != nil || r.Status != 401 {
				t.Fatalf("got %v, %v, want 401", r, err)
			}
		}) {
			return
		}
	}
	t.Error("the time tells whether only the end is wrong")
}

// sameTime calls try with true and with false in turns, tries times each. It reports whether
// the medians of their times differ by no more than those of parts of the same kind.
func sameTime(t *testing.T, tries int, try func(n int, prefix bool)) bool {
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
			kind := (n + turn) % 2 // both start equally often
			begin := time.Now()
			try(n, kind == 1)
			took := time.Since(begin)
			times[kind] = append(times[kind], took)
			// Parts alternate as well, so that other load on the machine affects all of
			// them.
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
	t.Logf("%d tries of each kind: %v if all is wrong, %v if only the end is, noise %v", tries, wrong, right, noise)
	return (right - wrong).Abs() <= noise
}
