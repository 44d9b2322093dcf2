package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// token is the one that every contender accepts.
const token = "benchmark-token-of-more-than-32-characters"

// service is the name of what is measured, beside the baselines.
const service = "plantstore"

// programs are the built programs.
type programs struct{ plantstore, baseline string }

// build compiles the service as its image does, and the baselines alike.
func build(ctx context.Context, folder string) (programs, error) {
	p := programs{filepath.Join(folder, "plantstore"), filepath.Join(folder, "baseline")}
	for target, source := range map[string]string{p.plantstore: "plantstore", p.baseline: "plantstore/bench/baseline"} {
		cmd := exec.CommandContext(ctx, "go", "build", "-trimpath", "-ldflags=-s -w", "-o", target, source)
		cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
		if output, err := cmd.CombinedOutput(); err != nil {
			return p, fmt.Errorf("go build %s: %w\n%s", source, err, output)
		}
	}
	return p, nil
}

// migrate makes the table that all contenders write to.
func (p programs) migrate(ctx context.Context, databaseURL string) error {
	cmd := exec.CommandContext(ctx, p.plantstore, "migrate", "up")
	cmd.Dir = filepath.Dir(p.plantstore) // without a configs/config.yaml
	cmd.Env = []string{"DATABASE_URL=" + databaseURL}
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("plantstore migrate up: %w\n%s", err, output)
	}
	return nil
}

// server is a contender that serves.
type server struct {
	address string
	cmd     *exec.Cmd
	log     *os.File
}

// start runs the contender name on databaseURL and waits until it accepts
// connections. Its log goes to a file in folder.
func (p programs) start(ctx context.Context, name, databaseURL, folder string) (_ *server, err error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	s := &server{address: net.JoinHostPort("127.0.0.1", port)}
	if s.log, err = os.Create(filepath.Join(folder, "contender.log")); err != nil {
		return nil, err
	}
	if name == service {
		s.cmd = exec.CommandContext(ctx, p.plantstore)
		s.cmd.Env = append(writeSettings(), "PLANTSTORE_ENV=production", "PLANTSTORE_AUTH_TOKENS="+token)
	} else {
		s.cmd = exec.CommandContext(ctx, p.baseline, name)
		s.cmd.Env = []string{"TOKEN=" + token}
	}
	s.cmd.Env = append(s.cmd.Env, "DATABASE_URL="+databaseURL, "PORT="+port)
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Dir = folder
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	for range 1000 {
		conn, err := net.Dial("tcp", s.address)
		if err == nil {
			return s, conn.Close()
		}
		time.Sleep(10 * time.Millisecond)
	}
	text, _ := os.ReadFile(s.log.Name())
	return nil, errors.Join(fmt.Errorf("%s does not serve:\n%s", name, text), s.stop())
}

// writeSettings passes on how the service gathers its writes, for trials.
func writeSettings() []string {
	var settings []string
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "PLANTSTORE_") || strings.HasPrefix(entry, "GO") {
			settings = append(settings, entry)
		}
	}
	return settings
}

// stop ends the contender.
func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait() // the baselines know no other end than being killed
	return errors.Join(err, s.log.Close(), os.Remove(s.log.Name()))
}

// memory returns the resident set of the contender, now and at its largest, in
// bytes.
func (s *server) memory() (now, peak int64, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	for lines := bufio.NewScanner(file); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), ":")
		kibibytes, _ := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64)
		switch name {
		case "VmRSS":
			now = kibibytes << 10
		case "VmHWM":
			peak = kibibytes << 10
		}
	}
	return now, peak, nil
}

// processor returns the processor time that the contender has used.
func (s *server) processor() (time.Duration, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.cmd.Process.Pid))
	if err != nil {
		return 0, err
	}
	// The fields after the name, which may have blanks and is in parentheses:
	// the 12th and 13th are user and system time in ticks of 10 ms.
	fields := strings.Fields(string(text[strings.LastIndexByte(string(text), ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * 10 * time.Millisecond, nil
}

func freePort() (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	return port, listener.Close()
}
