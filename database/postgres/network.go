package postgres

import (
	"context"
	"net"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// network knows the open connections to a server, those with a request to cancel a
// statement included.
type network struct {
	open sync.Map // of *connectionToServer
}

// connectionToServer is a connection that network knows. It is a syscall.Conn, since
// hasInput asks it.
type connectionToServer struct {
	net.Conn
	network *network
}

// SyscallConn implements syscall.Conn.
func (c *connectionToServer) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn() // TCP and Unix sockets are one
}

// dial returns dial for connections that n knows.
func (n *network) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, protocol, address string) (net.Conn, error) {
		conn, err := dial(ctx, protocol, address)
		if err != nil {
			return nil, err
		}
		known := &connectionToServer{conn, n}
		n.open.Store(known, nil)
		return known, nil
	}
}

func (c *connectionToServer) Close() error {
	c.network.open.Delete(c)
	return c.Conn.Close()
}

// cut closes all connections: what waits for a response fails now, rather than when its time
// is up.
func (n *network) cut() {
	for conn := range n.open.Range {
		_ = conn.(*connectionToServer).Close()
	}
}

// drain waits until all connections are closed, but no longer than timeout. pgx cancels an
// interrupted statement in the background: without the wait, a process that ends would leave
// it to run, and pgbouncer 1.18 crashes if a request to cancel is cut off (its issue 801).
func (n *network) drain(timeout time.Duration) {
	for end := time.Now().Add(timeout); !n.isEmpty() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
}

func (n *network) isEmpty() bool {
	for range n.open.Range {
		return false
	}
	return true
}
