package middleware

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// Deadline gives a request timeout to arrive and to be answered, in place of what
// the server gives to all, and ends its context then.
func Deadline(timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		end := time.Now().Add(timeout)
		ctx, cancel := context.WithDeadline(c.Request.Context(), end)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		control := http.NewResponseController(c.Writer)
		for _, set := range []func(time.Time) error{control.SetReadDeadline, control.SetWriteDeadline} {
			if err := set(end); err != nil {
				Fail(c, fmt.Errorf("set the deadline: %w", err))
				return
			}
		}
		c.Next()
	}
}
