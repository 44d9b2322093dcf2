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

	"plantstore/database/fault"
)

// traceStatement makes the span of a statement that has ended, if that in ctx is recorded.
// The text has no values; neither does the span.
func (m *metrics) traceStatement(ctx context.Context, s *statement, begin time.Time, err error) {
	parent := trace.SpanFromContext(ctx)
	if !parent.IsRecording() || s.operation == "" {
		return
	}
	_, span := parent.TracerProvider().Tracer("plantstore/database").Start(trace.ContextWithSpan(context.Background(), parent), s.operation+" "+s.table, trace.WithTimestamp(begin), trace.WithSpanKind(trace.SpanKindClient))
	span.SetAttributes(semconv.DBSystemNameKey.String(m.system), semconv.DBOperationName(s.operation),
		semconv.DBCollectionName(s.table), semconv.DBQueryText(s.text))
	if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
		span.SetStatus(codes.Error, "")
		span.SetAttributes(semconv.ErrorTypeKey.String(cmp.Or(fault.SQLState(err), "_OTHER")))
	}
	span.End()
}
