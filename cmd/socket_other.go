//go:build !linux

package cmd

import (
	"math"
	"net"
)

// refuse does nothing: only Linux can keep a listener from new connections without resetting
// connections that wait to be accepted.
func refuse(net.Listener) error { return nil }

// maxFiles returns no limit: other systems may have it, but they are for development.
func maxFiles() int { return math.MaxInt }
