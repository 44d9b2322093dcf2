// Package dialect says what a kind of database does for package database. The dialects are in
// packages of their own.
package dialect

import (
	"context"
	"database/sql"
	"reflect"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database/table"
)

// Dialect is an open database of a particular kind. Its methods are safe for concurrent use. A
// gorm.ConnPool is a pool of Pools, where a statement is a transaction of its own, or a transaction.
type Dialect interface {
	// Facts returns what is constant.
	Facts() Facts
	// Pools returns the pools for writes and for reads.
	Pools() (writes, reads *sql.DB)
	// Dialector returns GORM's dialector for a pool.
	Dialector(pool *sql.DB) gorm.Dialector
	// Close closes the pools, and what else is open.
	Close() error

	// Check reports why a restart would open another database.
	Check() error
	// Locker returns the lock under which processes that start at the same time take turns to migrate
	// the database.
	Locker(log *zap.Logger) (lock.SessionLocker, error)
	// Migrate calls up, which applies the migrations that are pending, if any are, and completes them.
	Migrate(ctx context.Context, pending bool, up func() error) error

	// Query runs a query and calls read with its result.
	Query(ctx context.Context, conn gorm.ConnPool, text string, args []any, read func(table.Rows) error) error
	// Get reads the rows of t whose key is in keys, a slice, and locks them if lock is set. next returns
	// the struct that takes the next row. Outcomes are the errors of keys whose rows cannot be read, or nil.
	Get(ctx context.Context, conn gorm.ConnPool, t *table.Table, keys any, lock bool, next func() reflect.Value) (outcomes []error, err error)
	// Run runs groups of changes in their order, in one transaction, and sets their Stored and Err. Err says why a
	// change was not made: batch.ErrDeferred, a rejection by the database, or the lock of its row. Then it harms no other
	// change. The changes of a group are in the order of their keys.
	Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error
	// Load inserts rows, all or none, faster than Run, and returns their number. next returns nil
	// after the last row. It fails with errors.ErrUnsupported if the database has no faster way, or if only Run can
	// tell why a row is rejected, and with an error for which fault.IsRowRejected holds if a row is rejected or its
	// key is taken.
	Load(ctx context.Context, t *table.Table, next func() ([]any, error)) (int64, error)

	// Feed returns the statements of the feed of changes to t, or nil if the database has no feeds.
	Feed(t *table.Table) *Feed
	// SetLockTimeout returns a statement that limits how long a transaction waits for locks; 0 stands for
	// until its context ends. It is empty if no lock is a row's.
	SetLockTimeout(wait time.Duration) string
	// After returns the SQL of a time that moves a column forward: value if it is later than
	// column's, otherwise the next moment after column's.
	After(column, value string) string
	// Among returns a condition that holds if argument, a list like the versions of a
	// change, has the value of column.
	Among(column, argument string) string
	// Contains returns a condition, and its argument, that holds if column, a text, contains part.
	// ASCII letters match in any case.
	Contains(column, part string) (condition, argument string)
}

// Facts are what is constant of a kind of database.
type Facts struct {
	Name       string        // of the database, for people: a path, or hosts and a name, without a password
	System     string        // OpenTelemetry's name for the kind of database
	Goose      goose.Dialect // of its migrations
	Migrations string        // the folder of its migrations
	ReadOnly   string        // an expression that is true if the database rejects writes
	MayWrite   string        // an expression that is true if the role has the rights to write a table, {table}
	IsStandby  string        // an expression that is true if the database copies its primary
	KeyValue   string        // a parameter that a key is compared with, as the second column of a pair
	// LockedBy is a query that names the transactions with locks on tables, and KeptOutBy only with locks that keep
	// out all writes of a table in the list {tables}. They are empty if no lock is a table's.
	LockedBy, KeptOutBy string
	WriteTest           string // a statement that changes nothing that matters, but fails if the disk is full or the database is read-only
}

// Feed has the statements of the feed of changes to a table.
type Feed struct {
	// Changes is a query with the arguments position, order and limit. It returns, beside each change,
	// and at least once: the epoch, the position from which on all changes are retained, the end of the
	// feed, the position of the oldest running transaction, that of the next transaction, and whether
	// the server may have lost changes since the epoch began.
	Changes string
	// Origin is an expression that has another value in a copy of the database. IsCopy is an
	// expression that is true if the state of the feed is from another database, from its future, or from before a
	// failover. Then Renew, a statement with the argument epoch, begins another epoch.
	Origin, IsCopy, Renew string
	// LockWrites is a statement that waits for the transactions that have written the table, and keeps
	// out new transactions.
	LockWrites string
	// Raise lets new positions, in the feeds of all tables that are followed, be above the positions of all
	// rows of this table. Nobody may be writing to a table with a feed.
	Raise func(tx *gorm.DB, followed []*table.Table) error
	// Purge is statements that forget the changes that need not be kept, each up to a number of them.
	Purge []string
}
