package middleware

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
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

// Trace reads the client's trace id, for the log, and starts a span for each request. The span
// has nothing that a client chooses: no path, header, query or body.
func Trace(o TraceOptions) gin.HandlerFunc {
	server := []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindServer)}
	return func(c *gin.Context) {
		client := o.clientSpan(c.Request.Header)
		if client.IsValid() {
			c.Set(traceIDKey, client.TraceID().String())
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
		c.Set(traceIDKey, span.SpanContext().TraceID().String())
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
	if method == otherMethod {
		method = "HTTP"
	}
	if route == "" {
		return method
	}
	return method + " " + route
}

// clientSpan returns the client's span (W3C Trace Context), or an invalid one if headers have
// none, or if an id in them has a part of a token.
func (o TraceOptions) clientSpan(headers http.Header) trace.SpanContext {
	parents := headers["Traceparent"]
	if len(parents) != 1 {
		return trace.SpanContext{}
	}
	tokens := slices.Concat(headers["Authorization"], o.Tokens)
	carrier := propagation.MapCarrier{"traceparent": parents[0]}
	state := strings.Join(headers["Tracestate"], ",")
	if o.Tracer != nil && len(state) <= maxTracestate && !auth.HasToken(state, tokens...) {
		carrier["tracestate"] = state
	}
	span := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if auth.HasToken(span.TraceID().String()+"-"+span.SpanID().String(), tokens...) {
		return trace.SpanContext{}
	}
	return span
}

// maxTracestate is how long a tracestate may be to be passed on: the least that W3C Trace
// Context, section 3.3.1.5, asks for. To search one for tokens takes time.
const maxTracestate = 512

// TraceIDField is the field for the trace id of c's request, if the client sent one or the
// request has a span.
func TraceIDField(c *gin.Context) zap.Field { return optional("trace_id", c.GetString(traceIDKey)) }
