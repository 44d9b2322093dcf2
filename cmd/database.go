package cmd

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/database"
)

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

func openDatabase(ctx context.Context, cfg *config.Config, log *zap.Logger) (*database.DB, error) {
	db, err := database.Open(ctx, database.Options{
		URL:            cfg.Database.URL,
		MaxConnections: cfg.Database.MaxConnections,
		Timeout:        cfg.Database.Timeout,
		StartTimeout:   cfg.Database.StartTimeout,
		SlowQuery:      cfg.Database.SlowQuery,
		Logger:         log,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.SettingOf("database.url"), err)
	}
	return db, nil
}

// prepareSchema brings the schema up to date, or, where that is turned off,
// makes sure that it is.
func prepareSchema(ctx context.Context, db *database.DB, migrate bool, log *zap.Logger) error {
	if migrate {
		applied, err := db.Migrate(ctx)
		for _, m := range applied {
			log.Info("migrated the database", zap.String("migration", m.Name))
		}
		return err
	}
	all, err := db.Migrations(ctx)
	if err != nil {
		return err
	}
	for _, m := range all {
		if m.AppliedAt.IsZero() {
			return fmt.Errorf("the database lacks migration %s: run plantstore migrate up, or set %s to true",
				m.Name, config.SettingOf("database.migrate"))
		}
	}
	return nil
}
