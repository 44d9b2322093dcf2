package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
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

// rejection returns the error that ended a request, or nil.
func rejection(c *gin.Context) error {
	if !c.IsAborted() || len(c.Errors) == 0 {
		return nil
	}
	return c.Errors.Last().Err
}

func TestBearer(t *testing.T) {
	down := errors.New("the database is down")
	fail := func(context.Context, string) (*auth.Identity, error) { return nil, down }
	verify := auth.AnyOf(auth.StaticTokens([]string{"right"}), fail)
	t.Run("an error of the verifier is passed on, without a challenge", func(t *testing.T) {
		c := send("x", "192.0.2.1:1", middleware.Bearer(verify, 0))
		if !errors.Is(rejection(c), down) || middleware.HeaderOf(c, "WWW-Authenticate") != "" {
			t.Errorf("got %v, header %v", rejection(c), c.Writer.Header())
		}
	})
	t.Run("a valid token gives the request an identity", func(t *testing.T) {
		c := send("right", "192.0.2.1:1", middleware.Bearer(verify, 0))
		if c.IsAborted() || middleware.IdentityOf(c).Name != "static:1" {
			t.Errorf("got %v", rejection(c))
		}
	})
}

func TestBearerReadsTheAuthorizationHeader(t *testing.T) {
	bearer := middleware.Handle(middleware.Bearer(auth.StaticTokens([]string{"right"}), 0))
	const missing, invalid = `Bearer realm="plantstore"`, `Bearer realm="plantstore", error="invalid_token"`
	for _, test := range []struct {
		name      string
		headers   []string
		want      error
		challenge string
	}{
		{"a valid token", []string{"Bearer right"}, nil, ""},
		{"a scheme in another case", []string{"bEARER right"}, nil, ""},
		{"spaces before the token", []string{"Bearer   right"}, nil, ""},
		{"no header", nil, auth.ErrNoToken, missing},
		{"another scheme", []string{"Basic right"}, auth.ErrNoToken, missing},
		{"no token", []string{"Bearer "}, auth.ErrNoToken, missing},
		{"a wrong token", []string{"Bearer wrong"}, auth.ErrInvalidToken, invalid},
		{"two headers", []string{"Bearer right", "Bearer right"}, auth.ErrInvalidToken, invalid},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
			c.Request.Header["Authorization"] = test.headers
			bearer(c)
			if got := rejection(c); !errors.Is(got, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
			if got := middleware.HeaderOf(c, "WWW-Authenticate"); got != test.challenge {
				t.Errorf("got the challenge %s, want %s", got, test.challenge)
			}
		})
	}
}

func TestRequireScope(t *testing.T) {
	for _, test := range []struct {
		has   models.Scopes
		needs models.Scope
		pass  bool
	}{
		{models.Scopes{models.ScopePlantsRead}, models.ScopePlantsRead, true},
		{models.Scopes{models.ScopePlantsRead}, models.ScopePlantsWrite, false},
		{models.Scopes{models.ScopePlantsRead}, models.ScopeAdmin, false},
		{models.Scopes{models.ScopePlantsWrite}, models.ScopePlantsRead, false},
		{models.Scopes{models.ScopePlantsWrite}, models.ScopePlantsWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopePlantsRead, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopePlantsWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeAdmin, true},
		{nil, models.ScopePlantsRead, false},
	} {
		name := " is enough for "
		if !test.pass {
			name = " is not enough for "
		}
		t.Run("["+test.has.String()+"]"+name+string(test.needs), func(t *testing.T) {
			verify := func(context.Context, string) (*auth.Identity, error) { return &auth.Identity{Scopes: test.has}, nil }
			c := send("x", "192.0.2.1:1", middleware.Bearer(verify, 0), middleware.RequireScope(test.needs))
			var want error
			challenge := ""
			if !test.pass {
				want, challenge = &auth.ScopeError{Scope: test.needs}, `Bearer error="insufficient_scope", scope="`+string(test.needs)+`"`
			}
			got, _ := errors.AsType[*auth.ScopeError](rejection(c))
			if c.IsAborted() == test.pass || !test.pass && (got == nil || got.Error() != want.Error()) {
				t.Errorf("got %v, want %v", rejection(c), want)
			}
			if got := middleware.HeaderOf(c, "WWW-Authenticate"); got != challenge {
				t.Errorf("got the challenge %s, want %s", got, challenge)
			}
		})
	}
	t.Run("a request without an identity is rejected", func(t *testing.T) {
		if c := send("x", "192.0.2.1:1", middleware.RequireScope(models.ScopePlantsRead)); !c.IsAborted() {
			t.Error("it passed")
		}
	})
}
