package cmd

import (
	"errors"
	"net"
	"time"

	"golang.org/x/net/bpf"
	"golang.org/x/sys/unix"
)

// ignoreSYN is a packet filter for a TCP socket: it drops the segments that open a
// connection, by the flag SYN (RFC 9293, section 3.1).
var ignoreSYN = []bpf.Instruction{
	bpf.LoadAbsolute{Off: 13, Size: 1},
	bpf.JumpIf{Cond: bpf.JumpBitsSet, Val: 0x02, SkipFalse: 1},
	bpf.RetConstant{Val: 0},
	bpf.RetConstant{Val: 1 << 16},
}

// refuse makes the kernel open no further connections to listener, so that all open connections
// can be accepted before listener is closed: closing it resets what waits. Where filters need a
// privilege, the kernel still opens a connection whenever no connection waits.
func refuse(listener net.Listener) error {
	assembled, err := bpf.Assemble(ignoreSYN)
	if err != nil {
		return err
	}
	filter := make([]unix.SockFilter, len(assembled))
	for i, in := range assembled {
		filter[i] = unix.SockFilter{Code: in.Op, Jt: in.Jt, Jf: in.Jf, K: in.K}
	}
	return onSocket(listener, func(fd int) error {
		err := unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
		if errors.Is(err, unix.EPERM) {
			err = unix.Listen(fd, 0) // the most that may wait
		}
		return err
	})
}

// giveUpAfter makes the kernel close a connection of listener when its client has acknowledged
// nothing of what was sent for limit (RFC 5482), or has not read for as long: without it, a
// client that has lost its network keeps a stream for a quarter of an hour.
func giveUpAfter(listener net.Listener, limit time.Duration) error {
	return onSocket(listener, func(fd int) error { // connections inherit it
		return unix.SetsockoptInt(fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(limit.Milliseconds()))
	})
}

// onSocket calls do with the file descriptor of listener.
func onSocket(listener net.Listener, do func(fd int) error) error {
	raw, err := listener.(*net.TCPListener).SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	err = raw.Control(func(fd uintptr) { failed = do(int(fd)) })
	return errors.Join(err, failed)
}
