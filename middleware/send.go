package middleware

import (
	"context"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
)

// SendLimit counts each write toward sending for as long as it waits for its client, unless it is
// Small, as an Error is. Without room, a write fails with limit.ErrShare.
func SendLimit(sending *limit.Shares) Handler {
	return func(c *gin.Context) error {
		RequestOf(c).sending = sending
		return nil
	}
}

// Reserve takes size bytes of sending before a request is served, until the rest of its handlers
// have written the response: it must not fail once something is stored. Without room, the request
// fails with limit.ErrShare.
func Reserve(sending *limit.Shares, size int64) Handler {
	return func(c *gin.Context) error {
		sender := RequestOf(c).Sender()
		if err := sending.Take(sender, size); err != nil {
			return err
		}
		defer sending.Give(sender, size)
		c.Next()
		return nil
	}
}

// Write sends p, within the limits of the route.
func (r *Request) Write(p []byte) (int, error) {
	r.page.Give()
	size, client := int64(len(p)), r.Sender()
	if r.sending == nil || size <= Small {
		return r.send(p)
	}
	if r.Kept == nil {
		if err := r.sending.Take(client, size); err != nil {
			return 0, err
		}
		defer r.sending.Give(client, size)
		return r.send(p)
	}
	var full error
	counted := make(chan struct{})
	stop := context.AfterFunc(r.Kept, func() {
		defer close(counted)
		if full = r.sending.Take(client, size); full != nil {
			r.out.fail(full)
		}
	})
	n, err := r.send(p)
	if !stop() {
		if <-counted; full == nil {
			r.sending.Give(client, size)
		}
	}
	return n, err
}

// WriteString is Write for a string.
func (r *Request) WriteString(s string) (int, error) { return r.Write([]byte(s)) }

// send sends p. Each part has a time limit if the route has [Bulk] or [Stream].
func (r *Request) send(p []byte) (n int, err error) {
	if r.out == nil {
		return r.ResponseWriter.Write(p)
	}
	for part := range slices.Chunk(p, streamPart) {
		sent, err := r.out.do(r.ResponseWriter.Write, part)
		if n += sent; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush sends what was written to a stream: its route has [Stream]. It fails if the client does
// not read.
func Flush(c *gin.Context) error {
	r := RequestOf(c)
	flush := http.NewResponseController(r.Unwrap()).Flush                             // Gin's has no error
	_, err := r.out.do(func([]byte) (int, error) { return streamPart, flush() }, nil) // all was sent
	return err
}

// Unwrap returns net/http's writer, for [http.ResponseController]. Other requests use r, and Gin's writer, later.
func (r *Request) Unwrap() http.ResponseWriter {
	return r.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }).Unwrap()
}
