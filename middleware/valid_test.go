package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database/fault"
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
			c, e := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequestWithContext(t.Context(), test.method, "/", nil)
			verify := auth.AnyOf(func(context.Context, string) (*auth.Identity, error) { return nil, fmt.Errorf("x: %w", test.verify) })
			e.Handle(test.method, "/", Handle(func(c *gin.Context) error {
				r := RequestOf(c)
				ctx, end := context.WithCancelCause(c.Request.Context())
				defer end(nil)
				c.Request = c.Request.WithContext(ctx)
				r.out = &transfer{ctx: ctx, endWith: end, setDeadline: func(time.Time) error { return nil }}
				r.body.in = r.out
				return whileValid(c, verify)
			}), Handle(func(c *gin.Context) error {
				<-c.Request.Context().Done()
				return test.handler
			}))
			e.HandleContext(c)
			if got := c.Errors.Last(); got == nil || !errors.Is(got.Err, test.want) {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
