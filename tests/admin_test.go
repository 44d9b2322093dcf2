package tests

import (
	"io"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
)

// startAdmin starts the service with an admin address, which it returns as a service, too.
func startAdmin(t *testing.T, settings ...string) (s, admin *service) {
	t.Helper()
	return startAdminOf(t, start, settings...)
}

// startAdminOf is startAdmin for a service that start starts.
func startAdminOf(t *testing.T, start func(t *testing.T, settings ...string) *service, settings ...string) (s, admin *service) {
	t.Helper()
	s = start(t, append(settings, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")...)
	return s, s.admin(t)
}

// admin returns the admin address of a service that has one, as a service.
func (s *service) admin(t *testing.T) *service {
	t.Helper()
	address := s.awaitLog(t, "serving the admin address")["address"].(string)
	return &service{t: t, url: "http://" + address}
}

// TestAdminAddress asks the admin address while all connections of the API are in use, and
// while the service stops.
func TestAdminAddress(t *testing.T) {
	t.Parallel()
	s, admin := startAdmin(t, withoutTimeouts("PLANTSTORE_SERVER_MAX_CONNECTIONS=2", "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=2",
		"PLANTSTORE_SERVER_SHUTDOWN_TIMEOUT="+patience.String())...)
	uploads := []upload{s.beginUpload(t, "127.0.0.1", 1), s.beginUpload(t, "127.0.0.1", 2)}
	for path, status := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/symbol": 200,
		"/plants": 404, "/": 404, "/openapi.json": 404,
	} {
		t.Run(path, func(t *testing.T) { checkStatus(t, admin.get(t, path), status) })
	}
	address := strings.TrimPrefix(admin.url, "http://")
	_, port, err := net.SplitHostPort(address)
	must(t, err)
	for _, setting := range []string{address, ":" + port} {
		t.Run("healthcheck at "+setting, func(t *testing.T) {
			checkCLI(t, []string{"PORT=1", "PLANTSTORE_SERVER_ADMIN_ADDRESS=" + setting}, []string{"healthcheck", "--ready"}, 0, "")
		})
	}

	must(t, s.process.Signal(syscall.SIGTERM))
	eventually(t, "the service to close its port", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.port())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	checkError(t, admin.get(t, "/readyz"), 50302)
	checkStatus(t, admin.get(t, "/healthz"), 200)
	for _, u := range uploads {
		u.end(t)
	}
	if err := s.wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// TestAdminAddressHasRoom opens idle connections to the admin address.
func TestAdminAddressHasRoom(t *testing.T) {
	t.Parallel()
	_, admin := startAdmin(t)
	var open [200]net.Conn
	for i := range open {
		open[i] = admin.dial(t)
		askHealth(t, open[i])
		readHealth(t, open[i])
	}
	checkClosed(t, open[0])
	stalled := admin.dial(t)
	_, err := io.WriteString(stalled, "GET /healthz HTTP/1.1\r\n") // half of a request
	must(t, err)
	checkClosed(t, stalled)
}

// TestProfilesAreApart checks that the API has no profiles, and names the port of the API
// by --port although there is an admin address.
func TestProfilesAreApart(t *testing.T) {
	t.Parallel()
	s := start(t)
	checkError(t, s.get(t, "/debug/pprof/"), 40402)
	checkCLI(t, []string{"PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:1"}, []string{"healthcheck", "--port", s.port()}, 0, "")
}

// valueOf returns the value of a metric in the text format of Prometheus.
func valueOf(t *testing.T, text, metric string) float64 {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+metric+" ")
	value, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		t.Fatalf("got no %s in\n%s", metric, text)
	}
	return number
}
