package middleware

import (
	"crypto/rand"
	"net/http"
	"regexp"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"plantstore/auth"
	"plantstore/database/limit"
)

// ObserverOptions says what [Observe] reports of requests.
type ObserverOptions struct {
	Log      *zap.Logger
	Tokens   []string             // no part of them is logged or exported
	BasePath string               // that a proxy has removed from requests, for example /store
	Metrics  *prometheus.Registry // of requests and of the parts; the admin address serves it
	Codes    []int32              // of errors, which the metrics count
	Tracer   trace.Tracer         // or nil: then only the trace ids of clients are logged
	Proxies  Proxies              // trusted: their spans may be parents of the requests' spans
	Silent   []string             // paths of routes whose requests have no span
	Work     *limit.Turns         // of [Compute]; or nil
	Pages    *limit.Turns         // of [TakePage]; or nil
	audit    *zap.Logger
}

// Observe gives each request an id and a span. Once the handler of the request has ended, or has
// aborted the response, it counts the request and logs a line.
func Observe(o ObserverOptions) gin.HandlerFunc {
	count := newMetrics(o.Metrics, o.Codes)
	o.audit = o.Log.Named(auth.AuditLog)
	return func(c *gin.Context) {
		start, method, r := time.Now(), semanticMethod(c.Request.Method), begin(c)
		r.basePath, r.work, r.pages = o.BasePath, o.Work, o.Pages
		o.identify(c, r)
		o.start(c, r, method, start)
		defer func() {
			duration := time.Since(start)
			if r.trace(false); r.span != nil {
				endSpan(r.span, method, c)
			}
			count(outcome{method, c.FullPath(), c.Writer.Status()}, r.ErrorCode, duration)
			o.writeLine(c, r, method, duration)
			r.end(c)
		}()
		c.Next()
	}
}

// RequestIDHeader carries the id by which a request is found in the logs.
const RequestIDHeader = "X-Request-ID"

// requestID matches the ids that clients may choose.
var requestID = regexp.MustCompile(`^[A-Za-z0-9._-]{1,64}$`)

// identify gives c's request the client's id if it is valid, and a random id otherwise. The log has
// … instead of an id with a part of a token. The response must not depend on that, or it would tell
// anybody what parts tokens have.
func (o *ObserverOptions) identify(c *gin.Context, r *Request) {
	if sent := c.Request.Header["X-Request-Id"]; len(sent) > 0 && requestID.MatchString(sent[0]) { // as net/http writes it
		r.ID = sent[0]
		if o.hasToken(r.ID, c.Request.Header) {
			r.loggedID = other
		}
	} else {
		r.ID = rand.Text()
	}
	SetHeader(c, RequestIDHeader, r.ID)
}

// hasToken reports whether text has a part of a token: of o.Tokens, or in the headers of the request.
func (o *ObserverOptions) hasToken(text string, headers http.Header) bool {
	return auth.HasToken(text, slices.Concat(headers["Authorization"], o.Tokens)...)
}

// other stands for what a client has chosen.
const other = "…"

// otherMethod is OpenTelemetry's name for a method that HTTP does not have.
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
