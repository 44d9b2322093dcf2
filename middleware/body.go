package middleware

import (
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
)

// body is the body of a request. It records how far it was read.
type body struct {
	io.ReadCloser
	begun     bool
	err       error         // of the last read: io.EOF at the end
	receiving *limit.Shares // see ReceiveLimit
	client    string        // that takes of receiving
	taken     int64
	in        *transfer // see Bulk
}

func (b *body) Read(p []byte) (int, error) {
	n, err := b.in.do(b.ReadCloser.Read, p)
	b.begun, b.err = true, err
	if b.in != nil && errors.Is(err, io.EOF) { // net/http takes the client for gone at the deadline, even after the body
		_ = b.in.setDeadline(time.Time{}) // fails if the connection is closed
	}
	if b.receiving != nil {
		if full := b.receiving.Take(b.client, int64(n)); full != nil {
			return 0, full
		}
		b.taken += int64(n)
	}
	return n, err
}

// BodyLimit rejects bodies of more than limit bytes with an *http.MaxBytesError, at
// once or when they are read.
func BodyLimit(limit int64) Handler {
	return func(c *gin.Context) error {
		switch length := c.Request.ContentLength; {
		case length > limit:
			return &http.MaxBytesError{Limit: limit}
		case length < 0: // net/http reads no more than the announced length
			c.Request.Body = http.MaxBytesReader(nil, c.Request.Body, limit)
		}
		return nil
	}
}

// Small is the size, in bytes, up to which the body of a request does not count toward ReceiveLimit,
// nor a write of a response toward SendLimit: each in-flight request has room for both.
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
		b := &RequestOf(c).body
		b.receiving, b.client = receiving, RequestOf(c).Sender()
		defer func() {
			receiving.Give(b.client, b.taken)
			b.receiving = nil
		}()
		c.Next()
		return nil
	}
}

// A client that still sends when its connection is closed may lose the response, so the
// rest of a rejected request's body is read first: discardLimit bytes, for discardTime.
const (
	discardLimit = 16 << 20
	discardTime  = time.Second
)

// DiscardBody reads the rest of the body of a request that is rejected.
func DiscardBody(c *gin.Context) {
	b := &RequestOf(c).body
	c.Next()
	if len(c.Errors) == 0 || c.Request.ContentLength == 0 || errors.Is(b.err, io.EOF) {
		return
	}
	control := http.NewResponseController(c.Writer)
	_ = control.SetReadDeadline(time.Now().Add(discardTime))    // net/http reads what is left then
	_ = control.SetWriteDeadline(time.Now().Add(timeToRespond)) // the server's may end before discardTime
	if c.Request.Header["Expect"] == nil || b.begun {           // a client that waits for 100 Continue has sent nothing
		n, _ := io.CopyN(io.Discard, b.ReadCloser, discardLimit)
		Moved(c, n)
	}
}

// Moved lets c's client wait for as long as n bytes that it has sent or received keep a processor busy, and then rest.
func Moved(c *gin.Context, n int64) {
	if r := RequestOf(c); r.work != nil {
		r.work.Charge(ContextOf(c), time.Duration(n)) // a nanosecond for each
	}
}
