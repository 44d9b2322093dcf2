package database

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// network knows the open connections to a server, so that all of them can be cut at once
// rather than each when its time is up.
type network struct {
	mu   sync.Mutex
	open map[*connectionToServer]bool
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
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.open == nil {
			n.open = make(map[*connectionToServer]bool)
		}
		n.open[known] = true
		return known, nil
	}
}

// Close closes the connection.
func (c *connectionToServer) Close() error {
	c.network.mu.Lock()
	delete(c.network.open, c)
	c.network.mu.Unlock()
	return c.Conn.Close()
}

// cut closes all connections: what waits for a response fails now.
func (n *network) cut() {
	n.mu.Lock()
	defer n.mu.Unlock()
	for conn := range n.open {
		_ = conn.Conn.Close()
	}
	clear(n.open)
}
