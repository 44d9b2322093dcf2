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

// databaseCommand is a command that works directly on the database.
type databaseCommand struct {
	name, short string
	action      func(context.Context, *database.DB, io.Writer) error
}

// newDatabaseCommands returns a command with subcommands.
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
			RunE: func(cmd *cobra.Command, _ []string) error {
				return withDatabase(cmd, s, func(db *database.DB, _ *config.Config, _ *zap.Logger) error {
					return c.action(cmd.Context(), db, cmd.OutOrStdout())
				})
			},
		})
	}
	return parent
}

// withDatabase calls action with the configured database.
func withDatabase(cmd *cobra.Command, s *settings, action func(*database.DB, *config.Config, *zap.Logger) error) (err error) {
	cfg, err := s.load()
	if err != nil {
		return err
	}
	log := newLogger(cfg, cmd.ErrOrStderr())
	db, err := openDatabase(cmd.Context(), cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return action(db, cfg, log)
}

func openDatabase(ctx context.Context, cfg *config.Config, log *zap.Logger) (*database.DB, error) {
	if least := database.MinConnections(cfg.Writes.Flushers); cfg.Database.MaxConnections < least {
		return nil, usageError(fmt.Errorf("%s must be at least %d with writes.flushers at %d",
			config.SettingOf("database.max_connections"), least, cfg.Writes.Flushers))
	}
	db, err := database.Open(ctx, database.Options(cfg.Database), database.BatchOptions(cfg.Writes), log)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", config.SettingOf("database.url"), err)
	}
	return db, nil
}

// prepare applies pending migrations, if the configuration allows it, and logs them.
func prepare(ctx context.Context, db *database.DB, log *zap.Logger) error {
	applied, err := db.Prepare(ctx)
	for _, m := range applied {
		log.Info("migrated the database", zap.String("migration", m.Name))
	}
	return err
}
