package middleware

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/database/background"
	"plantstore/database/fault"
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

// ErrTooLong is the cause of the end of a request that has lasted for BulkOptions.Timeout.
var ErrTooLong = errors.New("the request took longer than bulk.timeout allows")

// Bulk replaces the server's time limits by those of o. It ends a request when verify no
// longer accepts its token, or cannot tell. [BodyLimit] limits the body.
func Bulk(o BulkOptions, verify auth.Verifier) Handler {
	return func(c *gin.Context) error {
		end := time.Now().Add(o.Timeout)
		ctx, cancel := context.WithDeadlineCause(c.Request.Context(), end, ErrTooLong)
		defer cancel()
		ctx, endWith := context.WithCancelCause(ctx)
		defer endWith(nil)
		control, plain := http.NewResponseController(c.Writer), c.Writer
		// There is a deadline for reading only until the body has been read: beyond it, net/http
		// takes the client for gone, and would serve no other request on the connection.
		err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(end.Add(timeToRespond)))
		if err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		in := newPace(ctx, o, end.Add(time.Second), control.SetReadDeadline) // the context ends before, with its cause
		out := newPace(ctx, o, end, control.SetWriteDeadline)
		c.Request = c.Request.WithContext(ctx)
		c.Request.Body = &pacedBody{ReadCloser: c.Request.Body, pace: in}
		c.Writer = &pacedWriter{plain, out}
		defer func() { c.Writer = plain }()
		return whileValid(c, endWith, verify, &in.transfer, &out.transfer, o.Grace)
	}
}

// whileValid serves the rest of c's request, and verifies its token again every auth.CheckPeriod. If
// it is no longer accepted, endWith ends the request's context, with the cause, and the running
// transfers end: in, unless it is nil, and out. It leaves timeToRespond for an Error, or
// toEnd for the rest of a successful response.
func whileValid(c *gin.Context, endWith context.CancelCauseFunc, verify auth.Verifier, in, out *transfer, toEnd time.Duration) error {
	ctx := c.Request.Context()
	token, _ := bearerToken(c.Request.Header["Authorization"])
	// A check may outlive the request, which does not wait for it: then no transfer is running.
	go background.Every(ctx, auth.CheckPeriod, func() {
		if _, err := verify(ctx, token); auth.IsRejection(err) {
			endWith(err)
			in.interrupt()
			out.interrupt()
		}
	})
	defer func() {
		endWith(nil)
		if len(c.Errors) > 0 {
			toEnd = timeToRespond
		}
		_ = out.setDeadline(time.Now().Add(toEnd)) // fails if the connection is closed
	}()
	c.Next()
	if cause := context.Cause(ctx); len(c.Errors) > 0 && auth.IsRejection(cause) {
		isUnknown := c.Request.Method != http.MethodGet && errors.Is(c.Errors.Last(), fault.ErrUnavailable)
		if isUnknown && errors.Is(cause, auth.ErrCannotVerify) {
			return nil // that error says that the outcome of a write is unknown
		}
		challenge(c, cause)
		if isUnknown {
			return auth.ErrEnded
		}
		return cause
	}
	return nil
}

// transfer is what a request reads or writes, a part at a time.
type transfer struct {
	ctx         context.Context //nolint:containedctx // the request's
	setDeadline func(time.Time) error

	mu     sync.Mutex
	active bool
}

// run calls part, which must end by due, unless the request has ended.
func (t *transfer) run(due time.Time, part func() (int, error)) (int, error) {
	t.setActive(true)
	defer t.setActive(false)
	if err := t.setDeadline(due); err != nil {
		return 0, err
	}
	if t.ctx.Err() != nil { // after the deadline was set, as interrupt sets it, too
		return 0, context.Cause(t.ctx)
	}
	return part()
}

func (t *transfer) setActive(active bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.active = active
}

// interrupt ends the part that is running, if any: HTTP/2 would end the request itself for a
// deadline that has passed. t may be nil.
func (t *transfer) interrupt() {
	if t == nil {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.active {
		_ = t.setDeadline(time.Now())
	}
}

// pace limits how long the transfers of a request, in one direction, may wait for the
// client: for grace at a time, and on average for as long as rate bytes per second allow.
type pace struct {
	transfer
	end         time.Time
	rate        float64
	grace, left time.Duration
}

func newPace(ctx context.Context, o BulkOptions, end time.Time, setDeadline func(time.Time) error) *pace {
	return &pace{transfer{ctx: ctx, setDeadline: setDeadline}, end, float64(o.MinBytesPerSecond), o.Grace, o.Grace}
}

// do limits part, which returns a number of bytes.
func (p *pace) do(part func() (int, error)) (int, error) {
	begin := time.Now()
	due := begin.Add(p.left)
	if due.After(p.end) {
		due = p.end
	}
	n, err := p.run(due, part)
	if due.Equal(p.end) && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrTooLong, err)
	}
	_ = p.setDeadline(p.end) // HTTP/2 enforces a deadline even between transfers
	earned := time.Duration(float64(n) / p.rate * float64(time.Second))
	p.left = min(p.left-time.Since(begin)+earned, p.grace)
	return n, err
}

// pacedBody is the body of a request.
type pacedBody struct {
	io.ReadCloser
	pace  *pace
	ended bool
}

func (b *pacedBody) Read(p []byte) (int, error) {
	if b.ended {
		return 0, io.EOF
	}
	n, err := b.pace.do(func() (int, error) { return b.ReadCloser.Read(p) })
	switch b.ended = errors.Is(err, io.EOF); { // setDeadline fails if the connection is closed
	case b.ended:
		_ = b.pace.setDeadline(time.Time{})
	case err != nil: // net/http waits for the rest before it closes the connection
		_ = b.pace.setDeadline(time.Now().Add(discardTime))
	}
	return n, err
}

type pacedWriter struct {
	gin.ResponseWriter
	pace *pace
}

func (w *pacedWriter) Write(p []byte) (int, error) {
	return w.pace.do(func() (int, error) { return w.ResponseWriter.Write(p) })
}

func (w *pacedWriter) WriteString(s string) (int, error) { return w.Write([]byte(s)) }
