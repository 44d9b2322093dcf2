package sqlite

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gofrs/flock"
	"github.com/libtnb/sqlite"
	"go.uber.org/zap"

	"plantstore/database/background"
	"plantstore/database/fault"
)

// watchPeriod is how often a SQLite file is checked: the longest time for which reads of a
// file that is no longer at its path continue. Writes check it themselves.
const watchPeriod = 500 * time.Millisecond

// The WAL is shortened if it has more than walLimit bytes, 16 times the size at which SQLite copies it into
// the database. An attempt keeps out writers, while it waits for readers, for at most shortenTimeout in each
// shortenPeriod.
const (
	walLimit       = 64 << 20
	shortenTimeout = 100 * time.Millisecond
	shortenPeriod  = 5 * time.Second
)

// errLost means that the file at the path, or its WAL, is not the open file. What is written to that
// is lost when it is closed.
var errLost = &fault.NotWritableError{Reason: "its file was removed or replaced"}

// prepareFile creates the database file if it does not exist, and checks it unless another
// process, which has checked it, has it open. From then on, it holds the lock against
// [Restore]. The caller holds the file lock.
func (d *Dialect) prepareFile(ctx context.Context) error {
	if err := d.ensureFile(); err != nil {
		return err
	}
	alone, err := d.lockOpen()
	if err != nil {
		return err
	}
	if alone {
		if err := probe(d.file); err != nil {
			return d.folderFault(err)
		}
		if d.Options.Check {
			err := quickCheck(ctx, d.file)
			if errors.Is(err, errDamaged) {
				err = fmt.Errorf("%w: restore it from a backup with `plantstore restore`", err)
			}
			if err != nil {
				return fmt.Errorf("check %s: %w", d.Path, err)
			}
		}
		if err := d.inUse.Unlock(); err != nil { // Windows would not turn it into a shared lock
			return fmt.Errorf("unlock the database: %w", err)
		}
	}
	return d.inUse.RLock()
}

// lockOpen tries to take the lock that processes share while they have the database open. It reports
// whether it got it, as no process has.
func (d *Dialect) lockOpen() (alone bool, err error) {
	d.file = d.Path
	if target, err := filepath.EvalSymlinks(d.Path); err == nil {
		d.file = target
	}
	d.inUse = flock.New(d.file + ".open")
	if alone, err = d.inUse.TryLock(); err != nil {
		return false, d.folderFault(fmt.Errorf("lock the database: %w", err))
	}
	return alone, nil
}

// probe opens the file path for writing, and writes beside it. SQLite would report a full disk
// or a lack of permission only as an I/O error or as "unable to open database file". Closing
// the file drops the locks of this process, so it must not have the database open.
func probe(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	beside, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".probe-*")
	if err != nil {
		return errors.Join(err, file.Close())
	}
	_, err = beside.Write(make([]byte, 64<<10)) // more than the first write to the WAL and its index
	return errors.Join(err, file.Close(), beside.Close(), os.Remove(beside.Name()))
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

// quickCheck reads all of the database in file. It fails with errDamaged and the first fault, or
// if the file cannot be read.
func quickCheck(ctx context.Context, file string) error {
	pool, err := sql.Open(sqlite.DriverName, "file:"+escapePath(file)+"?mode=ro&_pragma=busy_timeout(1000)")
	if err != nil {
		return err
	}
	var result string
	err = errors.Join(pool.QueryRowContext(ctx, "PRAGMA quick_check(1)").Scan(&result), pool.Close())
	switch lasting := fault.NotWritable(err); {
	case lasting != nil && lasting.Reason == fault.Damaged:
		return fmt.Errorf("%w: %w", errDamaged, err)
	case err == nil && result != "ok":
		return fmt.Errorf("%w: %s", errDamaged, result)
	}
	return err
}

// connector opens connections to the file as long as it is at the path: a connection to another file
// would apply the WAL of this file to it.
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
	d.files = make(map[string]fs.FileInfo)
	for _, path := range []string{d.Path, d.file + "-wal", d.file + "-shm"} { // processes share the index of the WAL in the latter
		if d.files[path], err = os.Stat(path); err != nil {
			return err
		}
	}
	return nil
}

// Check fails if an open file is no longer at its path. It takes about
// 2 µs.
func (d *Dialect) Check() error {
	for path, opened := range d.files {
		if now, err := os.Stat(path); err != nil || !os.SameFile(now, opened) {
			return errLost
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
			log.Error("the database file was removed or replaced: all requests fail until the service is restarted or the file is back", zap.String("path", d.Path))
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
// if it finds no reader there, which may never happen under load. The pool's only connection keeps
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
