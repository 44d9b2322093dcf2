package postgres

import (
	"net"
	"testing"
)

// TestClosedConnectionsAreForgotten: the pool replaces its connections for as long as the service
// runs.
func TestClosedConnectionsAreForgotten(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	d := new(Dialect)
	dial := d.dial(new(net.Dialer).DialContext)
	for range 3 {
		conn, err := dial(t.Context(), "tcp", listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if d.isClosed() {
			t.Error("got no connection, want the open one")
		}
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
	if !d.isClosed() {
		t.Error("got connections, want none")
	}
}
