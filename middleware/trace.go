package middleware

import (
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"plantstore/auth"
)

// TraceOptions says what is traced.
type TraceOptions struct {
	Tracer trace.Tracer // nil: nothing; only the trace id of clients is logged
	Silent []string     // paths of routes whose requests have no span
	Tokens []string     // no part of them is logged or exported
}

// Trace reads the client's trace id (W3C Trace Context), for the log, and starts a span for
// each request. The span has nothing that a client may have made up: no path, header, query
// or body.
func Trace(o TraceOptions) gin.HandlerFunc {
	server := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return func(c *gin.Context) {
		id, client := o.clientSpan(c.Request.Header)
		if id != "" {
			c.Set(traceIDKey{}, id)
		}
		if o.Tracer == nil || slices.Contains(o.Silent, c.FullPath()) {
			return
		}
		ctx := c.Request.Context()
		if client.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, client)
		}
		method := metricMethod(c.Request.Method)
		ctx, span := o.Tracer.Start(ctx, spanName(method, c.FullPath()), server...)
		if !span.IsRecording() { // the sampler has decided so: the request costs no more
			return
		}
		c.Set(traceIDKey{}, span.SpanContext().TraceID().String())
		c.Request = c.Request.WithContext(ctx)
		// Deferred, so that an aborted response is traced, too.
		defer func() {
			status := c.Writer.Status()
			span.SetAttributes(semconv.HTTPRequestMethodKey.String(method), semconv.HTTPResponseStatusCode(status))
			if c.FullPath() != "" {
				span.SetAttributes(semconv.HTTPRoute(c.FullPath()))
			}
			if status >= http.StatusInternalServerError {
				span.SetStatus(codes.Error, "")
				span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
			}
			span.End()
		}()
		c.Next()
	}
}

// spanName names the span of a request, as OpenTelemetry's semantic conventions do.
func spanName(method, route string) string {
	if method == "_OTHER" {
		method = "HTTP"
	}
	if route == "" {
		return method
	}
	return method + " " + route
}

// clientSpan returns the client's trace id and span, or nothing if headers have none, or if
// an id in them has a part of a token. Without a tracer, there is only the trace id.
func (o TraceOptions) clientSpan(headers http.Header) (id string, span trace.SpanContext) {
	lines := headers["Traceparent"]
	if len(lines) != 1 {
		return "", span
	}
	id, spanID, flags, ok := parseTraceparent(lines[0])
	if !ok || o.hasToken(id, headers) || o.Tracer != nil && o.hasToken(spanID, headers) {
		return "", span
	}
	if o.Tracer == nil {
		return id, span
	}
	parent := trace.SpanContextConfig{Remote: true}
	parent.TraceID, _ = trace.TraceIDFromHex(id) // parseTraceparent has checked them
	parent.SpanID, _ = trace.SpanIDFromHex(spanID)
	bits, _ := strconv.ParseUint(flags, 16, 8)
	parent.TraceFlags = trace.TraceFlags(bits) & (trace.FlagsSampled | trace.FlagsRandom)
	state := strings.Join(headers["Tracestate"], ",")
	if len(state) <= maxTracestate && !auth.HasToken(state, slices.Concat(headers["Authorization"], o.Tokens)...) {
		parent.TraceState, _ = trace.ParseTraceState(state) // an invalid one is ignored
	}
	return id, trace.NewSpanContext(parent)
}

// maxTracestate is how long a tracestate may be to be passed on: the least that W3C Trace
// Context, section 3.3.1.5, asks for. To search one for tokens takes time.
const maxTracestate = 512

// hasToken reports whether an id has a part of a token.
func (o TraceOptions) hasToken(id string, headers http.Header) bool {
	return auth.HasHexPart(id, o.Tokens...) || auth.HasHexPart(id, headers["Authorization"]...)
}

// traceparentLength is that of version 00.
const traceparentLength = len("00-0123456789abcdef0123456789abcdef-0123456789abcdef-01")

// parseTraceparent parses the header traceparent (W3C Trace Context, section 3.2): the ids
// are in lower case, and not zeros. Versions after 00 may append fields.
func parseTraceparent(text string) (traceID, spanID, flags string, ok bool) {
	if len(text) < traceparentLength || text[:2] == "ff" {
		return "", "", "", false
	}
	for i := range traceparentLength {
		isDash := i == 2 || i == 35 || i == 52
		if isDash && text[i] != '-' || !isDash && !auth.IsHex(text[i]) {
			return "", "", "", false
		}
	}
	if more := text[traceparentLength:]; more != "" && (more[0] != '-' || text[:2] == "00") {
		return "", "", "", false
	}
	traceID, spanID, flags = text[3:35], text[36:52], text[53:traceparentLength]
	return traceID, spanID, flags, strings.Trim(traceID, "0") != "" && strings.Trim(spanID, "0") != ""
}

// traceIDKey is the key of the trace id of a request.
type traceIDKey struct{}

// TraceID is the field for the trace id of c's request, if the client sent one or the
// request has a span.
func TraceID(c *gin.Context) zap.Field {
	if id := c.GetString(traceIDKey{}); id != "" {
		return zap.String("trace_id", id)
	}
	return zap.Skip()
}
