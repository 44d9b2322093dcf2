package database

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"modernc.org/sqlite"
	sqlite3 "modernc.org/sqlite/lib"
)

const (
	readyInterval = time.Second // between two checks
	readyTimeout  = time.Second // of a check: probes give up early
)

// readiness remembers the last check of [DB.Ready].
type readiness struct {
	faults  atomic.Int64 // of operations, since a test of a write has succeeded
	damaged atomic.Bool  // whether SQLite has found its file damaged, which a restart must find, too

	mu      sync.Mutex // held during a check, so that callers share it
	checked time.Time
	err     error
	test    chan error // has the outcome of the test of a write that runs, or is nil
}

// note remembers that an operation failed for a reason for which writes may fail for some time.
func (r *readiness) note(err error) {
	if err == nil || errors.Is(err, context.Canceled) { // which pgx also calls a timeout
		return
	}
	fault := notWritable(err)
	if fault != nil && (fault.Reason == missingRight || fault.Reason == wrongSchema) {
		return // which the query of a check shows, for the tables of the models
	}
	// It would not show a commit that waits for a synchronous standby, nor another process that has locked the file.
	if fault != nil || pgconn.Timeout(err) || sqliteCode(err) == sqlite3.SQLITE_BUSY {
		r.faults.Add(1)
	}
}

// noteDamage remembers that SQLite has found its file damaged.
func (r *readiness) noteDamage(err error) {
	if fault := notWritable(err); fault != nil && fault.Reason == damaged {
		r.damaged.Store(true)
	}
}

// Require makes [DB.Ready] check that table exists with all its columns.
func (db *DB) Require(table *Table) { db.tables = append(db.tables, table) }

// Ready reports whether a write would succeed. Otherwise it fails with an error that wraps
// ErrUnavailable and says why. However often it is called, it costs at most one query
// in a second, and a test of a write as long as none has succeeded since a fault.
func (db *DB) Ready(ctx context.Context) error {
	r := db.readiness
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) < readyInterval && db.dialect.check() == nil {
		return r.err
	}
	// The result is for all callers, so it must not depend on the patience of this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	err := db.check(ctx)
	if err != nil && !errors.Is(err, ErrUnavailable) {
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	r.checked, r.err = time.Now(), err
	return err
}

func (db *DB) check(ctx context.Context) error {
	err := db.dialect.check()
	if err == nil && db.readiness.damaged.Load() {
		err = &NotWritableError{damaged}
	}
	if err != nil {
		return Failed("check the database", err)
	}
	if faults := db.readiness.faults.Load(); faults > 0 {
		// A query would not show whether it lasts.
		err := db.testWrite(ctx)
		if err != nil && sqlState(err) != insufficientPrivilege { // only a write can tell
			return Failed("test a write", err)
		}
		db.readiness.faults.CompareAndSwap(faults, 0)
	}
	var isReadOnly, isExpected bool
	var protected string
	err = db.readPool.QueryRowContext(ctx, db.readyQuery()).Scan(&isReadOnly, &isExpected, &protected)
	var fault *NotWritableError
	advice := "" // for the log
	switch {
	case isSchemaError(err), err == nil && !isExpected:
		fault, advice = &NotWritableError{wrongSchema}, ": see `plantstore migrate status`"
	case isTableLocked(err): // a migration, perhaps: operations wait for it, and other replicas are no better
		return nil
	case err != nil:
		return Failed("check the database", err)
	case isReadOnly:
		fault = &NotWritableError{readOnly}
	case protected != "":
		fault, advice = &NotWritableError{missingRight}, ": to write the table "+protected
	default:
		return nil
	}
	return errors.Join(fmt.Errorf("check the database: %w: %w%s", ErrUnavailable, fault, advice), err)
}

// hangingTest limits a test of a write, which may outlast the check that began it: a server whose
// disk hangs keeps the connection of each test that is given up. It is not longer, since after a
// failover from a lost host the service is not ready until the test ends.
const hangingTest = 5 * time.Second

// testWrite tests a write. A test that does not end in time goes on, and the next checks wait
// for it.
func (db *DB) testWrite(ctx context.Context) error {
	r := db.readiness
	if r.test == nil {
		limit := hangingTest
		if db.budget.writer != nil { // writes wait for the only connection, which this takes
			limit = readyTimeout / 10
		}
		test := make(chan error, 1)
		r.test = test
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			_, err := db.pool.ExecContext(ctx, db.dialect.writeTest())
			test <- err
		}()
	}
	select {
	case err := <-r.test:
		r.test = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// fromTooNew is the end of a query for the migrations beyond a version that a program which
// knows no newer one cannot serve.
const fromTooNew = "FROM " + goose.DefaultTablename + " WHERE version_id > %d AND version_id NOT IN (SELECT version FROM compatible_migrations)"

// readyQuery returns the query for whether the database is read-only, whether its schema is the
// expected one, and for a table that the role may not write, or an empty text. It fails if a table or a
// column does not exist.
func (db *DB) readyQuery() string {
	conditions := []string{
		fmt.Sprintf("(SELECT count(DISTINCT version_id) FROM "+goose.DefaultTablename+" WHERE version_id BETWEEN 1 AND %d) = %d",
			db.Schema(), len(db.migrations.ListSources())),
		fmt.Sprintf("NOT EXISTS (SELECT 1 "+fromTooNew+")", db.Schema()),
	}
	protected := "''"
	for _, table := range db.tables {
		conditions = append(conditions, fmt.Sprintf("NOT EXISTS (SELECT %s FROM %s WHERE 1 = 0)", Names(table.Columns), table.Name))
		protected = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", db.dialect.mayWrite(table.Name), protected, table.Name)
	}
	return "SELECT " + db.dialect.readOnly() + ", " + strings.Join(conditions, " AND ") + ", " + protected
}

// isSchemaError reports whether err means that a table or a column of a query does not
// exist.
func isSchemaError(err error) bool {
	if lite, ok := errors.AsType[*sqlite.Error](err); ok {
		return lite.Code() == sqlite3.SQLITE_ERROR
	}
	return isUndefined(sqlState(err))
}
