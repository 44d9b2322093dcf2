package tests

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// retryAfter returns how long an answer asks to wait.
func retryAfter(t *testing.T, r response) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(r.header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Errorf("%v: got Retry-After %q, want whole seconds", r, r.header.Get("Retry-After"))
	}
	return time.Duration(seconds) * time.Second
}

// from returns the header by which a trusted proxy tells the client's address.
func from(address string) []string { return []string{"X-Forwarded-For", address} }

// rateLimit is what the header RateLimit says of a limit of 2 a second, 5 at once.
var rateLimit = regexp.MustCompile(`^"token";r=([0-4]);t=[0-3], "address";r=([0-4]);t=[0-3]$`)

// TestRequestLimit sends more than it may, waits as long as it is told, and goes on.
func TestRequestLimit(t *testing.T) {
	t.Parallel()
	const perSecond, burst = 2, 5
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		fmt.Sprintf("PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=%d", perSecond), fmt.Sprintf("PLANTSTORE_LIMITS_BURST=%d", burst))
	issued, third, fourth := issue(t, url), issue(t, url), issue(t, url)
	send := func(token, address string) response { return s.get(t, "/plants", as(token, from(address)...)...) }

	begin := time.Now()
	accepted := 0
	var refused response
	for refused.status == 0 {
		r := send(token, "192.0.2.1")
		left := rateLimit.FindStringSubmatch(r.header.Get("RateLimit"))
		if left == nil || r.header.Get("RateLimit-Policy") != `"token";q=5;w=3, "address";q=5;w=3` {
			t.Fatalf("request %d: RateLimit %q, RateLimit-Policy %q", accepted+1, r.header.Get("RateLimit"), r.header.Get("RateLimit-Policy"))
		}
		switch {
		case r.status != 200:
			refused = r
		case accepted == 0 && (left[1] != "4" || left[2] != "4"):
			t.Errorf("after the first request, %q is left", left[0])
		default:
			accepted++
		}
		if most := burst + int(time.Since(begin).Seconds()*perSecond) + 1; accepted > most {
			t.Fatalf("%d requests were accepted, at most %d may be", accepted, most)
		}
	}
	if accepted < burst {
		t.Errorf("%d requests were accepted, want %d", accepted, burst)
	}
	checkError(t, refused, 42901) // one too many
	if got := refused.header.Get("RateLimit"); !strings.HasPrefix(got, `"token";r=0;`) || !strings.Contains(got, `"address";r=0;`) {
		t.Errorf("one too many: RateLimit %q", got)
	}
	wait := retryAfter(t, refused)
	if wait > time.Second {
		t.Errorf("one too many: wait for %v, where there are %d a second", wait, perSecond)
	}
	if r := s.get(t, "/readyz", from("192.0.2.1")...); r.status != 200 || r.header.Get("RateLimit") != "" {
		t.Errorf("what needs no token is limited, too: %d, RateLimit %q", r.status, r.header.Get("RateLimit"))
	}
	time.Sleep(wait) // as the client is told
	checkStatus(t, send(token, "192.0.2.1"), 200)

	// Whose the limit is.
	for range burst {
		send(token, "192.0.2.2")
		send(issued, "192.0.2.1")
	}
	for _, test := range []struct {
		name, token, address string
		limited              string
	}{
		{"the same token from a new address", token, "192.0.2.3", "this token"},
		{"another token from a new address", third, "192.0.2.4", ""},
		{"another token from an old address", fourth, "192.0.2.1", "this address"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := send(test.token, test.address)
			// By now, there may be one more: it is taken, and there is none then.
			for range burst {
				if test.limited == "" || r.status == 429 {
					break
				}
				r = send(test.token, test.address)
			}
			if test.limited == "" {
				if r.status != 200 {
					t.Errorf("got %v", r)
				}
				return
			}
			checkError(t, r, 42901, test.limited)
		})
	}
}

// TestWrongTokens: who sends too many wrong tokens is told to wait, and keeps nobody
// out who has a right one.
func TestWrongTokens(t *testing.T) {
	t.Parallel()
	const perMinute = 12 // one in five seconds
	url := dbtest.SQLite(t)
	const second = "another-token-of-more-than-32-characters"
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		"PLANTSTORE_AUTH_TOKENS="+token+","+second, fmt.Sprintf("PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=%d", perMinute))
	known, late, unknown := issue(t, url), issue(t, url), issue(t, dbtest.SQLite(t))
	send := func(token, address string) response { return s.get(t, "/plants", as(token, from(address)...)...) }
	for _, right := range []string{token, known} {
		requireStatus(t, send(right, "192.0.2.1"), 200)
	}

	begin, wrong := time.Now(), 0
	var refused response
	for refused.status == 0 {
		r := send("wrong-"+strconv.Itoa(wrong), "192.0.2.1")
		if r.status == 429 {
			refused = r
			break
		}
		checkError(t, r, 40102) // a wrong token
		wrong++
		if most := perMinute + int(time.Since(begin).Minutes()*perMinute) + 1; wrong > most {
			t.Fatalf("%d wrong tokens got 401, at most %d may", wrong, most)
		}
	}
	if wrong < perMinute {
		t.Errorf("%d wrong tokens got 401, want %d", wrong, perMinute)
	}
	checkError(t, refused, 42901) // one too many
	wait := retryAfter(t, refused)
	if wait > time.Minute/perMinute {
		t.Errorf("one too many: wait for %v, where there are %d a minute", wait, perMinute)
	}
	for _, test := range []struct {
		name, token, address string
		code                 int // 0: accepted
	}{
		{name: "a wrong token", token: "wrong", address: "192.0.2.1", code: 42901},
		{name: "an unknown token", token: unknown, address: "192.0.2.1", code: 42901},
		{name: "a mistyped token", token: mistype(known), address: "192.0.2.1", code: 42901},
		{name: "a static token", token: token, address: "192.0.2.1"},
		{name: "an issued token", token: known, address: "192.0.2.1"},
		{name: "a static token that comes for the first time", token: second, address: "192.0.2.1"},
		{name: "an issued token that comes for the first time", token: late, address: "192.0.2.1"},
		{name: "a wrong token from elsewhere", token: "wrong", address: "192.0.2.2", code: 40102},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := send(test.token, test.address)
			checkCode(t, r, test.code)
			if r.status == 429 && r.header.Get("WWW-Authenticate") != "" {
				t.Errorf("the answer tells of the token: %q", r.header.Get("WWW-Authenticate"))
			}
		})
	}
	checkError(t, s.get(t, "/plants", from("192.0.2.1")...), 40101) // no token at all
	time.Sleep(retryAfter(t, send("wrong", "192.0.2.1")))           // as the client is told
	checkError(t, send("wrong", "192.0.2.1"), 40102)                // a wrong token after Retry-After
}
