package database

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"strings"
	"time"

	lru "github.com/hashicorp/golang-lru/v2"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"plantstore/database/fault"
)

// metrics measures, traces and logs the statements of a database, GORM's as its logger. It logs only slow statements; the
// handler of an error, which knows the request, logs the failed statements.
type metrics struct {
	logger.Interface // discards all else
	log              *zap.Logger
	slow             time.Duration
	statements       *prometheus.HistogramVec
	byText           *lru.Cache[string, *statement] // by the beginning of their text
	system           string
	batchRows, wait  prometheus.Histogram
	queues           []func() int // how many writes wait, by batcher
}

func newMetrics(system string, slow time.Duration, log *zap.Logger) *metrics {
	// From 0.1 ms on: a statement by key takes less than a millisecond.
	buckets := prometheus.ExponentialBucketsRange(0.0001, 10, 16)
	byText, _ := lru.New[string, *statement](1000) // fails for a size of 0 only
	return &metrics{
		Interface: logger.Discard, log: log, slow: slow, system: system, byText: byText,
		statements: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "db_client_operation_duration_seconds", Help: "Duration of statements. A batch is one.", Buckets: buckets,
			ConstLabels: prometheus.Labels{"db_system_name": system},
		}, []string{"db_operation_name", "db_collection_name"}),
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_write_batch_rows", Help: "Rows in a batch of writes.", Buckets: prometheus.ExponentialBuckets(1, 2, 11),
		}),
		wait: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "plantstore_write_wait_seconds", Help: "Time that a write waited for its batch.", Buckets: buckets,
		}),
	}
}

// statementKind matches the operation and the table of a statement, or of its first subquery.
var statementKind = regexp.MustCompile(`(?s)^(?:WITH [a-z_]+ AS (?:MATERIALIZED )?\(\s*)?(?:(UPDATE) |(INSERT) INTO |(DELETE) FROM |(SELECT) .*?\sFROM )["` + "`]?([a-z_]+)")

// prefixLength is how many bytes of a statement identify its operation and table. Some
// statements go on with a list of any length.
const prefixLength = 500

// statement is what is known of a statement. SET, for example, has no operation.
type statement struct {
	operation, table, text string // text is its beginning
	durations              prometheus.Observer
}

// statement returns what is known of the statement with text.
func (m *metrics) statement(text string) *statement {
	text = text[:min(len(text), prefixLength)]
	if known, ok := m.byText.Get(text); ok {
		return known
	}
	s := &statement{text: strings.Clone(text)}
	if match := statementKind.FindStringSubmatch(text); match != nil {
		s.operation, s.table = match[1]+match[2]+match[3]+match[4], strings.Clone(match[5])
		s.durations = m.statements.WithLabelValues(s.operation, s.table)
	}
	m.byText.Add(s.text, s)
	return s
}

// Trace is called after every statement of GORM.
func (m *metrics) Trace(ctx context.Context, begin time.Time, statement func() (string, int64), err error) {
	text, rows := statement()
	m.trace(ctx, begin, text, int(rows), err)
}

// trace is called after every statement. It makes a span if the span in ctx is recorded. The text has no values;
// neither does the span.
func (m *metrics) trace(ctx context.Context, begin time.Time, text string, rows int, err error) {
	duration, s := time.Since(begin), m.statement(text)
	if s.durations != nil {
		s.durations.Observe(duration.Seconds())
	}
	if parent := trace.SpanFromContext(ctx); parent.IsRecording() && s.operation != "" {
		_, span := parent.TracerProvider().Tracer("plantstore/database").Start(trace.ContextWithSpan(context.Background(), parent), s.operation+" "+s.table, trace.WithTimestamp(begin), trace.WithSpanKind(trace.SpanKindClient))
		span.SetAttributes(semconv.DBSystemNameKey.String(m.system), semconv.DBOperationName(s.operation),
			semconv.DBCollectionName(s.table), semconv.DBQueryText(s.text))
		if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
			span.SetStatus(codes.Error, "")
			span.SetAttributes(semconv.ErrorTypeKey.String(cmp.Or(fault.SQLState(err), "_OTHER")))
		}
		span.End()
	}
	if _, unsent := errors.AsType[*pgconn.ConnectError](err); !unsent && m.slow > 0 && duration >= m.slow {
		m.log.Warn("slow query", zap.String("sql", text), zap.Int("rows", rows), zap.Duration("duration", duration), zap.Error(err))
	}
}

// Collectors returns the metrics of db, in the names of OpenTelemetry (semantic conventions
// 1.30, database), where it has any. They are measured whether or not they are collected.
func (db *DB) Collectors() []prometheus.Collector {
	all := []prometheus.Collector{
		db.metrics.statements, db.metrics.batchRows, db.metrics.wait,
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plantstore_write_queue_rows", Help: "Writes that wait for a batch."},
			func() (rows float64) {
				for _, queued := range db.metrics.queues {
					rows += float64(queued())
				}
				return rows
			}),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plantstore_bulk_running", Help: "Imports and exports in progress, those that wait for their turn included."},
			func() float64 { return float64(db.Limits.Transfers.InUse()) }),
		prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "plantstore_followers", Help: "Requests that follow the feed of changes."},
			func() float64 { return float64(db.Limits.Followers.InUse()) }),
		collectors.NewDBStatsCollector(db.writes, "plantstore"),
	}
	if len(db.feeds) > 0 {
		all = append(all, db.feeds[0].collector()) // a transaction holds up all feeds alike
	}
	if db.standbys != nil {
		all = append(all, db.standbys.collectors()...)
	}
	if db.reads != db.writes {
		all = append(all, collectors.NewDBStatsCollector(db.reads, "plantstore-reads"))
	}
	return all
}
