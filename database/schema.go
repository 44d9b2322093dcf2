package database

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"

	"plantstore/database/background"
	"plantstore/database/citus"
	"plantstore/database/fault"
	"plantstore/database/migrations"
	"plantstore/database/postgres"
)

// Schema is the schema of a database, which migrations change.
type Schema struct {
	db       *DB
	provider *goose.Provider
	files    fs.FS
}

func newSchema(db *DB) (*Schema, error) {
	facts := db.dialect.Facts()
	files, err := fs.Sub(migrations.Files, facts.Migrations)
	if err != nil {
		return nil, err
	}
	locker, err := db.dialect.Locker(db.log)
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(facts.Goose, db.primary(), files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	return &Schema{db, provider, files}, err
}

// Version returns the version of the newest migration that this program knows.
func (s *Schema) Version() int64 {
	sources := s.provider.ListSources()
	return sources[len(sources)-1].Version
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
// migrations that are not marked as compatible, and with fault.ErrStandby if the database is a standby.
// A copy of a database gets a feed of its own.
func (s *Schema) Prepare(ctx context.Context) error {
	if !s.db.options.Migrate {
		if err := s.requirePrimary(ctx); err != nil {
			return err
		}
		if err := s.Require(ctx); err != nil {
			return err
		}
		return s.db.feed.prepare(ctx)
	}
	applied, err := s.Migrate(ctx)
	for _, m := range applied {
		s.db.log.Info("migrated the database", zap.String("migration", m.Name))
	}
	return err
}

// requirePrimary fails with fault.ErrStandby if the database is a standby.
func (s *Schema) requirePrimary(ctx context.Context) error {
	isStandby, err := s.ask(ctx, s.db.dialect.Facts().IsStandby)
	if err == nil && isStandby {
		return fault.ErrStandby
	}
	return err
}

// ask returns the value of a condition.
func (s *Schema) ask(ctx context.Context, condition string) (isTrue bool, err error) {
	if err := s.db.primary().QueryRowContext(ctx, "SELECT "+condition).Scan(&isTrue); err != nil {
		return false, fmt.Errorf("prepare the database: %w", err)
	}
	return isTrue, nil
}

// Require fails if a migration is pending or, like Prepare, if the schema is too new. It
// changes nothing.
func (s *Schema) Require(ctx context.Context) error {
	all, err := s.expected(ctx)
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("migration %s is pending: run `plantstore migrate up`, or start a service with database.migrate set to true", m.Name)
		}
	}
	return err
}

// expected is Migrations, but fails if the schema is too new for this program.
func (s *Schema) expected(ctx context.Context) ([]Migration, error) {
	all, err := s.Migrations(ctx)
	for _, m := range all {
		if m.Name == "" && !m.compatible {
			return nil, fmt.Errorf("the schema of %s is newer than this version of the program: migration %d is unknown; "+
				"run the newer version, or roll the migration back with it", s.db.Name(), m.Version)
		}
	}
	return all, err
}

// Migrate applies every pending migration and returns them. Then it prepares the feed, for
// replicas that are running. Processes that call it at the same time take turns, but none waits
// if no migration is pending. It fails like Prepare if the schema is too new or the database is a
// standby.
func (s *Schema) Migrate(ctx context.Context) (applied []Migration, err error) {
	if err := s.requirePrimary(ctx); err != nil {
		return nil, err
	}
	all, err := s.expected(ctx)
	if err != nil {
		return nil, err
	}
	pending := slices.ContainsFunc(all, func(m Migration) bool { return m.AppliedAt.IsZero() })
	if pending {
		if err := s.requireWritable(ctx); err != nil {
			return nil, err
		}
	}
	err = s.retryWhileLocked(ctx, func() error {
		if pending {
			up, err := s.up(ctx)
			applied = append(applied, up...)
			if err != nil {
				return err
			}
		}
		if d, ok := s.db.dialect.(*citus.Dialect); ok {
			return d.Distribute(ctx)
		}
		return nil
	})
	if err == nil {
		err = s.db.feed.prepare(ctx)
	}
	switch n := len(applied); {
	case err == nil:
		return applied, nil
	case n > 0:
		return applied, fmt.Errorf("migrate the database, after %s: %w", applied[n-1], err)
	}
	return nil, fmt.Errorf("migrate the database: %w", err)
}

// requireWritable fails if the database is read-only: a statement would end with its connection, and
// goose would not say why.
func (s *Schema) requireWritable(ctx context.Context) error {
	isReadOnly, err := s.ask(ctx, s.db.dialect.Facts().ReadOnly)
	if err == nil && isReadOnly {
		err = fmt.Errorf("migrate the database %s: %w: is default_transaction_read_only set for it, or for its role?",
			s.db.Name(), &fault.NotWritableError{Reason: fault.ReadOnly})
	}
	return err
}

// up applies the pending migrations, and returns those that it has applied, even if it fails.
func (s *Schema) up(ctx context.Context) (applied []Migration, err error) {
	results, err := s.provider.Up(ctx)
	if partial, ok := errors.AsType[*goose.PartialError](err); ok {
		results = partial.Applied
	}
	for _, r := range results {
		applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path})
	}
	return applied, adviseOwner(err)
}

// lockLog is the longest time between two log lines about a migration that waits for locks.
const lockLog = time.Minute

// retryWhileLocked calls migrate until it gets the locks that it needs. A migration that waited
// for a lock without a break, such as for the end of an export, would hold up all
// operations that start after it. So it waits less long than they do, and then lets
// them pass.
func (s *Schema) retryWhileLocked(ctx context.Context, migrate func() error) error {
	logging, stop := context.WithCancel(ctx)
	defer stop()
	go s.logHolders(logging)
	for begin := time.Now(); ; {
		err := migrate()
		if !fault.IsLocked(err) && !fault.IsRolledBack(err) || time.Since(begin) > postgres.MaxLockWait {
			return err
		}
		if !background.Sleep(ctx, postgres.LockPause) {
			return err
		}
	}
}

// logHolders logs, until ctx ends, which transactions a migration may wait for: between its
// attempts, or in a statement that waits for all that are running.
func (s *Schema) logHolders(ctx context.Context) {
	for pause := postgres.LockPause; background.Sleep(ctx, pause); pause = min(2*pause, lockLog) {
		var holders []string
		err := s.db.Reads(ctx).Raw(s.db.dialect.Facts().LockHolders).Scan(&holders).Error
		if ctx.Err() == nil && (err != nil || len(holders) > 0) { // otherwise it just takes long
			s.db.log.Warn("the migration waits, perhaps for the locks of other transactions", zap.Strings("oldest", holders), zap.Error(err))
		}
	}
}

// Last returns the migration that was applied last, which Rollback undoes, and describes
// the data that would be lost, or returns ErrNothingApplied.
func (s *Schema) Last(ctx context.Context) (last Migration, loss string, err error) {
	last, err = s.last(ctx)
	if err != nil {
		return last, "", err
	}
	file, err := fs.ReadFile(s.files, last.Name)
	if err != nil {
		return last, "", err
	}
	_, down, _ := strings.Cut(string(file), "-- +goose Down")
	var losses []string
	for _, dropped := range dropsData.FindAllStringSubmatch(down, -1) {
		var rows int64
		if err := s.db.WithContext(ctx).Table(dropped[1]).Count(&rows).Error; err != nil {
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
func (s *Schema) last(ctx context.Context) (last Migration, err error) {
	all, err := s.Migrations(ctx)
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
func (s *Schema) Rollback(ctx context.Context, last Migration) error {
	err := s.retryWhileLocked(ctx, func() error {
		now, err := s.last(ctx)
		if err == nil && now.Version != last.Version {
			err = fmt.Errorf("meanwhile, the last one is %s: try again", now)
		}
		if err == nil {
			_, err = s.provider.Down(ctx)
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
func (s *Schema) Migrations(ctx context.Context) ([]Migration, error) {
	// Not by goose, which would create its table, and wait for a process that migrates.
	var applied []struct {
		VersionID int64
		Tstamp    time.Time
	}
	err := s.db.Retry(ctx, func() error {
		return s.db.WithContext(ctx).Raw("SELECT version_id, tstamp FROM " + goose.DefaultTablename + " WHERE is_applied AND version_id > 0 ORDER BY version_id").Scan(&applied).Error
	})
	if err != nil && !fault.IsSchema(err) { // without the table, none is applied
		return nil, fmt.Errorf("read the state of the migrations: %w", adviseOwner(err))
	}
	at := make(map[int64]time.Time)
	for _, a := range applied {
		at[a.VersionID] = a.Tstamp
	}
	var all []Migration
	for _, source := range s.provider.ListSources() {
		all = append(all, Migration{Version: source.Version, Name: source.Path, AppliedAt: at[source.Version]})
	}
	for _, a := range applied {
		if slices.ContainsFunc(all, func(m Migration) bool { return m.Version == a.VersionID }) {
			continue
		}
		m := Migration{Version: a.VersionID, AppliedAt: a.Tstamp}
		err := s.db.Retry(ctx, func() error {
			return s.db.WithContext(ctx).Raw("SELECT count(*) > 0 FROM compatible_migrations WHERE version = ?", m.Version).Scan(&m.compatible).Error
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
	if fault.SQLState(err) != fault.InsufficientPrivilege {
		return err
	}
	return fmt.Errorf("%w: the role must own the database, its tables and its functions: as a superuser, run ALTER DATABASE … OWNER TO … "+
		"and, for each table and function, ALTER … OWNER TO …, or restore the dump with pg_restore --no-owner --role=…", err)
}
