package api

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// retryAfter returns the delay that a response asks for.
func retryAfter(t *testing.T, r service.Response) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(r.Header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Errorf("%v: got Retry-After %q, want whole seconds", r, r.Header.Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

// from returns the header with the client address that a trusted proxy sends.
func from(address string) []string { return []string{"X-Forwarded-For", address} }

// rateLimit is the RateLimit header of a limit of 2 requests per second and a burst of 5.
var rateLimit = regexp.MustCompile(`^"token";r=([0-4]);t=[0-3], "address";r=([0-4]);t=[0-3]$`)

// TestRequestLimit exceeds the limit, waits as told, and continues.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	const perSecond, burst = 2, 5
	s := service.Start(t, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		fmt.Sprintf("PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=%d", perSecond), fmt.Sprintf("PLANTSTORE_LIMITS_BURST=%d", burst))
	send := func() service.Response {
		return s.Get(t, "/plants", service.As(service.Token, from("192.0.2.1")...)...)
	}

	begin := time.Now()
	accepted := 0
	var rejected service.Response
	for rejected.Status == 0 {
		r := send()
		left := rateLimit.FindStringSubmatch(r.Header.Get("RateLimit"))
		if left == nil || r.Header.Get("RateLimit-Policy") != `"token";q=5;w=3, "address";q=5;w=3` {
			t.Fatalf("request %d: got RateLimit %q and RateLimit-Policy %q", accepted+1, r.Header.Get("RateLimit"), r.Header.Get("RateLimit-Policy"))
		}
		switch {
		case r.Status != 200:
			rejected = r
		case accepted == 0 && (left[1] != "4" || left[2] != "4"):
			t.Errorf("got RateLimit %q after the first request, want 4 left", left[0])
		default:
			accepted++
		}
		if most := burst + int(time.Since(begin).Seconds()*perSecond) + 1; accepted > most {
			t.Fatalf("%d requests were accepted, want at most %d", accepted, most)
		}
	}
	if accepted < burst {
		t.Errorf("%d requests were accepted, want %d", accepted, burst)
	}
	rejected.CheckError(t, 42901, "this token")
	if got := rejected.Header.Get("RateLimit"); !strings.HasPrefix(got, `"token";r=0;`) || !strings.Contains(got, `"address";r=0;`) {
		t.Errorf("got RateLimit %q, want 0 left", got)
	}
	wait := retryAfter(t, rejected)
	if wait > time.Second {
		t.Errorf("got Retry-After %v, want at most 1s", wait)
	}
	if r := s.Get(t, "/readyz", from("192.0.2.1")...); r.Status != 200 || r.Header.Get("RateLimit") != "" {
		t.Errorf("got %v with RateLimit %q, want 200 without a limit", r, r.Header.Get("RateLimit"))
	}
	time.Sleep(wait) // as Retry-After says
	send().CheckStatus(t, 200)
}

// TestWrongTokens sends too many wrong tokens, which must not affect valid tokens from the
// same address.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	const perMinute = 4 // few, so that no room for another comes soon
	url := dbtest.SQLite(t)
	const second = "another-token-of-more-than-32-characters"
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		"PLANTSTORE_AUTH_TOKENS="+service.Token+","+second, fmt.Sprintf("PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=%d", perMinute))
	known, late, unknown := service.Issue(t, url), service.Issue(t, url), service.IssueElsewhere(t)
	send := func(t *testing.T, token, address string) service.Response {
		return s.Get(t, "/plants", service.As(token, from(address)...)...)
	}
	for _, right := range []string{service.Token, known} {
		send(t, right, "192.0.2.1").RequireOK(t)
	}

	begin, wrong := time.Now(), 0
	var rejected service.Response
	for rejected.Status == 0 {
		r := send(t, "wrong-"+strconv.Itoa(wrong), "192.0.2.1")
		if r.Status == 429 {
			rejected = r
			break
		}
		r.CheckError(t, 40102)
		wrong++
		if most := perMinute + int(time.Since(begin).Minutes()*perMinute) + 1; wrong > most {
			t.Fatalf("%d wrong tokens got 401, want at most %d", wrong, most)
		}
	}
	if wrong < perMinute {
		t.Errorf("%d wrong tokens got 401, want %d", wrong, perMinute)
	}
	rejected.CheckError(t, 42901)
	wait := retryAfter(t, rejected)
	if wait > time.Minute/perMinute {
		t.Errorf("got Retry-After %v, want at most %v", wait, time.Minute/perMinute)
	}
	for _, test := range []struct {
		name, token, address string
		code                 int
	}{
		{name: "a wrong token", token: "wrong", address: "192.0.2.1", code: 42901},
		{name: "an unknown token", token: unknown, address: "192.0.2.1", code: 42901},
		{name: "a mistyped token", token: service.Mistype(known), address: "192.0.2.1", code: 42901},
		{name: "a static token", token: service.Token, address: "192.0.2.1"},
		{name: "an issued token", token: known, address: "192.0.2.1"},
		{name: "a new static token", token: second, address: "192.0.2.1"},
		{name: "a new issued token", token: late, address: "192.0.2.1"},
		{name: "a wrong token from another address", token: "wrong", address: "192.0.2.2", code: 40102},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := send(t, test.token, test.address)
			r.CheckCode(t, test.code)
			if r.Status == 429 {
				r.CheckHeader(t, "WWW-Authenticate", "")
			}
		})
	}
	s.Get(t, "/plants", from("192.0.2.1")...).CheckError(t, 40101)
}
