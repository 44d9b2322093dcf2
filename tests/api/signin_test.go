package api

import (
	"crypto/ed25519"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/models"
	"plantstore/tests/service"
)

// startSignIn starts a service whose users sign in at issuer, and which needs no keys of it.
func startSignIn(t *testing.T, issuer string, settings ...string) *service.Service {
	t.Helper()
	public, _, err := ed25519.GenerateKey(nil)
	service.Must(t, err)
	der, err := x509.MarshalPKIXPublicKey(public)
	service.Must(t, err)
	return service.Start(t, append([]string{
		"PLANTSTORE_AUTH_JWT_ISSUER=" + issuer, "PLANTSTORE_AUTH_JWT_AUDIENCE=https://plants.example.org/api",
		"PLANTSTORE_AUTH_JWT_PUBLIC_KEY=" + string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der})), "PLANTSTORE_DOCS_OAUTH2_CLIENT_ID=page",
	}, settings...)...)
}

// startIssuer returns the URL of an issuer with authorize as its authorization endpoint.
func startIssuer(t *testing.T, authorize string) string {
	t.Helper()
	var issuer string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = json.NewEncoder(w).Encode(map[string]string{
			"issuer": issuer, "authorization_endpoint": authorize, "token_endpoint": "https://id.example.org/token?p=1",
		})
	}))
	t.Cleanup(server.Close)
	issuer = server.URL
	return issuer
}

// TestSignInDocument: the document is valid, and has the scheme OAuth2 beside what it has without the setting.
func TestSignInDocument(t *testing.T) {
	t.Parallel()
	plain, err := os.ReadFile("../../docs/openapi.json")
	service.Must(t, err)
	for _, test := range []struct {
		name, authorize, url string
		settings             []string
		prefix               string   // of the scopes that the operations need
		scopes               []string // of the scheme, if not all but admin with the prefix
	}{
		{
			name: "all but admin", authorize: "https://id.example.org/authorize", url: "https://id.example.org/authorize?audience=https%3A%2F%2Fplants.example.org%2Fapi",
		},
		{
			name: "a prefix", settings: []string{"PLANTSTORE_AUTH_JWT_SCOPE_PREFIX=store/"}, authorize: "https://id.example.org/authorize?policy=a",
			url: "https://id.example.org/authorize?audience=https%3A%2F%2Fplants.example.org%2Fapi&policy=a", prefix: "store/",
		},
		{
			name: "others", settings: []string{"PLANTSTORE_DOCS_OAUTH2_SCOPES=api://a/plants:read,api://a/plants:write,plants:read,openid"}, authorize: "https://id.example.org",
			url: "https://id.example.org?audience=https%3A%2F%2Fplants.example.org%2Fapi", prefix: "api://a/", scopes: []string{"api://a/plants:read", "api://a/plants:write", "openid", "plants:read"},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			if test.scopes == nil {
				for _, scope := range models.DefaultScopes() {
					test.scopes = append(test.scopes, test.prefix+string(scope))
				}
				slices.Sort(test.scopes)
			}
			s := startSignIn(t, startIssuer(t, test.authorize), test.settings...)
			r := s.Get(t, "/openapi.json")
			doc, err := openapi3.NewLoader().LoadFromData([]byte(r.Body))
			service.Must(t, err)
			service.Must(t, doc.Validate(t.Context(), openapi3.EnableExamplesValidation()))
			scheme := doc.Components.SecuritySchemes["OAuth2"].Value
			flow := scheme.Flows.AuthorizationCode
			if scheme.Type != "oauth2" || flow.AuthorizationURL != test.url || flow.TokenURL != "https://id.example.org/token?p=1" ||
				flow.Extensions["x-defaultClientId"] != "page" {
				t.Errorf("got %+v and %+v", scheme, flow)
			}
			var scopes []string
			for scope := range flow.Scopes {
				scopes = append(scopes, scope)
			}
			if slices.Sort(scopes); !slices.Equal(scopes, test.scopes) {
				t.Errorf("got the scopes %v, want %v", scopes, test.scopes)
			}
			for path, item := range doc.Paths.Map() {
				for method, operation := range item.Operations() {
					needs := *operation.Security
					want := slices.DeleteFunc([]string{test.prefix + needs[0]["BearerAuth"][0]}, func(scope string) bool { return !slices.Contains(test.scopes, scope) })
					if len(needs) != 2 || !slices.Equal(needs[1]["OAuth2"], want) {
						t.Errorf("%s %s needs %v, want %v by OAuth2", method, path, needs, want)
					}
				}
			}
			if before, _, found := strings.Cut(r.Body, `"OAuth2": {`); !found || !strings.Contains(before, `"BearerAuth": {`) {
				t.Error("the bearer scheme is not the first")
			}

			delete(doc.Components.SecuritySchemes, "OAuth2")
			doc.Security = doc.Security[:1]
			for _, item := range doc.Paths.Map() {
				for _, operation := range item.Operations() {
					*operation.Security = (*operation.Security)[:1]
				}
			}
			want, err := openapi3.NewLoader().LoadFromData(plain)
			service.Must(t, err)
			got, err := json.Marshal(doc)
			service.Must(t, err)
			if text, err := json.Marshal(want); err != nil || string(text) != string(got) {
				t.Errorf("the rest of the document differs: %v", err)
			}
		})
	}
}

// TestSignInPage: the policy of the page names the token endpoint, and the page after the redirect runs our
// script only.
func TestSignInPage(t *testing.T) {
	t.Parallel()
	s := startSignIn(t, startIssuer(t, "https://id.example.org/authorize"))
	plain := service.Start(t)
	for _, path := range []string{"/swagger/index.html", "/swagger/oauth2-redirect.html"} {
		t.Run(path, func(t *testing.T) {
			r := s.Get(t, path+"?code=x&state=y")
			r.CheckStatus(t, 200)
			want := strings.Replace(plain.Get(t, "/swagger/index.html").Header.Get("Content-Security-Policy"), "connect-src 'self';", "connect-src 'self' https://id.example.org/token;", 1)
			r.CheckHeader(t, "Content-Security-Policy", want)
			if !strings.Contains(want, "script-src 'self';") || !strings.Contains(want, "https://id.example.org/token;") || strings.Contains(r.Body, "<script>") {
				t.Errorf("got the policy %q of\n%s", want, r.Body)
			}
			s.Get(t, path, "If-None-Match", r.Header.Get("ETag")).CheckHeader(t, "Content-Security-Policy", want) // a 304 replaces it
		})
	}
	s.Get(t, "/swagger/oauth2-redirect.js").CheckStatus(t, 200)
	s.Stop(t)
	if log := s.Stderr.String(); strings.Contains(log, "code=x") {
		t.Errorf("got the code in the log:\n%s", log)
	}
}

// TestSignInWithoutIssuer: an issuer that does not respond delays no start. Without its endpoints, everything
// is as it is without the setting, and the log says why.
func TestSignInWithoutIssuer(t *testing.T) {
	t.Parallel()
	asked := make(chan struct{}, 10)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked <- struct{}{}
		<-r.Context().Done()
	}))
	t.Cleanup(server.Close)
	s, plain := startSignIn(t, server.URL), service.Start(t)
	s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
	if len(asked) > 0 {
		t.Error("the service asked the issuer before anybody opened the page")
	}
	for _, path := range []string{"/openapi.json", "/swagger/index.html", "/swagger/swagger-initializer.js", "/swagger/swagger-ui-standalone-preset.js"} {
		got, want := s.Get(t, path), plain.Get(t, path)
		if got.Body != want.Body || got.Header.Get("Content-Security-Policy") != want.Header.Get("Content-Security-Policy") {
			t.Errorf("%s differs from what it is without the setting", path)
		}
	}
	if why := s.AwaitLog(t, "cannot discover where to sign in (auth.jwt.issuer): Swagger UI takes only tokens"); !strings.Contains(why["error"].(string), "deadline") {
		t.Errorf("got the log line %v, want the time limit in it", why)
	}
}
