package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/middleware"
	"plantstore/models"
)

// send sends a request with a token from address through handlers.
func send(token, address string, handlers ...middleware.Handler) *gin.Context {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
	c.Request.RemoteAddr = address
	c.Request.Header.Set("Authorization", "Bearer "+token)
	for _, handler := range handlers {
		if !c.IsAborted() {
			middleware.Handle(handler)(c)
		}
	}
	return c
}

// headerOf returns a header of the response that [middleware.SetHeader] has set, or an empty string.
func headerOf(c *gin.Context, name string) string { return strings.Join(c.Writer.Header()[name], ",") }

// rejection returns the error that ended a request, or nil.
func rejection(c *gin.Context) error {
	if !c.IsAborted() || len(c.Errors) == 0 {
		return nil
	}
	return c.Errors.Last().Err
}

func TestRequireScope(t *testing.T) {
	require := middleware.RequireScope(models.ReadScope("plants"))
	t.Run("a token without scopes is rejected", func(t *testing.T) {
		verify := func(context.Context, string) (*auth.Identity, error) { return &auth.Identity{}, nil }
		c := send("x", "192.0.2.1:1", middleware.Bearer(verify, 0), require)
		if got, ok := errors.AsType[*auth.ScopeError](rejection(c)); !ok || got.Scope != models.ReadScope("plants") {
			t.Errorf("got %v, want a ScopeError", rejection(c))
		}
		if got, want := headerOf(c, "WWW-Authenticate"), `Bearer error="insufficient_scope", scope="plants:read"`; got != want {
			t.Errorf("got the challenge %s, want %s", got, want)
		}
	})
	t.Run("a request without an identity is rejected", func(t *testing.T) {
		if c := send("x", "192.0.2.1:1", require); !c.IsAborted() {
			t.Error("it passed")
		}
	})
}
