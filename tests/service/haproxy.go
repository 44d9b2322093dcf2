package service

import (
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// StartHAProxy runs HAProxy as in deploy/compose.yaml, for services on ports, with changes of the configuration:
// pairs of texts.
func StartHAProxy(t *testing.T, ports []string, changes ...string) *Service {
	t.Helper()
	config, err := os.ReadFile("../../deploy/haproxy.cfg")
	Must(t, err)
	port := FreePorts(t, 1)[0]
	var servers strings.Builder
	for i, p := range ports {
		fmt.Fprintf(&servers, "server plantstore%d 127.0.0.1:%s\n    ", i, p)
	}
	text := string(config)
	for change := range slices.Chunk(append(changes,
		"bind :8080", "bind 127.0.0.1:"+port,
		" resolvers docker init-addr none", "",
		"server-template plantstore 6 plantstore:8080", servers.String(),
	), 2) {
		from, to := change[0], change[1]
		if !strings.Contains(text, from) {
			t.Fatalf("deploy/haproxy.cfg has no %q", from)
		}
		text = strings.ReplaceAll(text, from, to)
	}
	path := filepath.Join(t.TempDir(), "haproxy.cfg")
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy" // which is not in everybody's PATH
	}
	proxy := Launch(t, exec.CommandContext(t.Context(), program, "-db", "-f", path))
	proxy.URL = "http://127.0.0.1:" + port
	Eventually(t, "HAProxy", func() bool {
		r, err := proxy.Try("GET", "/readyz", nil)
		return err == nil && r.Status == http.StatusOK
	})
	return proxy
}
