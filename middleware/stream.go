package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
)

// StreamTimeout is how long a client of a stream may take to read streamPart bytes.
const StreamTimeout = 10 * time.Second

const streamPart = 16 << 10

// Stream lets a request wait, and its response last, for longer than the server's time
// limits allow, until verify no longer accepts its token, or cannot tell, or the client stops
// reading. The request's body must have been read. [Flush] sends what was written.
func Stream(verify auth.Verifier) Handler {
	return func(c *gin.Context) error {
		control, plain := http.NewResponseController(c.Writer), c.Writer
		// Beyond its deadline for reading, net/http takes the client for gone.
		if err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(time.Time{})); err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		ctx, endWith := context.WithCancelCause(c.Request.Context())
		defer endWith(nil)
		out := &transfer{ctx: ctx, setDeadline: control.SetWriteDeadline}
		c.Request = c.Request.WithContext(ctx)
		stream := &streamWriter{plain, out, endWith}
		requestOf(c).stream = stream
		c.Writer = stream
		defer func() { c.Writer = plain }()
		return whileValid(c, endWith, verify, nil, out, timeToRespond)
	}
}

// streamWriter is the writer of a stream.
type streamWriter struct {
	gin.ResponseWriter
	transfer *transfer
	endWith  context.CancelCauseFunc
}

// end ends the stream with cause.
func (w *streamWriter) end(cause error) {
	w.endWith(cause)
	w.transfer.interrupt()
}

// Write limits how long the client may take to read each part of p.
func (w *streamWriter) Write(p []byte) (n int, err error) {
	for part := range slices.Chunk(p, streamPart) {
		written, err := w.transfer.run(time.Now().Add(StreamTimeout), func() (int, error) { return w.ResponseWriter.Write(part) })
		if n += written; err != nil {
			return n, err
		}
	}
	return n, nil
}

// Flush sends what was written to a stream: its route has [Stream]. It fails if the client does
// not read.
func Flush(c *gin.Context) error {
	stream := requestOf(c).stream
	plain := stream.ResponseWriter.(interface{ Unwrap() http.ResponseWriter }).Unwrap() // Gin's Flush has no error
	flush := http.NewResponseController(plain).Flush
	if _, err := stream.transfer.run(time.Now().Add(StreamTimeout), func() (int, error) { return 0, flush() }); err != nil {
		return err
	}
	return stream.transfer.setDeadline(time.Time{}) // HTTP/2 enforces a deadline even between parts
}
