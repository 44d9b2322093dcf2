package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"sync/atomic"
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

const (
	// StreamTimeout is how long a client of a stream may take to read streamPart bytes.
	StreamTimeout = 10 * time.Second
	streamPart    = 16 << 10
)

// Stream lets a request wait, and its response last, for longer than the server's time
// limits allow, until verify no longer accepts its token, or cannot tell, or the client stops
// reading. The request's body must have been read. [Flush] sends what was written.
func Stream(verify auth.Verifier) Handler {
	const years = 100 * 365 * 24 * time.Hour
	return Bulk(BulkOptions{Timeout: years, MinBytesPerSecond: streamPart / int(StreamTimeout/time.Second), Grace: StreamTimeout}, verify)
}

// Bulk replaces the server's time limits by the limits of o. It verifies the token again every
// auth.CheckPeriod. If verify no longer accepts it, or cannot tell, the request's context ends, with the
// cause, and so do the running transfers. [BodyLimit] limits the body.
func Bulk(o BulkOptions, verify auth.Verifier) Handler {
	return func(c *gin.Context) error {
		end, r := time.Now().Add(o.Timeout), RequestOf(c)
		control := http.NewResponseController(r.Unwrap()) // a check of the token may use it after r's end
		// There is a deadline for reading only until the body has been read: beyond it, net/http
		// takes the client for gone, and would serve no other request on the connection.
		err := errors.Join(control.SetReadDeadline(time.Time{}), control.SetWriteDeadline(end.Add(timeToRespond)))
		if err != nil {
			return fmt.Errorf("set the deadline: %w", err)
		}
		ctx, cancel := context.WithDeadlineCause(c.Request.Context(), end, ErrTooLong)
		defer cancel()
		ctx, endWith := context.WithCancelCause(ctx)
		c.Request = c.Request.WithContext(ctx)
		limited := func(setDeadline func(time.Time) error) *transfer {
			late := end.Add(time.Second) // the context ends before, with its cause
			return &transfer{limits: o, ctx: ctx, endWith: endWith, end: late, setDeadline: setDeadline, left: o.Grace}
		}
		in, out := limited(control.SetReadDeadline), limited(control.SetWriteDeadline)
		r.body.in, r.out = in, out
		defer func() { r.body.in, r.out = nil, nil }()
		token, _ := bearerToken(c.Request.Header["Authorization"])
		go background.Every(ctx, auth.CheckPeriod, func() { // a check may outlive the request, which does not wait for it
			if _, err := verify(ctx, token); auth.IsRejection(err) {
				in.fail(err)
				out.fail(err)
			}
		})
		c.Next()
		_ = control.SetWriteDeadline(time.Now().Add(o.Grace)) // for the rest of the response; fails if the connection is closed
		cause := context.Cause(ctx)
		if len(c.Errors) == 0 || !auth.IsRejection(cause) {
			return nil
		}
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
}

// transfer is what a request reads or writes, a part at a time. It limits how long the parts may wait
// for the client: for limits.Grace at a time, and on average for as long as limits.MinBytesPerSecond allows.
type transfer struct {
	limits      BulkOptions
	ctx         context.Context //nolint:containedctx // the request's
	endWith     context.CancelCauseFunc
	setDeadline func(time.Time) error
	end         time.Time
	left        time.Duration // until a part must end
	active      atomic.Bool
}

// do calls part, within the limits of t, unless the request has ended. It returns a number of bytes. t
// may be nil: then there are no limits.
func (t *transfer) do(part func([]byte) (int, error), p []byte) (n int, err error) {
	if t == nil {
		return part(p)
	}
	begin := time.Now()
	due := begin.Add(t.left)
	if due.After(t.end) {
		due = t.end
	}
	t.active.Store(true)
	if err = t.setDeadline(due); err == nil {
		err = context.Cause(t.ctx) // after the deadline was set, as fail also sets it
	}
	if err == nil {
		n, err = part(p)
	}
	t.active.Store(false)
	if due.Equal(t.end) && errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %w", ErrTooLong, err)
	}
	_ = t.setDeadline(t.end) // HTTP/2 enforces a deadline even between parts
	earned := time.Duration(float64(n) / float64(t.limits.MinBytesPerSecond) * float64(time.Second))
	t.left = min(t.left-time.Since(begin)+earned, t.limits.Grace)
	return n, err
}

// fail ends the request with cause, and the part that is running, if any: HTTP/2 would end the
// request itself for a deadline that has passed.
func (t *transfer) fail(cause error) {
	t.endWith(cause)
	if t.active.Load() {
		_ = t.setDeadline(time.Now())
	}
}
