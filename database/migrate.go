package database

import (
	"cmp"
	"context"
	"database/sql"
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
)

// A folder of numbered SQL files for each kind of database, with the same numbers and
// the same effect.
//
//go:embed migrations/*/*.sql
var migrationFiles embed.FS

// migrations are those of one kind of database.
type migrations struct {
	*goose.Provider
	files fs.FS
}

func newMigrations(kind goose.Dialect, folder string, pool *sql.DB, locker lock.SessionLocker) (*migrations, error) {
	files, err := fs.Sub(migrationFiles, "migrations/"+folder)
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(kind, pool, files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	return &migrations{provider, files}, err
}

// Migration is one step of the schema.
type Migration struct {
	Version    int64     // the number in the file's name
	Name       string    // the file's name, or empty if a newer version of the program has applied it
	AppliedAt  time.Time // zero while it is pending
	compatible bool      // although it is newer, this program works with it
}

// String describes an applied migration.
func (m Migration) String() string {
	switch {
	case m.Name != "":
		return m.Name
	case m.compatible:
		return fmt.Sprintf("%05d (unknown: applied by a newer version, compatible with this one)", m.Version)
	}
	return fmt.Sprintf("%05d (unknown: applied by a newer version)", m.Version)
}

// Prepare applies the pending migrations and logs them or, if the options forbid that,
// fails if there are any. It fails if a newer version of the program has applied
// migrations that are not marked as compatible, and with ErrStandby if the database is a standby.
// A copy of a database gets a feed of its own.
func (db *DB) Prepare(ctx context.Context) error {
	if !db.options.Migrate {
		if err := db.requirePrimary(ctx); err != nil {
			return err
		}
		if err := db.RequireSchema(ctx); err != nil {
			return err
		}
		return db.prepareFeed(ctx)
	}
	applied, err := db.Migrate(ctx)
	for _, m := range applied {
		db.log.Info("migrated the database", zap.String("migration", m.Name))
	}
	return err
}

// requirePrimary fails with ErrStandby if the database is a standby.
func (db *DB) requirePrimary(ctx context.Context) error {
	isStandby, err := db.ask(ctx, db.dialect.isStandby())
	if err == nil && isStandby {
		return ErrStandby
	}
	return err
}

// ask returns the value of a condition.
func (db *DB) ask(ctx context.Context, condition string) (isTrue bool, err error) {
	if err := db.pool.QueryRowContext(ctx, "SELECT "+condition).Scan(&isTrue); err != nil {
		return false, fmt.Errorf("prepare the database: %w", err)
	}
	return isTrue, nil
}

// RequireSchema fails if a migration is pending or, like Prepare, if the schema is too new. It
// changes nothing.
func (db *DB) RequireSchema(ctx context.Context) error {
	all, err := db.expected(ctx)
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("migration %s is pending: run `plantstore migrate up`, or start a service with database.migrate set to true", m.Name)
		}
	}
	return err
}

// expected is Migrations, but fails if the schema is too new for this program.
func (db *DB) expected(ctx context.Context) ([]Migration, error) {
	all, err := db.Migrations(ctx)
	for _, m := range all {
		if m.Name == "" && !m.compatible {
			return nil, fmt.Errorf("the schema of %s is newer than this version of the program: migration %d is unknown; "+
				"run the newer version, or roll the migration back with it", db.Name(), m.Version)
		}
	}
	return all, err
}

// Migrate applies every pending migration and returns them. Then it prepares the feed, for
// replicas that are running. Processes that call it at the same time take turns, but none waits
// if no migration is pending. It fails like Prepare if the schema is too new or the database is a
// standby.
func (db *DB) Migrate(ctx context.Context) (applied []Migration, err error) {
	if err := db.requirePrimary(ctx); err != nil {
		return nil, err
	}
	pending, err := db.isPending(ctx)
	if err != nil {
		return nil, err
	}
	if !pending {
		return nil, db.prepareFeed(ctx)
	}
	if err := db.requireMigratable(ctx); err != nil {
		return nil, err
	}
	err = db.retryWhileLocked(ctx, func() error {
		up, err := db.up(ctx)
		applied = append(applied, up...)
		if err == nil && db.nodes != nil {
			err = db.nodes.citus.distribute(ctx, db.pool, db.log)
		}
		return err
	})
	if err == nil {
		err = db.prepareFeed(ctx)
	}
	switch n := len(applied); {
	case err == nil:
		return applied, nil
	case n > 0:
		return applied, fmt.Errorf("migrate the database, after %s: %w", applied[n-1], err)
	}
	return nil, fmt.Errorf("migrate the database: %w", err)
}

// isPending reports whether a migration is pending or, on Citus, a table is not distributed.
func (db *DB) isPending(ctx context.Context) (bool, error) {
	all, err := db.expected(ctx)
	if err != nil {
		return false, err
	}
	pending := slices.ContainsFunc(all, func(m Migration) bool { return m.AppliedAt.IsZero() })
	if db.nodes == nil {
		return pending, nil
	}
	local, err := db.nodes.citus.undistributed(ctx, db.pool)
	if err != nil {
		return false, fmt.Errorf("find the tables that are not distributed: %w", err)
	}
	return pending || len(local) > 0, nil
}

// requireMigratable fails if the schema cannot be changed through this connection.
func (db *DB) requireMigratable(ctx context.Context) error {
	isReadOnly, err := db.ask(ctx, db.dialect.readOnly())
	if err != nil {
		return err
	}
	if isReadOnly { // a statement would end with its connection, and goose would not say why
		return fmt.Errorf("migrate the database %s: %w: is default_transaction_read_only set for it, or for its role?", db.Name(), &NotWritableError{readOnly})
	}
	if db.nodes != nil {
		return requireCoordinator(ctx, db.pool)
	}
	return nil
}

// up applies the pending migrations, and returns those that it has applied, even if it fails.
func (db *DB) up(ctx context.Context) (applied []Migration, err error) {
	results, err := db.migrations.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	for _, r := range results {
		applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path})
	}
	return applied, adviseOwner(err)
}

const (
	lockPause   = time.Second      // between two attempts of a migration to lock a table
	maxLockWait = 10 * time.Minute // until it gives up
	lockLog     = time.Minute      // between two log lines about it, at most
)

// retryWhileLocked calls migrate until it gets the locks that it needs. A migration that waited
// for a lock without a break, such as for the end of an export, would hold up all
// operations that start after it. So it waits less long than they do, and then lets
// them pass.
func (db *DB) retryWhileLocked(ctx context.Context, migrate func() error) error {
	logging, stop := context.WithCancel(ctx)
	defer stop()
	go db.logHolders(logging)
	for begin := time.Now(); ; {
		err := migrate()
		if !IsLocked(err) && !isRolledBack(err) || time.Since(begin) > maxLockWait {
			return err
		}
		if !Sleep(ctx, lockPause) {
			return err
		}
	}
}

// logHolders logs, until ctx ends, which transactions a migration may wait for: between its
// attempts, or in a statement that waits for all that are running.
func (db *DB) logHolders(ctx context.Context) {
	for pause := lockPause; Sleep(ctx, pause); pause = min(2*pause, lockLog) {
		var holders []string
		err := db.Reads(ctx).Raw(db.dialect.lockHolders()).Scan(&holders).Error
		if ctx.Err() == nil && (err != nil || len(holders) > 0) { // otherwise it just takes long
			db.log.Warn("the migration waits, perhaps for the locks of other transactions", zap.Strings("oldest", holders), zap.Error(err))
		}
	}
}

// Last returns the migration that was applied last, which Rollback undoes, and describes
// the data that would be lost, or returns ErrNothingApplied.
func (db *DB) Last(ctx context.Context) (last Migration, loss string, err error) {
	last, err = db.last(ctx)
	if err != nil {
		return last, "", err
	}
	file, err := fs.ReadFile(db.migrations.files, last.Name)
	if err != nil {
		return last, "", err
	}
	_, down, _ := strings.Cut(string(file), "-- +goose Down")
	var losses []string
	for _, dropped := range dropsData.FindAllStringSubmatch(down, -1) {
		var rows int64
		if err := db.WithContext(ctx).Table(dropped[1]).Count(&rows).Error; err != nil {
			return last, "", fmt.Errorf("count the rows of %s: %w", dropped[1], err)
		}
		what := "the table " + dropped[1]
		if dropped[2] != "" {
			what = "the column " + dropped[2] + " of " + dropped[1]
		}
		losses = append(losses, fmt.Sprintf("%s with %d rows", what, rows))
	}
	return last, cmp.Or(strings.Join(losses, ", "), "no data"), nil
}

// last is Last without the loss.
func (db *DB) last(ctx context.Context) (last Migration, err error) {
	all, err := db.Migrations(ctx)
	if err != nil {
		return Migration{}, err
	}
	for _, m := range all {
		if !m.AppliedAt.IsZero() {
			last = m
		}
	}
	switch {
	case last.Version == 0:
		return last, ErrNothingApplied
	case last.Name == "":
		return last, fmt.Errorf("a newer version of the program has applied migration %d: roll it back with that version", last.Version)
	}
	return last, nil
}

// ErrNothingApplied means that there is no migration to roll back.
var ErrNothingApplied = errors.New("no migration is applied")

// dropsData matches the statements of migrations that lose data.
var dropsData = regexp.MustCompile(`(?mi)^(?:DROP TABLE|ALTER TABLE)(?: IF EXISTS)? (\w+)(?:\s+DROP COLUMN(?: IF EXISTS)? (\w+))?;`)

// Rollback undoes the migration last. It fails if that is no longer the one that was applied
// last.
func (db *DB) Rollback(ctx context.Context, last Migration) error {
	err := db.retryWhileLocked(ctx, func() error {
		now, err := db.last(ctx)
		if err == nil && now.Version != last.Version {
			err = fmt.Errorf("meanwhile, the last one is %s: try again", now)
		}
		if err == nil {
			_, err = db.migrations.Down(ctx)
			err = adviseOwner(err)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("undo the migration %s: %w", last, err)
	}
	return nil
}

// Migrations returns every migration that this program knows, in order, and then those that
// a newer version has applied.
func (db *DB) Migrations(ctx context.Context) ([]Migration, error) {
	// Not by goose, which would create its table, and wait for a process that migrates.
	var applied []struct {
		VersionID int64
		Tstamp    time.Time
	}
	err := db.Retry(ctx, func() error {
		return db.WithContext(ctx).Raw("SELECT version_id, tstamp FROM " + goose.DefaultTablename + " WHERE is_applied AND version_id > 0 ORDER BY version_id").Scan(&applied).Error
	})
	if err != nil && !isSchemaError(err) { // without the table, none is applied
		return nil, fmt.Errorf("read the state of the migrations: %w", adviseOwner(err))
	}
	at := make(map[int64]time.Time)
	for _, a := range applied {
		at[a.VersionID] = a.Tstamp
	}
	var all []Migration
	for _, source := range db.migrations.ListSources() {
		all = append(all, Migration{Version: source.Version, Name: source.Path, AppliedAt: at[source.Version]})
	}
	for _, a := range applied {
		if slices.ContainsFunc(all, func(m Migration) bool { return m.Version == a.VersionID }) {
			continue
		}
		m := Migration{Version: a.VersionID, AppliedAt: a.Tstamp}
		err := db.Retry(ctx, func() error {
			return db.WithContext(ctx).Raw("SELECT count(*) > 0 FROM compatible_migrations WHERE version = ?", m.Version).Scan(&m.compatible).Error
		})
		if err != nil {
			return nil, fmt.Errorf("read the compatible migrations: %w", err)
		}
		all = append(all, m)
	}
	return all, nil
}

// adviseOwner adds what to do to an error that means that the role must not change the schema.
func adviseOwner(err error) error {
	if sqlState(err) != insufficientPrivilege {
		return err
	}
	return fmt.Errorf("%w: the role must own the database, its tables and its functions: as a superuser, run ALTER DATABASE … OWNER TO … "+
		"and, for each table and function, ALTER … OWNER TO …, or restore the dump with pg_restore --no-owner --role=…", err)
}
