//go:build !linux

package cmd

import (
	"net"
	"time"
)

// refuse does nothing: only Linux can keep a listener from connections without resetting
// those that wait to be accepted.
func refuse(net.Listener) error { return nil }

// giveUpAfter does nothing: other systems have an option of their own, or none.
func giveUpAfter(net.Listener, time.Duration) error { return nil }
