package service

import (
	"errors"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// CheckStatus reports an error if the status is another.
func (r Response) CheckStatus(t *testing.T, status int) {
	t.Helper()
	if r.Status != status {
		t.Errorf("got %v, want %d", r, status)
	}
}

// RequireOK ends the test if the status is not 200 or, after a PUT, 201.
func (r Response) RequireOK(t *testing.T) {
	t.Helper()
	if r.Status != http.StatusOK && r.Status != http.StatusCreated {
		t.Fatalf("got %v, want 200 or 201", r)
	}
}

// StatusOf returns the status of responses with an error code, or 200 if it is 0.
func StatusOf(code int) int {
	switch status := code / 100; status {
	case 0:
		return 200
	case 413, 415:
		return 400
	default:
		return status
	}
}

// CheckCode is CheckError or, if code is 0, checks for status 200.
func (r Response) CheckCode(t *testing.T, code int) {
	t.Helper()
	if code == 0 {
		r.CheckStatus(t, 200)
	} else {
		r.CheckError(t, code)
	}
}

// headersOf are the headers that a response with an error has, by its status.
var headersOf = map[int][]string{
	401: {"WWW-Authenticate"}, 403: {"WWW-Authenticate"}, 405: {"Allow"}, 429: {"Retry-After", "RateLimit"}, 503: {"Retry-After"},
}

// CheckError checks each field of an error, that its message has each of mentions, and the headers
// of its status.
func (r Response) CheckError(t *testing.T, code int, mentions ...string) {
	t.Helper()
	if r.Status != StatusOf(code) || r.Code() != code {
		t.Errorf("got %v, want %d with error %d", r, StatusOf(code), code)
		return
	}
	if !regexp.MustCompile(`^\{"error":\d{5},"message":"(\\.|[^"\\]){1,400}"(,"errors":\[\{[^\]]*\}\])?\}$`).MatchString(r.Body) {
		t.Errorf("got %v, want an Error", r)
	}
	for _, text := range mentions {
		if !strings.Contains(r.Body, strings.ReplaceAll(text, `"`, `\"`)) {
			t.Errorf("got %v, want %s in the message", r, text)
		}
	}
	for _, header := range headersOf[r.Status] {
		r.CheckHas(t, header)
	}
	r.CheckJSON(t)
}

// CheckStored checks a StoredPlant. Content is its JSON without the times.
func (r Response) CheckStored(t *testing.T, content string) {
	t.Helper()
	status, location := 200, r.Header.Get("Location")
	if location != "" {
		status = 201
	}
	if got := WithoutTimes(r.Body); r.Status != status || got != content {
		t.Errorf("got %v with Location %q, want %d %s with its times", r, location, status, content)
		return
	}
	r.CheckJSON(t)
	r.CheckETag(t)
}

// times are the last fields of a StoredPlant.
var times = regexp.MustCompile(`,"created_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)","updated_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z)"\}`)

// WithoutTimes returns body without the times of its plants.
func WithoutTimes(body string) string { return times.ReplaceAllString(body, "}") }

// CheckETag checks that a response has a strong ETag.
func (r Response) CheckETag(t *testing.T) {
	t.Helper()
	if !regexp.MustCompile(`^"[!#-~]+"$`).MatchString(r.ETag()) {
		t.Errorf("%v: got ETag %q, want a strong one", r, r.ETag())
	}
}

// CheckEmpty checks a response without a body.
func (r Response) CheckEmpty(t *testing.T, status int) {
	t.Helper()
	if r.Status != status || r.Body != "" {
		t.Errorf("got %v, want %d without a body", r, status)
	}
	r.CheckHeaders(t)
}

// CheckJSON checks the headers of a response in JSON.
func (r Response) CheckJSON(t *testing.T) {
	t.Helper()
	r.CheckHeader(t, "Content-Type", "application/json")
	r.CheckHeaders(t)
}

// CheckHeader checks the first value of a header, which is empty if there is no such
// header.
func (r Response) CheckHeader(t *testing.T, header, want string) {
	t.Helper()
	if got := r.Header.Get(header); got != want {
		t.Errorf("%v: got %s %q, want %q", r, header, got, want)
	}
}

// CheckHas checks that a response has a header, such as Retry-After.
func (r Response) CheckHas(t *testing.T, header string) {
	t.Helper()
	if r.Header.Get(header) == "" {
		t.Errorf("%v: got no %s", r, header)
	}
}

// CheckHeaders checks the headers common to all responses of the API.
func (r Response) CheckHeaders(t *testing.T) {
	t.Helper()
	cache := `^no-store$`
	if r.ETag() != "" {
		cache = `^private, no-cache$`
	}
	for header, want := range map[string]string{
		"X-Request-ID":            `^[A-Za-z0-9._-]{1,64}$`,
		"X-Content-Type-Options":  `^nosniff$`,
		"Cache-Control":           cache,
		"Content-Security-Policy": `^default-src 'none'; frame-ancestors 'none'$`,
	} {
		if got := r.Header.Values(header); len(got) != 1 || !regexp.MustCompile(want).MatchString(got[0]) {
			t.Errorf("%v: got %s %q, want %s", r, header, got, want)
		}
	}
	r.CheckHeader(t, "Access-Control-Allow-Origin", "")
}

// Must ends the test if err is not nil.
func Must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Eventually waits until condition holds.
func Eventually(t *testing.T, awaited string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(Patience); !condition(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited %v for %s", Patience, awaited)
		}
	}
}

// Receive waits for the next value from channel.
func Receive[T any](t *testing.T, channel <-chan T) (value T) {
	t.Helper()
	select {
	case value = <-channel:
	case <-time.After(Patience):
		t.Fatalf("received nothing within %v", Patience)
	}
	return value
}

// IsTimeout reports whether err is a timeout of the network.
func IsTimeout(err error) bool {
	e, ok := errors.AsType[net.Error](err)
	return ok && e.Timeout()
}

// AwaitReset sends what next returns, which the service does not respond to as long as
// responses wait to be read, until it has closed conn. The test cannot read: that would make
// room.
func AwaitReset(t *testing.T, conn net.Conn, next func() []byte) {
	t.Helper()
	ticker := time.NewTicker(100 * time.Millisecond)
	defer ticker.Stop()
	for {
		if _, err := conn.Write(next()); IsTimeout(err) {
			t.Fatalf("the connection is still open after %v", Patience)
		} else if err != nil {
			return
		}
		<-ticker.C
	}
}

// Write writes text to a new file and returns its path.
func Write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// Absolute returns path, which is relative to the folder of the test, as an absolute path.
func Absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	Must(t, err)
	return path
}

// CheckMode checks that only the owner may read and write the file at path.
func CheckMode(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode() != 0o600 {
		t.Errorf("got mode %o of %s, want 600", info.Mode(), path)
	}
}
