//go:build !unix

package database

import "net"

// hasInput cannot tell here: a query shows it.
func hasInput(net.Conn) bool { return false }
