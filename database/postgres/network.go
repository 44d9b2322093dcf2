package postgres

import (
	"context"
	"net"
	"sync"
	"syscall"

	"github.com/jackc/pgx/v5/pgconn"
)

// connection is a connection to the server which d.open has until it is closed. It is a syscall.Conn,
// since hasInput asks it.
type connection struct {
	net.Conn
	open *sync.Map
}

// SyscallConn implements syscall.Conn.
func (c *connection) SyscallConn() (syscall.RawConn, error) {
	return c.Conn.(syscall.Conn).SyscallConn() // as TCP and Unix sockets are
}

func (c *connection) Close() error {
	c.open.Delete(c)
	return c.Conn.Close()
}

// dial returns dial for connections that d knows.
func (d *Dialect) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, protocol, address string) (net.Conn, error) {
		conn, err := dial(ctx, protocol, address)
		if err != nil {
			return nil, err
		}
		known := &connection{conn, &d.open}
		d.open.Store(known, nil)
		return known, nil
	}
}

// isClosed reports whether no connection is open.
func (d *Dialect) isClosed() bool {
	for range d.open.Range {
		return false
	}
	return true
}
