package middleware

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// drainLimit is how much of a body that is refused is read all the same, in bytes.
// A client that is still sending when its connection closes may lose the answer
// that tells it why.
const drainLimit = 16 << 20

// drainTime is how long that may take.
const drainTime = time.Second

// BodyLimit stops the reading of a request's body after limit bytes with an
// *http.MaxBytesError.
func BodyLimit(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		body := &observedBody{ReadCloser: c.Request.Body}
		c.Request.Body = body
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
		if last == nil || body.ended {
			return
		}
		// Who expects 100 Continue sends nothing before the first read.
		_, tooLarge := errors.AsType[*http.MaxBytesError](last.Err)
		if body.begun || tooLarge && c.GetHeader("Expect") == "" {
			// The answer waits for it, though not for a client that is slow.
			_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(drainTime))
			_, _ = io.CopyN(io.Discard, body.ReadCloser, drainLimit)
		}
	}
}

// observedBody knows how far it was read.
type observedBody struct {
	io.ReadCloser
	begun, ended bool
}

func (b *observedBody) Read(p []byte) (int, error) {
	b.begun = true
	n, err := b.ReadCloser.Read(p)
	b.ended = b.ended || err != nil
	return n, err
}
