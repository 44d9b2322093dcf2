package operate

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestOverload sends five times the capacity of the service, then half of it. The database
// limits the capacity: each statement sleeps for half a second, and batches are small, so
// that the client and other tests, which share the processors, hardly change the rates. The
// timeout is ten times as long as a statement, so that no statement times out.
func TestOverload(t *testing.T) { // not in parallel: it measures rates
	for _, test := range []struct {
		name    string
		slow    string // SQL that slows the database down
		request func(n int64) (method, path, body string)
	}{
		{
			"creating", `
			CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
			CREATE TRIGGER slow BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION slow()`,
			func(n int64) (method, path, body string) {
				return "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"}`, n)
			},
		},
		{
			"reading", `
			ALTER TABLE plants RENAME TO stored;
			CREATE VIEW plants AS SELECT stored.* FROM (SELECT pg_sleep(0.5)) AS slow, stored;
			INSERT INTO stored VALUES (1, 'x', NULL, now(), now())`,
			func(int64) (method, path, body string) { return "GET", "/plants/1", "" },
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			url := dbtest.Postgres(t)
			dbtest.Migrated(t, url)
			dbtest.Exec(t, url, test.slow)
			s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=5s", "PLANTSTORE_WRITES_MAX_BATCH=8", "PLANTSTORE_WRITES_QUEUE=128")
			transport := &http.Transport{MaxIdleConnsPerHost: 4096}
			t.Cleanup(transport.CloseIdleConnections)
			var ids atomic.Int64
			ids.Store(1000)
			send := func() (status int) {
				method, path, body := test.request(ids.Add(1))
				r, err := s.TryOn(transport, method, path, strings.NewReader(body), "Authorization", "Bearer "+service.Token, "Content-Type", "application/json")
				if err != nil {
					t.Error(err)
				}
				return r.Status
			}
			const span = 3 * time.Second
			full, took := service.ClosedLoop(32, span, send) // two full batches of reads, and the next two
			peak := float64(full[200]) / took.Seconds()

			rate := 0.0
			for attempts := 3; rate < 0.8*peak && attempts > 0; attempts-- { // other tests may take the processors for a second
				overload, took := openLoop(5*peak, span, send)
				rate = float64(overload[200]) / took.Seconds()
				if len(overload) != 2 || overload[503] == 0 {
					t.Errorf("got responses %v, want only 200 and 503", overload)
				}
				// Send half of the capacity and measure the time until all requests succeed.
				begin := time.Now()
				for rejected := 1; rejected > 0; {
					some, _ := openLoop(peak/2, 500*time.Millisecond, send)
					rejected = len(some) - 1 // statuses other than 200
					if some[200] == 0 {
						rejected++
					}
					if time.Since(begin) > 5*time.Second {
						t.Fatal("requests are rejected 5s after the overload")
					}
				}
				t.Logf("peak %.0f/s; at five times as many %.0f/s (%.2f x), responses %v; all succeed again after %s",
					peak, rate, rate/peak, overload, time.Since(begin))
			}
			if rate < 0.8*peak {
				t.Errorf("%.0f/s succeed at five times the peak, want 80%% of %.0f/s", rate, peak)
			}
		})
	}
}

// openLoop sends perSecond requests, however many are in flight, for span. It returns the
// same as service.ClosedLoop.
func openLoop(perSecond float64, span time.Duration, send func() int) (map[int]int, time.Duration) {
	statuses, begin := service.NewTally(), time.Now()
	var all sync.WaitGroup
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for sent := 0.0; time.Since(begin) < span; <-tick.C {
		for ; sent < perSecond*time.Since(begin).Seconds(); sent++ {
			all.Go(func() { statuses.Add(send()) })
		}
	}
	all.Wait()
	return statuses.Counts, time.Since(begin)
}
