package auth_test

import (
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/auth"
)

// discovery responds with the document of an issuer at p.url + path, changed by changes.
func (p *provider) discovery(path string, changes map[string]any) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != path+"/.well-known/openid-configuration" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		document := map[string]any{
			"issuer": p.url + path, "authorization_endpoint": "https://id.example.org/authorize?p=1", "token_endpoint": p.url + "/token",
			"scopes_supported": []string{"openid"},
		}
		for name, value := range changes {
			document[name] = value
		}
		_ = json.NewEncoder(w).Encode(document)
	}
}

// TestDiscover finds the endpoints of issuers with and without a path and a / at the end, at the first call.
func TestDiscover(t *testing.T) {
	for name, test := range map[string]struct{ path, end string }{"a host": {}, "a path": {"/realms/plants", ""}, "a / at the end": {"", "/"}} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			want := auth.Endpoints{Issuer: p.url + test.path + test.end, Authorization: "https://id.example.org/authorize?p=1", Token: p.url + "/token"}
			p.respond = p.discovery(test.path, map[string]any{"issuer": want.Issuer})
			endpoints := auth.Discover(t.Context(), want.Issuer, zap.NewNop())
			if n := p.fetches.Load(); n != 0 {
				t.Errorf("got %d fetches before the first call", n)
			}
			for range 3 {
				if got := endpoints(); got == nil || *got != want {
					t.Errorf("got %+v, want %+v", got, want)
				}
			}
			if n := p.fetches.Load(); n != 1 {
				t.Errorf("got %d fetches, want 1", n)
			}
		})
	}
}

// TestDiscoverFails: the log has the reason, once in jwksFloor.
func TestDiscoverFails(t *testing.T) {
	p := newProvider(t)
	for name, respond := range map[string]http.HandlerFunc{
		"an error":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) },
		"a redirect":                 func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/elsewhere", http.StatusFound) },
		"no JSON":                    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"too large":                  p.discovery("", map[string]any{"x": strings.Repeat("x", 1<<20)}),
		"another issuer":             p.discovery("", map[string]any{"issuer": "https://id.example.org"}),
		"no issuer":                  p.discovery("", map[string]any{"issuer": nil}),
		"no authorization endpoint":  p.discovery("", map[string]any{"authorization_endpoint": ""}),
		"no token endpoint":          p.discovery("", map[string]any{"token_endpoint": nil}),
		"a script":                   p.discovery("", map[string]any{"authorization_endpoint": "javascript:alert(1)"}),
		"plain HTTP elsewhere":       p.discovery("", map[string]any{"token_endpoint": "http://id.example.org/token"}),
		"a local name as a prefix":   p.discovery("", map[string]any{"token_endpoint": "http://localhost.example.org/token"}),
		"credentials":                p.discovery("", map[string]any{"token_endpoint": "https://user@id.example.org/token"}),
		"another directive":          p.discovery("", map[string]any{"token_endpoint": "https://id.example.org/;script-src *"}),
		"another directive, encoded": p.discovery("", map[string]any{"token_endpoint": "https://id.example.org;img-src/token"}),
		"another source":             p.discovery("", map[string]any{"token_endpoint": "https://id.example.org/token https://evil.example.org"}),
		"a second header":            p.discovery("", map[string]any{"token_endpoint": "https://id.example.org/token\n"}),
		"a quote":                    p.discovery("", map[string]any{"authorization_endpoint": `https://id.example.org/"`}),
	} {
		t.Run(name, func(t *testing.T) {
			p.mu.Lock()
			p.respond = respond
			p.mu.Unlock()
			p.fetches.Store(0)
			core, lines := observer.New(zap.ErrorLevel)
			endpoints := auth.Discover(t.Context(), p.url, zap.New(core))
			for range 3 {
				if got := endpoints(); got != nil {
					t.Errorf("got %+v, want none", got)
				}
			}
			if n := p.fetches.Load(); n != 1 {
				t.Errorf("got %d fetches, want 1", n)
			}
			if all := lines.FilterMessageSnippet("auth.jwt.issuer").All(); len(all) != 1 || all[0].ContextMap()["error"] == "" {
				t.Errorf("got the log %v, want one line with the reason", all)
			}
		})
	}
}

// TestDiscoverLater: an issuer that starts late is found soon.
func TestDiscoverLater(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.respond = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	endpoints := auth.Discover(t.Context(), p.url, zap.NewNop())
	begin := time.Now()
	if got := endpoints(); got != nil {
		t.Errorf("got %+v, want none", got)
	}
	p.mu.Lock()
	p.respond = p.discovery("", nil)
	p.mu.Unlock()
	for endpoints() == nil {
		if time.Since(begin) > 30*time.Second {
			t.Fatal("the endpoints are still unknown after 30 s")
		}
		time.Sleep(100 * time.Millisecond)
	}
	if took := time.Since(begin); took < 10*time.Second {
		t.Errorf("another fetch followed after %s, want at least 10 s", took)
	}
}

// TestDiscoverHangs: callers wait together, for 5 s.
func TestDiscoverHangs(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.respond = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	endpoints := auth.Discover(t.Context(), p.url, zap.NewNop())
	begin := time.Now()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if got := endpoints(); got != nil {
				t.Errorf("got %+v, want none", got)
			}
		})
	}
	group.Wait()
	if took := time.Since(begin); took > 15*time.Second || p.fetches.Load() != 1 {
		t.Errorf("20 calls took %v and %d fetches", took, p.fetches.Load())
	}
}
