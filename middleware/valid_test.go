package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database"
)

// TestEndOfAToken: a request that ends as its token cannot be verified says so, unless the outcome
// of its write is unknown.
func TestEndOfAToken(t *testing.T) {
	for name, test := range map[string]struct{ verify, handler, want error }{
		"an invalid token":           {auth.ErrInvalidToken, context.Canceled, auth.ErrInvalidToken},
		"and an unknown outcome":     {auth.ErrInvalidToken, database.ErrUnavailable, auth.ErrInvalidToken},
		"it cannot be verified":      {auth.ErrCannotVerify, context.Canceled, auth.ErrCannotVerify},
		"it cannot, unknown outcome": {auth.ErrCannotVerify, database.ErrUnavailable, database.ErrUnavailable},
	} {
		t.Run(name, func(t *testing.T) {
			c, e := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
			verify := auth.AnyOf(func(context.Context, string) (*auth.Identity, error) { return nil, fmt.Errorf("x: %w", test.verify) })
			e.GET("/", Handle(func(c *gin.Context) error {
				ctx, end := context.WithCancelCause(c.Request.Context())
				defer end(nil)
				c.Request = c.Request.WithContext(ctx)
				out := &transfer{ctx: ctx, setDeadline: func(time.Time) error { return nil }}
				return whileValid(c, end, verify, time.Millisecond, nil, out, time.Second)
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
