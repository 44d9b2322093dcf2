//go:build unix

package cmd

import (
	"math"
	"syscall"
)

// maxFiles returns how many files the process may open, including connections: ulimit -n.
// Go has raised the soft limit to the hard limit.
func maxFiles() int {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return math.MaxInt
	}
	return int(min(limit.Cur, math.MaxInt))
}
