package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/pressly/goose/v3"
	"gorm.io/gorm"
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/database/fault"
	"plantstore/database/table"
)

const (
	readyInterval = time.Second // between two checks
	readyTimeout  = time.Second // of a check: probes give up early
	// A lock that lasts longer makes the service unready, if no write succeeds meanwhile.
	lockPatience = 3 * time.Second
)

// health remembers the last check of [DB.Ready].
type health struct {
	db      *DB
	tables  []*table.Table
	faults  atomic.Int64 // of operations, since a test of a write has succeeded
	damaged atomic.Bool  // whether SQLite has found its file damaged, which a restart must find as well
	writing atomic.Int64 // when the batch that is being written began, in Unix nanoseconds; or 0
	locked  atomic.Int64 // when an operation first met a locked table, or SQLite file, since a write has succeeded; or 0

	mu   sync.Mutex // held during a check, so that callers share it
	next time.Time  // of the next check
	err  error
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
	isBusy := fault.SQLiteCode(err) == sqlite3.SQLITE_BUSY
	if isBusy || fault.IsTableLocked(err) {
		h.locked.CompareAndSwap(0, time.Now().UnixNano())
	}
	// It would not show a commit that waits for a synchronous standby, nor another process that has locked the file.
	if lasting != nil || pgconn.Timeout(err) || isBusy {
		h.faults.Add(1)
	}
}

// Require makes [DB.Ready] check that table exists with all its columns.
func (db *DB) Require(t *table.Table) { db.health.tables = append(db.health.tables, t) }

// CheckColumns fails if a column of a required table has another type than its field needs. A table that
// cannot be read is for [DB.Ready] to report.
func (db *DB) CheckColumns(ctx context.Context) error {
	for _, t := range db.health.tables {
		var types []*sql.ColumnType
		err := db.Read(ctx, "check columns", Few, func(tx *gorm.DB) error {
			rows, err := tx.Raw(t.Select + " WHERE 1 = 0").Rows()
			if err == nil {
				defer rows.Close()
				types, err = rows.ColumnTypes()
			}
			return err
		})
		if err != nil {
			continue
		}
		for i, c := range t.Columns {
			want, got := c.Type.Postgres, types[i].DatabaseTypeName()
			if db.Dialect.Facts().System == "sqlite" {
				want = c.Type.SQLite
			}
			if commonType(want) != commonType(got) {
				return fmt.Errorf("the column %s.%s is of type %s in the database, and %v.%s, a %v, needs %s: write a migration that changes it",
					t.Name, c.DBName, strings.ToLower(got), c.Schema.ModelType, c.Name, c.FieldType, want)
			}
		}
	}
	return nil
}

// commonType returns the name of a type that both databases, and their drivers, have in common.
func commonType(name string) string {
	name, _, _ = strings.Cut(strings.ToLower(name), "(")
	return strings.NewReplacer("integer", "bigint", "int8", "bigint", "boolean", "bool", "double precision", "real",
		"float8", "real", "varchar", "text", "datetime", "timestamp").Replace(name)
}

// Ready reports whether a write would succeed. Otherwise it fails with an error that wraps
// ErrUnavailable and says why. However often it is called, it costs at most one query
// in a second, another while a table may be locked, and a test of a write until a test succeeds after a fault.
func (db *DB) Ready(ctx context.Context) error {
	h := db.health
	h.mu.Lock()
	defer h.mu.Unlock()
	if time.Now().Before(h.next) && db.Dialect.Check() == nil {
		return h.err
	}
	// All callers share the result, so ignore this caller's deadline.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readyTimeout)
	defer cancel()
	err := h.check(ctx)
	if err != nil && !errors.Is(err, fault.ErrUnavailable) {
		err = fmt.Errorf("%w: %w", fault.ErrUnavailable, err)
	}
	h.next, h.err = time.Now().Add(readyInterval), err
	return err
}

func (h *health) check(ctx context.Context) error {
	err := h.db.Dialect.Check()
	if err == nil && h.damaged.Load() {
		err = &fault.NotWritableError{Reason: fault.Damaged}
	}
	if err != nil {
		return fault.In("check the database", err)
	}
	// A write that hangs with the disk of a SQLite file cannot be interrupted, so it reports no fault.
	if begin := h.writing.Load(); begin > 0 && time.Since(time.Unix(0, begin)) > h.db.options.Timeout {
		h.faults.Add(1)
	}
	if faults := h.faults.Load(); faults > 0 {
		// A query would not show whether it lasts.
		writing, cancel := ctx, func() {}
		if h.db.Limits.writer != nil { // writes wait for the only connection, which this takes
			writing, cancel = context.WithTimeout(ctx, readyTimeout/10)
		}
		_, err := h.db.writes.ExecContext(writing, h.db.Dialect.Facts().WriteTest)
		cancel()
		if fault.IsTimeout(err) && h.locked.Load() > 0 && h.db.Limits.writer != nil {
			err = &fault.NotWritableError{Reason: fault.Locked}
		}
		if err != nil && fault.SQLState(err) != fault.InsufficientPrivilege { // only a write can tell
			return fault.In("test a write", err)
		}
		h.faults.CompareAndSwap(faults, 0)
	}
	if since := h.locked.Load(); since > 0 {
		switch by, err := h.lockedBy(ctx, h.db.Dialect.Facts().KeptOutBy); {
		case err == nil && by == "": // the lock was a row's, or has ended
			h.locked.CompareAndSwap(since, 0)
		case err == nil && time.Since(time.Unix(0, since)) > lockPatience:
			return fmt.Errorf("check the database: %w: %w: %s", fault.ErrUnavailable, &fault.NotWritableError{Reason: fault.Locked}, by)
		}
	}
	var isReadOnly, isExpected bool
	var protected string
	err = h.db.reads.QueryRowContext(ctx, h.query()).Scan(&isReadOnly, &isExpected, &protected)
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

// lockedBy names the oldest transactions that query, of the dialect, finds. If query is empty, it returns "".
func (h *health) lockedBy(ctx context.Context, query string) (by string, err error) {
	var names []string
	for _, t := range h.tables {
		names = append(names, "'"+t.Name+"'")
	}
	if query != "" {
		err = h.db.writes.QueryRowContext(ctx, strings.ReplaceAll(query, "{tables}", strings.Join(names, ", "))).Scan(&by)
	}
	return by, err
}

// query returns the query for whether the database is read-only, whether its schema is
// as expected, and for a table that the role may not write, or an empty text. It fails if a table or a
// column does not exist.
func (h *health) query() string {
	schema, facts := h.db.Schema, h.db.Dialect.Facts()
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
