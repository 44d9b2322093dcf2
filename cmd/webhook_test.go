package cmd

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// testSecret is that of the specification's example.
const testSecret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"

// testWebhook returns a webhook with short pauses between attempts.
func testWebhook(t *testing.T, target string) *webhook {
	t.Helper()
	w := testWebhookOf(t, target)
	w.pauses = backoff{time.Millisecond, 10 * time.Millisecond}
	return w
}

func testWebhookOf(t *testing.T, target string) *webhook {
	t.Helper()
	path := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(path, []byte(testSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	w, err := newWebhook("plants", target, path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// TestWebhookSignature compares a signature with that of the reference libraries' own test.
func TestWebhookSignature(t *testing.T) {
	w := testWebhook(t, "http://127.0.0.1")
	got := w.sign("msg_p5jXN8AQM9LWM0D4loKWxJek", "1614265330", []byte(`{"test": 2432232314}`))
	if want := "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

// TestWebhookRetries delivers to a receiver that fails in several ways and then recovers.
func TestWebhookRetries(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	steps := []func(http.ResponseWriter, *http.Request){
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		},
		func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) },
		func(_ http.ResponseWriter, r *http.Request) {
			select {
			case <-hang:
			case <-r.Context().Done():
			}
		},
		func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Retry-After", "1")
			w.WriteHeader(http.StatusTooManyRequests)
		},
		func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusNoContent) },
	}
	var mu sync.Mutex
	var times []time.Time
	ids, bodies := make(map[string]bool), make(map[string]bool)
	signer := testWebhook(t, "http://127.0.0.1")
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/" {
			t.Errorf("it followed a redirect to %s", r.URL.Path)
		}
		body, _ := io.ReadAll(r.Body)
		if want := signer.sign(r.Header.Get("webhook-id"), r.Header.Get("webhook-timestamp"), body); r.Header.Get("webhook-signature") != want {
			t.Errorf("got the signature %q, want %q", r.Header.Get("webhook-signature"), want)
		}
		mu.Lock()
		n := len(times)
		times = append(times, time.Now())
		ids[r.Header.Get("webhook-id")], bodies[string(body)] = true, true
		mu.Unlock()
		if n < len(steps) {
			steps[n](w, r)
		}
	}))
	defer receiver.Close()
	hook := testWebhook(t, receiver.URL)
	hook.http.Timeout = 5 * time.Second // ample for the attempts that get a response
	err := hook.deliver(t.Context(), feedChanges{[]json.RawMessage{[]byte(`{"id":1,"plant":null}`)}, "abc.1"})
	mu.Lock()
	defer mu.Unlock()
	if err != nil || len(times) != len(steps) {
		t.Fatalf("got %v after %d attempts, want success after %d", err, len(times), len(steps))
	}
	if len(ids) != 1 || len(bodies) != 1 {
		t.Errorf("got the ids %v and %d bodies, want one message", ids, len(bodies))
	}
	if pause := times[6].Sub(times[5]); pause < time.Second {
		t.Errorf("it came back after %v, want Retry-After", pause)
	}
}

// TestWebhookErrorsOnATerminal: what a receiver or a proxy says is one line that a terminal shows
// and does not obey.
func TestWebhookErrorsOnATerminal(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	stderr := os.Stderr
	os.Stderr = write
	defer func() { os.Stderr = stderr }()
	hook, attempts := testWebhook(t, "http://127.0.0.1"), 0
	hook.http.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
		if attempts++; attempts == 1 {
			return nil, errors.New("\x1b[2Jno\nroute") // as http.Transport returns the status of a proxy
		}
		return &http.Response{StatusCode: http.StatusNoContent, Body: http.NoBody}, nil
	})
	err = hook.deliver(t.Context(), feedChanges{Cursor: "abc.1"})
	if err = errors.Join(err, write.Close()); err != nil {
		t.Fatal(err)
	}
	printed, err := io.ReadAll(read)
	if want := ": \uFFFD[2Jno route; trying again in "; err != nil || !strings.Contains(string(printed), want) {
		t.Errorf("got %q, %v, want %q", printed, err, want)
	}
}

// TestWebhookIDOutlivesARestart: a receiver recognizes a message that a restart repeats.
func TestWebhookIDOutlivesARestart(t *testing.T) {
	ids := make(map[string]int)
	receiver := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { ids[r.Header.Get("webhook-id")]++ }))
	defer receiver.Close()
	changes := feedChanges{[]json.RawMessage{[]byte(`{"id":1,"plant":null}`)}, "abc.1"}
	for range 2 {
		hook := testWebhook(t, receiver.URL)
		if hook.http.Timeout <= 0 {
			t.Error("a receiver that hangs would hold up all messages")
		}
		if err := hook.deliver(t.Context(), changes); err != nil {
			t.Fatal(err)
		}
		time.Sleep(2 * time.Millisecond) // messages have the time in milliseconds
	}
	if len(ids) != 1 {
		t.Errorf("got the ids %v, want one", ids)
	}
}

func TestBackoff(t *testing.T) {
	b := testWebhookOf(t, "http://127.0.0.1").pauses
	var pauses []time.Duration
	for range 20 {
		pauses = append(pauses, b.next())
	}
	if pauses[0] < 4*time.Second || pauses[0] > 6*time.Second || slices.Max(pauses) < 4*time.Minute || slices.Max(pauses) > 5*time.Minute {
		t.Errorf("got %v, want from 5 s to 5 minutes", pauses)
	}
	if slices.Equal(pauses[15:17], pauses[17:19]) {
		t.Errorf("got %v, want jitter", pauses)
	}
}

// TestPausesBetweenAttempts: they grow, unless Retry-After asks for other ones.
func TestPausesBetweenAttempts(t *testing.T) {
	for retryAfter, want := range map[string][]time.Duration{ // without jitter
		"":                              {5 * time.Second, 10 * time.Second, 20 * time.Second},
		"0":                             {5 * time.Second, 10 * time.Second, 20 * time.Second},
		"1":                             {time.Second, time.Second, time.Second},
		"Thu, 01 Jan 1970 00:00:00 GMT": {5 * time.Second, 10 * time.Second, 20 * time.Second},
		"60":                            {time.Minute, time.Minute, time.Minute},
	} {
		t.Run(retryAfter, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hook := testWebhookOf(t, "http://127.0.0.1")
				var times []time.Time
				hook.http.Transport = roundTripper(func(*http.Request) (*http.Response, error) {
					times = append(times, time.Now())
					response := &http.Response{StatusCode: http.StatusServiceUnavailable, Header: http.Header{"Retry-After": {retryAfter}}, Body: http.NoBody}
					if len(times) > len(want) {
						response.StatusCode = http.StatusNoContent
					}
					return response, nil
				})
				if err := hook.deliver(t.Context(), feedChanges{Cursor: "abc.1"}); err != nil {
					t.Fatal(err)
				}
				for i, pause := range want {
					if got := times[i+1].Sub(times[i]); got < pause*4/5 || got > pause*6/5 {
						t.Errorf("got the pause %v after attempt %d, want %v", got, i+1, pause)
					}
				}
			})
		})
	}
}

// roundTripper is a transport without a network.
type roundTripper func(*http.Request) (*http.Response, error)

func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return r(request) }

func TestRetryAfter(t *testing.T) {
	for text, want := range map[string][2]time.Duration{
		"": {0, 0}, "x": {0, 0}, "0": {0, 0}, "-1": {0, 0}, "-10000000000": {0, 0}, "120": {2 * time.Minute, 2 * time.Minute},
		"10000000000": {webhookLongestPause, webhookLongestPause},
		time.Now().Add(time.Hour).UTC().Format(http.TimeFormat):  {webhookLongestPause, webhookLongestPause},
		time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat): {0, 0},
	} {
		t.Run(text, func(t *testing.T) {
			if got := retryAfter(text); got < want[0] || got > want[1] {
				t.Errorf("got %v, want %v", got, want)
			}
		})
	}
}

func TestWebhookSecrets(t *testing.T) {
	const secret, target = "--secret-file: the file must have whsec_ and 24 to 64 bytes in base64", "--post must be an http or https URL"
	encode := func(bytes int) string { return base64.StdEncoding.EncodeToString(make([]byte, bytes)) }
	for name, test := range map[string]struct {
		url, secret string
		want        string // in the error, if any
	}{
		"24 bytes":       {"https://example.org/hook", "whsec_" + encode(24), ""},
		"64 bytes":       {"https://example.org/hook", "whsec_" + encode(64), ""},
		"23 bytes":       {"https://example.org/hook", "whsec_" + encode(23), secret},
		"65 bytes":       {"https://example.org/hook", "whsec_" + encode(65), secret},
		"no prefix":      {"https://example.org/hook", encode(32), secret},
		"no base64":      {"https://example.org/hook", "whsec_!" + encode(32), secret},
		"another scheme": {"ftp://example.org/hook", "whsec_" + encode(32), target},
		"no host":        {"hook", "whsec_" + encode(32), target},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "secret")
			if err := os.WriteFile(path, []byte(test.secret), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := newWebhook("plants", test.url, path)
			if (err == nil) != (test.want == "") || err != nil && !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
