package middleware

import (
	"context"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
)

// NewSending returns the memory for responses that wait for clients to read them: limit bytes in
// all, and half of it for each client.
func NewSending(bytes int64) *limit.Shares { return limit.NewShares(bytes, bytes/2) }

// SendLimit counts each write toward sending for as long as it waits for its client, unless it is
// small; over HTTP/2, where a connection has many responses at a time, small ones count, too. Without
// room, a write fails with limit.ErrShare.
func SendLimit(sending *limit.Shares) Handler {
	return func(c *gin.Context) error {
		from := int64(Small + 1)
		if c.Request.ProtoMajor > 1 {
			from = 1
		}
		plain := c.Writer
		c.Writer = &limitedWriter{plain, sending, from, SenderOf(c)}
		defer func() { c.Writer = plain }() // an error, such as that of the limit, is not limited
		c.Next()
		return nil
	}
}

// limitedWriter is the writer of a response for client.
type limitedWriter struct {
	gin.ResponseWriter
	sending *limit.Shares
	from    int64 // the size from which a write counts
	client  string
}

func (w *limitedWriter) Write(p []byte) (int, error) {
	if n := int64(len(p)); n >= w.from {
		if err := w.sending.Take(w.client, n); err != nil {
			return 0, err
		}
		defer w.sending.Give(w.client, n)
	}
	return w.ResponseWriter.Write(p)
}

// Reserve takes size bytes of sending before a request is served, until the rest of its handlers
// have written the response: it must not fail once something is stored. Without room, the request
// fails with limit.ErrShare.
func Reserve(sending *limit.Shares, size int64) Handler {
	return func(c *gin.Context) error {
		if err := sending.Take(SenderOf(c), size); err != nil {
			return err
		}
		defer sending.Give(SenderOf(c), size)
		c.Next()
		return nil
	}
}

// sharedWriter is the writer of a response whose body other responses share. The body counts only
// from when the others no longer need it: then this client is slow.
type sharedWriter struct {
	*limitedWriter
	stream *streamWriter
	kept   context.Context //nolint:containedctx // the body's
}

// Shared returns c's writer for a body that many responses share, and that is kept for them until
// kept ends. From then on, it counts toward SendLimit; if there is no room, the stream ends. The
// route has [Stream] and then SendLimit.
func Shared(kept context.Context, c *gin.Context) gin.ResponseWriter {
	return &sharedWriter{c.Writer.(*limitedWriter), requestOf(c).stream, kept}
}

func (w *sharedWriter) Write(p []byte) (int, error) {
	var full error
	counted, n := make(chan struct{}), int64(len(p))
	stop := context.AfterFunc(w.kept, func() {
		defer close(counted)
		if full = w.sending.Take(w.client, n); full != nil {
			w.stream.end(full)
		}
	})
	written, err := w.stream.Write(p)
	if !stop() {
		if <-counted; full == nil {
			w.sending.Give(w.client, n)
		}
	}
	return written, err
}
