// Package tests runs the built program and talks to it as its users do: over
// HTTP, by signals, and with a browser.
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
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// token is the one that the services under test accept.
const token = "test-token-of-more-than-32-characters"

// patience bounds every wait for something that takes milliseconds.
const patience = 30 * time.Second

// program is the path of the program under test.
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
		if err := errors.Join(noteSources(), build(program, instruments()...)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		return dbtest.Main(m)
	}())
}

// instruments returns the flags by which the program is compiled as the tests are:
// with the race detector and with coverage where they have it.
func instruments() (flags []string) {
	if raceDetector {
		flags = append(flags, "-race")
	}
	if coverageFolder() != "" {
		flags = append(flags, "-cover", "-covermode=atomic")
	}
	return flags
}

// noteSources opens what the program is built from, so that go test does not take
// a result from its cache after a change to the program.
func noteSources() error {
	return filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".git" && entry.IsDir() {
			return fs.SkipDir
		}
		if slices.Contains([]string{".go", ".json", ".mod", ".sql", ".yaml"}, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		return err
	})
}

// build compiles the program.
func build(target string, flags ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"build", "-o", target}, flags, []string{"plantstore"})...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go build: %w\n%s", err, output)
	}
	return nil
}

// coverageFolder is where the run collects coverage, or empty.
func coverageFolder() string {
	if f := flag.Lookup("test.gocoverdir"); f != nil {
		return f.Value.String()
	}
	return ""
}

// command returns the program with args, in a folder of its own and in an
// environment of nothing but settings.
func command(t *testing.T, settings []string, args ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = t.TempDir()
	cmd.Env = slices.Concat(settings, []string{"PATH=" + os.Getenv("PATH")})
	if folder := coverageFolder(); folder != "" {
		cmd.Env = append(cmd.Env, "GOCOVERDIR="+folder)
	}
	return cmd
}

// service is a running program that serves.
type service struct {
	t       *testing.T
	url     string
	process *os.Process
	folder  string
	stdout  *lines
	stderr  *lines
	ended   chan struct{} // closed when the process has ended
	err     error         // how, then
}

// start runs the service on a free port and waits until it serves. Without
// other settings it has one token and a SQLite database of its own.
func start(t *testing.T, settings ...string) *service {
	t.Helper()
	return startProgram(t, program, settings...)
}

// startPlain starts the service as start does, but as users have it: without the
// race detector and coverage, with which it takes several times the time and memory.
func startPlain(t *testing.T, settings ...string) *service {
	t.Helper()
	path := program
	if len(instruments()) > 0 {
		path = filepath.Join(t.TempDir(), "plantstore")
		if err := build(path); err != nil {
			t.Fatal(err)
		}
	}
	return startProgram(t, path, settings...)
}

func startProgram(t *testing.T, path string, settings ...string) *service {
	t.Helper()
	cmd := command(t, append([]string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + token}, settings...))
	cmd.Path = path
	s := launch(t, cmd)
	address := s.awaitLog(t, "serving")["address"].(string)
	_, port, _ := strings.Cut(address, "]:")
	s.url = "http://127.0.0.1:" + port
	return s
}

// launch runs cmd, which ends with the test if not before.
func launch(t *testing.T, cmd *exec.Cmd) *service {
	t.Helper()
	s := &service{t: t, folder: cmd.Dir, stdout: newLines(), stderr: newLines(), ended: make(chan struct{})}
	cmd.Stdout, cmd.Stderr = s.stdout, s.stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	s.process = cmd.Process
	go func() {
		s.err = cmd.Wait()
		close(s.ended)
	}()
	t.Cleanup(func() {
		_ = s.process.Signal(syscall.SIGTERM)
		_ = s.wait(t)
		if t.Failed() {
			t.Logf("the service's log:\n%s", s.stderr.without(`"msg":"request",`))
		}
	})
	return s
}

// wait waits for the process to end and returns how it did.
func (s *service) wait(t *testing.T) error {
	select {
	case <-s.ended:
		return s.err
	case <-time.After(patience):
		_ = s.process.Kill()
		t.Error("the service did not end")
		<-s.ended
		return errors.New("killed")
	}
}

// awaitLog waits for the log line that has message and returns it.
func (s *service) awaitLog(t *testing.T, message string) map[string]any {
	t.Helper()
	var entry map[string]any
	found := s.stderr.await(s.ended, func(line string) bool {
		entry = nil
		return json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message
	})
	if !found {
		t.Fatalf("the service did not log %q:\n%s", message, s.stderr)
	}
	return entry
}

// eachService runs test with a service on each kind of database.
func eachService(t *testing.T, test func(t *testing.T, s *service)) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		test(t, start(t, "DATABASE_URL="+url))
	})
}

// lines collects what a process writes and wakes those who wait for a line.
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

// without returns the lines that do not have text.
func (l *lines) without(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, text) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// await waits until wanted accepts a line, and reports false where the process
// has ended before, or patience has.
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
