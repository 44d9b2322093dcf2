package cmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/config"
	"plantstore/database"
	"plantstore/database/sqlite"
	"plantstore/models"
)

// newGroup returns a command that only has subcommands.
func newGroup(name, short, example string, commands ...*cobra.Command) *cobra.Command {
	group := &cobra.Command{
		Use: name, Short: short, Example: "  plantstore " + example, Args: takes(0), DisableFlagsInUseLine: true,
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	group.AddCommand(commands...)
	return group
}

// withDatabase calls action with the configured database and its log. If the file of a SQLite
// database does not exist, it fails unless creates is true.
func (s *settings) withDatabase(ctx context.Context, creates bool, action func(*database.DB, *zap.Logger) error) (err error) {
	cfg, err := s.load(usesDatabase)
	if err != nil {
		return err
	}
	if path, _ := database.FileOf(cfg.Database.URL); path != "" && !creates {
		if err := sqlite.RequireFile(path); err != nil {
			return databaseError(err)
		}
	}
	log, _ := newLogger(cfg)
	defer func() { _ = log.Sync() }()
	db, err := openDatabase(ctx, cfg, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	return action(db, log)
}

func openDatabase(ctx context.Context, cfg *config.Config, log *zap.Logger) (*database.DB, error) {
	db, err := database.Open(ctx, database.Options(cfg.Database), database.BatchOptions(cfg.Writes), models.Tables(), log)
	if err != nil {
		return nil, databaseError(err)
	}
	return db, nil
}

// checkSettings checks what [config.Load] cannot know: whether settings fit together, and whether
// the database would reject a setting.
func checkSettings(cfg *config.Config) error {
	least := database.MinConnections(cfg.Writes.Flushers)
	if path, _ := database.FileOf(cfg.Database.URL); path == "" && cfg.Database.MaxConnections < least {
		return usageError(fmt.Errorf("%s must be at least %d with writes.flushers at %d",
			config.SettingOf("database.max_connections"), least, cfg.Writes.Flushers))
	}
	if err := database.CheckURL(cfg.Database.URL); err != nil {
		return usageError(databaseError(err))
	}
	for _, url := range cfg.Database.ReplicaURLs {
		if err := database.CheckURL(url); err != nil {
			return usageError(fmt.Errorf("%s: %w", config.SettingOf("database.replica_urls"), err))
		}
	}
	return nil
}

// databaseError names the setting that names the database.
func databaseError(err error) error {
	return fmt.Errorf("%s: %w", config.SettingOf("database.url"), err)
}
