//go:build haproxy

package operate

import (
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestRollingRestarts restarts replicas behind HAProxy, one after the other, under load.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	const replicas = 3
	rounds, busy := service.Scale(1, 10), service.Scale(4, 32)
	settings := []string{"DATABASE_URL=" + dbtest.Postgres(t), service.DefaultDelay, "PLANTSTORE_DATABASE_TIMEOUT=30s"} // on a slow machine, requests wait long
	ports := service.FreePorts(t, replicas)
	var running []*service.Service
	begin := func(port string) *service.Service { return service.StartPlain(t, append(settings, "PORT="+port)...) }
	for _, port := range ports {
		running = append(running, begin(port))
	}
	l := service.StartHAProxy(t, ports).StartTraffic(t, busy)
	l.Await(t, 1000)
	for range rounds {
		for i, port := range ports {
			running[i].Stop(t)
			running[i] = begin(port)
			running[i].AwaitLog(t, "request") // so HAProxy uses it again
		}
	}
	service.Record(t, "## Rolling restarts\n\n`TestRollingRestarts`: %d rolling restarts of %d replicas behind HAProxy, with the configuration in\n"+
		"`deploy/`, while %d clients used it. %d requests were served, and none failed.", rounds, replicas, busy, l.End())
}
