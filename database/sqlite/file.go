package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/libtnb/sqlite"
	"go.uber.org/zap"
	sqlite3 "modernc.org/sqlite/lib"

	"plantstore/database/background"
	"plantstore/database/fault"
)

// watchPeriod is how often a SQLite file is checked: the longest time for which reads of a
// file that is no longer at its path continue. Writes check it themselves.
const watchPeriod = 500 * time.Millisecond

// walLimit is the size in bytes above which the WAL is shortened after it had to grow, such
// as by an import: 16 times the size at which SQLite copies it into the database.
const walLimit = 64 << 20

// An attempt to shorten the WAL keeps out writers, while it waits for readers, for at most
// shortenTimeout in each shortenPeriod.
const (
	shortenTimeout = 100 * time.Millisecond
	shortenPeriod  = 5 * time.Second
)

// errLost means that the file at the path, or its WAL, is no longer the one that is open.
// What is written to the open one is lost when it is closed.
var errLost = &fault.NotWritableError{Reason: "its file was removed or replaced"}

// prepareFile creates the database file if it does not exist, and checks it unless another
// process, which has checked it, has it open. From then on, it holds the lock against
// [Restore]. The caller holds the file lock.
func (d *Dialect) prepareFile(ctx context.Context, check bool) error {
	if err := d.ensureFile(); err != nil {
		return err
	}
	var err error
	if d.file, err = filepath.EvalSymlinks(d.Path); err != nil {
		return fmt.Errorf("find the database: %w", err)
	}
	d.inUse = useLock(d.file)
	alone, err := d.inUse.TryLock()
	if err != nil {
		return d.folderFault(fmt.Errorf("lock the database: %w", err))
	}
	if alone {
		if err := d.probe(); err != nil {
			return d.folderFault(err)
		}
		if check {
			if err := d.checkContent(ctx); err != nil {
				return err
			}
		}
		if err := d.inUse.Unlock(); err != nil { // Windows would not turn it into a shared one
			return fmt.Errorf("unlock the database: %w", err)
		}
	}
	return d.inUse.RLock()
}

// useLock returns the lock that processes share while they have the database in file open.
func useLock(file string) *flock.Flock { return flock.New(file + ".open") }

// probe writes beside the file, and opens it for writing. SQLite would report a full disk
// or a lack of permission only as an I/O error or as "unable to open database file". Closing
// the file drops the locks of this process, so it must not have the database open.
func (d *Dialect) probe() error {
	if err := probeFolder(d.file); err != nil {
		return err
	}
	file, err := os.OpenFile(d.file, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return file.Close()
}

// probeFolder writes beside path.
func probeFolder(path string) error {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".probe-*")
	if err != nil {
		return err
	}
	_, err = file.Write(make([]byte, 64<<10)) // more than the first write to the WAL and its index
	return errors.Join(err, file.Close(), os.Remove(file.Name()))
}

// folderFault names the fault of the folder or the disk that err reports, if it does.
func (d *Dialect) folderFault(err error) error {
	switch {
	case fault.IsDiskFull(err):
		return fmt.Errorf("the disk of %s is full: %w", d.Path, err)
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fmt.Errorf("%s and its folder must be writable: %w", d.Path, err)
	}
	return err
}

// errDamaged means that a file was read, and is not a whole database.
var errDamaged = errors.New("it is damaged or not a database")

// checkContent fails if the file is damaged, or if the WAL beside it belongs to another
// file. It changes neither.
func (d *Dialect) checkContent(ctx context.Context) error {
	failed := func(err error) error {
		if errors.Is(err, errDamaged) {
			err = fmt.Errorf("%w: restore it from a backup with `plantstore restore`", err)
		}
		return fmt.Errorf("check %s: %w", d.Path, err)
	}
	if !hasContent(d.file + "-wal") {
		if err := checkSize(d.file); err != nil {
			return failed(err)
		}
	} else if isForeign, err := hasForeignWAL(ctx, d.file); err != nil {
		return failed(err)
	} else if isForeign {
		return fmt.Errorf("%[1]s-wal belongs to another file than %[1]s, which is probably a backup that was copied here: "+
			"remove %[1]s-wal and %[1]s-shm to start with the backup, and next time use `plantstore restore`", d.Path)
	}
	if err := quickCheck(ctx, d.file); err != nil {
		return failed(err)
	}
	return nil
}

// readHeader returns the first bytes of a database, and its size. SQLite's documentation has
// their meaning (https://www.sqlite.org/fileformat.html#the_database_header). Like probe, it must
// be called before the database is open.
func readHeader(path string) (header [20]byte, size int64, err error) {
	file, err := os.Open(path)
	if err != nil {
		return header, 0, err
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		return header, 0, err
	}
	if _, err := file.ReadAt(header[:], 0); err != nil && !errors.Is(err, io.EOF) {
		return header, 0, err
	}
	return header, info.Size(), nil
}

// checkSize fails if the file does not consist of whole pages. SQLite reads what is missing
// as zeros.
func checkSize(path string) error {
	header, size, err := readHeader(path)
	if err != nil {
		return err
	}
	page := max(int64(binary.BigEndian.Uint16(header[16:])), 512) // 1 stands for 65536
	if size == 0 || size%page != 0 {
		return fmt.Errorf("%w: its size of %d bytes is not a number of pages", errDamaged, size)
	}
	return nil
}

// hasForeignWAL reports whether the WAL beside the file path is known to belong to another file.
// path is then a backup, which does not use a WAL until it is opened as a database, and has a user
// version of its own. Changes to the schema count up, and SQLite adds one in a copy of its own,
// which may thus be ahead of the WAL. The WAL has these versions only if it has the first page.
func hasForeignWAL(ctx context.Context, path string) (bool, error) {
	header, _, err := readHeader(path)
	if err != nil {
		return false, err
	}
	if header[18] == 1 { // the version of the format for writing: not that of a WAL
		return true, nil
	}
	const withoutWAL = "&immutable=1"
	var schemaAlone, schema, versionAlone, version int32
	err = errors.Join(
		readPragma(ctx, path, withoutWAL, "schema_version", &schemaAlone), readPragma(ctx, path, "", "schema_version", &schema),
		readPragma(ctx, path, withoutWAL, "user_version", &versionAlone), readPragma(ctx, path, "", "user_version", &version))
	// An error tells nothing about the WAL: quickCheck finds damage.
	return err == nil && (versionAlone != version || schemaAlone > schema), nil
}

// readPragma reads a pragma of the database in file into value. It leaves the file and its
// WAL as they are. more are further parameters of the driver.
func readPragma(ctx context.Context, file, more, pragma string, value any) error {
	pool, err := sql.Open(sqlite.DriverName, "file:"+escapePath(file)+"?mode=ro&_pragma=busy_timeout(1000)"+more)
	if err != nil {
		return err
	}
	err = pool.QueryRowContext(ctx, "PRAGMA "+pragma).Scan(value)
	return errors.Join(err, pool.Close())
}

// quickCheck reads all of the database in file. It fails with errDamaged and the first fault, or
// if the file cannot be read.
func quickCheck(ctx context.Context, file string) error {
	var result string
	err := readPragma(ctx, file, "", "quick_check(1)", &result)
	switch code := fault.SQLiteCode(err); {
	case code == sqlite3.SQLITE_CORRUPT, code == sqlite3.SQLITE_NOTADB:
		return fmt.Errorf("%w: %w", errDamaged, err)
	case err == nil && result != "ok":
		return fmt.Errorf("%w: %s", errDamaged, result)
	}
	return err
}

// connector opens connections to the file as long as it is the one at the path: one to
// another file would apply the WAL of this one to it.
type connector struct {
	*Dialect
	name   string
	driver driver.Driver
}

func (c connector) Connect(context.Context) (driver.Conn, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	return c.driver.Open(c.name)
}

func (c connector) Driver() driver.Driver { return c.driver }

// keepOpen opens a connection that lasts as long as the database is open, and notes which
// files these are. Without it, SQLite would replace the WAL when the pools happen to have
// no connection.
func (d *Dialect) keepOpen(ctx context.Context, c connector) (err error) {
	if d.keeper, err = c.driver.Open(c.name); err != nil {
		return err
	}
	// SQLite opens the WAL with the first read. The timeout is for shortenWAL.
	statement := fmt.Sprintf("SELECT count(*) FROM sqlite_schema; PRAGMA busy_timeout = %d", shortenTimeout.Milliseconds())
	if err := d.execKeeper(ctx, statement); err != nil {
		return err
	}
	var files [3]fs.FileInfo
	for i, path := range d.paths() {
		if files[i], err = os.Stat(path); err != nil {
			return err
		}
	}
	d.files = &files
	return nil
}

// paths returns the paths of the database, of its WAL, and of the memory in which processes
// share the index of the WAL.
func (d *Dialect) paths() [3]string {
	return [3]string{d.Path, d.file + "-wal", d.file + "-shm"}
}

// Check fails if one of the files that are open is no longer at its path. It takes about
// 2 µs.
func (d *Dialect) Check() error {
	if d.files != nil && d.lostFile() != nil { // it is open
		return errLost
	}
	return nil
}

// lostFile returns an error that names one of the open files that is no longer at its path.
func (d *Dialect) lostFile() error {
	for i, path := range d.paths() {
		file, err := os.Stat(path)
		if err != nil {
			return err
		}
		if !os.SameFile(file, d.files[i]) {
			return fmt.Errorf("%s is another file", path)
		}
	}
	return nil
}

// watch begins to check the files: it logs when they are lost and when they are back. It keeps the
// WAL short.
func (d *Dialect) watch(log *zap.Logger) {
	lost, shortened := false, time.Time{}
	d.stop = background.Start(watchPeriod, func(ctx context.Context) {
		before := lost
		switch lost = d.Check() != nil; {
		case lost && !before:
			log.Error("the database file was removed or replaced: all requests fail until the service is restarted or the file is back", zap.String("path", d.Path), zap.Error(d.lostFile()))
		case before && !lost:
			log.Info("the database file is back", zap.String("path", d.Path))
		}
		wal, err := os.Stat(d.file + "-wal")
		if err == nil && wal.Size() > walLimit && !lost && time.Since(shortened) >= shortenPeriod {
			if err := d.shortenWAL(ctx); err != nil && ctx.Err() == nil {
				log.Warn("cannot shorten the WAL, trying again", zap.Int64("bytes", wal.Size()), zap.Error(err))
			}
			shortened = time.Now()
		}
	})
}

// shortenWAL empties the WAL, unless a write is running. SQLite itself starts over in it only
// if it finds no reader there, which may never happen under load. The one connection of the pool keeps
// out the service's writers.
func (d *Dialect) shortenWAL(ctx context.Context) error {
	short, cancel := context.WithTimeout(ctx, shortenTimeout)
	defer cancel()
	conn, err := d.pool.Conn(short)
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // an import, perhaps
	} else if err != nil {
		return err
	}
	defer conn.Close()
	return d.execKeeper(ctx, "PRAGMA wal_checkpoint(TRUNCATE)")
}

// execKeeper runs a statement on the keeper. It ignores the end of ctx, which would cost
// the connection.
func (d *Dialect) execKeeper(ctx context.Context, statement string) error {
	_, err := d.keeper.(driver.ExecerContext).ExecContext(context.WithoutCancel(ctx), statement, nil)
	return err
}

// Close closes the connections, and frees the lock against [Restore].
func (d *Dialect) Close() (err error) {
	if d.stop != nil {
		d.stop()
	}
	if d.pool != nil {
		err = errors.Join(d.pool.Close(), d.reads.Close())
	}
	if d.keeper != nil {
		err = errors.Join(err, d.keeper.Close())
	}
	if d.inUse != nil {
		err = errors.Join(err, d.inUse.Unlock())
	}
	return err
}
