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

// DB is an open database. Its GORM handle is safe for concurrent use.
type DB struct {
	*gorm.DB
	pool    *sql.DB
	dialect dialect
}

// dialect is what this package must know of one kind of database.
type dialect interface {
	// open returns the pool, without connecting, and GORM's dialector for it.
	open(Options) (*sql.DB, gorm.Dialector, error)
	// migrations returns goose's settings for this database.
	migrations() migrationSettings
	// insertNew is [DB.InsertNew]; the first column is the key.
	insertNew(ctx context.Context, pool *sql.DB, table string, columns []Column) ([]int64, error)
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
	pool, dialector, err := d.open(o)
	if err != nil {
		return nil, err
	}
	if err := waitFor(ctx, pool, o); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	handle, err := gorm.Open(dialector, &gorm.Config{
		Logger: queryLogger{log: o.Logger, slow: o.SlowQuery},
		// One statement is a transaction already.
		SkipDefaultTransaction: true,
		DisableAutomaticPing:   true,
		// PostgreSQL keeps microseconds: what is answered after a write must be
		// what is read later.
		NowFunc: func() time.Time { return time.Now().UTC().Truncate(time.Microsecond) },
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("open the database: %w", err), pool.Close())
	}
	return &DB{DB: handle, pool: pool, dialect: d}, nil
}

// Ping reports whether the database answers.
func (db *DB) Ping(ctx context.Context) error { return db.pool.PingContext(ctx) }

// Writers returns how many transactions can write at the same time.
func (db *DB) Writers() int { return db.pool.Stats().MaxOpenConnections }

// Close waits for the running queries and closes every connection.
func (db *DB) Close() error { return db.pool.Close() }

func dialectOf(url string) (dialect, error) {
	scheme, rest, _ := strings.Cut(url, ":")
	switch scheme {
	case "sqlite":
		return sqliteDialect{path: rest}, nil
	case "postgres", "postgresql":
		return postgresDialect{}, nil
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
