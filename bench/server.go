package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
)

// server is a running contender.
type server struct {
	address string
	cmd     *exec.Cmd
	log     *os.File
	idle    float64 // memory in MB before the first request
}

// command returns the command that runs a contender in b.folder, which has no configs/config.yaml.
func (b *bench) command(ctx context.Context, name string) *exec.Cmd {
	program, args := "service", []string(nil)
	switch {
	case slices.Contains(baselines, name):
		program, args = "baseline", []string{name}
	case variants[name] != nil:
		program = name
	case name == b.against:
		program = "revision" // its name may have a slash
	}
	cmd := exec.CommandContext(ctx, filepath.Join(b.folder, program), args...)
	cmd.Dir = b.folder
	return cmd
}

// start runs a contender on databaseURL and waits until it accepts connections.
func (b *bench) start(ctx context.Context, name, databaseURL string) (s *server, err error) {
	port, err := dbtest.FreePort()
	if err != nil {
		return nil, err
	}
	s = &server{address: fmt.Sprintf("127.0.0.1:%d", port), cmd: b.command(ctx, name)}
	if s.log, err = os.CreateTemp(b.folder, "*.log"); err != nil {
		return nil, err
	}
	s.cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, fmt.Sprintf("PORT=%d", port),
		"TOKEN="+token, "PLANTSTORE_AUTH_TOKENS="+token+","+rivalToken, "PLANTSTORE_ENV=production", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=0s")
	if name == single {
		s.cmd.Env = append(s.cmd.Env, "PLANTSTORE_WRITES_MAX_BATCH=1")
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 1000 {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			s.idle, _ = s.memory()
			return s, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s does not accept connections", name), s.stop())
}

// stop ends s. It fails with the end of the log of a contender that has failed.
func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait()
	// The baselines do not handle the signal.
	if end := s.cmd.ProcessState.String(); end != "exit status 0" && end != "signal: terminated" {
		text, _ := os.ReadFile(s.log.Name())
		err = fmt.Errorf("a contender ended with %s:\n%s", end, text[max(0, len(text)-2000):])
	}
	return errors.Join(err, s.log.Close(), os.Remove(s.log.Name()))
}

// memory returns the resident set of s, now and at its largest, in MB, or 0.
func (s *server) memory() (now, peak float64) {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	return number(status, `VmRSS:\s+(\d+) kB`) * 1024 / 1e6, number(status, `VmHWM:\s+(\d+) kB`) * 1024 / 1e6
}

// cpuTime returns the CPU time of s so far, which /proc rounds to 10 ms.
func (s *server) cpuTime() (time.Duration, error) {
	clock := int32(^s.cmd.Process.Pid)<<3 | 2 // as clock_getcpuclockid makes it on Linux
	var spent unix.Timespec
	err := unix.ClockGettime(clock, &spent)
	return time.Duration(spent.Nano()), err
}
