//go:build !linux

package cmd

import "net"

// refuse does nothing: only Linux can keep a listener from connections without resetting
// those that wait to be accepted.
func refuse(net.Listener) error { return nil }
