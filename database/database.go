// Package database opens PostgreSQL or SQLite for GORM, keeps the schema at the
// version that the program needs, and limits how much runs at a time. The differences
// between the databases are in its dialects.
package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database/background"
	"plantstore/database/batch"
	"plantstore/database/citus"
	"plantstore/database/dialect"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
	"plantstore/database/sqlite"
	"plantstore/database/table"
)

// Options says which database to open, and how.
type Options struct {
	URL            string        // sqlite:PATH, postgres://… or postgresql://…
	Migrate        bool          // lets [Schema.Prepare] bring the schema up to date
	MaxConnections int           // to PostgreSQL, see [MinConnections]; SQLite has a single connection that writes
	Timeout        time.Duration // of an operation, and of an attempt to connect
	StartTimeout   time.Duration // how long Open retries while the database is unreachable
	SlowQuery      time.Duration // queries that take this long are logged; 0 disables the log
	Check          bool          // lets [Open] check a SQLite file for damage
	TemporaryBytes int64         // of temporary files; each client may take half of it
	ReplicaURLs    []string      // of standbys: see [DB.UseStandbys]
	MaxReplicaLag  time.Duration // a standby that lags behind more serves no reads
}

// BatchOptions limits batches of writes and of reads by key; see [batch.Batcher].
type BatchOptions struct {
	Flushers int // batches that are written at the same time; SQLite writes a single batch
	MaxBatch int // items in a batch
	Queue    int // items of a kind that wait for the next batch
}

// DB is an open database, or a transaction in it. Its GORM handle is for writes,
// and for reads that must see them; [DB.Reads] is for all other reads. Both are safe for
// concurrent use, but not in a transaction.
type DB struct {
	*gorm.DB
	Dialect  dialect.Dialect
	Schema   *Schema
	Limits   *Limits
	writes   *sql.DB
	reads    *sql.DB // the same pool as writes, but on SQLite
	options  Options
	batches  BatchOptions
	health   *health
	metrics  *metrics
	feeds    []*Feed   // of the tables that are followed, unless the database is on Citus
	standbys *standbys // or nil
	closers  *[]func() // of what Close ends, in this order; transactions, which copy the rest, do not read them
	log      *zap.Logger
}

// Open connects to the database that o.URL names. A SQLite file that does not exist
// is created, with its folder; a PostgreSQL database must exist. Open retries for
// o.StartTimeout while the database is unreachable; any other fault ends it at once.
// It leaves the schema as it is: see [Schema.Prepare]. db has the feeds of the tables that name one.
func Open(ctx context.Context, o Options, batches BatchOptions, tables []*table.Table, log *zap.Logger) (*DB, error) {
	d, err := openDialect(ctx, o, log)
	if err != nil {
		return nil, err
	}
	db, err := New(d, o, batches, tables, log)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	if d, ok := d.(server); ok {
		if err := d.Inspect(ctx, log); err != nil {
			return nil, errors.Join(err, db.Close())
		}
	}
	return db, nil
}

// openDialect returns the dialect of the database, which responds.
func openDialect(ctx context.Context, o Options, log *zap.Logger) (dialect.Dialect, error) {
	path, err := FileOf(o.URL)
	if err != nil {
		return nil, err
	}
	if path != "" {
		return sqlite.Open(ctx, sqlite.Options{Path: path, Timeout: o.Timeout, Check: o.Check}, log)
	}
	server := postgres.Options{URL: o.URL, MaxConnections: o.MaxConnections, Timeout: o.Timeout}
	d, err := postgres.Open(server)
	if err != nil {
		return nil, err
	}
	pool, _ := d.Pools()
	if err := waitFor(ctx, pool, o.StartTimeout, log); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	isCitus, err := citus.Detect(ctx, pool)
	if err == nil && !isCitus {
		return d, nil
	}
	if err := errors.Join(err, d.Close()); err != nil {
		return nil, err
	}
	return citus.Open(server, log)
}

// server is the dialect of a server.
type server interface {
	dialect.Dialect
	Standby(o postgres.Options, log *zap.Logger) (dialect.Dialect, error)
	Inspect(ctx context.Context, log *zap.Logger) error
	Cut()
}

// FileOf returns the path of the SQLite file that url names, or "" if url names a server.
func FileOf(url string) (path string, err error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch {
	case scheme == "sqlite" && (rest == "" || rest == ":memory:"):
		return "", errors.New("the database URL names no file: write sqlite:data/plantstore.db, for example")
	case scheme == "sqlite":
		return rest, nil
	case scheme == "postgres", scheme == "postgresql":
		return "", nil
	}
	// Without the URL, which may contain a password.
	return "", errors.New("the database URL must start with sqlite:, postgres:// or postgresql://")
}

// CheckURL fails, as Open does, if url or a part of it is not valid. Files that it names need not exist.
func CheckURL(url string) error {
	if path, err := FileOf(url); path != "" || err != nil {
		return err
	}
	return postgres.CheckURL(url)
}

// New returns the database of d, which Close closes, with the feeds of the tables that name one.
func New(d dialect.Dialect, o Options, batches BatchOptions, tables []*table.Table, log *zap.Logger) (db *DB, err error) {
	db = &DB{Dialect: d, options: o, batches: batches, log: log, closers: new([]func()), metrics: newMetrics(d.Facts().System, o.SlowQuery, log)}
	db.writes, db.reads = d.Pools()
	db.Limits = newLimits(nil, batches.Flushers, o.MaxConnections, o.TemporaryBytes)
	if db.reads != db.writes {
		db.Limits = newLimits(limit.NewTurns(1, 0), 0, sqlite.Readers, o.TemporaryBytes)
	}
	db.health = &health{db: db}
	for _, t := range tables {
		if sql := d.Feed(t); t.Feed != "" && sql != nil {
			db.feeds = append(db.feeds, &Feed{db: db, table: t, sql: sql, Written: make(chan struct{}, 1)})
		}
	}
	if db.Schema, err = newSchema(db); err != nil {
		return nil, err
	}
	db.DB, err = gorm.Open(d.Dialector(db.writes), &gorm.Config{
		Logger: db.metrics,
		// A single statement is a transaction already.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// Columns by name: SELECT * fails on running replicas when a column is added.
		QueryFields: true,
		// PostgreSQL keeps microseconds, and a write must return the same time as a later read.
		NowFunc: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
	})
	if err != nil {
		return nil, fmt.Errorf("open the database: %w", err)
	}
	return db, nil
}

// waitFor pings until the database responds, for timeout.
func waitFor(ctx context.Context, pool *sql.DB, timeout time.Duration, log *zap.Logger) error {
	inTime, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := pool.PingContext(inTime)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("connect to the database: %w", err)
		if !fault.IsUnavailable(err) || fault.IsRejected(err) {
			return err
		}
		log.Warn("waiting for the database", zap.Error(err))
		if !background.Sleep(inTime, pause) {
			return cmp.Or(context.Cause(ctx), err)
		}
	}
}

// Name names the database for people: a path, or hosts and a name, without a password.
func (db *DB) Name() string { return db.Dialect.Facts().Name }

// Feed returns the feed of changes to t. Reading it fails with ErrNoFeed if db does not have it.
func (db *DB) Feed(t *table.Table) *Feed {
	if i := slices.IndexFunc(db.feeds, func(f *Feed) bool { return f.table.Name == t.Name }); i >= 0 {
		return db.feeds[i]
	}
	return new(Feed)
}

// Close writes the queued batches, waits for the running queries and closes every
// connection.
func (db *DB) Close() error {
	for _, end := range *db.closers {
		end()
	}
	return db.Dialect.Close()
}

// every calls do now and every interval, in the background, until db is closed.
func (db *DB) every(interval time.Duration, do func(context.Context)) {
	*db.closers = append(*db.closers, background.Start(interval, do))
}

// Reads returns the handle for reads, which never wait for a write. It takes no
// turn: see [DB.Read].
func (db *DB) Reads(ctx context.Context) *gorm.DB {
	handle := db.WithContext(ctx)
	handle.Statement.ConnPool = db.reads // of this handle alone
	return handle
}

// NewWriter returns a batcher of writes, which run writes in batches. It is closed with db.
func NewWriter[T any](db *DB, run func(context.Context, []T) []error) *batch.Batcher[T] {
	o := batch.Options{Turns: db.Limits.batches, Waits: db.metrics.wait}
	b := newBatcher(db, o, func(ctx context.Context, items []T) []error {
		db.metrics.batchRows.Observe(float64(len(items)))
		db.health.writing.Store(time.Now().UnixNano())
		defer db.health.writing.Store(0)
		outcomes := run(ctx, items)
		if err := db.endWrite(slices.Contains(outcomes, nil)); err != nil {
			return slices.Repeat([]error{err}, len(items))
		}
		return outcomes
	})
	db.metrics.queues = append(db.metrics.queues, b.Len)
	return b
}

// NewReader returns a batcher of reads. It is closed with db.
func NewReader[T any](db *DB, run func(context.Context, []T) []error) *batch.Batcher[T] {
	return newBatcher(db, batch.Options{Turns: db.Limits.lookups}, run)
}

func newBatcher[T any](db *DB, o batch.Options, run func(context.Context, []T) []error) *batch.Batcher[T] {
	o.Max, o.Queue, o.Timeout = db.batches.MaxBatch, db.batches.Queue, db.options.Timeout
	b := batch.New(o, run)
	db.Limits.Work.RestWhile(b.Busy)
	db.Limits.scans.RestWhile(b.Busy)
	*db.closers = append(*db.closers, b.Close)
	return b
}
