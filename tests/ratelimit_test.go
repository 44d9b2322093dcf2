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
func retryAfter(t *testing.T, what string, a answer) time.Duration {
	t.Helper()
	seconds, err := strconv.Atoi(a.header.Get("Retry-After"))
	if err != nil || seconds < 1 {
		t.Errorf("%s: Retry-After %q, want whole seconds", what, a.header.Get("Retry-After"))
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
	send := func(token, address string) answer { return s.get("/plants", as(token, from(address)...)...) }

	begin := time.Now()
	accepted := 0
	var refused answer
	for refused.status == 0 {
		a := send(token, "192.0.2.1")
		left := rateLimit.FindStringSubmatch(a.header.Get("RateLimit"))
		if left == nil || a.header.Get("RateLimit-Policy") != `"token";q=5;w=3, "address";q=5;w=3` {
			t.Fatalf("request %d: RateLimit %q, RateLimit-Policy %q", accepted+1, a.header.Get("RateLimit"), a.header.Get("RateLimit-Policy"))
		}
		switch {
		case a.status != 200:
			refused = a
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
	checkError(t, "one too many", refused, 429, 42901)
	if got := refused.header.Get("RateLimit"); !strings.HasPrefix(got, `"token";r=0;`) || !strings.Contains(got, `"address";r=0;`) {
		t.Errorf("one too many: RateLimit %q", got)
	}
	wait := retryAfter(t, "one too many", refused)
	if wait > time.Second {
		t.Errorf("one too many: wait for %v, where there are %d a second", wait, perSecond)
	}
	if a := s.get("/readyz", from("192.0.2.1")...); a.status != 200 || a.header.Get("RateLimit") != "" {
		t.Errorf("what needs no token is limited, too: %d, RateLimit %q", a.status, a.header.Get("RateLimit"))
	}
	time.Sleep(wait) // as the client is told
	if a := send(token, "192.0.2.1"); a.status != 200 {
		t.Errorf("after Retry-After: %d %s", a.status, a.body)
	}

	// Whose the limit is.
	for range burst {
		send(token, "192.0.2.2")
		send(issued, "192.0.2.1")
	}
	for _, test := range []struct {
		what, token, address string
		limited              string
	}{
		{"the same token from a new address", token, "192.0.2.3", "this token"},
		{"another token from a new address", third, "192.0.2.4", ""},
		{"another token from an old address", fourth, "192.0.2.1", "this address"},
	} {
		a := send(test.token, test.address)
		// By now, there may be one more: it is taken, and there is none then.
		for range burst {
			if test.limited == "" || a.status == 429 {
				break
			}
			a = send(test.token, test.address)
		}
		if test.limited == "" {
			if a.status != 200 {
				t.Errorf("%s: %d %s", test.what, a.status, a.body)
			}
			continue
		}
		checkError(t, test.what, a, 429, 42901)
		checkNames(t, test.what, a, test.limited)
	}
}

// TestOrderOfChecks: the route, the token, its scope, the limits, and then the
// content.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		"PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=1", "PLANTSTORE_LIMITS_BURST=1")
	const bad = `{"id":`
	large := strings.Repeat(" ", 70000)
	reader, writer := issue(t, url, "--scope", "plants:read"), issue(t, url, "--scope", "plants:write")
	for i, test := range []struct {
		what                      string
		method, path, token, body string
		limited                   bool // whether the client has used up its limit before
		status, code              int
	}{
		{"no such path, and the rest is wrong, too", "POST", "/plant", "x", bad, false, 404, 40402},
		{"no such path, over the limit", "POST", "/plant", writer, bad, true, 404, 40402},
		{"no such method, and the rest is wrong, too", "PUT", "/plants", "x", bad, false, 405, 40501},
		{"no such method, over the limit", "PUT", "/plants", writer, bad, true, 405, 40501},
		{"no token and a bad body", "POST", "/plants", "", bad, false, 401, 40101},
		{"a bad token and a bad body", "POST", "/plants", "x", bad, false, 401, 40102},
		{"a bad token and a large body", "POST", "/plants", "x", large, false, 401, 40102},
		{"a bad token and a bad body, over the limit", "POST", "/plants", "x", bad, true, 401, 40102},
		{"a bad token and a bad id", "DELETE", "/plants/x", "x", "", false, 401, 40102},
		{"no scope and a bad body", "POST", "/plants", reader, bad, false, 403, 40301},
		{"no scope and a large body", "POST", "/plants", reader, large, false, 403, 40301},
		{"no scope and a bad body, over the limit", "POST", "/plants", reader, bad, true, 403, 40301},
		{"no scope and a bad import", "POST", "/plants/import", reader, "x", false, 403, 40301},
		{"no scope and a bad id", "DELETE", "/plants/x", reader, "", false, 403, 40301},
		{"over the limit with a bad body", "POST", "/plants", writer, bad, true, 429, 42901},
		{"over the limit with a large body", "POST", "/plants", writer, large, true, 429, 42901},
		{"over the limit with a bad import", "POST", "/plants/import", writer, "x", true, 429, 42901},
		{"over the limit with a bad id", "DELETE", "/plants/x", writer, "", true, 429, 42901},
		{"over the limit with a bad query", "GET", "/plants?limit=x", reader, "", true, 429, 42901},
		{"nothing but a bad body", "POST", "/plants", token, bad, false, 400, 40001},
	} {
		address := from(fmt.Sprintf("192.0.2.%d", i+1)) // whose limit is its own
		send := func(method, path, token, body string) answer {
			headers := address
			if token != "" {
				headers = as(token, address...)
			}
			// On a connection that goes on, for what closes after a request loses the
			// answer where the body is still on its way.
			a, err := s.tryOn(connections, method, path, strings.NewReader(body), headers...)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		var a answer
		// A second may go by between two requests: then there is one more.
		for range 20 {
			for spent := 0; test.limited && send("GET", "/plants", reader, "").status != 429; spent++ {
				if spent == 100 {
					t.Fatal("there is no limit")
				}
			}
			if a = send(test.method, test.path, test.token, test.body); !test.limited || a.status != 400 {
				break
			}
		}
		checkError(t, test.what, a, test.status, test.code)
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
	send := func(token, address string) answer { return s.get("/plants", as(token, from(address)...)...) }
	for _, right := range []string{token, known} {
		if a := send(right, "192.0.2.1"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}

	begin, wrong := time.Now(), 0
	var refused answer
	for refused.status == 0 {
		a := send("wrong-"+strconv.Itoa(wrong), "192.0.2.1")
		if a.status == 429 {
			refused = a
			break
		}
		checkError(t, "a wrong token", a, 401, 40102)
		wrong++
		if most := perMinute + int(time.Since(begin).Minutes()*perMinute) + 1; wrong > most {
			t.Fatalf("%d wrong tokens got 401, at most %d may", wrong, most)
		}
	}
	if wrong < perMinute {
		t.Errorf("%d wrong tokens got 401, want %d", wrong, perMinute)
	}
	checkError(t, "one too many", refused, 429, 42901)
	wait := retryAfter(t, "one too many", refused)
	if wait > time.Minute/perMinute {
		t.Errorf("one too many: wait for %v, where there are %d a minute", wait, perMinute)
	}
	for _, test := range []struct {
		what, token, address string
		status, code         int // 0: accepted
	}{
		{"a wrong token", "wrong", "192.0.2.1", 429, 42901},
		{"an unknown token", unknown, "192.0.2.1", 429, 42901},
		{"a mistyped token", mistype(known), "192.0.2.1", 429, 42901},
		{"a static token", token, "192.0.2.1", 0, 0},
		{"an issued token", known, "192.0.2.1", 0, 0},
		{"a static token that comes for the first time", second, "192.0.2.1", 0, 0},
		{"an issued token that comes for the first time", late, "192.0.2.1", 0, 0},
		{"a wrong token from elsewhere", "wrong", "192.0.2.2", 401, 40102},
	} {
		a := send(test.token, test.address)
		if test.code != 0 {
			checkError(t, test.what, a, test.status, test.code)
		} else if a.status != 200 {
			t.Errorf("%s: %d %s", test.what, a.status, a.body)
		}
		if a.status == 429 && a.header.Get("WWW-Authenticate") != "" {
			t.Errorf("%s: the answer tells of the token: %q", test.what, a.header.Get("WWW-Authenticate"))
		}
	}
	checkError(t, "no token at all", s.get("/plants", from("192.0.2.1")...), 401, 40101)
	time.Sleep(retryAfter(t, "still too many", send("wrong", "192.0.2.1"))) // as the client is told
	checkError(t, "a wrong token after Retry-After", send("wrong", "192.0.2.1"), 401, 40102)
}
