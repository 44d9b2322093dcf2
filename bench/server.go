package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
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
}

// build returns the program of a contender, which it compiles unless it exists.
func (b *bench) build(ctx context.Context, contender string) (program string, err error) {
	name, script := "service", `make build BINARY="$program"`
	switch {
	case contender == b.against: // with the flags of its own Makefile
		name, script = "revision", `mkdir "$program.source"; git archive "$revision" | tar -x -C "$program.source"
cd "$program.source"; make build; mv plantstore "$program"`
	case slices.Contains(baselines, contender):
		name, script = "baseline", `go build -trimpath -tags=nomsgpack -ldflags="-s -w" -o "$program" ./bench/baseline`
	}
	program = filepath.Join(b.folder, name)
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	err = execute(exec.CommandContext(ctx, "sh", "-ec", script), "program="+program, "revision="+contender, "CGO_ENABLED=0")
	return program, err
}

// execute runs cmd. Its output is in an error.
func execute(cmd *exec.Cmd, env ...string) error {
	cmd.Env = append(cmd.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, text)
	}
	return nil
}

// start runs a contender in b.folder, which has no configs/config.yaml, until it responds. That it accepts a connection
// would not be enough: the service tries its port before it serves.
func (b *bench) start(ctx context.Context, name, databaseURL string, env ...string) (s *server, err error) {
	program, err := b.build(ctx, name)
	if err != nil {
		return nil, err
	}
	tokens := []string{token}
	for n := range 10 {
		tokens = append(tokens, rivalToken(n))
	}
	port, err := dbtest.FreePort()
	if err != nil {
		return nil, err
	}
	s = &server{address: fmt.Sprintf("127.0.0.1:%d", port), cmd: exec.CommandContext(ctx, program)}
	if s.log, err = os.CreateTemp(b.folder, "*.log"); err != nil {
		return nil, err
	}
	s.cmd.Dir = b.folder
	s.cmd.Env = append(append(os.Environ(), env...), "DATABASE_URL="+databaseURL, fmt.Sprintf("PORT=%d", port),
		"BASELINE="+name, "TOKEN="+token, "PLANTSTORE_AUTH_TOKENS="+strings.Join(tokens, ","), "PLANTSTORE_ENV=production", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=0s")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		return nil, err
	}
	client := http.Client{Timeout: time.Second}
	for range 1000 {
		if response, err := client.Get("http://" + s.address); err == nil { // with TLS, it is an error, which is a response as well
			_ = response.Body.Close()
			return s, nil
		}
		time.Sleep(10 * time.Millisecond)
	}
	return nil, errors.Join(fmt.Errorf("%s does not respond", name), s.stop())
}

// certificate makes a certificate, and returns the settings that name it.
func (b *bench) certificate(ctx context.Context) ([]string, error) {
	certificate, key := filepath.Join(b.folder, "certificate.pem"), filepath.Join(b.folder, "key.pem")
	err := execute(exec.CommandContext(ctx, "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256",
		"-nodes", "-subj", "/CN=localhost", "-days", "2", "-keyout", key, "-out", certificate))
	return []string{"PLANTSTORE_SERVER_TLS_CERTIFICATE=" + certificate, "PLANTSTORE_SERVER_TLS_KEY=" + key}, err
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

// memory returns the resident set of s in MB, or 0: VmRSS: is the present set, VmHWM: the largest so far.
func (s *server) memory(name string) float64 {
	status, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	kilobytes, _ := strconv.ParseFloat(strings.Trim(field(status, name), "\t kB"), 64)
	return kilobytes * 1024 / 1e6
}

// cpuTime returns the CPU time of s so far.
func (s *server) cpuTime() (time.Duration, error) {
	clock := int32(^s.cmd.Process.Pid)<<3 | 2 // as clock_getcpuclockid makes it on Linux
	var spent unix.Timespec
	err := unix.ClockGettime(clock, &spent)
	return time.Duration(spent.Nano()), err
}
