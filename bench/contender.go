package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// build compiles the service and the baselines into b.folder, with the flags of
// make build.
func (b *bench) build(ctx context.Context) error {
	if err := goBuild(ctx, "-o", b.folder, "plantstore", "plantstore/bench/baseline"); err != nil {
		return err
	}
	for _, c := range comparisons {
		for _, name := range c.contenders {
			if variants[name] == nil || !selected(b.only, c.section) {
				continue
			}
			if err := b.buildVariant(ctx, name); err != nil {
				return err
			}
		}
	}
	return nil
}

func goBuild(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", append([]string{"build", "-trimpath", "-tags=nomsgpack", "-ldflags=-s -w"}, args...)...)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}

// turn measures a contender on s.
func (b *bench) turn(ctx context.Context, name string, s *store, l load) (o outcome, err error) {
	if err := s.prepare(ctx, l.rows); err != nil {
		return o, err
	}
	s.used(l.method)
	if name == pgbench {
		return b.pgbench(ctx, s, l)
	}
	if name != service && l.baselinePath != "" {
		l.path = l.baselinePath
	}
	contender, err := b.start(ctx, name, s.url)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, contender.stop()) }()
	before, err := contender.usage()
	if err != nil {
		return o, err
	}
	if o, err = contender.measure(ctx, l); err != nil {
		return o, err
	}
	after, err := contender.usage()
	o[idle], o[peak] = before.memory/1e6, after.peak/1e6
	return o, err
}

func (b *bench) pgbench(ctx context.Context, s *store, l load) (o outcome, err error) {
	script := filepath.Join(b.folder, "pgbench.sql")
	if err := os.WriteFile(script, []byte(l.pgbench), 0o644); err != nil { //nolint:gosec // PostgreSQL runs as another user and reads it
		return o, err
	}
	seconds := max(2, int((l.warmup + l.duration).Seconds())) // including the time to connect
	cmd := s.server.Command("pgbench", "-n", "-M", "prepared", "-c", strconv.Itoa(l.connections), "-j", "2",
		"-T", strconv.Itoa(seconds), "-D", "n=0", "-f", script, s.url)
	output, err := cmd.CombinedOutput()
	o[rate], o[mean] = number(output, `tps = ([0-9.]+)`), number(output, `latency average = ([0-9.]+) ms`)
	if err != nil || o[rate] == 0 {
		return o, fmt.Errorf("%w\n%s", cmp.Or(err, errors.New("no rate in the output")), output)
	}
	return o, ctx.Err()
}

// server is a running contender.
type server struct {
	address string
	cmd     *exec.Cmd
	log     *os.File
}

// start runs a contender on databaseURL and waits until it accepts connections.
func (b *bench) start(ctx context.Context, name, databaseURL string) (*server, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0") // finds a free port
	if err != nil {
		return nil, err
	}
	s := &server{address: listener.Addr().String()}
	if err := listener.Close(); err != nil {
		return nil, err
	}
	if s.log, err = os.CreateTemp(b.folder, "*.log"); err != nil {
		return nil, err
	}
	s.cmd = exec.CommandContext(ctx, filepath.Join(b.folder, "baseline"), name)
	if name == service || name == single {
		s.cmd = exec.CommandContext(ctx, filepath.Join(b.folder, "plantstore"))
	} else if variants[name] != nil {
		s.cmd = exec.CommandContext(ctx, filepath.Join(b.folder, name))
	}
	_, port, _ := net.SplitHostPort(s.address)
	s.cmd.Env = append(os.Environ(), "DATABASE_URL="+databaseURL, "PORT="+port,
		"TOKEN="+token, "PLANTSTORE_AUTH_TOKENS="+token+","+rivalToken, "PLANTSTORE_ENV=production", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=0s")
	if name == single {
		s.cmd.Env = append(s.cmd.Env, "PLANTSTORE_WRITES_MAX_BATCH=1")
	}
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	s.cmd.Dir = b.folder
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
	return nil, errors.Join(fmt.Errorf("%s does not accept connections:\n%s", name, text), s.stop())
}

func (s *server) stop() error {
	err := s.cmd.Process.Signal(syscall.SIGTERM)
	_ = s.cmd.Wait() // the baselines do not handle the signal
	return errors.Join(err, s.log.Close(), os.Remove(s.log.Name()))
}

// usage is a contender's use of memory so far: its resident set in bytes.
type usage struct{ memory, peak float64 }

func (s *server) usage() (usage, error) {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	return usage{
		memory: number(status, `VmRSS:\s+(\d+) kB`) * 1024,
		peak:   number(status, `VmHWM:\s+(\d+) kB`) * 1024,
	}, err
}

// measure sends l to s.
func (s *server) measure(ctx context.Context, l load) (o outcome, err error) {
	before, err := s.cpuTime()
	if err != nil {
		return o, err
	}
	start := time.Now()
	turn, cancel := context.WithTimeout(ctx, l.warmup+l.duration)
	defer cancel()
	if o, err = l.until(turn, s.address, start.Add(l.warmup)); err != nil {
		return o, err
	}
	requests := o[rate] * time.Since(start).Seconds() // an estimate, as CPU time includes the warm-up
	after, err := s.cpuTime()
	o[cpu] = float64((after - before).Microseconds()) / requests
	return o, errors.Join(err, ctx.Err())
}

// cpuTime is the CPU time of s so far, which /proc rounds to 10 ms.
func (s *server) cpuTime() (time.Duration, error) {
	clock := int32(^s.cmd.Process.Pid)<<3 | 2 // as clock_getcpuclockid makes it on Linux
	var spent unix.Timespec
	err := unix.ClockGettime(clock, &spent)
	return time.Duration(spent.Nano()), err
}
