package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// timeToAnswer is how long an answer may take that tells of a deadline.
const timeToAnswer = 5 * time.Second

// Deadline gives a request timeout to arrive and to be answered, in place of what
// the server gives to all, and ends its context then.
func Deadline(timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		end := time.Now().Add(timeout)
		ctx, cancel := context.WithDeadline(c.Request.Context(), end)
		defer cancel()
		c.Request = c.Request.WithContext(ctx)
		control := http.NewResponseController(c.Writer)
		// The answer to one that comes too late needs time, too.
		err := errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end.Add(timeToAnswer)))
		if err != nil {
			Fail(c, fmt.Errorf("set the deadline: %w", err))
			return
		}
		c.Next()
	}
}
