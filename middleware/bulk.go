package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
)

// BulkOptions limits imports and exports.
type BulkOptions struct {
	MaxBodyBytes      int64         // of an import
	Timeout           time.Duration // of a whole request
	MinBytesPerSecond int           // that the client sends or takes
	Grace             time.Duration // how long it may stall
}

// timeToRespond is how long a response may take that reports the end of a request.
const timeToRespond = 5 * time.Second

// checkPeriod is how often the token of a request is verified again while it runs. Then
// it ends within 5 s of the end of its token, as a token's verifier may be 2 s late.
const checkPeriod = time.Second / 2

// ErrTooLong is the cause of the end of a request that has lasted for BulkOptions.Timeout.
var ErrTooLong = errors.New("the request took longer than bulk.timeout allows")

// Bulk replaces the server's time limits by those of o. It ends a request when verify no
// longer accepts its token. [BodyLimit] limits the body; a request without one has
// [http.NoBody].
func Bulk(o BulkOptions, verify auth.Verifier) Handler {
	return func(c *gin.Context) error {
		end := time.Now().Add(o.Timeout)
		ctx, cancel := context.WithDeadlineCause(c.Request.Context(), end, ErrTooLong)
		defer cancel()
		control, plain := http.NewResponseController(c.Writer), c.Writer
		body := &pacedBody{ReadCloser: c.Request.Body, control: control}
		err := errors.Join(control.SetReadDeadline(end), control.SetWriteDeadline(end.Add(timeToRespond)))
		if body.ReadCloser == http.NoBody {
			err = errors.Join(err, body.end())
		}
		if err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		ctx, endWatch := watchToken(ctx, c, verify, checkPeriod, body.interrupt)
		body.pace = newPace(ctx, o, end, control.SetReadDeadline)
		c.Request.Body = body
		c.Writer = &pacedWriter{plain, newPace(ctx, o, end, control.SetWriteDeadline)}
		defer func() {
			endWatch()
			c.Writer = plain
		}()
		c.Next()
		return endOfToken(ctx, c)
	}
}

// watchToken gives c's request a context in which its token is verified again after each
// period: if it is no longer accepted, the context ends with the cause, and so do writes of
// the response, and reads of the body by interrupt. end stops that, and leaves time to respond.
func watchToken(
	parent context.Context, c *gin.Context, verify auth.Verifier, period time.Duration, interrupt func(),
) (ctx context.Context, end func()) {
	ctx, endWith := context.WithCancelCause(parent)
	control := http.NewResponseController(c.Writer)
	token, _ := bearerToken(c.Request.Header["Authorization"])
	var checks sync.WaitGroup
	checks.Go(func() {
		ticker := time.NewTicker(period)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if _, err := verify(ctx, token); errors.Is(err, auth.ErrInvalidToken) {
				endWith(err)
				interrupt()
				_ = control.SetWriteDeadline(time.Now())
			}
		}
	})
	c.Request = c.Request.WithContext(ctx)
	return ctx, func() {
		endWith(nil)
		checks.Wait()
		_ = control.SetWriteDeadline(time.Now().Add(timeToRespond)) // fails if the connection is closed
	}
}

// endOfToken returns the error of a request that failed because watchToken has ended it.
func endOfToken(ctx context.Context, c *gin.Context) error {
	if cause := context.Cause(ctx); len(c.Errors) > 0 && errors.Is(cause, auth.ErrInvalidToken) {
		challenge(c, cause)
		return cause
	}
	return nil
}

// pace limits how long the transfers of a request, in one direction, may wait for the
// client: for grace at once, and on average for as long as rate bytes per second allow.
type pace struct {
	ctx         context.Context //nolint:containedctx // the request's
	end         time.Time
	rate        float64
	grace, left time.Duration
	setDeadline func(time.Time) error
}

func newPace(ctx context.Context, o BulkOptions, end time.Time, setDeadline func(time.Time) error) *pace {
	return &pace{ctx, end, float64(o.MinBytesPerSecond), o.Grace, o.Grace, setDeadline}
}

// do limits transfer, which returns a number of bytes.
func (p *pace) do(transfer func() (int, error)) (n int, err error) {
	begin := time.Now()
	due := begin.Add(p.left)
	if due.After(p.end) {
		due = p.end
	}
	if err := p.setDeadline(due); err != nil {
		return 0, err
	}
	if err := p.ctx.Err(); err != nil { // after the deadline was set, as the end of the token sets it, too
		return 0, err
	}
	n, err = transfer()
	_ = p.setDeadline(p.end) // HTTP/2 enforces a deadline even between transfers
	earned := time.Duration(float64(n) / p.rate * float64(time.Second))
	p.left = min(p.left-time.Since(begin)+earned, p.grace)
	return n, err
}

// pacedBody is the body of a request.
type pacedBody struct {
	io.ReadCloser
	pace    *pace
	control *http.ResponseController

	mu    sync.Mutex
	ended bool
}

func (b *pacedBody) Read(p []byte) (int, error) {
	n, err := b.pace.do(func() (int, error) { return b.ReadCloser.Read(p) })
	if errors.Is(err, io.EOF) {
		_ = b.end() // fails if the connection is closed
	}
	return n, err
}

// end lifts the deadline for reading. From the end of the body on, net/http waits for the next
// request, and beyond a deadline takes the client for gone: it would serve no other request
// on the connection.
func (b *pacedBody) end() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.ended = true
	return b.control.SetReadDeadline(time.Time{})
}

// interrupt ends a read of the body.
func (b *pacedBody) interrupt() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		_ = b.control.SetReadDeadline(time.Now())
	}
}

type pacedWriter struct {
	gin.ResponseWriter
	pace *pace
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	return w.pace.do(func() (int, error) { return w.ResponseWriter.Write(p) })
}

func (w *pacedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
