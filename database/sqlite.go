package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/gofrs/flock"
	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"gorm.io/gorm"
)

// sqliteDialect is a SQLite database in the file path.
type sqliteDialect struct{ path string }

// readers is how many connections read a SQLite database besides the one that writes.
const readers = 8

func (d sqliteDialect) open(o Options) (pool, readPool *sql.DB, err error) {
	if d.path == "" || d.path == ":memory:" {
		return nil, nil, errors.New("the database URL names no file: sqlite:data/plantstore.db")
	}
	if err := d.ensureFile(); err != nil {
		return nil, nil, err
	}
	name := dataSourceName(d.path, o.Timeout)
	if pool, err = sql.Open(sqlite.DriverName, name); err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", d.path, err)
	}
	// SQLite has one writer at a time. Writers wait in the pool's queue, as waiting for
	// SQLite's own lock is polling.
	pool.SetMaxOpenConns(1)
	if readPool, err = sql.Open(sqlite.DriverName, name+"&_pragma=query_only(1)"); err != nil {
		return nil, nil, errors.Join(fmt.Errorf("open %s: %w", d.path, err), pool.Close())
	}
	readPool.SetMaxOpenConns(readers)
	readPool.SetMaxIdleConns(readers)
	return pool, readPool, nil
}

func (d sqliteDialect) name() string { return d.path }

func (sqliteDialect) dialector(pool *sql.DB) gorm.Dialector {
	return sqliteDialector{&sqlite.Dialector{Conn: pool}}
}

// sqliteDialector keeps values out of the log: it shows statements as prepared.
type sqliteDialector struct{ *sqlite.Dialector }

func (sqliteDialector) Explain(statement string, _ ...any) string { return statement }

// dataSourceName returns the driver's name for the file path, which must exist: SQLite
// would create an empty one.
func dataSourceName(path string, busyTimeout time.Duration) string {
	return "file:" + (&url.URL{Path: path}).EscapedPath() + "?" + url.Values{
		"mode":    {"rw"},
		"_txlock": {"immediate"},
		"_pragma": {
			"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")",
			"journal_mode(WAL)",
			"synchronous(FULL)",  // NORMAL would lose acknowledged rows on power loss
			"temp_store(MEMORY)", // the root file system may be read-only
		},
		"_time_format": {"sqlite"},
		"_timezone":    {"UTC"},
	}.Encode()
}

// ensureFile creates the database file if it does not exist. It is created under another
// name and renamed when complete, so an empty file is never mistaken for a new database.
func (d sqliteDialect) ensureFile() (err error) {
	if err := os.MkdirAll(filepath.Dir(d.path), 0o750); err != nil {
		return fmt.Errorf("create the folder of the database: %w", err)
	}
	lock := d.fileLock()
	if err := lock.Lock(); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	defer func() { err = errors.Join(err, lock.Unlock()) }()

	info, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if err := d.createFile(); err != nil {
			return fmt.Errorf("create the database: %w", err)
		}
	case err != nil:
		return fmt.Errorf("find the database: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a database file", d.path)
	case info.Size() == 0:
		return fmt.Errorf("%s is empty: it was damaged, or is not a database; "+
			"restore it from a backup, or remove it to start with an empty store", d.path)
	}
	return nil
}

// createFile creates an empty database in WAL mode. The caller holds the file lock.
func (d sqliteDialect) createFile() error {
	unfinished := d.path + ".new"
	if err := os.WriteFile(unfinished, nil, 0o600); err != nil {
		return err
	}
	pool, err := sql.Open(sqlite.DriverName, dataSourceName(unfinished, time.Second))
	if err != nil {
		return err
	}
	// Any write makes SQLite lay out the file; closing moves it out of the WAL.
	_, err = pool.Exec("PRAGMA user_version = 0")
	if err := errors.Join(err, pool.Close()); err != nil {
		return err
	}
	if err := os.Rename(unfinished, d.path); err != nil {
		return err
	}
	folder, err := os.Open(filepath.Dir(d.path))
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close()) // makes the name durable
}

// fileLock returns the lock under which a process creates or migrates the database. The
// system frees it when the process dies.
func (d sqliteDialect) fileLock() *flock.Flock { return flock.New(d.path + ".lock") }

func (d sqliteDialect) migrations(*zap.Logger) migrationSettings {
	return migrationSettings{dialect: goose.DialectSQLite3, folder: "sqlite", locker: fileLocker{d.fileLock()}}
}

func (sqliteDialect) lockHolders() string { return "SELECT 'another process that writes'" }

// readOnly cannot be told by a query: a write shows it.
func (sqliteDialect) readOnly() string { return "FALSE" }

func (sqliteDialect) writeTest() string {
	return "UPDATE goose_db_version SET tstamp = tstamp WHERE version_id = 0"
}

// insertNew runs a prepared statement for each row, in one transaction.
func (d sqliteDialect) insertNew(ctx context.Context, conn connection, table *Table, rows reflect.Value) (o insertOutcome, err error) {
	pool, ownTransaction := conn.(*sql.DB)
	if ownTransaction {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return o, err
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after the commit
		if o, err = d.insertNew(ctx, tx, table, rows); err != nil {
			return o, err
		}
		return o, tx.Commit()
	}
	columns := table.Columns
	insert, err := conn.PrepareContext(ctx, fmt.Sprintf("INSERT INTO %s (%s) VALUES (?%s) ON CONFLICT (%s) DO NOTHING",
		table.Name, Names(columns), strings.Repeat(", ?", len(columns)-1), table.Key.DBName))
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, insert.Close()) }()

	o.inserted = make([]any, 0, rows.Len())
	for i := range rows.Len() {
		values := table.values(rows.Index(i).Elem())
		switch result, err := insert.ExecContext(ctx, values...); {
		case isRowRejected(err):
			if o.failed == nil {
				o.failed = make(map[any]error)
			}
			o.failed[values[0]] = err
		case err != nil:
			return o, err
		default:
			if n, err := result.RowsAffected(); err != nil {
				return o, err
			} else if n == 1 {
				o.inserted = append(o.inserted, values[0]) // the key
			}
		}
	}
	o.all = len(o.inserted) == rows.Len()
	return o, nil
}

// load is not faster than insertNew here: a statement costs no round trip.
func (sqliteDialect) load(context.Context, *sql.DB, *Table, bool, func() ([]any, error)) (int64, error) {
	return 0, errors.ErrUnsupported
}

func (sqliteDialect) patience(time.Duration) string { return "" }

// after counts in milliseconds, as SQLite does, in the form in which the driver writes
// times: without trailing zeros.
func (sqliteDialect) after(column, value string) string {
	return fmt.Sprintf("CASE WHEN %[1]s < %[2]s THEN %[2]s ELSE "+
		"rtrim(rtrim(strftime('%%Y-%%m-%%d %%H:%%M:%%f', %[1]s, '+0.001 seconds'), '0'), '.') || '+00:00' END", column, value)
}

func (sqliteDialect) contains(column string) string { return column + ` LIKE ? ESCAPE '\'` }

// searchIndexes has no index for parts of names: a scan of a million takes well under a
// second.
func (sqliteDialect) searchIndexes() (create, drop []string) {
	return []string{"CREATE INDEX IF NOT EXISTS plants_tag ON plants (tag, id)"}, []string{"DROP INDEX IF EXISTS plants_tag"}
}

// fileLocker is goose's lock on a SQLite database.
type fileLocker struct{ lock *flock.Flock }

func (l fileLocker) SessionLock(ctx context.Context, _ *sql.Conn) error {
	if _, err := l.lock.TryLockContext(ctx, 20*time.Millisecond); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	return nil
}

func (l fileLocker) SessionUnlock(context.Context, *sql.Conn) error { return l.lock.Unlock() }
