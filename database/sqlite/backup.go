package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/libtnb/sqlite"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
)

// RequireFile fails if path names no file, which [Open] would create.
func RequireFile(path string) error {
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s does not exist: if it was moved, put it back; if it is new, start the service or run `plantstore migrate up` to create it; or set the path of the service's database", path)
	}
	return nil
}

// Backup writes a copy of the database, which exists, as of a single moment, to the new file path. It can run while a
// service uses the database. The file appears complete and checked, or not at all.
func Backup(ctx context.Context, o Options, path string, log *zap.Logger) (err error) {
	if _, err := os.Lstat(path); err == nil {
		return fmt.Errorf("%s exists: name a new file", path)
	}
	d, err := Open(ctx, o, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	part, err := newPart(path, strings.NewReader(""))
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
	return RenameDurably(part, path)
}

// Restore replaces the database by a copy of the file source, which [Backup] has written, or creates it.
// It fails if source is damaged, and if a process has the database open. Before it
// replaces a database, it calls confirm, and ends with its error.
func Restore(ctx context.Context, path, source string, confirm func() error) (err error) {
	source, err = filepath.EvalSymlinks(source) // as SQLite does, which names the WAL after the target
	if err != nil {
		return err
	}
	if hasContent(source + "-wal") {
		return fmt.Errorf("%[1]s-wal exists, so %[1]s is a database in use and not a backup: write one with `plantstore backup`", source)
	}
	content, err := os.Open(source)
	if err != nil {
		return err
	}
	defer content.Close()
	if info, err := content.Stat(); err != nil || !info.Mode().IsRegular() {
		return cmp.Or(err, fmt.Errorf("%s is not a file", source))
	}
	d := &Dialect{Options: Options{Path: path}}
	unlock, err := d.lockFile(ctx, zap.NewNop())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	if alone, err := d.lockOpen(); err != nil {
		return err
	} else if !alone {
		return fmt.Errorf("a service or another command has %s open: stop it first", path)
	}
	defer func() { err = errors.Join(err, d.Close()) }()

	part, err := newPart(d.file, content)
	if err != nil {
		return d.folderFault(err)
	}
	defer removePart(part)
	if err := sealCopy(ctx, part); err != nil {
		return fmt.Errorf("check %s: %w", source, err)
	}
	if _, err := os.Lstat(d.file); err == nil || hasContent(d.file+"-wal") { // which may have the latest writes of a file that was moved
		if err := confirm(); err != nil {
			return err
		}
	}
	return d.replaceBy(part)
}

// replaceBy renames part to the database, which loses its WAL. That goes first: a crash in between
// leaves the old file without it, but never the new file with it. If part cannot take the place
// of the old file, which may be a mount by itself, the WAL is put back.
func (d *Dialect) replaceBy(part string) error {
	wal, aside := d.file+"-wal", d.file+"-wal.old"
	err := errors.Join(unlessAbsent(os.Remove(d.file+"-shm")), unlessAbsent(os.Rename(wal, aside)))
	if err != nil {
		return err
	}
	if err := RenameDurably(part, d.file); err != nil {
		return errors.Join(err, unlessAbsent(os.Rename(aside, wal)))
	}
	return unlessAbsent(os.Remove(aside))
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

// newPart creates a file with content beside path, which is renamed to path when it is complete.
func newPart(path string, content io.Reader) (string, error) {
	file, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		return "", PartError(path, err)
	}
	_, err = io.Copy(file, content)
	if err = errors.Join(err, file.Close()); err != nil {
		removePart(file.Name())
	}
	return file.Name(), err
}

// PartError returns err, which is about creating a file with a temporary name beside path, with
// path and its folder instead of that name.
func PartError(path string, err error) error {
	folder := filepath.Dir(path)
	failed, ok := errors.AsType[*fs.PathError](err)
	if !ok {
		return err
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s: the folder %s does not exist: %w", path, folder, failed.Err)
	}
	return fmt.Errorf("%s: create a file in the folder %s: %w", path, folder, failed.Err)
}

// removePart removes what is left of a part that was not renamed.
func removePart(part string) {
	for _, suffix := range []string{"", "-journal", "-wal", "-shm"} {
		_ = os.Remove(part + suffix)
	}
}

// sealCopy checks the copy of a database in file, marks it as a copy, and makes it durable.
func sealCopy(ctx context.Context, file string) error {
	if err := quickCheck(ctx, file); err != nil {
		return err
	}
	pool, err := sql.Open(sqlite.DriverName, "file:"+escapePath(file)+"?mode=rw")
	if err != nil {
		return err
	}
	if _, err = pool.ExecContext(ctx, "SELECT version_id FROM "+goose.DefaultTablename); err != nil {
		err = fmt.Errorf("it is not a database of a Plant Store: %w", err)
	}
	// Followers of the original must notice that this is a copy.
	var mark string // the statements for the feeds; a backup of an older program has none
	read := pool.QueryRowContext(ctx, feedsOf).Scan(&mark)
	_, marked := pool.ExecContext(ctx, mark)
	err = errors.Join(err, read, marked)
	_, single := pool.ExecContext(ctx, "PRAGMA journal_mode = DELETE") // a single file without a WAL, whatever it was
	return errors.Join(err, single, pool.Close(), syncFile(file))
}

// feedsOf is a query for the statements that mark the feeds of a database as those of a copy: all of its
// tables with the state of a feed, whatever this program follows.
const feedsOf = `SELECT COALESCE(group_concat('UPDATE "' || name || '" SET origin = ''copy'';', ' '), '') FROM sqlite_schema AS t
	WHERE type = 'table' AND (SELECT count(*) FROM pragma_table_info(t.name) WHERE name IN ('epoch', 'origin', 'kept')) = 3`

func syncFile(path string) error {
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
