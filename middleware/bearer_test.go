package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// bear sends a request with a token from address through handlers.
func bear(token, address string, handlers ...gin.HandlerFunc) *gin.Context {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
	c.Request.RemoteAddr = address
	c.Request.Header.Set("Authorization", "Bearer "+token)
	for _, handler := range handlers {
		if !c.IsAborted() {
			handler(c)
		}
	}
	return c
}

// refusal returns the error that a request was refused with.
func refusal(c *gin.Context) error {
	if !c.IsAborted() || len(c.Errors) == 0 {
		return nil
	}
	return c.Errors.Last().Err
}

// TestBearerPassesOnWhatTheVerifierSays: a verifier that cannot tell is not one
// that says no.
func TestBearerPassesOnWhatTheVerifierSays(t *testing.T) {
	down := errors.New("the store of tokens is down")
	fail := func(context.Context, string) (*middleware.Identity, error) { return nil, down }
	verify := middleware.AnyOf(middleware.StaticTokens([]string{"right"}), fail, middleware.StaticTokens([]string{"late"}))
	c := bear("x", "192.0.2.1:1", middleware.Bearer(verify, 0))
	if !errors.Is(refusal(c), down) || c.Writer.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%v, header %v", refusal(c), c.Writer.Header())
	}
	if c := bear("right", "192.0.2.1:1", middleware.Bearer(verify, 0)); c.IsAborted() || middleware.IdentityOf(c).Name != "static:1" {
		t.Errorf("%v", refusal(c))
	}
}

func TestRequireScope(t *testing.T) {
	for _, test := range []struct {
		has   models.Scopes
		needs models.Scope
		pass  bool
	}{
		{models.Scopes{models.ScopeRead}, models.ScopeRead, true},
		{models.Scopes{models.ScopeRead}, models.ScopeWrite, false},
		{models.Scopes{models.ScopeRead}, models.ScopeAdmin, false},
		{models.Scopes{models.ScopeWrite}, models.ScopeRead, false},
		{models.Scopes{models.ScopeWrite}, models.ScopeWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeRead, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeAdmin, true},
		{nil, models.ScopeRead, false},
	} {
		verify := func(context.Context, string) (*middleware.Identity, error) {
			return &middleware.Identity{Scopes: test.has}, nil
		}
		c := bear("x", "192.0.2.1:1", middleware.Bearer(verify, 0), middleware.RequireScope(test.needs))
		if c.IsAborted() == test.pass {
			t.Errorf("%v for %s: %v", test.has, test.needs, refusal(c))
		}
		want := `Bearer error="insufficient_scope", scope="` + string(test.needs) + `"`
		if got := c.Writer.Header().Get("WWW-Authenticate"); !test.pass && got != want {
			t.Errorf("%v for %s: %s", test.has, test.needs, got)
		}
	}
	if c := bear("x", "192.0.2.1:1", middleware.RequireScope(models.ScopeRead)); !c.IsAborted() {
		t.Error("without Bearer before it, everybody may pass")
	}
}
