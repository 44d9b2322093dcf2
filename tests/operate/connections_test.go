package operate

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/tests/service"
)

const healthRequest = "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n"

// askHealth sends a request on conn and keeps it open.
func askHealth(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, healthRequest); err != nil {
		t.Fatal(err)
	}
}

// readHealth reads the response to askHealth.
func readHealth(t *testing.T, conn net.Conn) {
	t.Helper()
	service.ReadConn(t, conn).CheckStatus(t, http.StatusOK)
}

// dialFrom is dial from another address of this machine.
func dialFrom(t *testing.T, s *service.Service, address string) net.Conn {
	t.Helper()
	dialer := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(address)}, Timeout: service.Patience}
	conn, err := dialer.Dial("tcp", "127.0.0.1:"+s.Port())
	service.Must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	service.Must(t, conn.SetDeadline(time.Now().Add(service.Patience)))
	return conn
}

// upload is a request that is in flight until its body is sent.
type upload struct {
	net.Conn
	body string
}

// beginUpload sends the headers of a request from address and waits until its body is
// being read.
func beginUpload(t *testing.T, s *service.Service, address string, id int64) upload {
	t.Helper()
	u := upload{dialFrom(t, s, address), service.BodyOf(id)}
	_, err := fmt.Fprintf(u, "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nExpect: 100-continue\r\nContent-Length: %d\r\n\r\n", service.Token, len(u.body))
	service.Must(t, err)
	const proceed = "HTTP/1.1 100 Continue\r\n\r\n"
	got := make([]byte, len(proceed))
	if _, err := io.ReadFull(u, got); err != nil || string(got) != proceed {
		t.Fatalf("got %q, %v, want %q", got, err, proceed)
	}
	return u
}

// end sends the body and expects that the plant is created.
func (u upload) end(t *testing.T) {
	t.Helper()
	if _, err := io.WriteString(u, u.body); err != nil {
		t.Fatal(err)
	}
	service.ReadConn(t, u).CheckStatus(t, http.StatusOK)
}

// checkServed checks that a client at address gets a response on a new connection at
// once.
func checkServed(t *testing.T, s *service.Service, address string) {
	t.Helper()
	conn := dialFrom(t, s, address)
	service.Must(t, conn.SetDeadline(time.Now().Add(5*time.Second)))
	askHealth(t, conn)
	readHealth(t, conn)
}

// checkClosed checks that the service closes conn without a response.
func checkClosed(t *testing.T, conn net.Conn) {
	t.Helper()
	if response, err := io.ReadAll(conn); len(response) > 0 || err != nil && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("got %q, %v, want a closed connection", response, err)
	}
}

// withoutTimeouts returns settings after those that let no timeout close a connection
// during a test. The last value of a variable counts.
func withoutTimeouts(settings ...string) []string {
	return append([]string{
		"PLANTSTORE_SERVER_READ_HEADER_TIMEOUT=1h", "PLANTSTORE_SERVER_READ_TIMEOUT=1h",
		"PLANTSTORE_SERVER_WRITE_TIMEOUT=1h", "PLANTSTORE_SERVER_IDLE_TIMEOUT=1h",
	}, settings...)
}

// TestIdleConnectionsMakeRoom opens as many connections as the limit, from several
// addresses, and then others.
func TestIdleConnectionsMakeRoom(t *testing.T) {
	t.Parallel()
	const limit = 6
	for _, test := range []struct {
		name     string
		sent     string // on each connection
		response bool
	}{
		{"nothing sent", "", false},
		{"half of the headers sent", healthRequest[:20], false},
		{"after a request", healthRequest, true},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			s := service.Start(t, withoutTimeouts(fmt.Sprintf("PLANTSTORE_SERVER_MAX_CONNECTIONS=%d", limit))...)
			var open [limit]net.Conn
			for i := range open {
				open[i] = dialFrom(t, s, fmt.Sprintf("127.0.0.%d", 2+i%3))
				_, err := io.WriteString(open[i], test.sent)
				service.Must(t, err)
				if test.response {
					readHealth(t, open[i])
				}
			}
			checkServed(t, s, "127.0.0.9")
			if _, stderr, status := service.RunToEnd(t, []string{"PORT=" + s.Port()}, "healthcheck"); status != 0 {
				t.Errorf("healthcheck: got exit status %d, %q, want 0", status, stderr)
			}
			if test.response { // responses may arrive before a connection turns idle, so the order is unknown
				return
			}
			checkClosed(t, open[0]) // idle longest
			_, err := io.WriteString(open[limit-1], strings.TrimPrefix(healthRequest, test.sent))
			service.Must(t, err)
			readHealth(t, open[limit-1])
		})
	}
}

// TestIdleConnectionsOverTLS is the same over HTTP/2.
func TestIdleConnectionsOverTLS(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder, withoutTimeouts("PLANTSTORE_SERVER_MAX_CONNECTIONS=2", "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=3")...)
	for range 8 { // each keeps its connection
		s.On(t, own.Over(t, true), "GET", "/healthz", "", nil).CheckStatus(t, 200)
	}
}

// TestConnectionsBeyondTheLimitWait opens one connection more than the limit while all
// others are in use.
func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := service.Start(t, withoutTimeouts("PLANTSTORE_SERVER_MAX_CONNECTIONS=3", "PLANTSTORE_SERVER_MAX_CONNECTIONS_PER_ADDRESS=3")...)
	var uploads [limit]upload
	for i := range uploads {
		uploads[i] = beginUpload(t, s, "127.0.0.2", int64(i))
	}
	waiting := dialFrom(t, s, "127.0.0.3")
	askHealth(t, waiting)
	s.AwaitLine(t, "msg", "new connections wait: all are in use")
	service.Must(t, waiting.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	if n, err := waiting.Read(make([]byte, 1)); n > 0 || !service.IsTimeout(err) {
		t.Fatalf("connection beyond the limit: got %d bytes, %v, want a timeout until another is idle", n, err)
	}
	uploads[1].end(t)
	service.Must(t, waiting.SetReadDeadline(time.Now().Add(service.Patience)))
	readHealth(t, waiting)
	checkClosed(t, uploads[1])
	// Connections in use are not closed.
	uploads[0].end(t)
	uploads[2].end(t)
}

// TestConnectionsOfAnAddress uses the share of an address: by default, half of all
// connections.
func TestConnectionsOfAnAddress(t *testing.T) {
	t.Parallel()
	const share = 4
	s := service.Start(t, withoutTimeouts("PLANTSTORE_SERVER_MAX_CONNECTIONS=8", "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.8,127.0.1.0/24")...)
	var uploads [share]upload
	for i := range uploads {
		uploads[i] = beginUpload(t, s, "127.0.0.2", int64(i))
	}
	for range 3 {
		checkClosed(t, dialFrom(t, s, "127.0.0.2"))
	}
	if line := s.AwaitLog(t, "closing new connections of an address: all its connections are in use"); line["level"] != "warn" || line["address"] != "127.0.0.2/32" || line["limit"] != float64(share) {
		t.Errorf("got log line %v", line)
	}
	if n := strings.Count(s.Stderr.String(), "closing new connections"); n != 1 {
		t.Errorf("got %d log lines about 3 connections, want 1", n)
	}
	checkServed(t, s, "127.0.0.3")
	for i := range uploads {
		uploads[i].end(t)
	}
	// The address has idle connections now, or as soon as the service has noticed the end of
	// its responses. They make room.
	for range 2 * share {
		service.Eventually(t, "a connection to make room", func() bool {
			conn := dialFrom(t, s, "127.0.0.2")
			_, _ = io.WriteString(conn, healthRequest)
			n, _ := conn.Read(make([]byte, 1))
			return n > 0
		})
	}

	for i, proxy := range []string{"127.0.0.8", "127.0.1.7"} {
		t.Run("the trusted proxy "+proxy+" has no limit of its own", func(t *testing.T) {
			var uploads [share + 2]upload
			for n := range uploads {
				uploads[n] = beginUpload(t, s, proxy, int64(10*i+10+n))
			}
			checkServed(t, s, "127.0.0.4")
			for n := range uploads {
				uploads[n].end(t)
			}
		})
	}
}

// TestBodyThatIsNotNeeded: a request whose body does not arrive fails before it has done anything,
// although it needs none.
func TestBodyThatIsNotNeeded(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	for _, request := range []string{"DELETE /plants/1", "GET /plants/1", "GET /plants", "GET /tokens", "DELETE /tokens/pst_aaaaaaaa", "GET /plants/changes", "GET /plants/export"} {
		t.Run(request, func(t *testing.T) {
			conn := s.Dial(t).(*net.TCPConn)
			_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: 30\r\n\r\nx", request, service.Token)
			service.Must(t, err)
			service.Must(t, conn.CloseWrite())
			received, err := http.ReadResponse(bufio.NewReader(conn), nil)
			service.Must(t, err)
			defer received.Body.Close()
			if body, err := io.ReadAll(received.Body); err != nil || !strings.Contains(string(body), `"error":40001`) {
				t.Errorf("got %s %s, %v, want error 40001", received.Status, body, err)
			}
		})
	}
	s.Call(t, "GET", "/plants/1", "").CheckStatus(t, 200)
}
