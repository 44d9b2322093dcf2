package tests

import (
	"net/http"
	"strings"
	"testing"
)

func TestCORS(t *testing.T) {
	t.Parallel()
	const (
		allowed = "https://plants.example.org"
		other   = "http://localhost:3000"
	)
	s := start(t, "PLANTSTORE_SERVER_CORS_ORIGINS="+allowed+","+other)
	preflight := func(path, origin, method string) answer {
		return s.send("OPTIONS", path, nil, "Origin", origin, "Access-Control-Request-Method", method,
			"Access-Control-Request-Headers", "authorization,content-type")
	}
	for path, method := range map[string]string{
		"/plants": "POST", "/plants/1": "PATCH", "/plants/import": "POST", "/plants/export": "GET", "/nothing": "GET",
	} {
		for _, origin := range []string{allowed, other} {
			a := preflight(path, origin, method)
			if a.status != 204 || a.body != "" || a.header.Get("X-Request-ID") == "" {
				t.Errorf("preflight of %s: %d %s, headers %v", path, a.status, a.body, a.header)
			}
			for header, want := range map[string]string{
				"Access-Control-Allow-Origin":  origin,
				"Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
				"Access-Control-Allow-Headers": "Authorization, Content-Type, If-Match, If-None-Match, X-Request-ID",
				"Vary":                         "Origin",
			} {
				if got := a.header.Values(header); len(got) != 1 || got[0] != want {
					t.Errorf("preflight of %s: %s is %q, want %q", path, header, got, want)
				}
			}
			checkNoCredentials(t, a)
		}
	}

	// What is answered, however it ends.
	authorized := []string{"Authorization", "Bearer " + token, "Content-Type", "application/json"}
	for what, request := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		vary               string
	}{
		"a plant":             {"POST", "/plants", `{"id":1,"name":"x"}`, authorized, 200, "Origin"},
		"a bad one":           {"POST", "/plants", `{`, authorized, 400, "Origin"},
		"no token":            {"POST", "/plants", `{"id":2,"name":"x"}`, nil, 401, "Origin"},
		"no such path":        {"GET", "/nothing", "", nil, 404, "Origin"},
		"no such method":      {"PUT", "/plants", "", authorized, 405, "Origin"},
		"a path of two":       {"GET", "/plants/import", "", authorized, 405, "Origin"},
		"an export":           {"GET", "/plants/export", "", authorized, 200, "Origin Accept"},
		"OPTIONS for no more": {"OPTIONS", "/plants", "", nil, 405, "Origin"},
	} {
		for _, origin := range []string{allowed, ""} {
			a := s.send(request.method, request.path, strings.NewReader(request.body), append([]string{"Origin", origin}, request.headers...)...)
			if a.status != request.status && a.code() != 40902 { // the second time
				t.Errorf("%s: %d %s, want %d", what, a.status, a.body, request.status)
			}
			exposed := ""
			if origin != "" {
				exposed = "ETag, Link, Location, X-Request-ID, Retry-After, RateLimit, RateLimit-Policy"
			}
			if got := a.header; got.Get("Access-Control-Allow-Origin") != origin || got.Get("Access-Control-Expose-Headers") != exposed ||
				strings.Join(got.Values("Vary"), " ") != request.vary {
				t.Errorf("%s from %q: headers %v", what, origin, got)
			}
			checkNoCredentials(t, a)
		}
	}

	// Origins that are not named, though they look like it.
	for _, origin := range []string{
		"https://evil.example", "http://plants.example.org", allowed + ".evil.example", allowed + ":8443", "https://evil.plants.example.org", "null", "*", strings.ToUpper(allowed),
	} {
		a := preflight("/plants", origin, "POST")
		checkError(t, "preflight from "+origin, a, 405, 40501) // and no header of CORS
		if got := a.header.Get("Vary"); got != "Origin" {
			t.Errorf("preflight from %s: Vary %q", origin, got)
		}
		checkError(t, "a request from "+origin, s.post(`{"id":1,"name":"x"}`, "Origin", origin), 409, 40902)
	}
}

// checkNoCredentials checks that browsers are not asked to send cookies.
func checkNoCredentials(t *testing.T, a answer) {
	t.Helper()
	if got, ok := a.header[http.CanonicalHeaderKey("Access-Control-Allow-Credentials")]; ok {
		t.Errorf("Access-Control-Allow-Credentials: %q", got)
	}
}

// TestNoCORS: without origins, OPTIONS is a method like any other.
func TestNoCORS(t *testing.T) {
	t.Parallel()
	s := start(t)
	a := s.send("OPTIONS", "/plants", nil, "Origin", "https://plants.example.org", "Access-Control-Request-Method", "POST")
	checkError(t, "preflight", a, 405, 40501)
	a = s.post(`{"id":1,"name":"x"}`, "Origin", "https://plants.example.org")
	if a.status != 200 || a.header.Get("Vary") != "" {
		t.Errorf("%d, headers %v", a.status, a.header)
	}
	checkHeaders(t, "a plant", a)
}
