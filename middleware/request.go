package middleware

import (
	"bytes"
	"cmp"
	"context"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database/limit"
)

// request is what the handlers of a request tell each other, and the writer of the response.
type request struct {
	gin.ResponseWriter        // Gin's own
	id, loggedID       string // loggedID is … if id has a part of a token
	traceID, basePath  string
	span               trace.Span           // or nil
	startSpan          func(isTrusted bool) // see start; nil once it was called
	identity           *auth.Identity       // nil until Bearer accepts the token
	createdID          string
	errorCode          int32        // 0 unless the response is an Error
	quiet              bool         // no line in the log above the level debug
	values             []string     // of headers: see SetHeader
	copied             http.Request // see begin
	body               body
	sending            *limit.Shares   // see SendLimit
	work               *limit.Turns    // see Compute; or nil
	turn               *limit.Turn     // see TurnOf
	rates              [2]*buckets     // of tokens and of addresses; or nil
	kept               context.Context //nolint:containedctx // see Share
	out                *transfer       // see Bulk
	line               [11]zap.Field
	counts             []zap.Field // of an import
	replaced           []string    // see SetImported
	buffer             bytes.Buffer
}

var requests = sync.Pool{New: func() any { return new(request) }}

// begin returns a new request for c, until end. The body is replaced in a copy of c.Request, as
// net/http looks at the body of its own: a client that expects 100 Continue gets the response
// without it, and the connection is closed.
func begin(c *gin.Context) *request {
	r := requests.Get().(*request)
	r.ResponseWriter, c.Writer = c.Writer, r
	r.values = make([]string, 0, 8)
	r.body.ReadCloser = c.Request.Body
	r.copied = *c.Request
	r.copied.Body = &r.body
	c.Request = &r.copied
	return r
}

// end lets another request use the memory of r, c's request. It drops a buffer that HTTP/2 may still
// be sending: there, a write can fail before it has ended.
func (r *request) end(c *gin.Context) {
	c.Writer = r.ResponseWriter
	buffer := r.buffer
	if c.Request.ProtoMajor > 1 || buffer.Cap() > keptBuffer {
		buffer = bytes.Buffer{}
	}
	*r = request{buffer: buffer}
	requests.Put(r)
}

// requestOf returns c's request.
func requestOf(c *gin.Context) *request {
	if r, ok := c.Writer.(*request); ok {
		return r
	}
	return begin(c) // in tests, without Observe
}

// keptBuffer is the size, in bytes, of the largest buffer that another request may use again.
const keptBuffer = 16 << 10

// Buffer returns an empty buffer, whose content is valid until the next call for c, or the end of
// c's request.
func Buffer(c *gin.Context) *bytes.Buffer {
	r := requestOf(c)
	r.buffer.Reset()
	return &r.buffer
}

// Compute calls do, which computes for about a millisecond or more, in a turn of c's client.
func Compute(c *gin.Context, do func() error) error {
	turn := TurnOf(c)
	turn.Take()
	defer turn.Give()
	return do()
}

// workOf returns the context of c's request for its work, whose client is the sender or, if it is unknown, its address.
func workOf(c *gin.Context) context.Context {
	client := SenderOf(c)
	if client == "" {
		client = clientOf(c)
	}
	return limit.WithClient(c.Request.Context(), client)
}

// TurnOf returns the turn in which c's request computes for long, with pauses.
func TurnOf(c *gin.Context) *limit.Turn {
	r := requestOf(c)
	if r.turn == nil {
		r.turn = r.work.NewTurn(workOf(c))
	}
	return r.turn
}

// Buffered returns the content of c's buffer.
func Buffered(c *gin.Context) []byte { return requestOf(c).buffer.Bytes() }

// ClientPath returns path as the client of c's request must send it.
func ClientPath(c *gin.Context, path string) string { return requestOf(c).basePath + path }

// RequestIDOf returns the id of c's request.
func RequestIDOf(c *gin.Context) string { return requestOf(c).id }

// RequestIDField is the field for the id of c's request.
func RequestIDField(c *gin.Context) zap.Field {
	r := requestOf(c)
	return zap.String("request_id", cmp.Or(r.loggedID, r.id))
}

// TraceIDField is the field for the trace id of c's request, if the client sent an id or
// the request has a span.
func TraceIDField(c *gin.Context) zap.Field { return optional("trace_id", requestOf(c).traceID) }

// SenderOf returns the name of the sender of c's request, or an empty string if [Bearer] has not
// accepted it.
func SenderOf(c *gin.Context) string { return requestOf(c).sender() }

func (r *request) sender() string {
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

// Quiet logs c's request at the level debug only, whatever its outcome.
func Quiet(c *gin.Context) { requestOf(c).quiet = true }

// SetCreatedID records the id of what c's request creates, for the log: its path lacks it.
func SetCreatedID(c *gin.Context, id string) { requestOf(c).createdID = id }

// SetImported records what c's request, an import, has done, for the log: counts, and the ids of the rows
// that it has replaced.
func SetImported(c *gin.Context, replaced []string, counts ...zap.Field) {
	r := requestOf(c)
	r.replaced, r.counts = replaced, counts
}

// SetErrorCode records the code of the Error that c's request gets.
func SetErrorCode(c *gin.Context, code int32) { requestOf(c).errorCode = code }
