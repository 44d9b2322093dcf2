package middleware

import (
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
)

// BodyLimit rejects bodies of more than limit bytes with an *http.MaxBytesError, at
// once or when they are read.
func BodyLimit(limit int64) Handler {
	return func(c *gin.Context) error {
		switch length := c.Request.ContentLength; {
		case length > limit:
			return &http.MaxBytesError{Limit: limit}
		case length < 0: // net/http reads no more than the announced length
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
		}
		return nil
	}
}

// Small is the size, in bytes, up to which the body of a request does not count toward ReceiveLimit,
// nor a write of a response toward SendLimit: there is room for one of each on each connection.
const Small = 4 << 10

// ReceiveLimit limits how many bytes of bodies are kept in memory, from when they are read until
// the handler of the request has ended: bytes in all, and half of it for each client. Further
// reads fail with limit.ErrShare.
func ReceiveLimit(bytes int64) Handler {
	receiving := limit.NewShares(bytes, bytes/2)
	return func(c *gin.Context) error {
		if length := c.Request.ContentLength; length >= 0 && length <= Small {
			return nil
		}
		body := &limitedBody{ReadCloser: c.Request.Body, receiving: receiving, client: SenderOf(c)}
		c.Request.Body = body
		defer func() { receiving.Give(body.client, body.taken) }()
		c.Next()
		return nil
	}
}

// limitedBody is the body of a request of client.
type limitedBody struct {
	io.ReadCloser
	receiving *limit.Shares
	client    string
	taken     int64
}

func (b *limitedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if full := b.receiving.Take(b.client, int64(n)); full != nil {
		return 0, full
	}
	b.taken += int64(n)
	return n, err
}

// A client that still sends when its connection is closed may lose the response, so the
// rest of a rejected request's body is read first: discardLimit bytes, for discardTime.
const (
	discardLimit = 16 << 20
	discardTime  = time.Second
)

// DiscardBody reads the rest of the body of a request that is rejected.
func DiscardBody() gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.ContentLength == 0 {
			return
		}
		// A copy, as net/http looks at the body of its own request: a client that expects 100
		// Continue gets the response without it, and the connection is closed.
		observed := &struct {
			http.Request
			observedBody
		}{*c.Request, observedBody{ReadCloser: c.Request.Body}}
		c.Request = &observed.Request
		body := &observed.observedBody
		c.Request.Body = body
		defer func() { requestOf(c).bodyLeft = !body.ended }()
		c.Next()
		if len(c.Errors) == 0 || body.ended {
			return
		}
		control := http.NewResponseController(c.Writer)
		_ = control.SetReadDeadline(time.Now().Add(discardTime))    // net/http reads what is left then
		_ = control.SetWriteDeadline(time.Now().Add(timeToRespond)) // the server's may end before discardTime
		// A client that expects 100 Continue sends nothing before the first read.
		if body.begun || c.GetHeader("Expect") == "" {
			_, _ = io.CopyN(io.Discard, body.ReadCloser, discardLimit)
		}
	}
}

// observedBody records how far the body was read.
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
