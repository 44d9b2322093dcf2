package cmd

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"plantstore/database"
)

func newMigrate(s *settings) *cobra.Command {
	return newDatabaseCommands(s, "migrate", "Migrate the database schema",
		databaseCommand{"up", "Apply every pending migration", migrateUp},
		databaseCommand{"down", "Roll back the last migration, with the data it added", migrateDown},
		databaseCommand{"status", "List all migrations and when they were applied", migrateStatus})
}

func migrateUp(ctx context.Context, db *database.DB, w io.Writer) error {
	applied, err := db.Migrate(ctx)
	if err != nil {
		return err
	}
	for _, m := range applied {
		_, _ = fmt.Fprintln(w, "applied", m.Name)
	}
	if len(applied) == 0 {
		_, _ = fmt.Fprintln(w, "no pending migrations")
	}
	return nil
}

func migrateDown(ctx context.Context, db *database.DB, w io.Writer) error {
	rolledBack, err := db.Rollback(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "rolled back", rolledBack.Name)
	return nil
}

func migrateStatus(ctx context.Context, db *database.DB, w io.Writer) error {
	all, err := db.Migrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		applied := "pending"
		if !m.AppliedAt.IsZero() {
			applied = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		_, _ = fmt.Fprintf(w, "%-20s  %s\n", applied, m.Name)
	}
	return nil
}
