package middleware

import (
	"fmt"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// Deadline gives a request timeout to arrive and to be answered, in place of what
// the server gives to all.
func Deadline(timeout time.Duration) gin.HandlerFunc {
	return func(c *gin.Context) {
		control, end := http.NewResponseController(c.Writer), time.Now().Add(timeout)
		for _, set := range []func(time.Time) error{control.SetReadDeadline, control.SetWriteDeadline} {
			if err := set(end); err != nil {
				Fail(c, fmt.Errorf("set the deadline: %w", err))
				return
			}
		}
	}
}
