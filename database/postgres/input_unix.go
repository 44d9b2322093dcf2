//go:build unix

package postgres

import (
	"crypto/tls"
	"errors"
	"net"
	"syscall"
)

// hasInput reports whether the server has closed an idle connection, or has sent something, perhaps why it
// is about to. It does not read that, and costs a microsecond.
func hasInput(conn net.Conn) bool {
	if secure, ok := conn.(*tls.Conn); ok {
		conn = secure.NetConn()
	}
	raw, err := conn.(*connection).Conn.(syscall.Conn).SyscallConn() // as TCP and Unix sockets are
	if err != nil {
		return true // closed
	}
	var peeked error
	err = raw.Control(func(fd uintptr) {
		_, _, peeked = syscall.Recvfrom(int(fd), make([]byte, 1), syscall.MSG_PEEK|syscall.MSG_DONTWAIT)
	})
	return err != nil || !errors.Is(peeked, syscall.EAGAIN)
}
