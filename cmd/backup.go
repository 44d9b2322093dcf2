package cmd

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"plantstore/config"
	"plantstore/database"
	"plantstore/database/sqlite"
)

// loadFile returns the configuration and the path of its SQLite database. On PostgreSQL, it fails.
func (s *settings) loadFile() (cfg *config.Config, path string, err error) {
	cfg, err = s.load(usesDatabase)
	if err == nil {
		path, err = database.FileOf(cfg.Database.URL)
	}
	if err == nil && path == "" {
		err = errors.New("backup and restore are for SQLite; for PostgreSQL, use its own tools: " +
			`pg_dump -Fc "$DATABASE_URL" -f FILE, and pg_restore --no-owner -d URL FILE with the URL of an empty database`)
	}
	return cfg, path, err
}

func newBackup(s *settings) *cobra.Command {
	return s.addTo(&cobra.Command{
		Use:   "backup FILE",
		Short: "Write a copy of the SQLite database to a new file, while the service runs",
		Long: "Write a copy of the SQLite database, as of one moment, to a new file. The service can keep\n" +
			"running. The file appears when it is complete and checked. It contains times and the hashes\n" +
			"of tokens, so only its owner can read it.\n\n" +
			"For PostgreSQL, use pg_dump.",
		Example: "  plantstore backup plantstore-$(date +%F).db",
		Args:    takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			cfg, path, err := s.loadFile()
			if err != nil {
				return err
			}
			if err := sqlite.RequireFile(path); err != nil {
				return databaseError(err)
			}
			log, _ := newLogger(cfg)
			defer func() { _ = log.Sync() }()
			o := sqlite.Options{Path: path, Timeout: cfg.Database.Timeout, Check: cfg.Database.Check}
			if err := sqlite.Backup(cmd.Context(), o, args[0], log); err != nil {
				return err
			}
			fmt.Println("wrote a backup to", args[0])
			return nil
		},
	}, databaseFlags)
}

func newRestore(s *settings) *cobra.Command {
	return s.addTo(addYes(&cobra.Command{
		Use:   "restore FILE",
		Short: "Replace the SQLite database with a copy of a backup; the service must not run",
		Long: "Check the backup in FILE and replace the SQLite database with a copy of it. All that was stored\n" +
			"since the backup is lost: the command asks first. It fails if a service has the database open.\n\n" +
			"For PostgreSQL, use pg_restore.",
		Example: "  plantstore restore plantstore-2026-11-22.db",
		Args:    takes(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			_, path, err := s.loadFile()
			if err != nil {
				return err
			}
			err = sqlite.Restore(cmd.Context(), path, args[0], func() error {
				return confirm(cmd, fmt.Sprintf("Replace the database %s with %s? This deletes all that is stored in it.", path, args[0]))
			})
			if err != nil {
				return err
			}
			fmt.Printf("restored %s from %s\n", path, args[0])
			return nil
		},
	}), databaseFlags)
}
