// Package sqlite is the dialect of SQLite.
package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
	"gorm.io/gorm"
	modernc "modernc.org/sqlite"

	"plantstore/database/dialect"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// Options says which database to open, and how.
type Options struct {
	Path    string
	Timeout time.Duration // of an operation
	Check   bool          // lets Open check the file for damage
}

// Dialect is a SQLite database in a file. It is safe for concurrent use.
type Dialect struct {
	Options
	file        string                 // Path without symbolic links: SQLite's name for it
	files       map[string]fs.FileInfo // by path, those that are open
	inUse       *flock.Flock           // shared by the processes that have the file open
	keeper      driver.Conn            // see keepOpen
	pool, reads *sql.DB
	stop        func()       // of the check of the files
	prepared    sync.Map     // has the statements that stay prepared, by pool and text
	kept        atomic.Int32 // how many statements these are
}

// lockPoll is how often a process that waits for a file lock tries again.
const lockPoll = 20 * time.Millisecond

// Readers is how many connections read the database besides the connection that writes.
const Readers = 11

// Open opens the database. It creates the file, with its folder, if it does not exist. It connects at
// once: there is no server to wait for.
func Open(ctx context.Context, o Options, log *zap.Logger) (d *Dialect, err error) {
	d = &Dialect{Options: o}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	unlock, err := d.lockFile(ctx, log)
	if err != nil {
		return d, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := d.prepareFile(ctx); err != nil {
		return d, err
	}
	busy := o.Timeout - limit.Wait(o.Timeout)
	writes := connector{d, dataSourceName(d.file, busy, "temp_store(MEMORY)"), new(modernc.Driver)}         // without temporary files
	reads := connector{d, dataSourceName(d.file, busy, "temp_store(FILE)", "query_only(1)"), writes.driver} // which may sort all rows
	if err := d.keepOpen(ctx, writes); err != nil {
		return d, fmt.Errorf("open %s: %w", o.Path, err)
	}
	// SQLite has one writer at a time. The service's writers wait for their turn, as waiting
	// for SQLite's own lock is polling.
	d.pool = sql.OpenDB(writes)
	d.pool.SetMaxOpenConns(1)
	d.reads = sql.OpenDB(reads)
	d.reads.SetMaxOpenConns(Readers)
	d.reads.SetMaxIdleConns(Readers)
	d.watch(log)
	return d, nil
}

// Pools returns the pool with the connection that writes, and the pool that reads.
func (d *Dialect) Pools() (writes, reads *sql.DB) { return d.pool, d.reads }

// Dialector returns GORM's dialector for pool.
func (*Dialect) Dialector(pool *sql.DB) gorm.Dialector {
	return gormDialector{&sqlite.Dialector{Conn: pool}}
}

// gormDialector keeps values out of the log, which shows statements as prepared, and out of
// their texts.
type gormDialector struct{ *sqlite.Dialector }

func (gormDialector) Explain(statement string, _ ...any) string { return statement }

// Initialize lets the limit of a query be a parameter. The driver writes the number into the
// text, and each text stays prepared: see prepare.
func (d gormDialector) Initialize(db *gorm.DB) error {
	err := d.Dialector.Initialize(db)
	delete(db.ClauseBuilders, "LIMIT")
	return err
}

// dataSourceName returns the driver's name for the file path, which must exist: SQLite
// would create an empty file.
func dataSourceName(path string, busyTimeout time.Duration, pragmas ...string) string {
	return "file:" + escapePath(path) + "?" + url.Values{
		"mode":    {"rw"},
		"_txlock": {"immediate"},
		"_pragma": append([]string{
			"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")",
			"journal_mode(WAL)",
			"foreign_keys(ON)",
			"synchronous(FULL)", // NORMAL would lose acknowledged rows on power loss
			"journal_size_limit(" + strconv.Itoa(walLimit) + ")",
		}, pragmas...),
		"_time_format": {"sqlite"},
		"_timezone":    {"UTC"},
	}.Encode()
}

// escapePath returns path as part of a file: URI.
func escapePath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// lockFile takes the lock under which a process creates, opens, migrates or replaces the
// database. The system frees it when the process dies.
func (d *Dialect) lockFile(ctx context.Context, log *zap.Logger) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(d.Path), 0o750); err != nil {
		return nil, d.folderFault(fmt.Errorf("create the folder of the database: %w", err))
	}
	lock := d.fileLock()
	free, err := lock.TryLock()
	if err == nil && !free {
		log.Info("waiting for another process that creates, migrates or restores the database", zap.String("path", d.Path))
		_, err = lock.TryLockContext(ctx, lockPoll)
	}
	if err != nil {
		return nil, d.folderFault(fmt.Errorf("lock the database: %w", err))
	}
	return lock.Unlock, nil
}

// ensureFile creates the database file if it does not exist. It is created under another
// name and renamed when complete, so an empty file is never mistaken for a new database.
// The caller holds the file lock.
func (d *Dialect) ensureFile() error {
	info, err := os.Stat(d.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if hasContent(d.Path + "-wal") {
			return fmt.Errorf("%[1]s does not exist, but %[1]s-wal does, with the latest writes: "+
				"put the file back where it was, or remove %[1]s-wal to start with an empty store", d.Path)
		}
		if err := d.createFile(); err != nil {
			return d.folderFault(fmt.Errorf("create the database: %w", err))
		}
	case err != nil:
		return fmt.Errorf("find the database: %w", err)
	case info.Size() < 512: // the size of the smallest page: SQLite would take it for a new database
		return fmt.Errorf("%s is empty or too short, so it was damaged or is not a database: "+
			"restore it from a backup with `plantstore restore`, or remove it to start with an empty store", d.Path)
	}
	return nil
}

// createFile creates an empty database in WAL mode. The caller holds the file lock.
func (d *Dialect) createFile() error {
	unfinished := d.Path + ".new"
	if err := errors.Join(os.WriteFile(unfinished, nil, 0o600), probe(unfinished)); err != nil {
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
	return RenameDurably(unfinished, d.Path)
}

// RenameDurably renames a file within its folder, so that a power cut does not undo that. The content
// of the file must be on disk.
func RenameDurably(from, to string) error {
	if err := os.Rename(from, to); err != nil || runtime.GOOS == "windows" { // which syncs no folder
		return err
	}
	folder, err := os.Open(filepath.Dir(to))
	if err != nil {
		return err
	}
	if err = folder.Sync(); errors.Is(err, syscall.EINVAL) { // the file system cannot
		err = nil
	}
	return errors.Join(err, folder.Close())
}

// fileLock returns the lock of lockFile.
func (d *Dialect) fileLock() *flock.Flock { return flock.New(d.Path + ".lock") }

// Locker returns the lock of lockFile.
func (d *Dialect) Locker(*zap.Logger) (lock.SessionLocker, error) {
	return fileLocker{d.fileLock()}, nil
}

// Migrate implements dialect.Dialect.
func (*Dialect) Migrate(_ context.Context, _ bool, up func() error) error { return up() }

// fileLocker is goose's lock on a SQLite database.
type fileLocker struct{ *flock.Flock }

// SessionLock lets conn delete rows with references to them: a migration that builds a table anew drops the old
// table.
func (l fileLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if _, err := l.TryLockContext(ctx, lockPoll); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	_, err := conn.ExecContext(ctx, "PRAGMA foreign_keys = OFF")
	return err
}

// SessionUnlock fails if the migrations have left a reference to a row that does not exist.
func (l fileLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	var from, to string
	err := conn.QueryRowContext(ctx, `SELECT "table", parent FROM pragma_foreign_key_check LIMIT 1`).Scan(&from, &to)
	if err == nil {
		err = fmt.Errorf("a row of %s refers to a row of %s that does not exist: undo the migration with `plantstore migrate down`, and correct it", from, to)
	} else if errors.Is(err, sql.ErrNoRows) {
		err = nil
	}
	_, on := conn.ExecContext(ctx, "PRAGMA foreign_keys = ON")
	return errors.Join(err, on, l.Unlock())
}

// Facts implements dialect.Dialect.
func (d *Dialect) Facts() dialect.Facts {
	return dialect.Facts{
		Name: d.Path, System: "sqlite", Goose: goose.DialectSQLite3, Migrations: "sqlite",
		ReadOnly:  "FALSE", // a query cannot tell: a write shows it
		MayWrite:  "TRUE",
		IsStandby: "FALSE",
		KeyValue:  "? COLLATE BINARY", // a row key has no collation, and without one SQLite uses no index for it
		// The time of goose's first row, which is not a migration's: SQLite does not write a row that stays
		// the same.
		WriteTest: "UPDATE " + goose.DefaultTablename + " SET tstamp = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE version_id = 0",
	}
}

// Query runs a query on conn and calls read with its result.
func (d *Dialect) Query(ctx context.Context, conn gorm.ConnPool, text string, args []any, read func(table.Rows) error) error {
	statement, free, err := d.prepare(ctx, conn, text) //nolint:sqlclosecheck // free closes it
	if err != nil {
		return err
	}
	defer free()
	return table.ReadAll(read)(statement.QueryContext(ctx, args...))
}

// maxPrepared is how many statements stay prepared. Each takes some 10 KB on each connection that has run it.
const maxPrepared = 500

// prepare returns a statement, and free, which the caller calls after its use. The first statements of a pool stay
// prepared on its connections: SQLite takes longer to compile a statement than to run it.
func (d *Dialect) prepare(ctx context.Context, conn gorm.ConnPool, text string) (statement *sql.Stmt, free func(), err error) {
	key := struct {
		conn gorm.ConnPool
		text string
	}{conn, text}
	if known, ok := d.prepared.Load(key); ok {
		return known.(*sql.Stmt), func() {}, nil
	}
	statement, err = conn.PrepareContext(ctx, text)
	if _, isPool := conn.(*sql.DB); err == nil && isPool && d.kept.Load() < maxPrepared {
		if _, known := d.prepared.LoadOrStore(key, statement); !known {
			d.kept.Add(1)
			return statement, func() {}, nil
		}
	}
	return statement, func() { _ = statement.Close() }, err
}

// Get reads the rows of t with the given keys. A transaction that writes has locked all rows.
func (d *Dialect) Get(ctx context.Context, conn gorm.ConnPool, t *table.Table, keys any, _ bool, next func() reflect.Value) (outcomes []error, err error) {
	text, argument := t.Select+" WHERE ", any(nil)
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes half the time of a list of length 1
		text, argument = text+t.Key.DBName+" = ?", list.Index(0).Interface()
	} else {
		list, _ := json.Marshal(keys) // cannot fail for int64s and strings
		text, argument = text+d.Among(t.Key.DBName, "?"), string(list)
	}
	return nil, d.Query(ctx, conn, text, []any{argument}, func(rows table.Rows) error {
		return table.Scan(rows, t.Columns, next)
	})
}

// Load would not be faster than Run here: a statement costs no round trip.
func (*Dialect) Load(context.Context, *table.Table, func() ([]any, error)) (int64, error) {
	return 0, errors.ErrUnsupported
}

// SetLockTimeout returns nothing: no lock is a row's.
func (*Dialect) SetLockTimeout(time.Duration) string { return "" }

// After counts in milliseconds, as SQLite does, in the form in which the driver writes
// times: without trailing zeros.
func (*Dialect) After(column, value string) string {
	return fmt.Sprintf("CASE WHEN %[1]s < %[2]s THEN %[2]s ELSE "+
		"rtrim(rtrim(strftime('%%Y-%%m-%%d %%H:%%M:%%f', %[1]s, '+0.001 seconds'), '0'), '.') || '+00:00' END", column, value)
}

// Among uses a list in JSON.
func (*Dialect) Among(column, argument string) string {
	return fmt.Sprintf("%s IN (SELECT value FROM json_each(%s))", column, argument)
}

// listOf writes times in the form in which the driver writes them.
func listOf(times []time.Time) string {
	texts := make([]string, len(times))
	for i, t := range times {
		texts[i] = t.UTC().Format(`"2006-01-02 15:04:05.999999999-07:00"`)
	}
	return "[" + strings.Join(texts, ",") + "]"
}

// Contains does not use LIKE, which takes U+FFFE and U+FFFF for U+FFFD.
func (*Dialect) Contains(column, part string) (condition, argument string) {
	return "instr(lower(" + column + "), lower(?)) > 0", part
}
