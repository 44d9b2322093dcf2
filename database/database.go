// Package database opens PostgreSQL or SQLite for GORM and keeps the schema at
// the version the program needs. What differs between the two databases lives
// here and nowhere else.
package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm"
)

// Options says which database to open, and how.
type Options struct {
	// URL is sqlite:PATH, postgres://… or postgresql://….
	URL string
	// MaxConnections bounds the pool of a PostgreSQL database. SQLite has one
	// connection, since it has one writer.
	MaxConnections int
	// Timeout bounds one attempt to connect, and how long SQLite waits for
	// another process's lock.
	Timeout time.Duration
	// StartTimeout is how long Open keeps trying while the database cannot be
	// reached, as when both are started at once.
	StartTimeout time.Duration
	// SlowQuery is the duration from which a query is logged; 0 logs none.
	SlowQuery time.Duration
	Logger    *zap.Logger
}

// DB is an open database, or a transaction in one. Its GORM handle is for
// writes, and for reads that must see them; [DB.Reads] is for all others. Both
// are safe for concurrent use, but not in a transaction.
type DB struct {
	*gorm.DB
	reads          *gorm.DB
	pool, readPool *sql.DB // the same one on PostgreSQL
	conn           connection
	dialect        dialect
}

// connection is what runs statements: the pool, or a transaction.
type connection interface {
	PrepareContext(ctx context.Context, query string) (*sql.Stmt, error)
	ExecContext(ctx context.Context, query string, args ...any) (sql.Result, error)
	QueryContext(ctx context.Context, query string, args ...any) (*sql.Rows, error)
}

// dialect is what this package must know of one kind of database.
type dialect interface {
	// open returns the pools for writes and for reads, without connecting.
	open(Options) (pool, readPool *sql.DB, err error)
	// dialector returns GORM's dialector for a pool.
	dialector(pool *sql.DB) gorm.Dialector
	// migrations returns goose's settings for this database.
	migrations() migrationSettings
	// insertNew is [DB.InsertNew]; the first column is the key.
	insertNew(ctx context.Context, conn connection, table string, columns []Column) ([]int64, error)
	// load is [DB.Load].
	load(ctx context.Context, pool *sql.DB, table string, columns []string, keep bool, next func() ([]any, error)) (int64, error)
	// patience is a statement that lets a transaction wait for locks for as long as
	// its context does, or empty where none is needed.
	patience() string
	// after is [DB.After].
	after(column, value string) string
	// contains is [DB.Contains].
	contains(column string) string
	// searchIndexes are the statements that make and drop the indexes of
	// [DB.CreateSearchIndexes].
	searchIndexes() (create, drop []string)
}

// Open connects to the database that o.URL names. A SQLite file that does not
// exist is created, with its folder; a PostgreSQL database must exist. While
// the database is out of reach, Open tries again for o.StartTimeout; anything
// else that is wrong ends it at once. The schema is left as it is: see
// [DB.Migrate].
func Open(ctx context.Context, o Options) (*DB, error) {
	d, err := dialectOf(o.URL)
	if err != nil {
		return nil, err
	}
	pool, readPool, err := d.open(o)
	if err != nil {
		return nil, err
	}
	db := &DB{pool: pool, readPool: readPool, conn: pool, dialect: d}
	if err := waitFor(ctx, pool, o); err != nil {
		return nil, errors.Join(err, db.Close())
	}
	if db.DB, err = db.handle(pool, o); err == nil {
		db.reads, err = db.handle(readPool, o)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), db.Close())
	}
	return db, nil
}

// handle returns GORM's handle on pool.
func (db *DB) handle(pool *sql.DB, o Options) (*gorm.DB, error) {
	return gorm.Open(db.dialect.dialector(pool), &gorm.Config{
		Logger: queryLogger{log: o.Logger, slow: o.SlowQuery},
		// One statement is a transaction already.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// PostgreSQL keeps microseconds: what is answered after a write must be
		// what is read later.
		NowFunc: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
	})
}

// Reads returns the handle for reads, which never wait for a write.
func (db *DB) Reads(ctx context.Context) *gorm.DB { return db.reads.WithContext(ctx) }

// Transaction runs do in a transaction, which is committed when do returns nil
// and undone otherwise. It waits for locks for as long as ctx does.
func (db *DB) Transaction(ctx context.Context, do func(tx *DB) error) error {
	return db.WithContext(ctx).Transaction(func(handle *gorm.DB) error {
		tx := *db
		tx.DB = handle
		tx.conn = handle.Statement.ConnPool
		if patience := db.dialect.patience(); patience != "" {
			if err := handle.Exec(patience).Error; err != nil {
				return err
			}
		}
		return do(&tx)
	})
}

// After returns the SQL of a time that moves a column forward: value, or the
// next moment after column's where value is not later.
func (db *DB) After(column, value string) string { return db.dialect.after(column, value) }

// Contains returns a condition and its argument that hold where column, a text,
// has part in it. ASCII letters match in any case; how far others do is up to the
// database: PostgreSQL goes by its locale, SQLite takes them as they are.
func (db *DB) Contains(column, part string) (condition, argument string) {
	return db.dialect.contains(column), "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error { return db.readPool.PingContext(ctx) }

// Writers returns how many transactions can write at the same time.
func (db *DB) Writers() int { return db.pool.Stats().MaxOpenConnections }

// Readers returns how many reads can run at the same time beside the transactions
// that write, or 0 where they share the connections.
func (db *DB) Readers() int {
	if db.readPool == db.pool {
		return 0
	}
	return db.readPool.Stats().MaxOpenConnections
}

// Close waits for the running queries and closes every connection.
func (db *DB) Close() error {
	if db.readPool == db.pool {
		return db.pool.Close()
	}
	return errors.Join(db.readPool.Close(), db.pool.Close())
}

func dialectOf(url string) (dialect, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return sqliteDialect{path: rest}, nil
	case "postgres", "postgresql":
		return &postgresDialect{}, nil
	}
	// The URL itself may hold a password and is not repeated.
	return nil, errors.New("the database URL must start with sqlite:, postgres:// or postgresql://")
}

// waitFor pings until the database answers, for o.StartTimeout.
func waitFor(ctx context.Context, pool *sql.DB, o Options) error {
	ctx, cancel := context.WithTimeout(ctx, o.StartTimeout)
	defer cancel()
	for pause := 100 * time.Millisecond; ; pause = min(2*pause, 2*time.Second) {
		err := pool.PingContext(ctx)
		if err == nil {
			return nil
		}
		err = fmt.Errorf("connect to the database: %w", err)
		if !IsUnavailable(err) || isRefused(err) {
			return err
		}
		o.Logger.Warn("waiting for the database", zap.Error(err))
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
