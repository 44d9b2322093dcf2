package batch

import (
	"context"

	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// startBatch starts the span of a batch of items, as a child of the first recorded request span.
// The span and the spans of all requests are linked to each other.
func startBatch(items int, requests []trace.Span) (context.Context, trace.Span) {
	if len(requests) == 0 {
		return context.Background(), trace.SpanFromContext(context.Background())
	}
	links := make([]trace.Link, len(requests))
	for i, request := range requests {
		links[i].SpanContext = request.SpanContext()
	}
	parent := trace.ContextWithSpan(context.Background(), requests[0])
	ctx, span := requests[0].TracerProvider().Tracer("plantstore/database").Start(parent, "batch", trace.WithLinks(links...))
	if items > 1 { // the conventions count only these as batches
		span.SetAttributes(semconv.DBOperationBatchSize(items))
	}
	for _, request := range requests {
		request.AddLink(trace.Link{SpanContext: span.SpanContext()})
	}
	return ctx, span
}
