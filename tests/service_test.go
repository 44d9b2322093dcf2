// Package tests runs the built program and uses it as clients and operators do: over HTTP,
// by signals, and in a browser.
package tests

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// token is accepted by the services under test.
const token = "test-token-of-more-than-32-characters"

// patience limits waits for events that take milliseconds.
const patience = 30 * time.Second

var program string

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(func() int {
		folder, err := os.MkdirTemp("", "plantstore-tests-*")
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		defer os.RemoveAll(folder)
		program = filepath.Join(folder, "plantstore")
		if err := build(program, instruments()...); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return dbtest.Main(m)
	}())
}

// instruments returns the build flags of the tests: -race, with its -gcflags, and -cover.
func instruments() (flags []string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" || setting.Key == "-gcflags" {
				flags = append(flags, setting.Key+"="+setting.Value)
			}
		}
	}
	if coverageFolder() != "" {
		flags = append(flags, "-cover", "-covermode=atomic")
	}
	return flags
}

// noteSources stats the sources of the program, so that a change to them invalidates
// cached test results. Go notes only what tests do, and nothing that TestMain does before them.
var noteSources = sync.OnceValue(func() error {
	return filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".git" && entry.IsDir() {
			return fs.SkipDir
		}
		if slices.Contains([]string{".go", ".json", ".mod", ".sql", ".yaml"}, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		return err
	})
})

func build(target string, flags ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-tags=nomsgpack", "-ldflags=-s -w", "-o", target}, flags, []string{"plantstore"})...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}

// coverageFolder is the folder for coverage data, or empty.
func coverageFolder() string {
	if f := flag.Lookup("test.gocoverdir"); f != nil {
		return f.Value.String()
	}
	return ""
}

// command returns the program with args, in its own folder and with only settings in its
// environment. Unless they name a port, it uses any free one.
func command(t *testing.T, settings []string, args ...string) *exec.Cmd {
	t.Helper()
	must(t, noteSources())
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = t.TempDir()
	// The race detector would let each process sleep for a second before it exits.
	cmd.Env = slices.Concat([]string{"PORT=0", "PLANTSTORE_SERVER_SHUTDOWN_DELAY=0s", "GORACE=atexit_sleep_ms=10"}, settings, []string{"PATH=" + os.Getenv("PATH")})
	if folder := coverageFolder(); folder != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+folder)
	}
	return cmd
}

// service is a running program.
type service struct {
	t       *testing.T
	url     string
	process *os.Process
	folder  string
	stdout  *lines
	stderr  *lines
	ended   chan struct{} // closed when the process ends
	err     error         // set before ended is closed
}

// start runs the service on a free port and waits until it serves. By default it has one
// token and its own SQLite database.
func start(t *testing.T, settings ...string) *service {
	t.Helper()
	return startProgram(t, program, settings...)
}

// startPlain is start with the program as users have it: without the race detector and
// coverage, which cost several times the time and memory.
func startPlain(t *testing.T, settings ...string) *service {
	t.Helper()
	path, err := plainProgram()
	must(t, err)
	return startProgram(t, path, settings...)
}

// plainProgram returns the path of the program without instruments, and builds it the first time.
var plainProgram = sync.OnceValues(func() (string, error) {
	if len(instruments()) == 0 {
		return program, nil
	}
	path := program + "-plain"
	return path, build(path)
})

func startProgram(t *testing.T, path string, settings ...string) *service {
	t.Helper()
	cmd := command(t, append([]string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + token}, settings...))
	cmd.Path = path
	s := launch(t, cmd)
	s.awaitServing(t)
	return s
}

// awaitServing waits until the service serves, and notes its URL.
func (s *service) awaitServing(t *testing.T) {
	t.Helper()
	address := s.awaitLog(t, "serving")["address"].(string)
	s.url = "http://127.0.0.1:" + address[strings.LastIndex(address, ":")+1:]
}

// awaitPort is awaitServing for a log in any format.
func (s *service) awaitPort(t *testing.T) {
	t.Helper()
	started := s.stderr.await(s.ended, func(line string) bool {
		_, rest, found := strings.Cut(line, "[::]:")
		port, _, _ := strings.Cut(rest, `"`)
		s.url = "http://127.0.0.1:" + port
		return found
	})
	if !started {
		t.Fatalf("the service did not start:\n%s", s.stderr)
	}
}

func (s *service) port() string { return s.url[strings.LastIndex(s.url, ":")+1:] }

// awaitWelcome waits for all that a development service prints, and returns it.
func (s *service) awaitWelcome() string {
	s.stdout.await(s.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	return s.stdout.String()
}

// launch runs cmd, at most until the test ends.
func launch(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	s := &service{t: t, folder: cmd.Dir, stdout: newLines(), stderr: newLines(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	must(t, cmd.Start())
	s.process = cmd.Process
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.process.Signal(syscall.SIGTERM)
		_ = s.wait(t)
		if strings.Contains(s.stderr.String(), "WARNING: DATA RACE") {
			t.Error("the service has a data race")
		}
		if t.Failed() {
			t.Logf("log of the service:\n%s", s.stderr.without(`"msg":"request",`))
		}
	})
	return s
}

// wait waits for the end of the process and returns its result.
func (s *service) wait(t *testing.T) error {
	t.Helper()
	select {
	case <-s.ended:
		return s.err
	case <-time.After(patience):
		_ = s.process.Kill()
		t.Error("the service is still running")
		<-s.ended
		return errors.New("killed")
	}
}

// awaitLog waits for the log line with message and returns it.
func (s *service) awaitLog(t *testing.T, message string) map[string]any {
	t.Helper()
	return s.awaitLine(t, "msg", message)
}

// logged returns the log lines with message.
func (s *service) logged(t *testing.T, message string) (entries []map[string]any) {
	t.Helper()
	for line := range strings.Lines(s.stderr.String()) {
		if strings.Contains(line, `"msg":"`+message+`"`) {
			var entry map[string]any
			must(t, json.Unmarshal([]byte(line), &entry))
			entries = append(entries, entry)
		}
	}
	return entries
}

// awaitError waits for a log line with the level error.
func (s *service) awaitError(t *testing.T) {
	t.Helper()
	s.awaitLine(t, "level", "error")
}

func (s *service) awaitLine(t *testing.T, key, value string) map[string]any {
	t.Helper()
	var entry map[string]any
	found := s.stderr.await(s.ended, func(line string) bool {
		entry = nil
		return json.Unmarshal([]byte(line), &entry) == nil && entry[key] == value
	})
	if !found {
		t.Fatalf("got no log line with %s %q:\n%s", key, value, s.stderr)
	}
	return entry
}

// eachService runs test with a service on each kind of database.
func eachService(t *testing.T, test func(t *testing.T, s *service), settings ...string) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		test(t, start(t, append([]string{"DATABASE_URL=" + url}, settings...)...))
	})
}

// lines collects the output of a process.
type lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

func newLines() *lines { return &lines{changed: make(chan struct{})} }

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// without returns the lines without text.
func (l *lines) without(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, text) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// await waits until wanted accepts a line. It returns false if the process ends or
// patience runs out.
func (l *lines) await(ended <-chan struct{}, wanted func(string) bool) bool {
	deadline := time.After(patience)
	for last := false; ; {
		l.mu.Lock()
		text, changed := l.text.String(), l.changed
		l.mu.Unlock()
		for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
			if wanted(scanner.Text()) {
				return true
			}
		}
		if last {
			return false
		}
		select {
		case <-changed:
		case <-ended:
			last = true
		case <-deadline:
			return false
		}
	}
}
