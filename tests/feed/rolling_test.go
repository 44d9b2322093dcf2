//go:build haproxy

package feed

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFeedRollingRestart follows replicas behind HAProxy, by long requests and by a stream,
// while they are restarted one after the other.
func TestFeedRollingRestart(t *testing.T) {
	t.Parallel()
	duration := service.Scale(10*time.Second, 10*time.Minute)
	settings := []string{"DATABASE_URL=" + dbtest.OwnServer(t).URL, service.DefaultDelay}
	ports := service.FreePorts(t, 2)
	var running []*service.Service
	for _, port := range ports {
		running = append(running, service.StartPlain(t, append(settings, "PORT="+port)...))
	}
	proxy := service.StartHAProxy(t, ports)
	want, written := make(map[int64]string), new(atomic.Pointer[map[int64]string])
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	done := func(names map[int64]string) bool {
		all := written.Load()
		return all != nil && maps.Equal(names, *all)
	}
	followers, errs := [2]follower{{"0", map[int64]string{}}, {"0", map[int64]string{}}}, [2]error{}
	var group sync.WaitGroup
	for i := range followers {
		group.Go(func() { errs[i] = followers[i].stay(ctx, proxy.URL, i > 0, done) })
	}
	stop := make(chan struct{})
	var writer sync.WaitGroup
	writer.Go(func() {
		ticker := time.NewTicker(10 * time.Millisecond)
		defer ticker.Stop()
		for n := int64(0); ; n++ {
			select {
			case <-stop:
				return
			case <-ticker.C:
			}
			id, name := n%1000, strconv.FormatInt(n, 10)
			if r := proxy.Call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%s"}`, name)); r.Status != 200 && r.Status != 201 {
				t.Errorf("got %v", r)
			}
			want[id] = name
		}
	})
	begin := time.Now()
	for i, port := range ports {
		running[i].Stop(t)
		running[i] = service.StartPlain(t, append(settings, "PORT="+port)...)
		running[i].AwaitLog(t, "request") // so HAProxy uses it again
	}
	time.Sleep(time.Until(begin.Add(duration)))
	close(stop)
	writer.Wait()
	written.Store(&want)
	overdue := time.AfterFunc(service.Patience, giveUp)
	defer overdue.Stop()
	group.Wait()
	for i := range followers {
		if errs[i] != nil || !maps.Equal(followers[i].names, want) {
			t.Errorf("follower %d has %d plants, want %d: %v", i, len(followers[i].names), len(want), errs[i])
		}
	}
	service.Record(t, "## Followers behind HAProxy\n\n`TestFeedRollingRestart`: two followers behind HAProxy, one by long requests and one by a stream, lost no change in\n"+
		"%v, in which both replicas were restarted.", time.Since(begin).Round(time.Second))
}
