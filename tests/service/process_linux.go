package service

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"
)

// LimitFiles makes writes fail that would make a file of s larger than size.
func LimitFiles(s *Service, size uint64) error {
	return unix.Prlimit(s.Process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: size, Max: unix.RLIM_INFINITY}, nil)
}

// Memory returns the resident memory of the service in bytes.
func (s *Service) Memory(t *testing.T) int {
	t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.Process.Pid))
	Must(t, err)
	found := regexp.MustCompile(`VmRSS:\s+(\d+) kB`).FindSubmatch(status)
	if found == nil {
		t.Fatalf("no VmRSS in %s", status)
	}
	kilobytes, err := strconv.Atoi(string(found[1]))
	Must(t, err)
	return kilobytes << 10
}
