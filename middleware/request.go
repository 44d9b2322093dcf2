package middleware

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"sync"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"plantstore/auth"
	"plantstore/database/limit"
)

// Request is what the handlers of a request tell each other and the log, and the writer of the response.
type Request struct {
	gin.ResponseWriter              // Gin's own
	ID                 string       // by which the request is found in the log
	ErrorCode          int32        // of the response, or 0 unless that is an Error
	CreatedID          string       // of what the request creates, for the log: its path lacks it
	Quiet              bool         // no line in the log above the level debug, whatever the outcome
	Counts             []zap.Field  // of an import, for the log
	Replaced           []string     // ids of the rows that an import has replaced, for the log
	Buffer             bytes.Buffer // see [Buffer]
	// If Kept is set, many responses share what is written to this response from now on, and it is kept for
	// them until Kept ends. Only from then on, it counts toward SendLimit: then this client is slow. If
	// there is no room, the stream ends. The route has [Stream] and SendLimit.
	Kept              context.Context //nolint:containedctx // of the shared parts
	loggedID          string          // … if ID has a part of a token
	traceID, basePath string
	span              trace.Span           // or nil
	startSpan         func(isTrusted bool) // see start; nil once it was called
	identity          *auth.Identity       // nil until Bearer accepts the token
	values            []string             // of headers: see SetHeader
	copied            http.Request         // see begin
	body              body
	sending           *limit.Shares   // see SendLimit
	work              *limit.Turns    // see Compute; or nil
	turn              *limit.Turn     // see TurnOf
	pages             *limit.Turns    // see TakePage; or nil
	page              *limit.Turn     // see TakePage; or nil
	rates             []*rate.Limiter // from which the request was taken: see RateLimit
	out               *transfer       // see Bulk
	line              [11]zap.Field
}

var requests = sync.Pool{New: func() any { return new(Request) }}

// begin returns a new request for c, until end. The body is replaced in a copy of c.Request, as
// net/http looks at the body of its own: a client that expects 100 Continue gets the response
// without it, and the connection is closed.
func begin(c *gin.Context) *Request {
	r := requests.Get().(*Request)
	r.ResponseWriter, c.Writer = c.Writer, r
	r.values = make([]string, 0, 8)
	r.body.ReadCloser = c.Request.Body
	r.copied = *c.Request
	r.copied.Body = &r.body
	c.Request = &r.copied
	return r
}

// end lets another request use the memory of r, c's request. It drops a large buffer, and a buffer that
// HTTP/2 may still be sending: there, a write can fail before it has ended.
func (r *Request) end(c *gin.Context) {
	r.page.Give()
	c.Writer = r.ResponseWriter
	buffer := r.Buffer
	if c.Request.ProtoMajor > 1 || buffer.Cap() > 16<<10 {
		buffer = bytes.Buffer{}
	}
	*r = Request{Buffer: buffer}
	requests.Put(r)
}

// RequestOf returns c's request.
func RequestOf(c *gin.Context) *Request {
	if r, ok := c.Writer.(*Request); ok {
		return r
	}
	return begin(c) // in tests, without Observe
}

// Buffer returns an empty buffer, whose content is valid until the next call for c, or the end of
// c's request.
func Buffer(c *gin.Context) *bytes.Buffer {
	r := RequestOf(c)
	r.Buffer.Reset()
	return &r.Buffer
}

// Compute calls do, which computes for about a millisecond or more, in a turn of c's client.
func Compute(c *gin.Context, do func() error) error {
	turn := TurnOf(c)
	turn.Take()
	defer turn.Give()
	return do()
}

// PageWait is how long a page of many rows waits for its turn.
const PageWait = time.Second

// TakePage takes a turn of c's client for a page of many rows, until the response begins: rows that wait for a processor, to
// be encoded, take memory. It fails with limit.ErrBusy if the turn does not come in time.
func TakePage(c *gin.Context) error {
	r := RequestOf(c)
	r.page = r.pages.NewTurn(ContextOf(c))
	return r.page.TakeWithin(PageWait)
}

// ContextOf returns the context for an operation of c's client: the sender or, if it is unknown, the address. A client
// gets no more than its share of what all clients need.
func ContextOf(c *gin.Context) context.Context {
	client := RequestOf(c).Sender()
	if client == "" {
		client = clientOf(c)
	}
	return limit.WithClient(c.Request.Context(), client)
}

// TurnOf returns the turn in which c's request computes for long, with pauses.
func TurnOf(c *gin.Context) *limit.Turn {
	r := RequestOf(c)
	if r.turn == nil {
		r.turn = r.work.NewTurn(ContextOf(c))
	}
	return r.turn
}

// ClientPath returns path as the client of c's request must send it.
func ClientPath(c *gin.Context, path string) string { return RequestOf(c).basePath + path }

// RequestIDField is the field for the id of c's request.
func RequestIDField(c *gin.Context) zap.Field {
	r := RequestOf(c)
	return zap.String("request_id", cmp.Or(r.loggedID, r.ID))
}

// TraceIDField is the field for the trace id of c's request, if the client sent an id or
// the request has a span.
func TraceIDField(c *gin.Context) zap.Field { return optional("trace_id", RequestOf(c).traceID) }

// Sender returns the name of the sender of r, or an empty string if [Bearer] has not accepted it.
func (r *Request) Sender() string {
	if r.identity == nil {
		return ""
	}
	return r.identity.Name
}

// clientOf returns the address of c's client.
func clientOf(c *gin.Context) string {
	if c.Request.Header["X-Forwarded-For"] != nil {
		return c.ClientIP() // which a trusted proxy has sent
	}
	return c.RemoteIP()
}
