package cmd

import (
	"errors"
	"math"
	"net"

	"golang.org/x/sys/unix"
)

// ignoreSYN is a packet filter for a TCP socket: it drops the segments that open a
// connection, by the flag SYN (RFC 9293, section 3.1).
var ignoreSYN = []unix.SockFilter{
	{Code: unix.BPF_LD | unix.BPF_B | unix.BPF_ABS, K: 13},            // the byte with the flags
	{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: 0x02, Jf: 1}, // without SYN, skip the next instruction
	{Code: unix.BPF_RET | unix.BPF_K, K: 0},                           // drop the segment
	{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 16},                     // pass on all of it
}

// refuse makes the kernel open no further connections to listener, so that all open connections
// can be accepted before listener is closed: closing it resets what waits. Where filters need a
// privilege, the kernel still opens a connection whenever no connection waits.
func refuse(listener net.Listener) error {
	raw, _ := listener.(*net.TCPListener).SyscallConn() // which fails only for nil
	var failed error
	err := raw.Control(func(fd uintptr) {
		failed = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(ignoreSYN)), Filter: &ignoreSYN[0]})
		if errors.Is(failed, unix.EPERM) {
			failed = unix.Listen(int(fd), 0) // the most that may wait
		}
	})
	return errors.Join(err, failed)
}

// maxFiles returns how many files the process may open, including connections: ulimit -n.
// Go has raised the soft limit to the hard limit.
func maxFiles() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}
