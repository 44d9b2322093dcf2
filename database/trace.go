package database

import (
	"cmp"
	"context"
	"errors"
	"time"

	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"gorm.io/gorm"
)

// recorded returns the span in ctx, or nil if it is not recorded. Only then are there
// others below it, so that requests which are not traced cost no more than this.
func recorded(ctx context.Context) trace.Span {
	if span := trace.SpanFromContext(ctx); span.IsRecording() {
		return span
	}
	return nil
}

// startSpan starts a span below parent, with the tracer of the same provider.
func startSpan(ctx context.Context, parent trace.Span, name string, options ...trace.SpanStartOption) (context.Context, trace.Span) {
	return parent.TracerProvider().Tracer("plantstore/database").Start(trace.ContextWithSpan(ctx, parent), name, options...)
}

// startBatch starts the span of a batch of items: below the first of the recorded
// spans of its requests, and linked to all of them. There may be none.
func startBatch(ctx context.Context, items int, requests ...trace.Span) (context.Context, trace.Span) {
	if len(requests) == 0 {
		return ctx, trace.SpanFromContext(ctx)
	}
	links := make([]trace.Link, len(requests))
	for i, request := range requests {
		links[i].SpanContext = request.SpanContext()
	}
	ctx, span := startSpan(ctx, requests[0], "batch", trace.WithLinks(links...))
	if items > 1 { // the conventions count no others as batches
		span.SetAttributes(semconv.DBOperationBatchSize(items))
	}
	return ctx, span
}

// traceWait makes the span of a request's wait for a batch, which it is linked to.
func traceWait(request trace.Span, arrival, begin time.Time, batch trace.SpanContext) {
	if request == nil {
		return
	}
	_, span := startSpan(context.Background(), request, "wait for a batch",
		trace.WithTimestamp(arrival), trace.WithLinks(trace.Link{SpanContext: batch}))
	span.End(trace.WithTimestamp(begin))
}

// traceStatement makes the span of a statement that has ended, if that in ctx is recorded.
// The text has no values; neither does the span.
func (m *metrics) traceStatement(ctx context.Context, s *statement, begin time.Time, err error) {
	parent := recorded(ctx)
	if parent == nil || s.operation == "" {
		return
	}
	_, span := startSpan(context.Background(), parent, s.operation+" "+s.table, trace.WithTimestamp(begin), trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(semconv.DBSystemNameKey.String(m.system), semconv.DBOperationName(s.operation),
		semconv.DBCollectionName(s.table), semconv.DBQueryText(s.text))
	if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(cmp.Or(sqlState(err), "_OTHER")))
	}
	span.End()
}
