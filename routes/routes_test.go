package routes

import (
	"encoding/json"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"

	"plantstore/controllers"
	"plantstore/database/dbtest"
	"plantstore/docs"
	"plantstore/middleware"
	"plantstore/models"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// optionsOf returns the options of a service on a new SQLite database, and where
// its tokens are.
func optionsOf(t *testing.T) (Options, *models.TokenStore) {
	t.Helper()
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	plants := models.NewPlantStore(db, models.WriteOptions{Timeout: 5 * time.Second, Flushers: 1, MaxBatch: 16, Queue: 100})
	t.Cleanup(plants.Close)
	tokens := models.NewTokenStore(db, 5*time.Second)
	verifier, err := models.NewTokenVerifier(t.Context(), tokens, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := verifier.Close(); err != nil {
			t.Error(err)
		}
	})
	return Options{
		Log:          zap.NewNop(),
		Plants:       controllers.NewPlants(plants),
		Tokens:       controllers.NewTokens(tokens),
		Health:       controllers.NewHealth(db.Ping),
		Verify:       middleware.IssuedTokens(verifier),
		Docs:         true,
		MaxBodyBytes: 1 << 16,
		Bulk:         Bulk{MaxBodyBytes: 1 << 20, Timeout: time.Minute},
	}, tokens
}

// TestEveryRouteAsksForItsScope walks every route with every kind of bearer.
func TestEveryRouteAsksForItsScope(t *testing.T) {
	o, tokens := optionsOf(t)
	handler := New(o)
	issue := func(expires *time.Time, scopes ...models.Scope) (secret, id string) {
		token := models.Token{Name: "test", Scopes: scopes, ExpiresAt: expires}
		secret, err := tokens.Create(t.Context(), &token)
		if err != nil {
			t.Fatal(err)
		}
		return secret, token.ID
	}
	soon := time.Now().Add(50 * time.Millisecond)
	expired, _ := issue(&soon, models.ScopeAdmin)
	revoked, revokedID := issue(nil, models.ScopeAdmin)
	read, _ := issue(nil, models.ScopeRead)
	write, _ := issue(nil, models.ScopeWrite)
	admin, _ := issue(nil, models.ScopeAdmin)
	if err := tokens.Revoke(t.Context(), revokedID); err != nil {
		t.Fatal(err)
	}
	<-time.After(time.Until(soon))

	for _, r := range table(o) {
		path := strings.NewReplacer(":id", "7", "*file", "index.html").Replace(r.path)
		for _, method := range r.methods() {
			for _, bearer := range []struct {
				what, authorization string
				may                 models.Scopes
				status              int // where it may not
			}{
				{"none", "", nil, 401},
				{"another scheme", "Basic eDp5", nil, 401},
				{"garbage", "Bearer garbage", nil, 401},
				{"expired", "Bearer " + expired, nil, 401},
				{"revoked", "Bearer " + revoked, nil, 401},
				{"read", "Bearer " + read, models.Scopes{models.ScopeRead}, 403},
				{"write", "Bearer " + write, models.Scopes{models.ScopeWrite}, 403},
				{"admin", "Bearer " + admin, models.AllScopes(), 403},
			} {
				request := httptest.NewRequest(method, path, strings.NewReader("{"))
				if bearer.authorization != "" {
					request.Header.Set("Authorization", bearer.authorization)
				}
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, request)
				refused := answer.Code == 401 || answer.Code == 403
				switch may := r.scope == public || bearer.may.Allow(r.scope); {
				case may && refused:
					t.Errorf("%s %s with %s: %d", method, path, bearer.what, answer.Code)
				case !may && answer.Code != bearer.status:
					t.Errorf("%s %s with %s: %d, want %d", method, path, bearer.what, answer.Code, bearer.status)
				case !may && answer.Header().Get("WWW-Authenticate") == "":
					t.Errorf("%s %s with %s has no challenge", method, path, bearer.what)
				}
			}
		}
	}
}

func TestRouteWithoutScope(t *testing.T) {
	defer func() {
		if cause, _ := recover().(string); !strings.Contains(cause, "GET /pots has no scope") {
			t.Errorf("it starts: %v", cause)
		}
	}()
	add(gin.New(), []route{{method: "GET", path: "/pots", handler: func(*gin.Context) {}}}, authentication(Options{}))
}

// TestDocumentNamesTheScopes holds the OpenAPI document against the table.
func TestDocumentNamesTheScopes(t *testing.T) {
	var document struct {
		Paths map[string]map[string]struct{ Security []map[string][]string }
	}
	if err := json.Unmarshal(docs.OpenAPI, &document); err != nil {
		t.Fatal(err)
	}
	o, _ := optionsOf(t)
	documented := 0
	for _, r := range table(o) {
		if r.scope == public {
			continue
		}
		documented++
		operation := document.Paths[strings.ReplaceAll(r.path, ":id", "{id}")][strings.ToLower(r.method)]
		if len(operation.Security) != 1 || len(operation.Security[0]["BearerAuth"]) != 1 || operation.Security[0]["BearerAuth"][0] != string(r.scope) {
			t.Errorf("%s %s needs %s, the document says %v", r.method, r.path, r.scope, operation.Security)
		}
	}
	for _, operations := range document.Paths {
		documented -= len(operations)
	}
	if documented != 0 {
		t.Errorf("the table has %d routes more than the document", documented)
	}
}
