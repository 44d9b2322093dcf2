// Package service runs the built program for tests, which use it as clients and operators do:
// over HTTP, by signals, and in a browser.
package service

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// Token is accepted by the services under test.
const Token = "test-token-of-more-than-32-characters"

// Patience limits waits for events that take milliseconds.
const Patience = 30 * time.Second

// Command returns the program with args, in its own folder and with only settings in its
// environment. Unless they name a port, it uses any free one.
func Command(t *testing.T, settings []string, args ...string) *exec.Cmd {
	t.Helper()
	Must(t, noteSources())
	cmd := exec.CommandContext(t.Context(), Program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat([]string{
		"PORT=0", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=0s",
		"PLANTSTORE_DATABASE_SLOW_QUERY=0s", // on a busy machine, commands would print lines about slow queries
		"GORACE=atexit_sleep_ms=10",         // else each process would sleep for a second before it exits
	}, settings, []string{"PATH=" + os.Getenv("PATH")})
	if folder := coverageFolder(); folder != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+folder)
		cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // it writes the data when it exits
	}
	return cmd
}

// Service is a running program.
type Service struct {
	URL     string
	Process *os.Process
	Folder  string
	Stdout  *Lines
	Stderr  *Lines
	Ended   chan struct{} // closed when the process ends
	Err     error         // set before Ended is closed
}

// Start runs the service on a free port and waits until it serves. By default it has one
// token and its own SQLite database.
func Start(t *testing.T, settings ...string) *Service {
	t.Helper()
	return StartProgram(t, Program, settings...)
}

// StartPlain is Start with the program as users have it: without the race detector and
// coverage, which cost several times the time and memory.
func StartPlain(t *testing.T, settings ...string) *Service {
	t.Helper()
	path, err := PlainProgram()
	Must(t, err)
	return StartProgram(t, path, settings...)
}

// StartProgram is Start with the program at path.
func StartProgram(t *testing.T, path string, settings ...string) *Service {
	t.Helper()
	cmd := Command(t, append([]string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + Token}, settings...))
	cmd.Path = path
	s := Launch(t, cmd)
	s.AwaitServing(t)
	return s
}

// AwaitServing waits until the service serves, and notes its URL.
func (s *Service) AwaitServing(t *testing.T) {
	t.Helper()
	address := s.AwaitLog(t, "serving")["address"].(string)
	s.URL = "http://127.0.0.1:" + address[strings.LastIndex(address, ":")+1:]
}

// Port returns the port of the service.
func (s *Service) Port() string { return s.URL[strings.LastIndex(s.URL, ":")+1:] }

// Launch runs cmd, at most until the test ends.
func Launch(t *testing.T, cmd *exec.Cmd) *Service {
	t.Helper()
	s := &Service{Folder: cmd.Dir, Stdout: NewLines(), Stderr: NewLines(), Ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.Stdout, s.Stderr
	Must(t, cmd.Start())
	s.Process = cmd.Process
	go func() {
		s.Err = cmd.Wait()
		close(s.Ended)
	}()
	t.Cleanup(func() {
		_ = s.Process.Signal(syscall.SIGTERM)
		_ = s.Wait(t)
		if strings.Contains(s.Stderr.String(), "WARNING: DATA RACE") {
			t.Error("the service has a data race")
		}
		if t.Failed() {
			t.Logf("log of the service:\n%s", s.Stderr.Without(`"msg":"request",`))
		}
	})
	return s
}

// Wait waits for the end of the process and returns its result.
func (s *Service) Wait(t *testing.T) error {
	t.Helper()
	select {
	case <-s.Ended:
		return s.Err
	case <-time.After(Patience):
		_ = s.Process.Kill()
		t.Error("the service is still running")
		<-s.Ended
		return errors.New("killed")
	}
}

// AwaitLog waits for the log line with message and returns it.
func (s *Service) AwaitLog(t *testing.T, message string) map[string]any {
	t.Helper()
	return s.AwaitLine(t, "msg", message)
}

// Logged returns the log lines with message.
func (s *Service) Logged(t *testing.T, message string) (entries []map[string]any) {
	t.Helper()
	for line := range strings.Lines(s.Stderr.String()) {
		if strings.Contains(line, `"msg":"`+message+`"`) {
			var entry map[string]any
			Must(t, json.Unmarshal([]byte(line), &entry))
			entries = append(entries, entry)
		}
	}
	return entries
}

// AwaitError waits for a log line with the level error.
func (s *Service) AwaitError(t *testing.T) {
	t.Helper()
	s.AwaitLine(t, "level", "error")
}

// AwaitLine waits for the log line with value at key and returns it.
func (s *Service) AwaitLine(t *testing.T, key, value string) map[string]any {
	t.Helper()
	var entry map[string]any
	found := s.Stderr.Await(s.Ended, func(line string) bool {
		entry = nil
		return json.Unmarshal([]byte(line), &entry) == nil && entry[key] == value
	})
	if !found {
		t.Fatalf("got no log line with %s %q:\n%s", key, value, s.Stderr)
	}
	return entry
}

// Each runs test with a service on each kind of database.
func Each(t *testing.T, test func(t *testing.T, s *Service), settings ...string) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		test(t, Start(t, append([]string{"DATABASE_URL=" + url}, settings...)...))
	})
}

// StartAdmin starts the service with an admin address, which it returns as a service, too.
func StartAdmin(t *testing.T, settings ...string) (s, admin *Service) {
	t.Helper()
	return StartAdminOf(t, Start, settings...)
}

// StartAdminOf is StartAdmin for a service that start starts.
func StartAdminOf(t *testing.T, start func(t *testing.T, settings ...string) *Service, settings ...string) (s, admin *Service) {
	t.Helper()
	s = start(t, append(settings, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")...)
	return s, s.Admin(t)
}

// Admin returns the admin address of a service that has one, as a service.
func (s *Service) Admin(t *testing.T) *Service {
	t.Helper()
	address := s.AwaitLog(t, "serving the admin address")["address"].(string)
	return &Service{URL: "http://" + address}
}

// ValueOf returns the value of a metric in the text format of Prometheus.
func ValueOf(t *testing.T, text, metric string) float64 {
	t.Helper()
	_, rest, found := strings.Cut(text, "\n"+metric+" ")
	value, _, _ := strings.Cut(rest, "\n")
	number, err := strconv.ParseFloat(value, 64)
	if !found || err != nil {
		t.Fatalf("got no %s in\n%s", metric, text)
	}
	return number
}

// RunToEnd runs the program to its end and returns its output and exit status.
func RunToEnd(t *testing.T, settings []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := Command(t, settings, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	Must(t, cmd.Start())
	overdue := time.AfterFunc(Patience, func() {
		t.Errorf("plantstore %v with %v: still running", args, settings)
		_ = cmd.Process.Kill()
	})
	defer overdue.Stop()
	_ = cmd.Wait() // ExitCode has its result
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// LastLine returns the last line of an output.
func LastLine(text string) string {
	return text[strings.LastIndex(strings.TrimSpace(text), "\n")+1:]
}

// Stop ends the service by SIGTERM.
func (s *Service) Stop(t *testing.T) {
	t.Helper()
	Must(t, s.Process.Signal(syscall.SIGTERM))
	if err := s.Wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// FreePorts returns ports that nobody uses.
func FreePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for len(ports) < n {
		port, err := dbtest.FreePort()
		Must(t, err)
		if text := strconv.Itoa(port); !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
	}
	return ports
}
