package batch

import (
	"context"
	"time"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// recorded returns the span in ctx, or nil if it is not recorded: a request that is not traced
// costs no more than this.
func recorded(ctx context.Context) trace.Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return span
	}
	return nil
}

// startSpan starts a span below parent, with the tracer of the same provider.
func startSpan(parent trace.Span, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return parent.TracerProvider().Tracer("plantstore/database").Start(trace.ContextWithSpan(context.Background(), parent), name, options...)
}

// startBatch starts the span of a batch of items, as a child of the first recorded request span,
// linked to all of them.
func startBatch(items int, requests []trace.Span) (context.Context, trace.Span) {
	if len(requests) == 0 {
		return context.Background(), trace.SpanFromContext(context.Background())
	}
	links := make([]trace.Link, len(requests))
	for i, request := range requests {
		links[i].SpanContext = request.SpanContext()
	}
	ctx, span := startSpan(requests[0], "batch", trace.WithLinks(links...))
	if items > 1 { // the conventions count only these as batches
		span.SetAttributes(semconv.DBOperationBatchSize(items))
	}
	return ctx, span
}

// traceWait makes the span of a request's wait for a batch, which it is linked to.
func traceWait(request trace.Span, arrival, begin time.Time, batch trace.SpanContext) {
	if request == nil {
		return
	}
	_, span := startSpan(request, "wait for a batch",
		trace.WithTimestamp(arrival), trace.WithLinks(trace.Link{SpanContext: batch}))
	span.End(trace.WithTimestamp(begin))
}
