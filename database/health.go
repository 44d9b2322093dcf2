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
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/database/fault"
	"plantstore/database/table"
)

const (
	readyInterval = time.Second // between two checks
	readyTimeout  = time.Second // of a check: probes give up early
)

// health remembers the last check of [DB.Ready].
type health struct {
	db      *DB
	tables  []*table.Table
	faults  atomic.Int64 // of operations, since a test of a write has succeeded
	damaged atomic.Bool  // whether SQLite has found its file damaged, which a restart must find as well

	mu      sync.Mutex // held during a check, so that callers share it
	checked time.Time
	err     error
	test    chan error // has the outcome of the test of a write that runs, or is nil
}

// note remembers that an operation failed for a reason for which writes may fail for some time. Of a read
// that may just be slow, it remembers only damage.
func (h *health) note(err error, shows bool) {
	lasting := fault.NotWritable(err)
	if lasting != nil && lasting.Reason == fault.Damaged {
		h.damaged.Store(true)
	}
	if !shows || errors.Is(err, context.Canceled) { // which pgx also calls a timeout
		return
	}
	if lasting != nil && (lasting.Reason == fault.MissingRight || lasting.Reason == fault.WrongSchema) {
		return // which the query of a check shows, for the tables of the models
	}
	// It would not show a commit that waits for a synchronous standby, nor another process that has locked the file.
	if lasting != nil || pgconn.Timeout(err) || fault.SQLiteCode(err) == sqlite3.SQLITE_BUSY {
		h.faults.Add(1)
	}
}

// Require makes [DB.Ready] check that table exists with all its columns.
func (db *DB) Require(t *table.Table) { db.health.tables = append(db.health.tables, t) }

// Ready reports whether a write would succeed. Otherwise it fails with an error that wraps
// ErrUnavailable and says why. However often it is called, it costs at most one query
// in a second, and a test of a write as long as none has succeeded since a fault.
func (db *DB) Ready(ctx context.Context) error {
	h := db.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Since(h.checked) < readyInterval && db.dialect.Check() == nil {
		return h.err
	}
	// All callers share the result, so ignore this caller's deadline.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	err := h.check(ctx)
	if err != nil && !errors.Is(err, fault.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	h.checked, h.err = time.Now(), err
	return err
}

func (h *health) check(ctx context.Context) error {
	err := h.db.dialect.Check()
	if err == nil && h.damaged.Load() {
		err = &fault.NotWritableError{Reason: fault.Damaged}
	}
	if err != nil {
		return fault.In("check the database", err)
	}
	if faults := h.faults.Load(); faults > 0 {
		// A query would not show whether it lasts.
		err := h.testWrite(ctx)
		if err != nil && fault.SQLState(err) != fault.InsufficientPrivilege { // only a write can tell
			return fault.In("test a write", err)
		}
		h.faults.CompareAndSwap(faults, 0)
	}
	var isReadOnly, isExpected bool
	var protected string
	_, pool := h.db.dialect.Pools()
	err = pool.QueryRowContext(ctx, h.query()).Scan(&isReadOnly, &isExpected, &protected)
	reason, advice := "", "" // the advice is for the log
	switch {
	case fault.IsSchema(err), err == nil && !isExpected:
		reason, advice = fault.WrongSchema, ": see `plantstore migrate status`"
	case fault.IsTableLocked(err): // a migration, perhaps: operations wait for it, and other replicas are no better
		return nil
	case err != nil:
		return fault.In("check the database", err)
	case isReadOnly:
		reason = fault.ReadOnly
	case protected != "":
		reason, advice = fault.MissingRight, ": to write the table "+protected
	default:
		return nil
	}
	return errors.Join(fmt.Errorf("check the database: %w: %w%s", fault.ErrUnavailable, &fault.NotWritableError{Reason: reason}, advice), err)
}

// hangingTest limits a test of a write, which may outlast the check that began it: a server whose
// disk hangs keeps the connection of each test that is given up. It is not longer, since after a
// failover from a lost host the service is not ready until the test ends.
const hangingTest = 5 * time.Second

// testWrite tests a write. A test that does not end in time goes on, and the next checks wait
// for it.
func (h *health) testWrite(ctx context.Context) error {
	if h.test == nil {
		limit := hangingTest
		if h.db.limits.writer != nil { // writes wait for the only connection, which this takes
			limit = readyTimeout / 10
		}
		test := make(chan error, 1)
		h.test = test
		go func() {
			ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
			defer cancel()
			_, err := h.db.primary().ExecContext(ctx, h.db.dialect.Facts().WriteTest)
			test <- err
		}()
	}
	select {
	case err := <-h.test:
		h.test = nil
		return err
	case <-ctx.Done():
		return ctx.Err()
	}
}

// query returns the query for whether the database is read-only, whether its schema is the
// expected one, and for a table that the role may not write, or an empty text. It fails if a table or a
// column does not exist.
func (h *health) query() string {
	schema, facts := h.db.schema, h.db.dialect.Facts()
	conditions := []string{
		fmt.Sprintf("(SELECT count(DISTINCT version_id) FROM "+goose.DefaultTablename+" WHERE version_id BETWEEN 1 AND %d) = %d",
			schema.Version(), len(schema.provider.ListSources())),
		fmt.Sprintf("NOT EXISTS (SELECT 1 FROM "+goose.DefaultTablename+" WHERE version_id > %d AND version_id NOT IN (SELECT version FROM compatible_migrations))",
			schema.Version()),
	}
	protected := "''"
	for _, t := range h.tables {
		conditions = append(conditions, fmt.Sprintf("NOT EXISTS (SELECT %s FROM %s WHERE 1 = 0)", table.Names(t.Columns), t.Name))
		protected = fmt.Sprintf("CASE WHEN %s THEN %s ELSE '%s' END", strings.ReplaceAll(facts.MayWrite, "{table}", t.Name), protected, t.Name)
	}
	return "SELECT " + facts.ReadOnly + ", " + strings.Join(conditions, " AND ") + ", " + protected
}
