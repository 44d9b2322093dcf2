//go:build !unix

package postgres

import "net"

// hasInput cannot tell here: a query shows it.
func hasInput(net.Conn) bool { return false }
