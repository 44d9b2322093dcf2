package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
)

func TestStaticTokens(t *testing.T) {
	tokens := middleware.NewStaticTokens([]string{"first", "second"})
	for token, want := range map[string]error{
		"first": nil, "second": nil,
		"": middleware.ErrInvalidToken, "firs": middleware.ErrInvalidToken, "firstx": middleware.ErrInvalidToken, "First": middleware.ErrInvalidToken,
	} {
		if err := tokens.Verify(t.Context(), token); !errors.Is(err, want) {
			t.Errorf("%q: got %v, want %v", token, err, want)
		}
	}
	if err := middleware.NewStaticTokens(nil).Verify(t.Context(), ""); !errors.Is(err, middleware.ErrInvalidToken) {
		t.Errorf("without tokens, the empty one: %v", err)
	}
}

// TestBearerPassesOnWhatTheVerifierSays: a verifier that cannot tell is not one
// that says no.
func TestBearerPassesOnWhatTheVerifierSays(t *testing.T) {
	down := errors.New("the store of tokens is down")
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
	c.Request.Header.Set("Authorization", "Bearer x")
	middleware.Bearer(func(context.Context, string) error { return down })(c)
	if !c.IsAborted() || !errors.Is(c.Errors.Last().Err, down) || c.Writer.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("aborted %v, errors %v, header %v", c.IsAborted(), c.Errors, c.Writer.Header())
	}
}

func BenchmarkStaticTokens(b *testing.B) {
	tokens := middleware.NewStaticTokens([]string{strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)})
	b.ReportAllocs()
	for b.Loop() {
		if err := tokens.Verify(context.Background(), strings.Repeat("c", 64)); err != nil {
			b.Fatal(err)
		}
	}
}
