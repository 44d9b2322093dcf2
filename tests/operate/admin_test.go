package operate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
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
		"/healthz": 200, "/readyz": 200, "/debug/pprof/": 200, "/debug/pprof/heap": 200, "/debug/pprof/symbol": 200, "/debug/pprof/cmdline": 404,
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

// TestBothPortsHaveTheLimits walks the limits of connections, time and size on the port of the API and on the
// admin address.
func TestBothPortsHaveTheLimits(t *testing.T) {
	t.Parallel()
	const request = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
	for _, test := range []struct {
		name, setting, sent string
		want                int // the status of the response before the end of the connection, or 0
	}{
		{"headers that do not end", "READ_HEADER_TIMEOUT=200ms", request, 0},
		{"large headers", "MAX_HEADER_BYTES=1024", request + "X: " + strings.Repeat("x", 8<<10) + "\r\n\r\n", 431},
		{"a body that does not end", "READ_TIMEOUT=400ms", request + "Content-Length: 9\r\n\r\n", 200},
		{"a body of unknown length that does not end", "READ_TIMEOUT=400ms", request + "Transfer-Encoding: chunked\r\n\r\n1\r\n", 200},
		{"an idle connection", "IDLE_TIMEOUT=200ms", request + "\r\n", 200},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			api, admin := service.StartAdmin(t, withoutTimeouts("PLANTSTORE_SERVER_"+test.setting)...)
			for name, s := range map[string]*service.Service{"the API": api, "the admin address": admin} {
				t.Run(name, func(t *testing.T) {
					conn := s.Dial(t)
					_, err := io.WriteString(conn, test.sent)
					service.Must(t, err)
					if test.want == 0 {
						checkClosed(t, conn)
						return
					}
					service.ReadConn(t, conn).CheckStatus(t, test.want)
					checkClosed(t, conn)
				})
			}
		})
	}
	t.Run("responses that nobody reads", func(t *testing.T) {
		t.Parallel()
		_, admin := service.StartAdmin(t, withoutTimeouts("PLANTSTORE_SERVER_WRITE_TIMEOUT=500ms")...)
		conn, scrape := admin.Dial(t), strings.Replace(request, "/healthz", "/metrics", 1)+"\r\n"
		_, err := io.WriteString(conn, strings.Repeat(scrape, socketBuffers(t)/len(admin.Get(t, "/metrics").Body)+2))
		service.Must(t, err)
		service.AwaitReset(t, conn, func() []byte { return []byte("x") })
	})
	t.Run("connections of an address", func(t *testing.T) {
		t.Parallel()
		// With the profiles, 20 more than the address may have, and fewer than all. Responses may arrive before a
		// connection turns idle, so the first may be closed later than some that follow it.
		const each = 48
		_, admin := service.StartAdmin(t, withoutTimeouts()...)
		for range 4 {
			conn := admin.Dial(t)
			_, err := io.WriteString(conn, strings.Replace(request, "/healthz", "/debug/pprof/heap?seconds=60", 1)+"\r\n")
			service.Must(t, err)
		}
		var open [each]net.Conn
		for i := range open {
			open[i] = admin.Dial(t)
			askHealth(t, open[i])
			readHealth(t, open[i])
		}
		checkClosed(t, open[0])
		askHealth(t, open[each-1])
		readHealth(t, open[each-1])
	})
}

// TestAdminAddressCannotBeShut opens as many connections as the admin address has, with requests that do not
// end by themselves. Probes still respond.
func TestAdminAddressCannotBeShut(t *testing.T) {
	t.Parallel()
	const connections = 64
	for name, test := range map[string]struct {
		path, headers string
		limited       bool // some responses have the status 429
	}{
		"bodies that do not come":                   {"/healthz", "Content-Length: 9\r\n", false},
		"bodies that do not come, of levels":        {"/log-level", "Content-Length: 9\r\n", false},
		"bodies that do not come, of unknown paths": {"/nothing", "Transfer-Encoding: chunked\r\n", false},
		"profiles":                {"/debug/pprof/profile?seconds=60", "", false}, // net/http/pprof rejects a second
		"differences of profiles": {"/debug/pprof/heap?seconds=60", "", true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, admin := service.StartAdmin(t)
			limited := make(chan service.Response, connections)
			for range connections {
				conn := admin.Dial(t)
				method := map[bool]string{false: "GET", true: "PUT"}[test.path == "/log-level"]
				_, err := fmt.Fprintf(conn, "%s %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", method, test.path, test.headers)
				service.Must(t, err)
				go func() {
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						return
					}
					defer response.Body.Close()
					if response.StatusCode == http.StatusTooManyRequests {
						r, _ := service.ReadResponse(response)
						limited <- r
					}
				}()
			}
			if test.limited {
				r := service.Receive(t, limited)
				r.CheckHeader(t, "Retry-After", "1")
				if r.Code() != 42901 || !strings.Contains(r.Body, "too many profiles at a time") {
					t.Errorf("got %v, want error 42901", r)
				}
			}
			begin := time.Now()
			for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
				admin.Get(t, path).CheckStatus(t, 200)
			}
			if took := time.Since(begin); took > 5*time.Second { // the body of a request may take 15s
				t.Errorf("probes took %v", took)
			}
		})
	}
}

// TestPagesOfOtherSites sends what the browser of an operator or a developer sends for a page of another site.
func TestPagesOfOtherSites(t *testing.T) {
	t.Parallel()
	api, admin := service.StartAdmin(t, "PLANTSTORE_SERVER_ALLOWED_HOSTS=plants.internal", "PLANTSTORE_SERVER_CORS_ORIGINS=https://app.example.org")
	production, _ := service.StartAdmin(t, "PLANTSTORE_ENV=production", "DATABASE_URL="+dbtest.SQLite(t))
	for _, test := range []struct {
		name, host, headers   string
		api, admin, published int // statuses
	}{
		{"a probe", "10.0.0.7", "", 200, 200, 200},
		{"a configured name", "plants.internal:9090", "", 200, 200, 200},
		{"DNS rebinding", "attacker.example:9090", "Sec-Fetch-Site: same-origin\r\n", 403, 403, 200},
		{"an image of another site", "localhost", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: image\r\n", 403, 403, 200},
		{"a read by another origin", "localhost", "Origin: https://attacker.example\r\n", 403, 403, 200},
		{"a read by a configured origin", "localhost", "Origin: https://app.example.org\r\n", 200, 403, 200},
		{"a link of another site", "localhost", "Sec-Fetch-Site: cross-site\r\nSec-Fetch-Dest: document\r\n", 200, 200, 200},
	} {
		for where, at := range map[string]struct {
			*service.Service
			want  int
			paths []string
		}{
			"the API in development": {api, test.api, []string{"/healthz", "/openapi.json"}},
			"the admin address":      {admin, test.admin, []string{"/healthz", "/metrics", "/debug/pprof/", "/debug/pprof/heap"}},
			"the API in production":  {production, test.published, []string{"/healthz", "/openapi.json"}},
		} {
			for _, path := range at.paths {
				t.Run(test.name+" at "+where+path, func(t *testing.T) {
					conn := at.Dial(t)
					_, err := fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: %s\r\n%s\r\n", path, test.host, test.headers)
					service.Must(t, err)
					r := service.ReadConn(t, conn)
					if r.CheckStatus(t, at.want); r.Status == 403 && r.Code() != 40302 {
						t.Errorf("got %v, want error 40302", r)
					}
				})
			}
		}
	}
}

// TestProfilesCollectNoGarbage asks for heap profiles after a collection, which would hold up the API.
func TestProfilesCollectNoGarbage(t *testing.T) {
	t.Parallel()
	_, admin := service.StartAdmin(t)
	collections := func() float64 {
		return service.ValueOf(t, admin.Get(t, "/metrics").Body, "go_gc_duration_seconds_count")
	}
	const profiles = 100
	before := collections()
	for range profiles {
		admin.Get(t, "/debug/pprof/heap?gc=1").CheckStatus(t, 200)
	}
	if n := collections() - before; n >= profiles {
		t.Errorf("got %v collections for %d profiles, want fewer", n, profiles)
	}
}

// TestProfilesAreApart checks that the API has no profiles, and names the port of the API
// by --port although there is an admin address.
func TestProfilesAreApart(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Get(t, "/debug/pprof/").CheckError(t, 40402)
	service.CheckCLI(t, []string{"PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:1"}, []string{"healthcheck", "--port", s.Port()}, 0, "")
}
