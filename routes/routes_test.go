package routes

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/controllers"
	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
)

func TestMain(m *testing.M) {
	dbtest.Tables = models.Tables()
	os.Exit(dbtest.Main(m))
}

// optionsOf returns the options of a service on a new SQLite database, and the store of
// its tokens.
func optionsOf(t testing.TB) (Options, *models.TokenStore) {
	t.Helper()
	return optionsOn(t, dbtest.SQLite(t))
}

// optionsOn is optionsOf for a new database at url.
func optionsOn(t testing.TB, url string) (Options, *models.TokenStore) {
	t.Helper()
	db := dbtest.Migrated(t, url)
	tokens := models.NewTokenStore(db)
	verifier, err := auth.NewIssuedTokens(t.Context(), tokens, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := verifier.Close(); err != nil {
			t.Error(err)
		}
	})
	return Options{
		ObserverOptions: middleware.ObserverOptions{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()},
		DB:              db,
		Tokens:          controllers.NewTokens(tokens, verifier),
		Health:          controllers.NewHealth(db.Ready, models.CheckTemporary),
		Failures:        controllers.NewFailures(zap.NewNop()),
		Verify:          verifier.Verify,
		Docs:            true,
		MaxBodyBytes:    1 << 16,
		Bulk:            middleware.BulkOptions{MaxBodyBytes: 1 << 20, Timeout: time.Minute, MinBytesPerSecond: 1, Grace: time.Minute},
	}, tokens
}

// anyToken is an [auth.Verifier] that accepts every token.
func anyToken(context.Context, string) (*auth.Identity, error) {
	return &auth.Identity{Name: "test", Scopes: models.AllScopes()}, nil
}

// TestEveryRouteRequiresItsScope sends each kind of token to every route.
func TestEveryRouteRequiresItsScope(t *testing.T) {
	o, tokens := optionsOf(t)
	server := httptest.NewServer(New(o))
	t.Cleanup(server.Close)
	issue := func(expires *time.Time, scopes ...models.Scope) (secret, id string) {
		token := models.Token{Name: "test", Scopes: scopes, ExpiresAt: expires}
		secret, err := tokens.Create(t.Context(), &token)
		if err != nil {
			t.Fatal(err)
		}
		return secret, token.ID
	}
	soon := time.Now().Add(time.Second) // and not before it is issued
	expired, _ := issue(&soon, models.ScopeAdmin)
	revoked, revokedID := issue(nil, models.ScopeAdmin)
	read, _ := issue(nil, models.ReadScope("plants"))
	write, _ := issue(nil, models.WriteScope("plants"))
	admin, _ := issue(nil, models.ScopeAdmin)
	if err := tokens.Revoke(t.Context(), revokedID); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(soon)) // the token expires

	for _, r := range Table(o) {
		resource, below, _ := strings.Cut(r.Path[1:], "/")
		if child, ok := strings.CutPrefix(below, ":id/"); ok && r.Method == http.MethodGet && slices.ContainsFunc(Resources(o), func(r Resource) bool { return r.Name() == child }) {
			resource = child // the rows of a row
		}
		want := models.WriteScope(resource)
		switch {
		case resource == "tokens":
			want = models.ScopeAdmin
		case r.Method == http.MethodGet:
			want = models.ReadScope(resource)
		}
		if r.Scope != Public && r.Scope != want {
			t.Errorf("%s %s has the scope %s, want %s", r.Method, r.Path, r.Scope, want)
		}
		path := strings.NewReplacer(":id", "7", "*file", "index.html").Replace(r.Path)
		for _, method := range r.methods() {
			for _, bearer := range []struct {
				name, authorization string
				scopes              models.Scopes
				status              int // if these do not suffice
			}{
				{"no token", "", nil, 401},
				{"another scheme", "Basic eDp5", nil, 401},
				{"garbage", "Bearer garbage", nil, 401},
				{"an expired token", "Bearer " + expired, nil, 401},
				{"a revoked token", "Bearer " + revoked, nil, 401},
				{"a token to read", "Bearer " + read, models.Scopes{models.ReadScope("plants")}, 403},
				{"a token to write", "Bearer " + write, models.Scopes{models.WriteScope("plants")}, 403},
				{"a token of an administrator", "Bearer " + admin, models.AllScopes(), 403},
			} {
				t.Run(method+" "+path+" with "+bearer.name, func(t *testing.T) {
					request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader("{"))
					if err != nil {
						t.Fatal(err)
					}
					if bearer.authorization != "" {
						request.Header.Set("Authorization", bearer.authorization)
					}
					response, err := server.Client().Transport.RoundTrip(request)
					if err != nil {
						t.Fatal(err)
					}
					defer response.Body.Close()
					if r.Scope == Public || bearer.scopes.Allow(r.Scope) {
						if slices.Contains([]int{401, 403}, response.StatusCode) || response.StatusCode >= 500 {
							t.Errorf("got %d, want it to pass", response.StatusCode)
						}
						return
					}
					if response.StatusCode != bearer.status {
						t.Errorf("got %d, want %d", response.StatusCode, bearer.status)
					}
					if response.Header.Get("WWW-Authenticate") == "" {
						t.Error("the response has no challenge")
					}
				})
			}
		}
	}
}

// TestHandlersBeforeCreate: a POST /plants passes few handlers before its controller.
func TestHandlersBeforeCreate(t *testing.T) {
	o, _ := optionsOf(t)
	o.Verify = anyToken
	o.Limits.RequestsPerSecond, o.Limits.Burst = 100, 100
	o.Origins = []string{"https://example.org"}
	table := Table(o)
	var before []string
	for i, r := range table {
		if r.Method == http.MethodPost && r.Path == "/plants" {
			table[i].Handler = func(c *gin.Context) error {
				before = slices.Clone(c.HandlerNames())
				before = before[:len(before)-1] // without this one
				return nil
			}
		}
	}
	send(t.Context(), NewWith(o, table), httptest.NewRecorder(), "POST", "/plants", "{}")
	const most = 14
	if len(before) == 0 || len(before) > most {
		t.Errorf("got %d handlers, want at most %d:\n%s", len(before), most, strings.Join(before, "\n"))
	}
	t.Logf("%d handlers", len(before))
}

// TestPanicWhileTheBodyIsSent: a client that sends its whole body before it reads the response gets
// that, also if the handler panics before it has read the body.
func TestPanicWhileTheBodyIsSent(t *testing.T) {
	o, _ := optionsOf(t)
	o.Verify = anyToken
	o.DB = nil
	const size = 8 << 20 // net/http alone would read 256 KiB
	o.Bulk.MaxBodyBytes = size
	server := httptest.NewServer(New(o))
	t.Cleanup(server.Close)
	for try := 1; ; try++ { // the service reads for a second, which may be too short on a busy machine
		status, err := statusAfterBody(server.Listener.Addr().String(), size)
		if err == nil && status == http.StatusInternalServerError {
			return
		}
		if try == 5 {
			t.Fatalf("got %d, %v, want 500", status, err)
		}
	}
}

// statusAfterBody sends an import of size bytes to address, and returns the status of the response.
func statusAfterBody(address string, size int) (int, error) {
	conn, err := net.Dial("tcp", address)
	if err != nil {
		return 0, err
	}
	defer conn.Close()
	_, err = fmt.Fprintf(conn, "POST /plants/import HTTP/1.1\r\nHost: test\r\nAuthorization: Bearer x\r\n"+
		"Content-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n%s", size, strings.Repeat("\n", size))
	if err != nil {
		return 0, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, err
	}
	return response.StatusCode, response.Body.Close()
}

// TestEveryModelOfAResourceHasARow: tokens could have the scopes of a resource that is not there.
func TestEveryModelOfAResourceHasARow(t *testing.T) {
	var rows, want []string
	for _, r := range Resources(Options{}) {
		rows = append(rows, fmt.Sprintf("%T", r.Model()))
	}
	for _, model := range models.Resources() {
		want = append(want, fmt.Sprintf("%T", model))
	}
	slices.Sort(rows)
	slices.Sort(want)
	if !slices.Equal(rows, want) {
		t.Errorf("routes.Resources has %v, and models.Resources %v", rows, want)
	}
}

func TestARouteWithoutAScopePanics(t *testing.T) {
	o, _ := optionsOf(t)
	defer func() {
		if cause, _ := recover().(string); !strings.Contains(cause, "the route GET /pots must have the scope") {
			t.Errorf("got %q, want a panic that names the route", cause)
		}
	}()
	NewWith(o, []Route{{Method: "GET", Path: "/pots", Handler: controllers.NoMethod}})
}
