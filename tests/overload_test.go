package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// TestOverload sends five times what the service can do, and then half of it. What
// it can do is set by the database, which takes its time with every statement and
// no processor, so that the client, on the same machine, does not stand in the
// way.
func TestOverload(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name    string
		slow    string // makes the database slow
		request func(n int64) (method, path, body string)
		clients int // that are needed for the peak
	}{
		{
			"creating", `
			CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.05); RETURN NULL; END';
			CREATE TRIGGER slow BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION slow()`,
			func(n int64) (method, path, body string) {
				return "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, n)
			}, 64,
		},
		{
			"reading", `
			ALTER TABLE plants RENAME TO stored;
			CREATE VIEW plants AS SELECT stored.* FROM (SELECT pg_sleep(0.4)) AS slow, stored;
			INSERT INTO stored VALUES (1, 'x', NULL, now(), now())`,
			func(int64) (method, path, body string) { return "GET", "/plants/1", "" }, 64,
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Postgres(t)
			dbtest.Migrated(t, url)
			dbtest.Exec(t, url, test.slow)
			s := start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=600ms", "PLANTSTORE_WRITES_MAX_BATCH=16", "PLANTSTORE_WRITES_QUEUE=128")
			transport := &http.Transport{MaxIdleConnsPerHost: 4096}
			t.Cleanup(transport.CloseIdleConnections)
			var ids atomic.Int64
			ids.Store(1000)
			send := func() (status int) {
				method, path, body := test.request(ids.Add(1))
				r, err := s.tryOn(transport, method, path, strings.NewReader(body), "Authorization", "Bearer "+token, "Content-Type", "application/json")
				if err != nil {
					t.Error(err)
				}
				return r.status
			}
			const span = 3 * time.Second
			full, took := closedLoop(test.clients, span, send)
			peak := float64(full[200]) / took.Seconds()

			overload, took := openLoop(5*peak, span, send)
			rate := float64(overload[200]) / took.Seconds()
			// Half of what it can do, right after: how long until all of it succeeds?
			begin := time.Now()
			for refused := 1; refused > 0; {
				some, _ := openLoop(peak/2, 500*time.Millisecond, send)
				refused = len(some) - 1 // kinds of answers that are no 200
				if some[200] == 0 {
					refused++
				}
				if time.Since(begin) > 5*time.Second {
					t.Fatal("requests are refused 5 s after the overload")
				}
			}
			t.Logf("peak %.0f/s; at five times as many %.0f/s (%.2f x), answers %v; all succeed again after %s",
				peak, rate, rate/peak, overload, time.Since(begin))
			if rate < 0.8*peak {
				t.Errorf("%.0f/s succeed at five times the peak of %.0f/s", rate, peak)
			}
			if len(overload) != 2 || overload[503] == 0 {
				t.Errorf("answers were %v, want 200 and 503 alone", overload)
			}
		})
	}
}

// closedLoop has clients send, each one request after another, for span. It returns
// how many answers of each status there were, and how long it took until the last.
func closedLoop(clients int, span time.Duration, send func() int) (map[int]int, time.Duration) {
	statuses, begin := newTally(), time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for time.Since(begin) < span {
				statuses.add(send())
			}
		})
	}
	all.Wait()
	return statuses.counts, time.Since(begin)
}

// openLoop sends perSecond requests, whether or not others have been answered, for
// span. It returns what closedLoop does.
func openLoop(perSecond float64, span time.Duration, send func() int) (map[int]int, time.Duration) {
	statuses, begin := newTally(), time.Now()
	var all sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0.0; time.Since(begin) < span; <-tick.C {
		for ; sent < perSecond*time.Since(begin).Seconds(); sent++ {
			all.Go(func() { statuses.add(send()) })
		}
	}
	all.Wait()
	return statuses.counts, time.Since(begin)
}

// tally counts answers by status.
type tally struct {
	mu     sync.Mutex
	counts map[int]int
}

func newTally() *tally { return &tally{counts: make(map[int]int)} }

func (c *tally) add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts[status]++
}
