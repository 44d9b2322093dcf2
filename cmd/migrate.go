package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/database"
)

func newMigrate(s *settings) *cobra.Command {
	return newDatabaseCommands(s, "migrate", "Bring the database's schema up to date, or back",
		databaseCommand{"up", "Apply every pending migration", migrateUp},
		databaseCommand{"down", "Undo the migration that was applied last; the data it added is lost", migrateDown},
		databaseCommand{"status", "List the migrations and when they were applied", migrateStatus})
}

// databaseCommand is a command that works on the database itself.
type databaseCommand struct {
	name, short string
	action      func(context.Context, *database.DB, io.Writer) error
}

// newDatabaseCommands returns the command name, which has commands below it.
func newDatabaseCommands(s *settings, name, short string, commands ...databaseCommand) *cobra.Command {
	parent := &cobra.Command{
		Use:   name,
		Short: short,
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	for _, c := range commands {
		parent.AddCommand(&cobra.Command{
			Use:   c.name,
			Short: c.short,
			Args:  cobra.NoArgs,
			RunE:  func(cmd *cobra.Command, _ []string) error { return withDatabase(cmd, s, c.action) },
		})
	}
	return parent
}

func withDatabase(cmd *cobra.Command, s *settings, action func(context.Context, *database.DB, io.Writer) error) (err error) {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	return withDatabaseOf(cmd, cfg, newLogger(cfg, cmd.ErrOrStderr()), action)
}

func withDatabaseOf(cmd *cobra.Command, cfg *config.Config, log *zap.Logger, action func(context.Context, *database.DB, io.Writer) error) (err error) {
	db, err := openDatabase(cmd.Context(), cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return action(cmd.Context(), db, cmd.OutOrStdout())
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
		_, _ = fmt.Fprintln(w, "nothing to apply")
	}
	return nil
}

func migrateDown(ctx context.Context, db *database.DB, w io.Writer) error {
	undone, err := db.Rollback(ctx)
	if err != nil {
		return err
	}
	_, _ = fmt.Fprintln(w, "undone", undone.Name)
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
