package tests

import (
	"context"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// TestFeedOfAnImport follows an import of many plants, and a second one that replaces some.
func TestFeedOfAnImport(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		plants := scale(20_000, 1_000_000)
		s := startPlain(t, "DATABASE_URL="+url)
		now := s.changesSince(t, "")
		copies := map[string]*follower{"from now on": {now.Cursor, map[int64]string{}}, "from the beginning": {"0", map[int64]string{}}}
		want := make(map[int64]string, plants)
		load := func(n int, name string) {
			var rows strings.Builder
			for id := range int64(n) {
				want[id] = name
				fmt.Fprintf(&rows, "{\"id\":%d,\"name\":\"%s\"}\n", id, name)
			}
			requireOK(t, s.importRows(t, "?on_conflict=replace", "application/x-ndjson", rows.String()))
		}
		load(plants, "first")
		checkEmpty(t, s.send(t, "DELETE", "/plants/1", nil, as(token)...), 204)
		delete(want, 1)
		load(plants/10, "second")
		for name, f := range copies {
			t.Run(name, func(t *testing.T) {
				begin := time.Now()
				for i := 0; !maps.Equal(f.names, want); {
					r := s.get(t, "/plants/changes?limit=1000&wait=1s&after="+f.cursor, as(token)...)
					requireOK(t, r)
					before := f.cursor
					must(t, f.apply([]byte(r.body)))
					if f.cursor == before {
						if i++; i > 30 { // transactions of other tests end some time
							t.Fatalf("got %d plants, want %d", len(f.names), len(want))
						}
					}
				}
				record(t, "## Followers of an import: %s, %s\n\n`TestFeedOfAnImport`: a follower read an import of %d plants, and one that replaced a tenth, in %v.",
					strings.Split(t.Name(), "/")[1], name, plants, time.Since(begin).Round(10*time.Millisecond))
			})
		}
	})
}

// TestFeedFollowers measures what waiting followers cost: memory, and the throughput of POST.
func TestFeedFollowers(t *testing.T) {
	followers, turn := scale(200, 1000), scale(200*time.Millisecond, 3*time.Second)
	s := startPlain(t, "DATABASE_URL="+dbtest.Postgres(t))
	throughput := func() float64 {
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		defer transport.CloseIdleConnections()
		statuses, took := closedLoop(64, turn, func() int {
			id := ids.Add(1)
			return s.create(transport, id, strings.NewReader(bodyOf(id))).response.status
		})
		return float64(statuses[200]) / took.Seconds()
	}
	throughput() // a warm-up
	var alone, beside float64
	var grown int
	const rounds = 3
	for range rounds {
		alone += throughput() / rounds
		before := s.memory(t)
		ctx, leave := context.WithCancel(t.Context())
		var begun, readers sync.WaitGroup
		var bytes atomic.Int64
		for i := range followers {
			if i%100 == 0 {
				token := createToken(t, s, "plants:read")
				begun.Add(100)
				for range 100 {
					readers.Go(func() {
						transport := &http.Transport{}
						defer transport.CloseIdleConnections()
						request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/plants/changes", nil)
						if err == nil {
							request.Header.Set("Accept", "text/event-stream")
							request.Header.Set("Authorization", "Bearer "+token)
							var response *http.Response
							if response, err = transport.RoundTrip(request); err == nil {
								defer response.Body.Close()
								if _, err = response.Body.Read(make([]byte, 1)); err == nil && response.StatusCode == http.StatusOK {
									begun.Done()
									n, _ := io.Copy(io.Discard, response.Body)
									bytes.Add(n)
									return
								}
							}
						}
						t.Errorf("a follower failed: %v", err)
						begun.Done()
					})
				}
			}
		}
		begun.Wait()
		grown = max(grown, s.memory(t)-before)
		beside += throughput() / rounds
		leave()
		readers.Wait()
		if bytes.Load() == 0 {
			t.Error("the followers got nothing")
		}
	}
	record(t, "## Many followers\n\n`TestFeedFollowers`: %d followers that wait take %d KiB of memory each. While all of them read every change, %.0f POSTs per\n"+
		"second were served, instead of %.0f: %.2f ×. The followers ran on the same processors.",
		followers, grown/followers>>10, beside, alone, beside/alone)
}
