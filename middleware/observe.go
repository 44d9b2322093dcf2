package middleware

import (
	"crypto/rand"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"plantstore/auth"
)

// ObserverOptions says what [Observe] reports of requests.
type ObserverOptions struct {
	Log      *zap.Logger
	Paths    []string // of the routes: the log has their words
	Tokens   []string // no part of them is logged or exported
	BasePath string   // that a proxy has removed from requests, such as /store
	Metrics  prometheus.Registerer
	Codes    []int32      // of errors, which the metrics count
	Tracer   trace.Tracer // or nil: then only the trace ids of clients are logged
	Silent   []string     // paths of routes whose requests have no span

	words []string // of Paths
}

// Observe gives each request an id and a span. Once the handler of the request has ended, or has
// aborted the response, it counts the request and logs a line.
func Observe(o ObserverOptions) gin.HandlerFunc {
	count := newMetrics(o.Metrics, o.Codes)
	o.words = strings.Split(strings.Join(o.Paths, "/"), "/")
	return func(c *gin.Context) {
		start, r, header := time.Now(), begin(c), c.Writer.Header()
		r.basePath = o.BasePath
		o.identify(c, r)
		method := semanticMethod(c.Request.Method)
		span := o.start(c, r, method)
		defer func() {
			end := time.Now()
			if span != nil {
				endSpan(span, method, c)
			}
			count(outcome{method, c.FullPath(), c.Writer.Status()}, r.errorCode, end.Sub(start))
			o.writeLine(c, r, end, end.Sub(start))
			r.end(c)
		}()
		c.Next()
		sendNow(c, r, header)
	}
}

// RequestIDHeader carries the id by which a request is found in the logs.
const RequestIDHeader = "X-Request-ID"

var (
	receivedIDHeader = http.CanonicalHeaderKey(RequestIDHeader)
	// requestID matches the ids that clients may choose.
	requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)
)

// identify gives c's request the client's id if it is valid, and a random id otherwise. The log has
// … instead of an id with a part of a token: of the request's own, or of o.Tokens. The response must
// not depend on that, or it would tell anybody what parts tokens have.
func (o *ObserverOptions) identify(c *gin.Context, r *request) {
	if sent := c.Request.Header[receivedIDHeader]; len(sent) > 0 && requestID.MatchString(sent[0]) {
		r.id = sent[0]
		if auth.HasToken(r.id, slices.Concat(c.Request.Header["Authorization"], o.Tokens)...) {
			r.loggedID = other
		}
	} else {
		r.id = rand.Text()
	}
	SetHeader(c, RequestIDHeader, r.id)
}

// sendNow sends a response of a known length at once, so that its client waits for nothing that
// comes after it, such as the line in the log. It does nothing if net/http would first wait for the
// rest of the body, or over HTTP/2, where it would cost another frame.
func sendNow(c *gin.Context, r *request, header http.Header) {
	status := c.Writer.Status()
	known := header["Content-Length"] != nil || status == http.StatusNoContent || status == http.StatusNotModified
	if known && c.Request.ProtoMajor == 1 && !r.bodyLeft {
		c.Writer.Flush()
	}
}

// other stands for what a client has chosen.
const other = "…"

// otherMethod is OpenTelemetry's name for a method that is none of HTTP's.
const otherMethod = "_OTHER"

// semanticMethod returns a method of HTTP, or otherMethod: net/http accepts any word.
func semanticMethod(method string) string {
	switch method {
	case http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
		http.MethodConnect, http.MethodOptions, http.MethodTrace:
		return method
	}
	return otherMethod
}
