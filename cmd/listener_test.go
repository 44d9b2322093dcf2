package cmd

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
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
		open, idle, peers := l.all.open, l.all.idle.Len(), len(l.peers)
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

// networks returns the addresses of requests, or connections, and whether they are served if each address
// may have that many, and none ends.
func networks(each int) (addresses []netip.Addr, served []bool) {
	add := func(n int, serve bool, format string, args ...any) {
		for range n {
			addresses, served = append(addresses, netip.MustParseAddr(fmt.Sprintf(format, args...))), append(served, serve)
		}
	}
	for large := range 4 { // the /56 networks of a /48
		for small := range 4 { // their /64 networks
			add(each, true, "2001:db8:0:%x%02x::1", large, small)
			add(1, false, "2001:db8:0:%x%02x::2", large, small)
		}
		add(1, false, "2001:db8:0:%x04::1", large)
	}
	add(1, false, "2001:db8:0:400::1")
	add(1, true, "2001:db8:1::1")
	add(each, true, "192.0.2.1")
	add(1, false, "::ffff:192.0.2.1")
	add(each, true, "192.0.2.2")
	return addresses, served
}

// TestNetworksOfConnections opens connections from more networks of a /48 than a limit per /64 would stop.
func TestNetworksOfConnections(t *testing.T) {
	const each = 2
	l := listenLimited(t, 1000, each)
	addresses, served := networks(each)
	var open []*connection
	for i, address := range addresses {
		c := l.admit(new(net.TCPConn), address)
		if (c != nil) != served[i] {
			t.Errorf("connection %d, from %s: got %t, want it served: %t", i, address, c != nil, served[i])
		}
		if c != nil {
			l.observe(c, http.StateActive)
			open = append(open, c)
		}
	}
	// Connections that turn idle make room in all of their networks.
	l.observe(open[0], http.StateIdle)
	if c := l.admit(new(net.TCPConn), netip.MustParseAddr("2001:db8:0:900::1")); c == nil || !open[0].closed {
		t.Errorf("another network of the /48: got %v, %t, want it in the place of the idle connection", c, open[0].closed)
	} else {
		open = append(open, c)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range open {
		l.drop(c)
	}
	if l.all.open != 0 || l.all.idle.Len() != 0 || len(l.peers) != 0 {
		t.Errorf("all are closed, but %d are counted as open, from %d networks", l.all.open, len(l.peers))
	}
}

// TestNetworksOfStreams is the same for requests of HTTP/2.
func TestNetworksOfStreams(t *testing.T) {
	const each = 2
	l, begun, end := listenLimited(t, 1000, each), make(chan bool), make(chan struct{})
	handler := l.limitStreams(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		begun <- true
		<-end
	}))
	addresses, served := networks(each)
	var all sync.WaitGroup
	for i, address := range addresses {
		all.Go(func() {
			defer func() {
				if recover() != nil {
					begun <- false
				}
			}()
			handler.ServeHTTP(nil, &http.Request{ProtoMajor: 2, RemoteAddr: netip.AddrPortFrom(address, 1).String()})
		})
		if got := <-begun; got != served[i] {
			t.Errorf("request %d, from %s: got %t, want it served: %t", i, address, got, served[i])
		}
	}
	close(end)
	all.Wait()
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
