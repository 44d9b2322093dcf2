package tests

import (
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"
)

// dial connects to the service until the test ends.
func (s *service) dial(t *testing.T) net.Conn {
	t.Helper()
	_, address, _ := strings.Cut(s.url, "://")
	conn, err := net.DialTimeout("tcp", address, patience)
	must(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	must(t, conn.SetDeadline(time.Now().Add(patience)))
	return conn
}

// askHealth sends a request on conn and keeps it open.
func askHealth(t *testing.T, conn net.Conn) {
	t.Helper()
	if _, err := io.WriteString(conn, "GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
}

// readHealth reads the response to askHealth.
func readHealth(t *testing.T, conn net.Conn) {
	t.Helper()
	checkStatus(t, readConn(t, conn), http.StatusOK)
}

// TestConnectionsBeyondTheLimitWait opens one connection more than the limit.
func TestConnectionsBeyondTheLimitWait(t *testing.T) {
	t.Parallel()
	const limit = 3
	s := start(t, "PLANTSTORE_SERVER_MAX_CONNECTIONS=3")
	var open [limit]net.Conn
	for i := range open {
		open[i] = s.dial(t)
		askHealth(t, open[i])
		readHealth(t, open[i])
	}
	waiting := s.dial(t) // accepted by the kernel
	askHealth(t, waiting)
	must(t, waiting.SetReadDeadline(time.Now().Add(300*time.Millisecond)))
	if n, err := waiting.Read(make([]byte, 1)); n > 0 || !isTimeout(err) {
		t.Fatalf("connection beyond the limit: got %d bytes, %v, want a timeout until another closes", n, err)
	}
	// Open connections are served.
	askHealth(t, open[0])
	readHealth(t, open[0])

	must(t, open[1].Close())
	must(t, waiting.SetReadDeadline(time.Now().Add(patience)))
	readHealth(t, waiting)
}

func isTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}
