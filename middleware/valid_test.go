package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database/fault"
	"plantstore/middleware"
)

// TestEndOfAToken: a request that ends as its token cannot be verified says so, unless the outcome
// of its write is unknown.
func TestEndOfAToken(t *testing.T) {
	for name, test := range map[string]struct {
		method                string
		verify, handler, want error
	}{
		"an invalid token":           {"POST", auth.ErrInvalidToken, context.Canceled, auth.ErrInvalidToken},
		"and an unknown outcome":     {"POST", auth.ErrInvalidToken, fault.ErrUnavailable, auth.ErrEnded},
		"and a read":                 {"GET", auth.ErrInvalidToken, fault.ErrUnavailable, auth.ErrInvalidToken},
		"it cannot be verified":      {"POST", auth.ErrCannotVerify, context.Canceled, auth.ErrCannotVerify},
		"it cannot, unknown outcome": {"POST", auth.ErrCannotVerify, fault.ErrUnavailable, fault.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			verify := auth.AnyOf(func(context.Context, string) (*auth.Identity, error) { return nil, fmt.Errorf("x: %w", test.verify) })
			var got *gin.Error
			e := gin.New()
			e.Handle(test.method, "/", func(c *gin.Context) {
				c.Next()
				got = c.Errors.Last()
			}, middleware.Handle(middleware.Stream(verify)), middleware.Handle(func(c *gin.Context) error {
				<-c.Request.Context().Done()
				return test.handler
			}))
			w := &fullWriter{ResponseRecorder: httptest.NewRecorder(), ended: make(chan struct{})}
			e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), test.method, "/", nil))
			if got == nil || !errors.Is(got.Err, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
