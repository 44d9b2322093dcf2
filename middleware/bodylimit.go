package middleware

import (
	"errors"
	"io"
	"net/http"

	"github.com/gin-gonic/gin"
)

// drainLimit is how much of a body that is too large is read all the same, in
// bytes. A client that is still sending when its connection closes may lose the
// answer that tells it why.
const drainLimit = 1 << 20

// BodyLimit stops the reading of a request's body after limit bytes with an
// *http.MaxBytesError.
func BodyLimit(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		body := c.Request.Body
		switch length := c.Request.ContentLength; {
		case length > limit:
			Fail(c, &http.MaxBytesError{Limit: limit})
		case length >= 0:
			c.Next() // net/http reads no more than was announced
		default:
			c.Request.Body = http.MaxBytesReader(c.Writer, body, limit)
			c.Next()
		}
		last := c.Errors.Last()
		if last == nil {
			return
		}
		// Who expects 100 Continue has sent nothing yet.
		_, tooLarge := errors.AsType[*http.MaxBytesError](last.Err)
		if tooLarge && c.GetHeader("Expect") == "" {
			_, _ = io.CopyN(io.Discard, body, drainLimit)
		}
	}
}
