package database

import (
	"context"
	"embed"
	"fmt"
	"io/fs"
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

// migrationSettings are goose's settings for one kind of database. Processes that start
// at the same time take turns by its lock.
type migrationSettings struct {
	dialect goose.Dialect
	folder  string
	locker  lock.SessionLocker
	err     error
}

// Migration is one step of the schema.
type Migration struct {
	Version   int64     // the number in the file's name
	Name      string    // the file's name
	AppliedAt time.Time // zero while it is pending
}

// Prepare applies the pending migrations and logs them or, if the options forbid that,
// fails if there are any.
func (db *DB) Prepare(ctx context.Context) error {
	if db.options.Migrate {
		applied, err := db.Migrate(ctx)
		for _, m := range applied {
			db.log.Info("migrated the database", zap.String("migration", m.Name))
		}
		return err
	}
	all, err := db.Migrations(ctx)
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("migration %s is pending: run `plantstore migrate up`, or set database.migrate to true", m.Name)
		}
	}
	return err
}

// Migrate applies every pending migration, each in a transaction, and returns them.
// Processes that call it at the same time take turns.
func (db *DB) Migrate(ctx context.Context) ([]Migration, error) {
	provider, err := db.provider()
	if err != nil {
		return nil, err
	}
	results, err := provider.Up(ctx)
	if err != nil {
		return nil, fmt.Errorf("migrate the database: %w", err)
	}
	var applied []Migration
	for _, r := range results {
		applied = append(applied, Migration{Version: r.Source.Version, Name: r.Source.Path})
	}
	return applied, nil
}

// Rollback undoes the migration that was applied last and returns it. It fails if no
// migration is applied.
func (db *DB) Rollback(ctx context.Context) (Migration, error) {
	provider, err := db.provider()
	if err != nil {
		return Migration{}, err
	}
	r, err := provider.Down(ctx)
	if err != nil {
		return Migration{}, fmt.Errorf("undo the last migration: %w", err)
	}
	return Migration{Version: r.Source.Version, Name: r.Source.Path}, nil
}

// Migrations returns every migration that this program knows, in order.
func (db *DB) Migrations(ctx context.Context) ([]Migration, error) {
	provider, err := db.provider()
	if err != nil {
		return nil, err
	}
	statuses, err := provider.Status(ctx)
	if err != nil {
		return nil, fmt.Errorf("read the state of the migrations: %w", err)
	}
	var all []Migration
	for _, s := range statuses {
		all = append(all, Migration{Version: s.Source.Version, Name: s.Source.Path, AppliedAt: s.AppliedAt})
	}
	return all, nil
}

func (db *DB) provider() (*goose.Provider, error) {
	settings := db.dialect.migrations()
	if settings.err != nil {
		return nil, settings.err
	}
	files, err := fs.Sub(migrationFiles, "migrations/"+settings.folder)
	if err != nil {
		return nil, err
	}
	return goose.NewProvider(settings.dialect, db.pool, files,
		goose.WithSessionLocker(settings.locker), goose.WithDisableGlobalRegistry(true))
}
