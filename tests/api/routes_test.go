package api

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

func TestContractRoutes(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/nothing", 40402},
		{"POST", "/plants/", 40402},
		{"POST", "//plants", 40402},
		{"POST", "/PLANTS", 40402},
		{"POST", "/x/../plants", 40402},
		{"POST", "/plants%2F", 40402},
		{"GET", "/swagger/swagger-ui.js", 40402},
		{"GET", "/swagger/oauth2-redirect.html", 40402},
		{"GET", "/swagger/nothing", 40402},
		{"GET", "/docs", 40402},
		{"GET", "/docs/", 40402},
		{"GET", "/docs/nothing.md", 40402},
		{"GET", "/swagger/doc.json", 40402},
		{"PUT", "/plants", 40501},
		{"OPTIONS", "/plants", 40501},
		{"TRACE", "/plants", 40501},
		{"PROPFIND", "/plants", 40501},
		{"POST", "/healthz", 40501},
		{"POST", "/swagger/index.html", 40501},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			r := s.Send(t, test.method, test.path, nil) // the route comes before the token
			r.CheckError(t, test.code)
			allow := r.Header.Get("Allow")
			if want := map[string]string{"/plants": "DELETE, GET, HEAD, PATCH, POST"}[test.path]; test.code == 40501 && (allow == "" || want != "" && allow != want) {
				t.Errorf("got Allow %q, want %q", allow, want)
			}
		})
	}
	t.Run("OPTIONS *", func(t *testing.T) { // which asks for the server, not for a resource
		if head := rawHead(t, s, "OPTIONS *", "", ""); !strings.HasPrefix(head, "HTTP/1.1 204 ") || !strings.Contains(head, "X-Request-ID: ") {
			t.Errorf("got %q, want a 204", head)
		}
	})
	for _, method := range []string{"GET", "HEAD"} {
		for path, want := range map[string]int{
			"/": 200, "/docs/api.md": 200, "/docs/home.js": 200, "/swagger": 302, "/swagger/": 302, "/openapi.json": 200, "/swagger/index.html": 200, "/swagger/swagger-ui.css": 200,
			"/swagger/index.html?a=/swagger-ui.css": 200, "/healthz": 200, "/readyz": 200,
		} {
			t.Run(method+" "+path, func(t *testing.T) {
				r := s.Send(t, method, path, nil)
				if r.Status != want || method == "HEAD" && r.Body != "" {
					t.Errorf("got %v, want %d", r, want)
				}
				r.CheckHas(t, "X-Request-ID")
				r.CheckHeader(t, "X-Content-Type-Options", "nosniff")
				// Only the first page and Swagger UI may run scripts, from this origin.
				policy, scripts := r.Header.Values("Content-Security-Policy"), "script-src 'self';"
				if len(policy) != 1 || strings.Contains(policy[0], scripts) != (path == "/" || strings.HasPrefix(path, "/swagger/index.html")) ||
					!strings.Contains(policy[0], "default-src 'none'") || !strings.Contains(policy[0], "frame-ancestors 'none'") {
					t.Errorf("got Content-Security-Policy %q", policy)
				}
			})
		}
	}
	s.Get(t, "/swagger").CheckHeader(t, "Location", "swagger/index.html")
}

func TestPlantsMethods(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct{ method, path, allow string }{
		{"POST", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"OPTIONS", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"PROPFIND", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"PUT", "/plants", "DELETE GET HEAD PATCH POST"},
		{"POST", "/plants/export", "GET HEAD"},
		{"DELETE", "/plants/export", "GET HEAD"},
		{"GET", "/plants/import", "POST"},
		{"PUT", "/plants/import", "POST"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			r := s.Send(t, test.method, test.path, nil) // the route comes before the token
			r.CheckError(t, 40501)
			allowed := strings.Split(r.Header.Get("Allow"), ", ")
			slices.Sort(allowed)
			if got := strings.Join(allowed, " "); got != test.allow {
				t.Errorf("got Allow %s, want %s", got, test.allow)
			}
		})
	}
}

func TestPlantsBadIDs(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	bodies := map[string]string{"GET": "", "PUT": `{"name":"x"}`, "PATCH": `{"name":"x"}`, "DELETE": ""}
	for _, id := range []string{
		"9223372036854775808", "-9223372036854775809", "1" + strings.Repeat("0", 400),
		"01", "-01", "-0", "00", "+1", "%2B1", "--1", "1.0", "1e3", "0x1", "1_0", "1,0", "abc", "%20", "1%20", "%201", "%D9%A3", "%00", "%FF",
		"imports", "Export", "1;", "1:", "~", "1%2F2",
	} {
		t.Run(id, func(t *testing.T) {
			for method, body := range bodies {
				s.Call(t, method, "/plants/"+id, body).CheckError(t, 40007, "id")
			}
		})
	}
	for _, path := range []string{"/plants/", "/plants/1/", "/plants/1/x", "/plants%2F1", "//plants/1", "/Plants/1", "/plants/import/", "/plants/EXPORT/x"} {
		t.Run(path, func(t *testing.T) { s.Call(t, "GET", path, "").CheckError(t, 40402) })
	}
}

// TestOrderOfChecks checks the order: route, token, scope, limits, content.
func TestOrderOfChecks(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_SERVER_TRUSTED_PROXIES=127.0.0.1",
		"PLANTSTORE_LIMITS_REQUESTS_PER_SECOND=1", "PLANTSTORE_LIMITS_BURST=1")
	const bad = `{"id":`
	large := strings.Repeat(" ", 70000)
	reader, writer := service.Issue(t, url, "--scope", "plants:read"), service.Issue(t, url, "--scope", "plants:write")
	for i, test := range []struct {
		name                      string
		method, path, token, body string
		limited                   bool // at the start
		code                      int
	}{
		{name: "no such path and all else wrong", method: "POST", path: "/plant?x", token: "x", body: bad, code: 40402},
		{name: "no such path, over the limit", method: "POST", path: "/plant", token: writer, body: bad, limited: true, code: 40402},
		{name: "no such method and all else wrong", method: "PUT", path: "/plants?x", token: "x", body: bad, code: 40501},
		{name: "no such method, over the limit", method: "PUT", path: "/plants", token: writer, body: bad, limited: true, code: 40501},
		{name: "no token and a bad body", method: "POST", path: "/plants", body: bad, code: 40101},
		{name: "a bad token and a bad body", method: "POST", path: "/plants", token: "x", body: bad, code: 40102},
		{name: "a bad token and a large body", method: "POST", path: "/plants", token: "x", body: large, code: 40102},
		{name: "a bad token and a bad body, over the limit", method: "POST", path: "/plants", token: "x", body: bad, limited: true, code: 40102},
		{name: "a bad token, a bad id and an unknown parameter", method: "DELETE", path: "/plants/x?x", token: "x", code: 40102},
		{name: "no scope and a bad body", method: "POST", path: "/plants", token: reader, body: bad, code: 40301},
		{name: "no scope and a large body", method: "POST", path: "/plants", token: reader, body: large, code: 40301},
		{name: "no scope and a bad body, over the limit", method: "POST", path: "/plants", token: reader, body: bad, limited: true, code: 40301},
		{name: "no scope and a bad import", method: "POST", path: "/plants/import", token: reader, body: "x", code: 40301},
		{name: "no scope, a bad id and an unknown parameter", method: "DELETE", path: "/plants/x?x", token: reader, code: 40301},
		{name: "over the limit with a bad body", method: "POST", path: "/plants", token: writer, body: bad, limited: true, code: 42901},
		{name: "over the limit with a large body", method: "POST", path: "/plants", token: writer, body: large, limited: true, code: 42901},
		{name: "over the limit with a bad import", method: "POST", path: "/plants/import", token: writer, body: "x", limited: true, code: 42901},
		{name: "over the limit with a bad id and an unknown parameter", method: "DELETE", path: "/plants/x?x", token: writer, limited: true, code: 42901},
		{name: "over the limit with a bad query", method: "GET", path: "/plants?limit=x", token: reader, limited: true, code: 42901},
		{name: "only a bad body", method: "POST", path: "/plants", token: service.Token, body: bad, code: 40001},
	} {
		t.Run(test.name, func(t *testing.T) {
			address := from(fmt.Sprintf("192.0.2.%d", i+1)) // with a limit of its own
			send := func(method, path, token, body string) service.Response {
				headers := address
				if token != "" {
					headers = service.As(token, address...)
				}
				// A connection that is closed after the request could lose the response
				// while the body is on its way.
				return s.Over(t, service.Connections, method, path, body, headers...)
			}
			var r service.Response
			// Another request is allowed after a second: try again.
			for range 20 {
				for spent := 0; test.limited && send("GET", "/plants", reader, "").Status != 429; spent++ {
					if spent == 100 {
						t.Fatal("100 requests were accepted, want a limit")
					}
				}
				if r = send(test.method, test.path, test.token, test.body); !test.limited || r.Status != 400 {
					break
				}
			}
			r.CheckError(t, test.code)
		})
	}
}
