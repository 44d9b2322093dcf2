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
	facts := db.Dialect.Facts()
	files, err := fs.Sub(migrations.Files, facts.Migrations)
	if err != nil {
		return nil, err
	}
	locker, err := db.Dialect.Locker(db.log)
	if err != nil {
		return nil, err
	}
	provider, err := goose.NewProvider(facts.Goose, db.writes, files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
	return &Schema{db, provider, files}, err
}

// Version returns the version of the newest migration that this program knows.
func (s *Schema) Version() int64 {
	sources := s.provider.ListSources()
	return sources[len(sources)-1].Version
}

// Migration is a step of the schema.
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
// The feeds of a copy of a database begin anew.
func (s *Schema) Prepare(ctx context.Context) error {
	applied, err := s.migrate(ctx, s.db.options.Migrate)
	for _, m := range applied {
		s.db.log.Info("migrated the database", zap.String("migration", m.Name))
	}
	return err
}

// Require fails if a migration is pending or, like Prepare, if the schema is too new. It
// changes nothing.
func (s *Schema) Require(ctx context.Context) error {
	pending, err := s.pending(ctx)
	return cmp.Or(err, requireNone(pending))
}

func requireNone(pending []Migration) error {
	if len(pending) == 0 {
		return nil
	}
	return fmt.Errorf("migration %s is pending: run `plantstore migrate up`, or start a service with database.migrate set to true", pending[0].Name)
}

// pending returns the pending migrations, or fails if the schema is newer than this program supports.
func (s *Schema) pending(ctx context.Context) (pending []Migration, err error) {
	all, err := s.Migrations(ctx)
	for _, m := range all {
		switch {
		case m.Name == "" && !m.compatible:
			return nil, fmt.Errorf("the schema of %s is newer than this version of the program: migration %d is unknown; "+
				"run the newer version, or roll the migration back with it", s.db.Name(), m.Version)
		case m.AppliedAt.IsZero():
			pending = append(pending, m)
		}
	}
	return pending, err
}

// Migrate applies every pending migration and returns those that it has applied, even if it fails.
// Then it prepares the feeds, for replicas that are running. Processes that call it at the same time
// take turns, but do not wait if no migration is pending. It fails like Prepare if the schema is too
// new or the database is a standby.
func (s *Schema) Migrate(ctx context.Context) ([]Migration, error) { return s.migrate(ctx, true) }

func (s *Schema) migrate(ctx context.Context, may bool) (applied []Migration, err error) {
	var isStandby, isReadOnly bool
	facts := s.db.Dialect.Facts()
	err = s.db.writes.QueryRowContext(ctx, "SELECT "+facts.IsStandby+", "+facts.ReadOnly).Scan(&isStandby, &isReadOnly)
	switch {
	case err != nil:
		return nil, fmt.Errorf("prepare the database: %w", err)
	case isStandby:
		return nil, fault.ErrStandby
	}
	pending, err := s.pending(ctx)
	if err == nil && !may {
		err = requireNone(pending)
	}
	if err != nil {
		return nil, err
	}
	if isReadOnly && len(pending) > 0 { // goose would not say why it fails
		return nil, fmt.Errorf("migrate the database %s: %w: is default_transaction_read_only set for it, or for its role?",
			s.db.Name(), &fault.NotWritableError{Reason: fault.ReadOnly})
	}
	err = s.retryWhileLocked(ctx, func() error {
		return s.db.Dialect.Migrate(ctx, len(pending) > 0, func() error {
			if len(pending) == 0 {
				return nil
			}
			results, err := s.provider.Up(ctx)
			if partial, ok := errors.AsType[*goose.PartialError](err); ok {
				results = partial.Applied
			}
			for _, r := range results {
				applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path})
			}
			return adviseOwner(err)
		})
	})
	if err == nil {
		err = s.prepareFeeds(ctx)
	}
	if err != nil {
		err = fmt.Errorf("migrate the database: %w", err)
	}
	return applied, err
}

// retryWhileLocked calls migrate until it gets the locks that it needs. A migration that waited
// for a lock without a break, perhaps for the end of an export, would hold up all
// operations that start after it. So it waits less long than they do, and then lets
// them pass.
func (s *Schema) retryWhileLocked(ctx context.Context, migrate func() error) error {
	begin := time.Now()
	for logged := (time.Time{}); ; {
		err := migrate()
		if !fault.IsLocked(err) && !fault.IsRolledBack(err) || time.Since(begin) > postgres.MaxLockWait {
			return err
		}
		if time.Since(logged) > time.Minute {
			by, _ := s.db.health.lockedBy(ctx, s.db.Dialect.Facts().LockedBy)
			s.db.log.Warn("the migration waits, perhaps for the locks of other transactions", zap.String("locked_by", by), zap.Error(err))
			logged = time.Now()
		}
		if !background.Sleep(ctx, postgres.LockPause) {
			return err
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

// last is Last without the loss, which takes a count of rows.
func (s *Schema) last(ctx context.Context) (last Migration, err error) {
	all, err := s.Migrations(ctx)
	for _, m := range all {
		if !m.AppliedAt.IsZero() {
			last = m
		}
	}
	switch {
	case err != nil:
		return last, err
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

// Rollback undoes the migration last. It fails if another migration was applied last.
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
func (s *Schema) Migrations(ctx context.Context) (all []Migration, err error) {
	// Not by goose, which would create its table, and wait for a process that migrates.
	var applied []struct {
		VersionID int64
		Tstamp    time.Time
	}
	err = s.db.Retry(ctx, func() error {
		return s.db.WithContext(ctx).Raw("SELECT version_id, tstamp FROM " + goose.DefaultTablename + " WHERE is_applied AND version_id > 0 ORDER BY version_id").Scan(&applied).Error
	})
	if err != nil && !fault.IsSchema(err) { // without the table, no migration is applied
		return nil, fmt.Errorf("read the state of the migrations: %w", adviseOwner(err))
	}
	for _, source := range s.provider.ListSources() {
		all = append(all, Migration{Version: source.Version, Name: source.Path})
	}
	for _, a := range applied {
		i := slices.IndexFunc(all, func(m Migration) bool { return m.Version == a.VersionID })
		if i >= 0 {
			all[i].AppliedAt = a.Tstamp
			continue
		}
		m := Migration{Version: a.VersionID, AppliedAt: a.Tstamp}
		err := s.db.WithContext(ctx).Raw("SELECT count(*) > 0 FROM compatible_migrations WHERE version = ?", m.Version).Scan(&m.compatible).Error
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
