package database

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"plantstore/database/fault"
)

// queryLogger logs slow queries, and nothing else of GORM; the handler of an error, which knows the
// request, logs the failed queries.
type queryLogger struct {
	logger.Interface // discards all
	log              *zap.Logger
	slow             time.Duration
	metrics          *metrics
}

// LogMode returns l, which has no level.
func (l queryLogger) LogMode(logger.LogLevel) logger.Interface { return l }

// Trace is called after every statement of GORM.
func (l queryLogger) Trace(ctx context.Context, begin time.Time, statement func() (string, int64), err error) {
	text, rows := statement()
	l.trace(ctx, begin, text, rows, err)
}

// trace measures, traces and logs a statement that has ended.
func (l queryLogger) trace(ctx context.Context, begin time.Time, text string, rows int64, err error) {
	duration := time.Since(begin)
	known := l.metrics.statement(text)
	if known.durations != nil {
		known.durations.Observe(duration.Seconds())
	}
	l.metrics.traceStatement(ctx, known, begin, err)
	if _, unsent := errors.AsType[*pgconn.ConnectError](err); unsent || l.slow <= 0 || duration < l.slow {
		return
	}
	l.log.Warn("slow query", zap.String("sql", text), zap.Int64("rows", rows), zap.Duration("duration", duration), zap.Error(err))
}

// trace is called after every statement that GORM did not run.
func (db *DB) trace(ctx context.Context, begin time.Time, text string, rows int, err error) {
	db.Logger.(queryLogger).trace(ctx, begin, text, int64(rows), err)
}

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
