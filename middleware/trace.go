package middleware

import (
	"context"
	"net/http"
	"slices"
	"strconv"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

var serverSpan = trace.WithSpanKind(trace.SpanKindServer)

// start reads the client's trace id, for the log, and starts a span for c's request, with the
// request's context. The span has nothing that a client chooses: no path, header, query or body.
// It is nil if the request is not traced.
func (o *ObserverOptions) start(c *gin.Context, r *request, method string) trace.Span {
	client := o.clientSpan(c.Request.Header)
	if client.IsValid() {
		r.traceID = client.TraceID().String()
	}
	if o.Tracer == nil || slices.Contains(o.Silent, c.FullPath()) {
		return nil
	}
	ctx := c.Request.Context()
	if client.IsValid() {
		ctx = trace.ContextWithRemoteSpanContext(ctx, client)
	}
	ctx, span := o.Tracer.Start(ctx, spanName(method, c.FullPath()), serverSpan)
	if !span.IsRecording() { // the sampler has decided so: the request costs no more
		return nil
	}
	r.traceID = span.SpanContext().TraceID().String()
	c.Request = c.Request.WithContext(ctx)
	return span
}

// endSpan ends the span of c's request.
func endSpan(span trace.Span, method string, c *gin.Context) {
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

// clientSpan returns the client's span (W3C Trace Context), without its tracestate. The span is invalid
// if headers have no span, or if an id in them has a part of a token.
func (o *ObserverOptions) clientSpan(headers http.Header) trace.SpanContext {
	parents := headers["Traceparent"]
	if len(parents) != 1 {
		return trace.SpanContext{}
	}
	carrier := propagation.MapCarrier{"traceparent": parents[0]}
	span := trace.SpanContextFromContext(propagation.TraceContext{}.Extract(context.Background(), carrier))
	if o.hasToken(span.TraceID().String()+"-"+span.SpanID().String(), headers) {
		return trace.SpanContext{}
	}
	return span
}
