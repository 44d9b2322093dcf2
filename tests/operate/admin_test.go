package operate

import (
	"io"
	"net"
	"strings"
	"syscall"
	"testing"

	"plantstore/tests/service"
)

// TestAdminAddress asks the admin address while all connections of the API are in use, and
// while the service stops.
func TestAdminAddress(t *testing.T) {
	t.Parallel()
	s, admin := service.StartAdmin(t, withoutTimeouts("PLANTSTORE_SERVER_MAX_CONNECTIONS=2", "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=2",
		"PLANTSTORE_SERVER_SHUTDOWN_TIMEOUT="+service.Patience.String())...)
	uploads := []upload{beginUpload(t, s, "127.0.0.1", 1), beginUpload(t, s, "127.0.0.1", 2)}
	for path, status := range map[string]int{
		"/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/symbol": 200,
		"/plants": 404, "/": 404, "/openapi.json": 404,
	} {
		t.Run(path, func(t *testing.T) { admin.Get(t, path).CheckStatus(t, status) })
	}
	address := strings.TrimPrefix(admin.URL, "http://")
	_, port, err := net.SplitHostPort(address)
	service.Must(t, err)
	for _, setting := range []string{address, ":" + port} {
		t.Run("healthcheck at "+setting, func(t *testing.T) {
			service.CheckCLI(t, []string{"PORT=1", "PLANTSTORE_SERVER_ADMIN_ADDRESS=" + setting}, []string{"healthcheck", "--ready"}, 0, "")
		})
	}

	service.Must(t, s.Process.Signal(syscall.SIGTERM))
	service.Eventually(t, "the service to close its port", func() bool {
		conn, err := net.Dial("tcp", "127.0.0.1:"+s.Port())
		if err == nil {
			_ = conn.Close()
		}
		return err != nil
	})
	admin.Get(t, "/readyz").CheckError(t, 50302)
	admin.Get(t, "/healthz").CheckStatus(t, 200)
	for _, u := range uploads {
		u.end(t)
	}
	if err := s.Wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// TestAdminAddressHasRoom opens idle connections to the admin address.
func TestAdminAddressHasRoom(t *testing.T) {
	t.Parallel()
	_, admin := service.StartAdmin(t)
	var open [200]net.Conn
	for i := range open {
		open[i] = admin.Dial(t)
		askHealth(t, open[i])
		readHealth(t, open[i])
	}
	checkClosed(t, open[0])
	stalled := admin.Dial(t)
	_, err := io.WriteString(stalled, "GET /healthz HTTP/1.1\r\n") // half of a request
	service.Must(t, err)
	checkClosed(t, stalled)
}

// TestProfilesAreApart checks that the API has no profiles, and names the port of the API
// by --port although there is an admin address.
func TestProfilesAreApart(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Get(t, "/debug/pprof/").CheckError(t, 40402)
	service.CheckCLI(t, []string{"PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:1"}, []string{"healthcheck", "--port", s.Port()}, 0, "")
}
