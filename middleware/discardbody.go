package middleware

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
)

// discardLimit is how much of a body that is refused is read all the same, in bytes.
// A client that is still sending when its connection closes may lose the answer
// that tells it why.
const discardLimit = 16 << 20

// discardTime is how long that may take.
const discardTime = time.Second

// DiscardBody reads what is left of a request's body where the request is refused, before
// the answer: for whatever reason it is refused, and whoever sends it.
func DiscardBody() gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.ContentLength == 0 {
			return
		}
		body := &observedBody{ReadCloser: c.Request.Body}
		c.Request.Body = body
		c.Next()
		// Who expects 100 Continue sends nothing before the first read.
		waits := !body.begun && c.GetHeader("Expect") != ""
		if len(c.Errors) == 0 || body.ended || waits {
			return
		}
		// The answer waits for it, though not for a client that is slow.
		_ = http.NewResponseController(c.Writer).SetReadDeadline(time.Now().Add(discardTime))
		_, _ = io.CopyN(io.Discard, body.ReadCloser, discardLimit)
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
