package feed

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/tests/service"
)

const webhookSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// startFollow runs plantstore follow.
func startFollow(t *testing.T, url string, args ...string) *service.Service {
	t.Helper()
	return service.Launch(t, service.Command(t, []string{"PLANTSTORE_CLIENT_TOKEN=" + service.Token, "TMPDIR=/missing"}, append([]string{"follow", "--url", url}, args...)...))
}

// TestFollow prints changes, and continues after an interruption where it was.
func TestFollow(t *testing.T) {
	t.Parallel()
	database := "DATABASE_URL=sqlite:" + filepath.Join(t.TempDir(), "plantstore.db")
	port := "PORT=" + service.FreePorts(t, 1)[0]
	s := service.Start(t, database, port)
	cursor := filepath.Join(t.TempDir(), "cursor")
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	f := startFollow(t, s.URL, "--after", "0", "--cursor-file", cursor)
	awaitOutput(t, f, `{"id":1,"plant":{"id":1,"name":"plant 1"`)
	awaitCursor(t, cursor)
	service.Must(t, f.Process.Kill())
	<-f.Ended
	s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckEmpty(t, 204)
	f = startFollow(t, s.URL, "--cursor-file", cursor, "--after", "0")
	awaitOutput(t, f, `{"id":1,"plant":null}`)

	s.Stop(t) // and a restart of the service
	s = service.Start(t, database, port)
	s.Post(t, service.BodyOf(2)).RequireOK(t)
	awaitOutput(t, f, `{"id":2,"plant":{"id":2,`)
	f.Stop(t)
	if !strings.Contains(f.Stderr.String(), "the service responds again") {
		t.Errorf("got %s, want the end of the outage", f.Stderr)
	}
	stale := filepath.Join(t.TempDir(), "stale")
	service.Must(t, os.WriteFile(stale, []byte("abc.1\n"), 0o600))
	wrong := filepath.Join(t.TempDir(), "wrong")
	service.Must(t, os.WriteFile(wrong, []byte("no cursor\n"), 0o600))
	for _, test := range []struct {
		name, want string
		status     int
		args       []string
	}{
		{"a cursor of another database", "41001", 3, []string{"--after", "abc.1"}},
		{"and in a file", "export, then follow\n", 3, []string{"--cursor-file", stale}},
		{"a file without a cursor", wrong + " has no cursor: remove it", 3, []string{"--cursor-file", wrong}},
		{"a malformed cursor", "--after must be", 2, []string{"--after", "x"}},
		{"the variable of the first cursor is not set", "--after must be", 2, []string{"--after", ""}},
		{"no room for the cursor", "the folder missing does not exist: no such file", 1, []string{"--cursor-file", "missing/cursor"}},
		{"no secret", "need each other", 2, []string{"--post", "http://127.0.0.1:1"}},
		{"the variable of the webhook is not set", "--post must be an http or https URL", 2, []string{"--post", "", "--secret-file", ""}},
		{"the variable of the cursor is not set", "--cursor-file must be a path", 2, []string{"--cursor-file", ""}},
	} {
		t.Run(test.name, func(t *testing.T) {
			service.CheckCLI(t, []string{"PLANTSTORE_CLIENT_TOKEN=" + service.Token}, append([]string{"follow", "--url", s.URL}, test.args...), test.status, "", test.want)
		})
	}
}

// TestFollowElsewhere: a response without a cursor is not one of the service.
func TestFollowElsewhere(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, "{}")
	}))
	t.Cleanup(other.Close)
	f := startFollow(t, other.URL)
	want := other.URL + " responded without a cursor: is it a Plant Store?; trying again in "
	if !f.Stderr.Await(f.Ended, func(line string) bool { return strings.Contains(line, want) }) {
		t.Errorf("got %q, want %q", f.Stderr, want)
	}
	f.Stop(t)
}

// TestFollowRetries: follow goes on after a response that may be another one later.
func TestFollowRetries(t *testing.T) {
	t.Parallel()
	for status, retries := range map[int]bool{500: true, 502: true, 503: true, 429: true, 501: false, 404: false, 401: false, 410: false} {
		t.Run(strconv.Itoa(status), func(t *testing.T) {
			t.Parallel()
			other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(status) }))
			t.Cleanup(other.Close)
			f := startFollow(t, other.URL)
			if got := f.Stderr.Await(f.Ended, func(line string) bool { return strings.Contains(line, "trying again in ") }); got != retries {
				t.Errorf("got %q, want another attempt: %t", f.Stderr, retries)
			}
			if retries {
				f.Stop(t)
			} else if f.Wait(t) == nil {
				t.Error("it ended without an error")
			}
		})
	}
}

// awaitOutput waits until the process has printed a line with part in it.
func awaitOutput(t *testing.T, s *service.Service, part string) {
	t.Helper()
	if !s.Stdout.Await(s.Ended, func(line string) bool { return strings.Contains(line, part) }) {
		t.Fatalf("got %q and %q, want %q", s.Stdout, s.Stderr, part)
	}
}

// awaitCursor waits until the file path has the cursor of changes, and returns it. Before the
// first ones, it has that of --after.
func awaitCursor(t *testing.T, path string) (cursor string) {
	t.Helper()
	service.Eventually(t, "the cursor", func() bool {
		text, _ := os.ReadFile(path)
		cursor = strings.TrimSpace(string(text))
		return cursor != "" && cursor != "0"
	})
	return cursor
}

// delivery is a request to a webhook.
type delivery struct {
	header http.Header
	body   string
	plants service.Changes
}

// hookReceiver is a webhook, which responds with the status that answer returns.
type hookReceiver struct {
	*httptest.Server
	mu         sync.Mutex
	deliveries []delivery
}

func startHook(t *testing.T, answer func(n int, w http.ResponseWriter) int) *hookReceiver {
	t.Helper()
	r := new(hookReceiver)
	r.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, request *http.Request) {
		body, err := io.ReadAll(request.Body)
		var message struct {
			Type      string
			Timestamp time.Time
			Data      service.Changes
		}
		if err := json.Unmarshal(body, &message); err != nil || message.Type != "plants.changed" || message.Timestamp.IsZero() {
			t.Errorf("got %s, %v", body, err)
		}
		if err != nil {
			t.Error(err)
		}
		r.mu.Lock()
		status := answer(len(r.deliveries), w)
		r.deliveries = append(r.deliveries, delivery{request.Header, string(body), message.Data})
		r.mu.Unlock()
		w.WriteHeader(status)
	}))
	t.Cleanup(r.Close)
	return r
}

// all returns the deliveries so far.
func (r *hookReceiver) all() []delivery {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]delivery(nil), r.deliveries...)
}

func secretFile(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	service.Must(t, os.WriteFile(path, []byte(webhookSecret), 0o600))
	return path
}

// TestFollowPosts delivers to a webhook that fails at first, and ends with its 410.
func TestFollowPosts(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	cursor := filepath.Join(t.TempDir(), "cursor")
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	r := startHook(t, func(n int, w http.ResponseWriter) int {
		w.Header().Set("Retry-After", "1")
		return []int{503, 301, 204, 410}[min(n, 3)]
	})
	f := startFollow(t, s.URL, "--after", "0", "--post", r.URL, "--secret-file", secretFile(t), "--cursor-file", cursor)
	saved := awaitCursor(t, cursor)
	deliveries := r.all()
	if len(deliveries) < 3 {
		t.Fatalf("the cursor was saved after %d attempts, want 3", len(deliveries))
	}
	last := deliveries[2]
	if last.plants.String() != "1" || last.plants.Cursor != saved {
		t.Errorf("got %+v, and the cursor %s", last, saved)
	}
	for _, d := range deliveries[:2] {
		if d.body != last.body || d.header.Get("webhook-id") != last.header.Get("webhook-id") {
			t.Errorf("got %+v and %+v, want the same message", d, last)
		}
	}
	s.Post(t, service.BodyOf(2)).RequireOK(t)
	<-f.Ended
	if f.Err == nil || f.Err.Error() != "exit status 3" || !strings.Contains(f.Stderr.String(), "410 Gone") {
		t.Errorf("got %v and %s, want 3 and the reason", f.Err, f.Stderr)
	}
	if !strings.Contains(f.Stderr.String(), "at attempt 3") {
		t.Errorf("got %s, want the end of the outage", f.Stderr)
	}
	if after := awaitCursor(t, cursor); after != saved {
		t.Errorf("the cursor moved to %s without a 2xx", after)
	}
}

// TestFollowIsWatched asks the admin address of follow while the webhook, and then the service, does not respond.
func TestFollowIsWatched(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	var accepts atomic.Bool
	r := startHook(t, func(_ int, w http.ResponseWriter) int {
		if accepts.Load() {
			return 204
		}
		w.Header().Set("Retry-After", "1")
		return 503
	})
	began := time.Now()
	f := startFollow(t, s.URL, "--after", "0", "--post", r.URL, "--secret-file", secretFile(t), "--admin-address", "127.0.0.1:0")
	if !f.Stderr.Await(f.Ended, func(line string) bool { return strings.Contains(line, "serving the admin address") }) {
		t.Fatalf("got %s, want an admin address", f.Stderr)
	}
	admin := &service.Service{URL: "http://" + regexp.MustCompile(`127\.0\.0\.1:\d+`).FindString(f.Stderr.String())}
	lag := func() float64 {
		t.Helper()
		return service.ValueOf(t, admin.Get(t, "/metrics").Body, "plantstore_follow_lag_seconds")
	}
	service.Eventually(t, "a lag of a second", func() bool { return lag() >= 1 })
	if got := lag(); got > time.Since(began).Seconds() {
		t.Errorf("got a lag of %g s, want the time since the first attempt", got)
	}
	if probe := admin.Get(t, "/readyz"); probe.Status != 503 || !strings.Contains(probe.Body, "it responded 503 Service Unavailable") {
		t.Errorf("got %v, want the reason of the failure", probe)
	}
	admin.Get(t, "/healthz").CheckStatus(t, 200)
	accepts.Store(true)
	service.Eventually(t, "changes to be accepted", func() bool { return lag() == 0 })
	if probe := admin.Get(t, "/readyz"); probe.Body != `{"status":"ok"}` {
		t.Errorf("got %v, want no warning: follow needs no temporary files", probe)
	}
	service.CheckCLI(t, nil, []string{"healthcheck", "--ready", "--admin-address", strings.TrimPrefix(admin.URL, "http://")}, 0, "")
	s.Stop(t)
	service.Eventually(t, "the end of the service to be noticed", func() bool { return lag() > 0 })
	if probe := admin.Get(t, "/readyz"); probe.Status != 503 || !strings.Contains(probe.Body, "no response from "+s.URL) {
		t.Errorf("got %v, want the reason of the failure", probe)
	}
	f.Stop(t)
}
