package api

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

func TestCORS(t *testing.T) {
	t.Parallel()
	const (
		allowed = "https://plants.example.org"
		other   = "http://localhost:3000"
	)
	s := service.Start(t, "PLANTSTORE_ENV=production", "DATABASE_URL="+dbtest.SQLite(t), "PLANTSTORE_SERVER_CORS_ORIGINS="+allowed+","+other)
	preflight := func(t *testing.T, path, origin, method string) service.Response {
		return s.Send(t, "OPTIONS", path, nil, "Origin", origin, "Access-Control-Request-Method", method,
			"Access-Control-Request-Headers", "authorization,content-type")
	}
	for path, method := range map[string]string{
		"/plants": "POST", "/plants/1": "PATCH", "/plants/import": "POST", "/plants/export": "GET", "/nothing": "GET",
	} {
		t.Run(path, func(t *testing.T) {
			for _, origin := range []string{allowed, other} {
				t.Run(origin, func(t *testing.T) {
					r := preflight(t, path, origin, method)
					if r.Status != 204 || r.Body != "" || r.Header.Get("X-Request-ID") == "" {
						t.Errorf("got %v with %v, want 204 and a request id", r, r.Header)
					}
					for header, want := range map[string]string{
						"Access-Control-Allow-Origin":  origin,
						"Access-Control-Allow-Methods": "GET, HEAD, POST, PUT, PATCH, DELETE",
						"Access-Control-Allow-Headers": "Authorization, Content-Encoding, Content-Type, If-Match, If-None-Match, Last-Event-ID, baggage, sentry-trace, traceparent, tracestate, X-Request-ID, Write-Position",
						"Vary":                         "Origin",
					} {
						if got := r.Header.Values(header); len(got) != 1 || got[0] != want {
							t.Errorf("got %s %q, want %q", header, got, want)
						}
					}
					checkNoCredentials(t, r)
				})
			}
		})
	}

	// Responses have the headers, whatever their status.
	authorized := []string{"Authorization", "Bearer " + service.Token, "Content-Type", "application/json"}
	for name, request := range map[string]struct {
		method, path, body string
		headers            []string
		status             int
		vary               string
	}{
		"a plant":                      {method: "POST", path: "/plants", body: `{"id":1,"name":"x"}`, headers: authorized, status: 200, vary: "Origin"},
		"a malformed plant":            {method: "POST", path: "/plants", body: `{`, headers: authorized, status: 400, vary: "Origin"},
		"no token":                     {method: "POST", path: "/plants", body: `{"id":2,"name":"x"}`, status: 401, vary: "Origin"},
		"no such path":                 {method: "GET", path: "/nothing", status: 404, vary: "Origin"},
		"no such method":               {method: "PUT", path: "/plants", headers: authorized, status: 405, vary: "Origin"},
		"a path with another method":   {method: "GET", path: "/plants/import", headers: authorized, status: 405, vary: "Origin"},
		"an export":                    {method: "GET", path: "/plants/export", headers: authorized, status: 200, vary: "Origin Accept Accept-Encoding"},
		"a list":                       {method: "GET", path: "/plants", headers: authorized, status: 200, vary: "Origin Accept-Encoding"},
		"the document":                 {method: "GET", path: "/openapi.json", status: 200, vary: "Origin Accept-Encoding"},
		"OPTIONS that is no preflight": {method: "OPTIONS", path: "/plants", status: 405, vary: "Origin"},
	} {
		t.Run(name, func(t *testing.T) {
			for _, origin := range []string{allowed, ""} {
				t.Run(fmt.Sprintf("from %q", origin), func(t *testing.T) {
					r := s.Send(t, request.method, request.path, strings.NewReader(request.body), append([]string{"Origin", origin}, request.headers...)...)
					if r.Status != request.status && r.Code() != 40902 { // from the second origin
						t.Errorf("got %v, want %d", r, request.status)
					}
					exposed := ""
					if origin != "" {
						exposed = "Accept-Encoding, Accept-Patch, Allow, Content-Disposition, ETag, Link, Location, Retry-After, RateLimit, RateLimit-Policy, WWW-Authenticate, X-Total-Count, X-Request-ID, Write-Position"
					}
					if got := r.Header; got.Get("Access-Control-Allow-Origin") != origin || got.Get("Access-Control-Expose-Headers") != exposed ||
						strings.Join(got.Values("Vary"), " ") != request.vary {
						t.Errorf("got headers %v", got)
					}
					checkNoCredentials(t, r)
				})
			}
		})
	}

	s.Post(t, `{"id":1,"name":"x"}`)
	// Origins that are not allowed, although they look like it.
	for _, origin := range []string{
		"https://evil.example", "http://plants.example.org", allowed + ".evil.example", allowed + ":8443", "https://evil.plants.example.org", "null", "*", strings.ToUpper(allowed),
	} {
		t.Run(origin, func(t *testing.T) {
			r := preflight(t, "/plants", origin, "POST")
			r.CheckError(t, 40501)
			r.CheckHeader(t, "Vary", "Origin")
			s.Post(t, `{"id":1,"name":"x"}`, "Origin", origin).CheckError(t, 40902)
		})
	}
}

// checkNoCredentials checks that browsers do not send cookies.
func checkNoCredentials(t *testing.T, r service.Response) {
	t.Helper()
	if got, ok := r.Header[http.CanonicalHeaderKey("Access-Control-Allow-Credentials")]; ok {
		t.Errorf("got Access-Control-Allow-Credentials %q, want no such header", got)
	}
}

// TestNoCORS checks that without origins OPTIONS is a method like any other.
func TestNoCORS(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_ENV=production", "DATABASE_URL="+dbtest.SQLite(t)) // a development service rejects other origins
	r := s.Send(t, "OPTIONS", "/plants", nil, "Origin", "https://plants.example.org", "Access-Control-Request-Method", "POST")
	r.CheckError(t, 40501)
	r = s.Post(t, `{"id":1,"name":"x"}`, "Origin", "https://plants.example.org")
	if r.Status != 200 || r.Header.Get("Vary") != "" {
		t.Errorf("got %v with %v, want 200 without Vary", r, r.Header)
	}
	r.CheckHeaders(t)
}
