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
	"io"
	"io/fs"
	"net/http"
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
	address := s.awaitLog("serving")["address"].(string)
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
		_ = s.wait()
		if t.Failed() {
			t.Logf("the service's log:\n%s", s.stderr.without(`"msg":"request",`))
		}
	})
	return s
}

// wait waits for the process to end and returns how it did.
func (s *service) wait() error {
	select {
	case <-s.ended:
		return s.err
	case <-time.After(patience):
		_ = s.process.Kill()
		s.t.Error("the service did not end")
		<-s.ended
		return errors.New("killed")
	}
}

// awaitLog waits for the log line that has message and returns it.
func (s *service) awaitLog(message string) map[string]any {
	s.t.Helper()
	var entry map[string]any
	found := s.stderr.await(s.ended, func(line string) bool {
		entry = nil
		return json.Unmarshal([]byte(line), &entry) == nil && entry["msg"] == message
	})
	if !found {
		s.t.Fatalf("the service did not log %q:\n%s", message, s.stderr)
	}
	return entry
}

// answer is what the service has answered.
type answer struct {
	status int
	header http.Header
	body   string
}

// code returns the error code in the body, or 0.
func (a answer) code() int {
	var e struct{ Error int }
	_ = json.Unmarshal([]byte(a.body), &e)
	return e.Error
}

// post sends body to POST /plants with the token and, in pairs, with headers.
func (s *service) post(body string, headers ...string) answer {
	s.t.Helper()
	return s.send(http.MethodPost, "/plants", strings.NewReader(body),
		append([]string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}, headers...)...)
}

func (s *service) get(path string, headers ...string) answer {
	s.t.Helper()
	return s.send(http.MethodGet, path, nil, headers...)
}

// send makes one request, on a connection of its own. A header whose value is
// empty is left out.
func (s *service) send(method, path string, body io.Reader, headers ...string) answer {
	s.t.Helper()
	a, err := s.try(method, path, body, headers...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

func (s *service) try(method, path string, body io.Reader, headers ...string) (answer, error) {
	return s.tryOn(&http.Transport{DisableKeepAlives: true}, method, path, body, headers...)
}

// tryOn makes one request over transport, which may keep its connection.
func (s *service) tryOn(transport *http.Transport, method, path string, body io.Reader, headers ...string) (answer, error) {
	request, err := http.NewRequest(method, s.url+path, body)
	if err != nil {
		return answer{}, err
	}
	for i := 0; i < len(headers); i += 2 {
		if request.Header.Del(headers[i]); headers[i+1] != "" {
			request.Header.Set(headers[i], headers[i+1])
		}
	}
	client := http.Client{
		Timeout:       patience,
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return answer{response.StatusCode, response.Header, string(text)}, err
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
