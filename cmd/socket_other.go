//go:build !linux

package cmd

import (
	"net"
	"time"
)

// refuse does nothing: only Linux can keep a listener from new connections without resetting
// connections that wait to be accepted.
func refuse(net.Listener) error { return nil }

// giveUpAfter does nothing: other systems have another option, or no option.
func giveUpAfter(net.Listener, time.Duration) error { return nil }
