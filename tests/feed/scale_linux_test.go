package feed

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
	"plantstore/tests/service"
)

// TestFeedOfAnImport follows an import of many plants, and a second one that replaces some.
func TestFeedOfAnImport(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		plants := service.Scale(20_000, 1_000_000)
		s := service.StartPlain(t, "DATABASE_URL="+url)
		now := changesSince(t, s, "")
		copies := map[string]*follower{"from now on": {now.Cursor, map[int64]string{}}, "from the beginning": {"0", map[int64]string{}}}
		want := make(map[int64]string, plants)
		load := func(n int, name string) {
			var rows strings.Builder
			for id := range int64(n) {
				want[id] = name
				fmt.Fprintf(&rows, "{\"id\":%d,\"name\":\"%s\"}\n", id, name)
			}
			s.ImportRows(t, "?on_conflict=replace", "application/x-ndjson", rows.String()).RequireOK(t)
		}
		load(plants, "first")
		s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckEmpty(t, 204)
		delete(want, 1)
		load(plants/10, "second")
		for name, f := range copies {
			t.Run(name, func(t *testing.T) {
				begin := time.Now()
				for i := 0; !maps.Equal(f.names, want); {
					r := s.Get(t, "/plants/changes?limit=1000&wait=1s&after="+f.cursor, service.As(service.Token)...)
					r.RequireOK(t)
					before := f.cursor
					service.Must(t, f.apply([]byte(r.Body)))
					if f.cursor == before {
						if i++; i > 30 { // transactions of other tests end some time
							t.Fatalf("got %d plants, want %d", len(f.names), len(want))
						}
					}
				}
				service.Record(t, "## Followers of an import: %s, %s\n\n`TestFeedOfAnImport`: a follower read an import of %d plants, and one that replaced a tenth, in %v.",
					strings.Split(t.Name(), "/")[1], name, plants, time.Since(begin).Round(10*time.Millisecond))
			})
		}
	})
}

// TestFeedFollowers measures what waiting followers cost: memory, and the throughput of POST.
func TestFeedFollowers(t *testing.T) {
	followers, turn := service.Scale(200, 1000), service.Scale(200*time.Millisecond, 3*time.Second)
	s := service.StartPlain(t, "DATABASE_URL="+dbtest.Postgres(t))
	throughput := func() float64 {
		transport := &http.Transport{MaxIdleConnsPerHost: 64}
		defer transport.CloseIdleConnections()
		statuses, took := service.ClosedLoop(64, turn, func() int {
			id := service.IDs.Add(1)
			return s.Create(transport, id, strings.NewReader(service.BodyOf(id))).Response.Status
		})
		return float64(statuses[200]) / took.Seconds()
	}
	throughput() // a warm-up
	var alone, beside float64
	var grown int
	const rounds = 3
	for range rounds {
		alone += throughput() / rounds
		before := s.Memory(t)
		ctx, leave := context.WithCancel(t.Context())
		var begun, readers sync.WaitGroup
		var bytes atomic.Int64
		for i := range followers {
			if i%100 == 0 {
				token := service.CreateToken(t, s, "plants:read")
				begun.Add(100)
				for range 100 {
					readers.Go(func() {
						transport := &http.Transport{}
						defer transport.CloseIdleConnections()
						request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+"/plants/changes", nil)
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
		grown = max(grown, s.Memory(t)-before)
		beside += throughput() / rounds
		leave()
		readers.Wait()
		if bytes.Load() == 0 {
			t.Error("the followers got nothing")
		}
	}
	service.Record(t, "## Many followers\n\n`TestFeedFollowers`: %d followers that wait take %d KiB of memory each. While all of them read every change, %.0f POSTs per\n"+
		"second were served, instead of %.0f: %.2f ×. The followers ran on the same processors.",
		followers, grown/followers>>10, beside, alone, beside/alone)
}
