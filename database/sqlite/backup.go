package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"

	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"

	"plantstore/database/migrations"
)

// RequireFile fails if path names no file, which [Open] would create.
func RequireFile(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: if it was moved, put it back; if it is new, start the service or run `plantstore migrate up` to create it; or set the path of the service's database", path)
	}
	return nil
}

// Backup writes a copy of the database, as of one moment, to the new file path. It can run while a
// service uses the database. The file appears complete and checked, or not at all.
func Backup(ctx context.Context, o Options, path string, log *zap.Logger) (err error) {
	if err := cmp.Or(RequireFile(o.Path), requireNew(path)); err != nil {
		return err
	}
	d, err := Open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	part, err := newPart(path)
	if err != nil {
		return err
	}
	defer removePart(part)
	// In an empty file, which only its owner can read: the backup contains the hashes of
	// tokens.
	if _, err := d.pool.ExecContext(ctx, "VACUUM INTO ?", part); err != nil {
		return fmt.Errorf("write the backup in %s: %w", filepath.Dir(path), err)
	}
	if err := sealCopy(ctx, part); err != nil {
		return fmt.Errorf("check the backup: %w", err)
	}
	if err := requireNew(path); err != nil {
		return err
	}
	return RenameDurably(part, path)
}

// Restore replaces the database by a copy of the file source, which [Backup] has written, or creates it.
// It fails if source is damaged or of a newer program, and if a process has the database open. Before it
// replaces a database, it calls confirm with its name, and ends with the error.
func Restore(ctx context.Context, path, source string, confirm func(name string) error) error {
	d := &Dialect{Options: Options{Path: path}}
	return d.restore(ctx, source, confirm)
}

func (d *Dialect) restore(ctx context.Context, path string, confirm func(name string) error) (err error) {
	path, err = filepath.EvalSymlinks(path) // as SQLite does, which names the WAL after the target
	if err != nil {
		return err
	}
	source, err := os.Open(path)
	if err != nil {
		return err
	}
	defer source.Close()
	if hasContent(path + "-wal") {
		return fmt.Errorf("%[1]s-wal exists, so %[1]s is a database in use and not a backup: write one with `plantstore backup`", path)
	}
	unlock, err := d.lockFile(ctx, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	d.file = d.Path
	if target, err := filepath.EvalSymlinks(d.Path); err == nil {
		d.file = target // replace the target of a link, not the link
	}
	inUse := useLock(d.file)
	if alone, err := inUse.TryLock(); err != nil {
		return d.folderFault(fmt.Errorf("lock the database: %w", err))
	} else if !alone {
		return fmt.Errorf("a service or another command has %s open: stop it first", d.Path)
	}
	defer func() { err = errors.Join(err, inUse.Unlock()) }()

	part, err := newPart(d.file)
	if err != nil {
		return d.folderFault(err)
	}
	defer removePart(part)
	if err := copyInto(part, source); err != nil {
		return d.folderFault(err)
	}
	if err := sealCopy(ctx, part); err != nil {
		return fmt.Errorf("check %s: %w", path, err)
	}
	if _, err := os.Lstat(d.file); err == nil || hasContent(d.file+"-wal") { // which may have the latest writes of a file that was moved
		if err := confirm(d.Path); err != nil {
			return err
		}
	}
	return d.replaceBy(part)
}

// replaceBy renames part to the database, which loses its WAL. That goes first: a crash in between
// leaves the old file without it, but never the new one with it. If part cannot take the place
// of the old file, as of one that is a mount by itself, the WAL is put back.
func (d *Dialect) replaceBy(part string) error {
	wal, aside := d.file+"-wal", d.file+"-wal.old"
	if err := unlessAbsent(os.Remove(d.file + "-shm")); err != nil {
		return err
	}
	if err := unlessAbsent(os.Rename(wal, aside)); err != nil {
		return err
	}
	if err := os.Rename(part, d.file); err != nil {
		return errors.Join(err, unlessAbsent(os.Rename(aside, wal)))
	}
	return errors.Join(unlessAbsent(os.Remove(aside)), syncFolder(d.file))
}

// hasContent reports whether the file path exists and is not empty.
func hasContent(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Size() > 0
}

// unlessAbsent returns err, or nil if it means that a file does not exist.
func unlessAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// requireNew fails if the file path exists.
func requireNew(path string) error {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: name a new file", path)
	}
	return nil
}

// newPart creates an empty file beside path, which is renamed to path when it is complete.
func newPart(path string) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return "", PartError(path, err)
	}
	return file.Name(), file.Close()
}

// PartError returns err, which is about creating a file with a temporary name beside path, with
// path and its folder instead of that name.
func PartError(path string, err error) error {
	folder := filepath.Dir(path)
	failed, ok := errors.AsType[*fs.PathError](err)
	switch {
	case errors.Is(err, fs.ErrNotExist) && ok:
		return fmt.Errorf("%s: the folder %s does not exist: %w", path, folder, failed.Err)
	case ok:
		return fmt.Errorf("%s: create a file in the folder %s: %w", path, folder, failed.Err)
	}
	return err
}

// removePart removes what is left of a part that was not renamed.
func removePart(part string) {
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		_ = os.Remove(part + suffix)
	}
}

func copyInto(path string, source io.Reader) error {
	target, err := os.OpenFile(path, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = io.Copy(target, source)
	return errors.Join(err, target.Close())
}

// sealCopy checks the copy of a database in file, gives it a user version of its own, by
// which checkContent recognizes a WAL of the original, and makes it durable.
func sealCopy(ctx context.Context, file string) error {
	if err := quickCheck(ctx, file); err != nil {
		return err
	}
	pool, err := sql.Open(sqlite.DriverName, "file:"+escapePath(file)+"?mode=rw&_pragma=synchronous(FULL)")
	if err != nil {
		return err
	}
	return errors.Join(seal(ctx, pool), pool.Close(), syncFile(file))
}

func seal(ctx context.Context, pool *sql.DB) error {
	pool.SetMaxOpenConns(1)
	var applied int64
	if err := pool.QueryRowContext(ctx, "SELECT max(version_id) FROM "+goose.DefaultTablename).Scan(&applied); err != nil {
		return fmt.Errorf("it is not a database of a Plant Store: %w", err)
	}
	files, err := fs.Glob(migrations.Files, "sqlite/*.sql")
	if err != nil {
		return err
	}
	newest := filepath.Base(files[len(files)-1]) // they are in order
	known, err := goose.NumericComponent(newest)
	if err != nil {
		return err
	}
	if applied > known { // then it has the table of compatible migrations, too
		var tooNew int64
		if err := pool.QueryRowContext(ctx, fmt.Sprintf("SELECT COALESCE(max(version_id), 0) "+migrations.FromTooNew, known)).Scan(&tooNew); err != nil {
			return err
		}
		if tooNew > 0 {
			return fmt.Errorf("it is of a newer plantstore, with migration %d: this one knows %s", tooNew, newest)
		}
	}
	// Followers of the original must notice that this is a copy. A backup of an older program
	// has no feed.
	var hasFeed bool
	if err := pool.QueryRowContext(ctx, "SELECT EXISTS (SELECT 1 FROM sqlite_schema WHERE name = 'feed')").Scan(&hasFeed); err != nil {
		return err
	}
	if hasFeed {
		if _, err := pool.ExecContext(ctx, "UPDATE feed SET origin = 'copy'"); err != nil {
			return err
		}
	}
	// One file without a WAL, whatever it was.
	_, err = pool.ExecContext(ctx, fmt.Sprintf("PRAGMA journal_mode = DELETE; PRAGMA user_version = %d", 1+rand.Int32N(math.MaxInt32)))
	return err
}

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
