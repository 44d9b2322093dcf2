//go:build haproxy

package tests

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/database/dbtest"
)

// startHAProxy runs HAProxy as in deploy/compose.yaml, for services on ports.
func startHAProxy(t *testing.T, ports []string) *service {
	t.Helper()
	config, err := os.ReadFile("../deploy/haproxy.cfg")
	must(t, err)
	port := freePorts(t, 1)[0]
	var servers strings.Builder
	for i, p := range ports {
		fmt.Fprintf(&servers, "server plantstore%d 127.0.0.1:%s\n    ", i, p)
	}
	text := string(config)
	for from, to := range map[string]string{
		"bind :8080":                                   "bind 127.0.0.1:" + port,
		" resolvers docker init-addr none":             "",
		"server-template plantstore 6 plantstore:8080": servers.String(),
	} {
		if !strings.Contains(text, from) {
			t.Fatalf("deploy/haproxy.cfg has no %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(path, []byte(text), 0o600))
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // which is not in everybody's PATH
	}
	proxy := launch(t, exec.CommandContext(t.Context(), program, "-db", "-f", path))
	proxy.url = "http://127.0.0.1:" + port
	eventually(t, "HAProxy", func() bool {
		r, err := proxy.try("GET", "/readyz", nil)
		return err == nil && r.status == http.StatusOK
	})
	return proxy
}

// TestRollingRestarts restarts replicas behind HAProxy, one after the other, under load.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	const replicas = 3
	rounds, busy := scale(1, 10), scale(4, 32)
	settings := []string{"DATABASE_URL=" + dbtest.Postgres(t), defaultDelay}
	ports := freePorts(t, replicas)
	var running []*service
	begin := func(port string) *service { return startPlain(t, append(settings, "PORT="+port)...) }
	for _, port := range ports {
		running = append(running, begin(port))
	}
	l := startHAProxy(t, ports).startTraffic(t, busy)
	l.await(t, 1000)
	for range rounds {
		for i, port := range ports {
			running[i].stop(t)
			running[i] = begin(port)
			running[i].awaitLog(t, "request") // so HAProxy uses it again
		}
	}
	record(t, "## Rolling restarts\n\n`TestRollingRestarts`: %d rolling restarts of %d replicas behind HAProxy, with the configuration in\n"+
		"`deploy/`, while %d clients used it. %d requests were served, and none failed.", rounds, replicas, busy, l.end())
}
