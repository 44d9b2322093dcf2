// Package database opens PostgreSQL or SQLite for GORM, keeps the schema at the
// version that the program needs, and limits how much runs at a time. All differences
// between the two databases are here.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm"
)

// Options says which database to open, and how.
type Options struct {
	URL            string        // sqlite:PATH, postgres://… or postgresql://…
	Migrate        bool          // lets [DB.Prepare] bring the schema up to date
	MaxConnections int           // to PostgreSQL, see [MinConnections]; SQLite has one that writes
	Timeout        time.Duration // of an operation, and of an attempt to connect
	StartTimeout   time.Duration // how long Open retries while the database is unreachable
	SlowQuery      time.Duration // queries that take this long are logged; 0 disables the log
	Check          bool          // lets [Open] check a SQLite file for damage
	TemporaryBytes int64         // see [DB.TakeDisk]; each client may take half of it
	ReplicaURLs    []string      // of standbys: see [DB.UseStandbys]
	MaxReplicaLag  time.Duration // a standby that lags behind more serves no reads
}

// DB is an open database, or a transaction in one. Its GORM handle is for writes,
// and for reads that must see them; [DB.Reads] is for all others. Both are safe for
// concurrent use, but not in a transaction.
type DB struct {
	*gorm.DB
	reads          *gorm.DB
	pool, readPool *sql.DB // the same on PostgreSQL
	conn           connection
	locking        bool // see [DB.Locking]
	dialect        dialect
	options        Options
	batches        BatchOptions
	budget         budget
	closers        []func()     // of what Close ends, in this order
	queues         []func() int // how many writes wait, by batcher
	metrics        *metrics
	tables         []*Table // see [DB.Require]
	migrations     *migrations
	readiness      *readiness
	standbys       *standbys // or nil
	feed           *feedState
	written        chan struct{} // see [DB.Written]
	nodes          *nodes        // of a distributed database; or nil
	log            *zap.Logger
}

// connection runs statements: the pool, or a transaction.
type connection interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// dialect is one kind of database.
type dialect interface {
	// open returns the pools for writes and for reads. It need not connect.
	open(context.Context, Options, *zap.Logger) (pool, readPool *sql.DB, err error)
	// check reports why the database that is open is not the one that a restart would
	// open; fault returns the outcome of the last check, a moment ago, without another one.
	check() error
	fault() error
	// inspect reports why the server would break a promise of the service, and logs what
	// would do less harm.
	inspect(ctx context.Context, pool *sql.DB, log *zap.Logger) error
	// start begins what the kind of database needs in the background as long as db is open.
	start(db *DB)
	// close releases what open has acquired besides the pools.
	close() error
	// name is [DB.Name].
	name() string
	// system is OpenTelemetry's name for the kind of database.
	system() string
	// dialector returns GORM's dialector for a pool.
	dialector(pool *sql.DB) gorm.Dialector
	// migrations returns those for this database. Processes that start at the same time take
	// turns by their lock.
	migrations(pool *sql.DB, log *zap.Logger) (*migrations, error)
	// lockHolders is a query for descriptions of the transactions, the oldest first, that
	// a migration may be waiting for.
	lockHolders() string
	// readOnly is an expression that is true if the database rejects writes.
	readOnly() string
	// mayWrite is an expression that is true if the role has the rights to write table.
	mayWrite(table string) string
	// isStandby is an expression that is true if the database is a copy of another one.
	isStandby() string
	// writeTest is a statement that changes nothing that matters, but fails if the disk is
	// full or the database is read-only.
	writeTest() string
	// insertNew is [InsertNew]; rows are structs.
	insertNew(ctx context.Context, conn connection, table *Table, rows []reflect.Value) (outcomes []error, err error)
	// query runs a query on conn and calls read with its result.
	query(ctx context.Context, conn connection, text string, args []any, read func(result) error) error
	// run is [DB.Run]. It runs the groups in their order.
	run(ctx context.Context, pool *sql.DB, groups []*group) error
	// runIn is [DB.RunIn].
	runIn(ctx context.Context, tx connection, g *group) error
	// lookup is a query for columns of the rows of table with one of the keys, a slice, and
	// its argument.
	lookup(table *Table, keys any) (query string, argument any)
	// lockRows is the clause of a SELECT that locks its rows, or empty if no lock is a row's.
	// It also reports whether a SELECT may lock only one row.
	lockRows() (clause string, oneByOne bool)
	// load is [DB.Load]; next returns nil after the last row.
	load(ctx context.Context, pool *sql.DB, table *Table, keep bool, next func() ([]any, error)) (int64, error)
	// lockTimeout is a statement that limits how long a transaction waits for locks; 0 stands for
	// until its context ends. It is empty if no lock is a row's.
	lockTimeout(wait time.Duration) string
	// after is [DB.After].
	after(column, value string) string
	// among is [DB.Among].
	among(column, argument string) string
	// timeList returns the form of the argument of among.
	timeList() (layout, start, end string)
	// contains is [DB.Contains].
	contains(column, part string) (condition, argument string)
	// changes is the query of [DB.Changes], with the arguments position, order and limit. It
	// returns, beside each change, and at least once: the epoch, the position from which on all
	// changes are retained, the end of the feed, the position of the oldest running
	// transaction, and that of the next one.
	changes() string
	// feedOrigin is an expression that has another value in a copy of the database. feedIsCopy
	// is one that is true if the row of feed is from another database, or from its future.
	feedOrigin() string
	feedIsCopy() string
	// lockWrites is a statement that waits for the transactions that have written plants, and
	// keeps out others, or empty.
	lockWrites() string
	// raiseFeed lets the positions of transactions be above those of all rows.
	raiseFeed(ctx context.Context, tx *DB) error
	// purge is statements that forget changes before a position, each up to a number of them.
	purge() []string
}

// Open connects to the database that o.URL names. A SQLite file that does not exist
// is created, with its folder; a PostgreSQL database must exist. Open retries for
// o.StartTimeout while the database is unreachable; any other fault ends it at once.
// It leaves the schema as it is: see [DB.Prepare].
func Open(ctx context.Context, o Options, batches BatchOptions, log *zap.Logger) (*DB, error) {
	d, err := dialectOf(o.URL)
	if err != nil {
		return nil, err
	}
	pool, readPool, err := d.open(ctx, o, log)
	if err != nil {
		return nil, errors.Join(err, d.close())
	}
	db := newDB(d, pool, readPool, o, batches, newMetrics(d.system()), log)
	if db.migrations, err = d.migrations(pool, log); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := waitFor(ctx, pool, o.StartTimeout, log); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if err := d.inspect(ctx, pool, log); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	d.start(db)
	if db.DB, err = db.handle(pool); err == nil {
		db.reads, err = db.handle(readPool)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), db.Close())
	}
	return db, nil
}

// newDB returns a DB with a budget, but without GORM's handles.
func newDB(d dialect, pool, readPool *sql.DB, o Options, batches BatchOptions, m *metrics, log *zap.Logger) *DB {
	db := &DB{
		pool: pool, readPool: readPool, conn: pool, dialect: d, options: o, batches: batches, log: log,
		readiness: new(readiness), metrics: m, feed: new(feedState), written: make(chan struct{}, 1),
	}
	if readPool == pool {
		db.budget = newBudget(batches.Flushers, o.MaxConnections, o.TemporaryBytes)
	} else {
		db.budget = newFileBudget(readPool.Stats().MaxOpenConnections, o.TemporaryBytes)
	}
	return db
}

// handle returns GORM's handle on pool.
func (db *DB) handle(pool *sql.DB) (*gorm.DB, error) {
	return gorm.Open(db.dialect.dialector(pool), &gorm.Config{
		Logger: queryLogger{log: db.log, slow: db.options.SlowQuery, metrics: db.metrics},
		// A single statement is a transaction already.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// Columns by name: SELECT * fails on running replicas when a column is added.
		QueryFields: true,
		// PostgreSQL keeps microseconds, and a write must return the same time as a later read.
		NowFunc: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
	})
}

// Reads returns the handle for reads, which never wait for a write. It takes no
// slot: see [DB.Read].
func (db *DB) Reads(ctx context.Context) *gorm.DB { return db.reads.WithContext(ctx) }

// ForReads returns a DB for functions that only read, like Reads.
func (db *DB) ForReads() *DB {
	reads := *db
	reads.DB, reads.conn = db.reads, db.readPool
	return &reads
}

// Read calls do with the handle for reads, in one of the slots for reads, of which ctx's
// client may use half, and within the time limit of an operation. operation names it in
// errors, such as "get plant". Besides do's own errors, it fails with ErrOverloaded if no
// slot becomes free, and with an error that wraps ErrUnavailable if the database cannot be
// reached in time.
func (db *DB) Read(ctx context.Context, operation string, do func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, db.options.Timeout)
	defer cancel()
	return Failed(operation, db.unlessFault(func() error {
		return db.budget.reads.run(ctx, clientOf(ctx), db.options.Timeout/WaitShare, func() error {
			return db.retry(ctx, func() error { return do(db.Reads(ctx)) }, func(error) {}) // it may just be slow
		})
	}))
}

// unlessFault calls do unless the database has a fault.
func (db *DB) unlessFault(do func() error) error {
	if err := db.dialect.fault(); err != nil {
		return err
	}
	return do()
}

// Background is Read without a slot, for the one reader that must work under any load:
// authentication.
func (db *DB) Background(ctx context.Context, operation string, do func(tx *gorm.DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, db.options.Timeout)
	defer cancel()
	return Failed(operation, db.unlessFault(func() error {
		return db.Retry(ctx, func() error { return do(db.Reads(ctx)) })
	}))
}

// Write is Read with the handle for writes, in one of the slots for single writes. It
// calls do, which is one transaction or statements that may be repeated, again while others
// hold a lock that it needs, and when [DB.Retry] does. When it returns nil, the changes of do
// are on disk. After ErrUnavailable, the outcome is unknown.
func (db *DB) Write(ctx context.Context, operation string, do func(tx *gorm.DB) error) error {
	begin := time.Now()
	err := db.checked(func() error {
		return db.budget.writes.run(ctx, db.options.Timeout, func(ctx context.Context) error {
			return db.Retry(ctx, func() error { return do(db.WithContext(ctx)) })
		})
	})
	err = db.WaitForLock(ctx, begin, err, func(ctx context.Context, tx *DB) error { return do(tx.WithContext(ctx)) })
	return Failed(operation, err)
}

// checked calls write unless the database has a fault, and fails if it has one after it:
// then a restart does not find what was written.
func (db *DB) checked(write func() error) error {
	err := db.unlessFault(write)
	db.noteWrite()
	if fault := db.dialect.check(); fault != nil {
		return fault
	}
	return err
}

// checkedInTime is checked for a write that the database should end in time. One that hangs with
// the disk of a SQLite file cannot be interrupted, so a timer notes that writes do not end.
func (db *DB) checkedInTime(write func() error) error {
	defer time.AfterFunc(db.options.Timeout, func() { db.readiness.faults.Add(1) }).Stop()
	return db.checked(write)
}

// Transaction calls do in a transaction, which is committed if do returns nil and
// rolled back otherwise. It waits for locks until ctx ends. do may be called again, in
// another transaction: see [DB.Retry].
func (db *DB) Transaction(ctx context.Context, do func(tx *DB) error) error {
	if db.budget.writer != nil {
		if err := db.budget.writer.take(ctx, untilDone); err != nil {
			return err
		}
		defer db.budget.writer.free()
	}
	return db.transaction(ctx, 0, do)
}

// transaction is Transaction, but waits no longer than wait for a lock, unless it is 0.
func (db *DB) transaction(ctx context.Context, wait time.Duration, do func(tx *DB) error) error {
	return db.Retry(ctx, func() error {
		return db.WithContext(ctx).Transaction(func(handle *gorm.DB) error {
			tx := *db
			tx.DB = handle
			tx.conn = handle.Statement.ConnPool
			if lockTimeout := db.dialect.lockTimeout(wait); lockTimeout != "" {
				if err := handle.Exec(lockTimeout).Error; err != nil {
					return err
				}
			}
			return do(&tx)
		})
	})
}

// Locking returns db, which is a transaction, with a [Lookup] that locks the rows it returns
// until the end of the transaction: others can read them, but not write them.
func (db *DB) Locking() *DB {
	tx := *db
	tx.locking = true
	return &tx
}

// After returns the SQL of a time that moves a column forward: value if it is later
// than column's, otherwise the next moment after column's.
func (db *DB) After(column, value string) string { return db.dialect.after(column, value) }

// Among returns a condition that holds if column has one of the [DB.Times] in an argument.
// It is the same for any number of them.
func (db *DB) Among(column, argument string) string { return db.dialect.among(column, argument) }

// Times returns times as one argument, since GORM would make many of a slice.
func (db *DB) Times(times []time.Time) string {
	layout, start, end := db.dialect.timeList()
	texts := make([]string, len(times))
	for i, t := range times {
		texts[i] = t.UTC().Format(layout)
	}
	return start + strings.Join(texts, ",") + end
}

// Contains returns a condition, and its argument, that holds if column, a text,
// contains part. ASCII letters match in any case. Other letters do so according to
// PostgreSQL's locale; on SQLite they match exactly.
func (db *DB) Contains(column, part string) (condition, argument string) {
	return db.dialect.contains(column, part)
}

// Name names the database for people: a path, or hosts and a name, without a password.
func (db *DB) Name() string { return db.dialect.name() }

// System returns OpenTelemetry's name for the kind of database: postgresql or sqlite.
func (db *DB) System() string { return db.dialect.system() }

// Schema returns the version of the newest migration that this program knows.
func (db *DB) Schema() int64 {
	sources := db.migrations.ListSources()
	return sources[len(sources)-1].Version
}

// Close writes the queued batches, waits for the running queries and closes every
// connection.
func (db *DB) Close() error {
	for _, end := range db.closers {
		end()
	}
	if db.nodes != nil { // after the last batches, which may find that a node is lost
		db.nodes.work.Wait()
	}
	err := db.pool.Close()
	if db.readPool != db.pool {
		err = errors.Join(err, db.readPool.Close())
	}
	return errors.Join(err, db.dialect.close())
}

func dialectOf(url string) (dialect, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return &sqliteDialect{path: rest}, nil
	case "postgres", "postgresql":
		return &postgresDialect{}, nil
	}
	// Without the URL, which may contain a password.
	return nil, errors.New("the database URL must start with sqlite:, postgres:// or postgresql://")
}

// waitFor pings until the database responds, for timeout.
func waitFor(ctx context.Context, pool *sql.DB, timeout time.Duration, log *zap.Logger) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := pool.PingContext(ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("connect to the database: %w", err)
		if !IsUnavailable(err) || isRejected(err) {
			return err
		}
		log.Warn("waiting for the database", zap.Error(err))
		if !Sleep(ctx, pause) {
			return err
		}
	}
}
