package middleware

import (
	"context"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

var serverSpan = trace.WithSpanKind(trace.SpanKindServer)

// start reads the client's trace id, for the log, and starts a span for c's request, which began at begin,
// with the request's context. The span has nothing that a client chooses: no path, header, query or body.
// A span below the client's span, which may decide whether it is recorded, is only for trusted proxies and
// valid tokens. So if the client has sent a span, Bearer starts the request's.
func (o *ObserverOptions) start(c *gin.Context, r *Request, method string, begin time.Time) {
	client := o.clientSpan(c.Request.Header)
	if client.IsValid() {
		r.traceID = client.TraceID().String()
	}
	if o.Tracer == nil || slices.Contains(o.Silent, c.FullPath()) {
		return
	}
	r.startSpan = func(isTrusted bool) {
		r.startSpan = nil
		ctx := c.Request.Context()
		if isTrusted && client.IsValid() {
			ctx = trace.ContextWithRemoteSpanContext(ctx, client)
		}
		name := strings.TrimSpace(strings.Replace(method, otherMethod, "HTTP", 1) + " " + c.FullPath()) // by OpenTelemetry's semantic conventions
		ctx, span := o.Tracer.Start(ctx, name, serverSpan, trace.WithTimestamp(begin))
		if !span.IsRecording() { // the sampler has decided so: the request costs no more
			return
		}
		r.span, r.traceID = span, span.SpanContext().TraceID().String()
		c.Request = c.Request.WithContext(ctx)
	}
	if peer, _ := netip.ParseAddr(c.RemoteIP()); !client.IsValid() || o.Proxies.Contain(peer) {
		r.trace(true)
	}
}

// trace starts the span of r, unless it has been started or r is not traced.
func (r *Request) trace(isTrusted bool) {
	if r.startSpan != nil {
		r.startSpan(isTrusted)
	}
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
