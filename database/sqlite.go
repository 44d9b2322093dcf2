package database

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
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"gorm.io/gorm"
	modernc "modernc.org/sqlite"
)

// sqliteDialect is a SQLite database in the file path.
type sqliteDialect struct {
	path   string
	file   string          // path without symbolic links: SQLite's name for it
	files  *[3]fs.FileInfo // that are open: see paths
	lost   atomic.Bool     // whether one of them is no longer at its path
	inUse  *flock.Flock    // shared by the processes that have the file open
	keeper driver.Conn     // see keepOpen
	forms  forms
	// prepared has the statements of prepare, by preparedKey.
	prepared sync.Map
}

// lockPoll is how often a process that waits for a file lock tries again.
const lockPoll = 20 * time.Millisecond

// readers is how many connections read a SQLite database besides the one that writes.
const readers = 10

// open connects at once: there is no server to wait for.
func (d *sqliteDialect) open(ctx context.Context, o Options, log *zap.Logger) (pool, readPool *sql.DB, err error) {
	if d.path == "" || d.path == ":memory:" {
		return nil, nil, errors.New("the database URL names no file: sqlite:data/plantstore.db")
	}
	unlock, err := d.lockFile(ctx, log)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if err := d.prepareFile(ctx, o.Check); err != nil {
		return nil, nil, err
	}
	writes := connector{d, dataSourceName(d.file, o.Timeout*(WaitShare-1)/WaitShare), new(modernc.Driver)}
	reads := writes
	reads.name += "&_pragma=query_only(1)"
	if err := d.keepOpen(ctx, writes); err != nil {
		return nil, nil, fmt.Errorf("open %s: %w", d.path, err)
	}
	// SQLite has one writer at a time. The service's writers wait for budget.writer, as waiting
	// for SQLite's own lock is polling.
	pool = sql.OpenDB(writes)
	pool.SetMaxOpenConns(1)
	readPool = sql.OpenDB(reads)
	readPool.SetMaxOpenConns(readers)
	readPool.SetMaxIdleConns(readers)
	return pool, readPool, nil
}

func (d *sqliteDialect) name() string { return d.path }

func (*sqliteDialect) system() string { return "sqlite" }

func (*sqliteDialect) inspect(context.Context, *sql.DB, *zap.Logger) error { return nil }

func (*sqliteDialect) dialector(pool *sql.DB) gorm.Dialector {
	return sqliteDialector{&sqlite.Dialector{Conn: pool}}
}

// sqliteDialector keeps values out of the log, which shows statements as prepared, and out of
// their texts.
type sqliteDialector struct{ *sqlite.Dialector }

func (sqliteDialector) Explain(statement string, _ ...any) string { return statement }

// Initialize lets the limit of a query be a parameter. The driver writes the number into the
// text, and each text stays prepared: see prepare.
func (d sqliteDialector) Initialize(db *gorm.DB) error {
	err := d.Dialector.Initialize(db)
	delete(db.ClauseBuilders, "LIMIT")
	return err
}

// dataSourceName returns the driver's name for the file path, which must exist: SQLite
// would create an empty one.
func dataSourceName(path string, busyTimeout time.Duration) string {
	return "file:" + escapePath(path) + "?" + url.Values{
		"mode":    {"rw"},
		"_txlock": {"immediate"},
		"_pragma": {
			"busy_timeout(" + strconv.FormatInt(busyTimeout.Milliseconds(), 10) + ")",
			"journal_mode(WAL)",
			"synchronous(FULL)",  // NORMAL would lose acknowledged rows on power loss
			"temp_store(MEMORY)", // the root file system may be read-only
			"journal_size_limit(" + strconv.Itoa(walLimit) + ")",
		},
		"_time_format": {"sqlite"},
		"_timezone":    {"UTC"},
	}.Encode()
}

// escapePath returns path as part of a file: URI.
func escapePath(path string) string { return (&url.URL{Path: path}).EscapedPath() }

// lockFile takes the lock under which a process creates, opens, migrates or replaces the
// database. The system frees it when the process dies.
func (d *sqliteDialect) lockFile(ctx context.Context, log *zap.Logger) (unlock func() error, err error) {
	if err := checkLinks(d.path); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(filepath.Dir(d.path), 0o750); err != nil {
		return nil, d.folderFault(fmt.Errorf("create the folder of the database: %w", err))
	}
	lock := d.fileLock()
	free, err := lock.TryLock()
	if err == nil && !free {
		log.Info("waiting for another process that creates, migrates or restores the database", zap.String("path", d.path))
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
func (d *sqliteDialect) ensureFile() error {
	info, err := os.Stat(d.path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if hasContent(d.path + "-wal") {
			return fmt.Errorf("%[1]s does not exist, but %[1]s-wal does, with the latest writes: "+
				"put the file back where it was, or remove %[1]s-wal to start with an empty store", d.path)
		}
		if err := d.createFile(); err != nil {
			return d.folderFault(fmt.Errorf("create the database: %w", err))
		}
	case err != nil:
		return fmt.Errorf("find the database: %w", err)
	case info.IsDir():
		return fmt.Errorf("%s is a folder, not a database file", d.path)
	case info.Size() == 0:
		return fmt.Errorf("%s is empty, so it was damaged or is not a database: "+
			"restore it from a backup with `plantstore restore`, or remove it to start with an empty store", d.path)
	}
	return nil
}

// checkLinks fails if path or one of its folders is a symbolic link to nothing: perhaps to a volume
// that is not mounted, which an empty database in place of the link would hide.
func checkLinks(path string) error {
	for ; path != filepath.Dir(path); path = filepath.Dir(path) {
		target, err := os.Readlink(path)
		if _, missing := os.Stat(path); err == nil && errors.Is(missing, fs.ErrNotExist) {
			return fmt.Errorf("%s is a symbolic link to %s, which does not exist: "+
				"put that back, or mount its volume; remove the link to start with an empty store", path, target)
		}
	}
	return nil
}

// createFile creates an empty database in WAL mode. The caller holds the file lock.
func (d *sqliteDialect) createFile() error {
	if err := probeFolder(d.path); err != nil {
		return err
	}
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
	return RenameDurably(unfinished, d.path)
}

// RenameDurably renames a file within its folder, so that a power cut does not undo that. The content
// of the file must be on disk.
func RenameDurably(from, to string) error {
	if err := os.Rename(from, to); err != nil {
		return err
	}
	return syncFolder(to)
}

// syncFolder syncs the folder of the file path, unless its file system cannot.
func syncFolder(path string) error {
	if runtime.GOOS == "windows" {
		return nil
	}
	folder, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	if err = folder.Sync(); errors.Is(err, syscall.EINVAL) {
		err = nil
	}
	return errors.Join(err, folder.Close())
}

// fileLock returns the lock of lockFile.
func (d *sqliteDialect) fileLock() *flock.Flock { return flock.New(d.path + ".lock") }

func (d *sqliteDialect) migrations(pool *sql.DB, _ *zap.Logger) (*migrations, error) {
	return newMigrations(goose.DialectSQLite3, "sqlite", pool, fileLocker{d.fileLock()})
}

func (*sqliteDialect) lockHolders() string { return "SELECT 'another process that writes'" }

// readOnly cannot be told by a query: a write shows it.
func (*sqliteDialect) readOnly() string { return "FALSE" }

func (*sqliteDialect) mayWrite(string) string { return "TRUE" }

func (*sqliteDialect) isStandby() string { return "FALSE" }

// writeTest changes the time of goose's first row, which is not a migration's: SQLite does
// not write a row that stays the same.
func (*sqliteDialect) writeTest() string {
	return "UPDATE " + goose.DefaultTablename + " SET tstamp = strftime('%Y-%m-%d %H:%M:%f', 'now') WHERE version_id = 0"
}

// query keeps the statement prepared, except in a transaction.
func (d *sqliteDialect) query(ctx context.Context, conn connection, text string, args []any, read func(result) error) error {
	pool, ok := conn.(*sql.DB)
	if !ok {
		return query(ctx, conn, text, args, read)
	}
	ctx = uninterrupted(ctx)
	statement, err := d.prepare(ctx, pool, text) //nolint:sqlclosecheck // the pool closes it
	if err != nil {
		return err
	}
	return readAll(read)(statement.QueryContext(ctx, args...))
}

// uninterrupted returns ctx without its deadline if it is a batch's: the driver would start
// a goroutine for each statement, and none of these takes long.
func uninterrupted(ctx context.Context) context.Context {
	if _, ok := ctx.(batchContext); ok {
		return context.WithoutCancel(ctx)
	}
	return ctx
}

// preparedKey identifies a prepared statement.
type preparedKey struct {
	pool *sql.DB
	text string
}

// prepare returns a statement that stays prepared on the connections of pool: SQLite takes
// longer to compile one than to run it. There are few texts.
func (d *sqliteDialect) prepare(ctx context.Context, pool *sql.DB, text string) (*sql.Stmt, error) {
	key := preparedKey{pool, text}
	if known, ok := d.prepared.Load(key); ok {
		return known.(*sql.Stmt), nil
	}
	statement, err := pool.PrepareContext(ctx, text)
	if err != nil {
		return nil, err
	}
	if earlier, ok := d.prepared.LoadOrStore(key, statement); ok {
		return earlier.(*sql.Stmt), statement.Close() //nolint:sqlclosecheck // the other one stays
	}
	return statement, nil
}

func (d *sqliteDialect) lookup(table *Table, keys any) (query string, argument any) {
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes half the time of a list of one
		return table.Select + " WHERE " + table.Key.DBName + " = ?", list.Index(0).Interface()
	}
	list, _ := json.Marshal(keys) // cannot fail for int64s and strings
	return table.Select + " WHERE " + d.among(table.Key.DBName, "?"), string(list)
}

// load is not faster than insertNew here: a statement costs no round trip.
func (*sqliteDialect) load(context.Context, *sql.DB, *Table, bool, func() ([]any, error)) (int64, error) {
	return 0, errors.ErrUnsupported
}

func (*sqliteDialect) lockRows() (clause string, oneByOne bool) { return "", false }

func (*sqliteDialect) lockTimeout(time.Duration) string { return "" }

// after counts in milliseconds, as SQLite does, in the form in which the driver writes
// times: without trailing zeros.
func (*sqliteDialect) after(column, value string) string {
	return fmt.Sprintf("CASE WHEN %[1]s < %[2]s THEN %[2]s ELSE "+
		"rtrim(rtrim(strftime('%%Y-%%m-%%d %%H:%%M:%%f', %[1]s, '+0.001 seconds'), '0'), '.') || '+00:00' END", column, value)
}

func (*sqliteDialect) among(column, argument string) string {
	return fmt.Sprintf("%s IN (SELECT value FROM json_each(%s))", column, argument)
}

// timeList has times in the form in which the driver writes them.
func (*sqliteDialect) timeList() (layout, start, end string) {
	return `"2006-01-02 15:04:05.999999999-07:00"`, "[", "]"
}

// contains does not use LIKE, which takes U+FFFE and U+FFFF for U+FFFD.
func (*sqliteDialect) contains(column, part string) (condition, argument string) {
	return "instr(lower(" + column + "), lower(?)) > 0", part
}

func (*sqliteDialect) changes() string {
	return `WITH state AS (SELECT epoch, kept, (SELECT COALESCE(max(position), 0) + 1 FROM plant_changes) AS settled FROM feed)
		SELECT s.epoch, s.kept, s.settled, s.settled, s.settled, c.*
		FROM state s LEFT JOIN (
			SELECT * FROM (SELECT 0 AS position, id AS number, id FROM plants WHERE $1 = 0 AND id >= $2 ORDER BY id LIMIT $3)
			UNION ALL
			SELECT * FROM (SELECT position, id, id FROM plant_changes
				WHERE $1 > 0 AND position >= $1 AND (position > $1 OR id >= $2) ORDER BY position LIMIT $3)
		) c ON true ORDER BY c.position, c.number`
}

// feedOrigin is the same for all files: a backup has another one.
func (*sqliteDialect) feedOrigin() string { return "'file'" }

func (d *sqliteDialect) feedIsCopy() string { return "origin <> " + d.feedOrigin() }

func (*sqliteDialect) lockWrites() string { return "" }

func (*sqliteDialect) raiseFeed(context.Context, *DB) error { return nil }

func (*sqliteDialect) purge() []string {
	return []string{`DELETE FROM plant_changes WHERE position IN (SELECT position FROM plant_changes
		WHERE position < ? AND position < (SELECT max(position) FROM plant_changes) LIMIT ?)`}
}

// fileLocker is goose's lock on a SQLite database.
type fileLocker struct{ lock *flock.Flock }

func (l fileLocker) SessionLock(ctx context.Context, _ *sql.Conn) error {
	if _, err := l.lock.TryLockContext(ctx, lockPoll); err != nil {
		return fmt.Errorf("lock the database: %w", err)
	}
	return nil
}

func (l fileLocker) SessionUnlock(context.Context, *sql.Conn) error { return l.lock.Unlock() }
