package cmd

import (
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"
)

// listenLimited returns a listener with limits on a free port, until the test ends.
func listenLimited(t *testing.T, limit, perAddress int) *connections {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := limitConnections(listener, limit, perAddress, nil, zap.NewNop())
	t.Cleanup(func() { _ = l.Close() })
	return l
}

// TestConnectionsAreCounted has more clients than there is room for, which end their
// connections in every way, and then looks for connections that are still counted.
func TestConnectionsAreCounted(t *testing.T) {
	const limit, clients, requests = 8, 32, 50
	l := listenLimited(t, limit, 6)
	server := &http.Server{ConnState: l.observe, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/hijack" {
			if conn, _, err := http.NewResponseController(w).Hijack(); err == nil {
				_ = conn.Close()
			}
		}
	})}
	go func() { _ = server.Serve(l) }()
	var all sync.WaitGroup
	for n := range clients {
		all.Go(func() {
			for i := range requests {
				conn, err := net.Dial("tcp", l.Addr().String())
				if err != nil {
					t.Error(err)
					return
				}
				path := []string{"/", "/hijack"}[(n+i)%2]
				_, _ = io.WriteString(conn, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
				if i%3 > 0 {
					_, _ = conn.Read(make([]byte, 1))
				}
				_ = conn.Close()
			}
		})
	}
	all.Wait()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		l.mu.Lock()
		open, idle, peers := l.open, l.idle.Len(), len(l.peers)
		l.mu.Unlock()
		if open > limit || open < 0 {
			t.Fatalf("got %d open connections, want 0 to %d", open, limit)
		}
		if open+idle+peers == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("all connections are closed, but %d are counted as open and %d as idle, from %d addresses", open, idle, peers)
		}
	}
	_ = server.Close()
}

// TestReplacedConnectionsServeNothing replaces a connection just when its request arrives:
// the client gets no response, so the request must not be handled.
func TestReplacedConnectionsServeNothing(t *testing.T) {
	l := listenLimited(t, 1, 1)
	var accepted [2]net.Conn
	for i := range accepted {
		client, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = client.Close() })
		if accepted[i], err = l.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	aborted := func(conn net.Conn) (cause any) {
		defer func() { cause = recover() }()
		l.observe(conn, http.StateActive)
		return nil
	}
	if err, _ := aborted(accepted[0]).(error); !errors.Is(err, http.ErrAbortHandler) {
		t.Errorf("a replaced connection: got %v, want %v", err, http.ErrAbortHandler)
	}
	if cause := aborted(accepted[1]); cause != nil {
		t.Errorf("an open connection: got %v, want nil", cause)
	}
}

// TestCloseEndsTheWaitForRoom closes a listener that waits for room.
func TestCloseEndsTheWaitForRoom(t *testing.T) {
	l := listenLimited(t, 1, 2)
	var clients [2]net.Conn
	for i := range clients {
		var err error
		if clients[i], err = net.Dial("tcp", l.Addr().String()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = clients[i].Close() })
	}
	first, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	l.observe(first, http.StateActive)
	waits := make(chan struct{})
	l.log = zaptest.NewLogger(t, zaptest.WrapOptions(zap.Hooks(func(zapcore.Entry) error {
		close(waits) // while it holds the mutex that Close needs
		return nil
	})))
	ended := make(chan error)
	go func() {
		_, err := l.Accept()
		ended <- err
	}()
	<-waits
	_ = l.Close()
	select {
	case err := <-ended:
		if !errors.Is(err, net.ErrClosed) {
			t.Errorf("got %v, want %v", err, net.ErrClosed)
		}
	case <-time.After(10 * time.Second):
		t.Fatal("Accept still waits")
	}
}
