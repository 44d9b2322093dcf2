package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// timeToRespond is how long a response that reports a missed deadline may take.
const timeToRespond = 5 * time.Second

// Deadline gives a request timeout, in place of the server's time limits, and ends its
// context then.
func Deadline(timeout time.Duration) Handler {
	return func(c *gin.Context) error {
		end := time.Now().Add(timeout)
		ctx, cancel := context.WithDeadline(c.Request.Context(), end)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		control := http.NewResponseController(c.Writer)
		err := errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end.Add(timeToRespond)))
		if err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		c.Next()
		return nil
	}
}
