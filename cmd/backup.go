package cmd

import (
	"fmt"

	"github.com/spf13/cobra"

	"plantstore/database"
)

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
			cfg, err := s.load(usesDatabase)
			if err != nil {
				return err
			}
			if err := database.RequireFile(cfg.Database.URL); err != nil {
				return databaseError(err)
			}
			log, _ := newLogger(cfg)
			defer func() { _ = log.Sync() }()
			if err := database.Backup(cmd.Context(), database.Options(cfg.Database), args[0], log); err != nil {
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
			cfg, err := s.load(usesDatabase)
			if err != nil {
				return err
			}
			name, err := database.Restore(cmd.Context(), database.Options(cfg.Database), args[0], func(name string) error {
				return confirm(cmd, fmt.Sprintf("Replace the database %s with %s? This deletes all that is stored in it.", name, args[0]))
			})
			if err != nil {
				return err
			}
			fmt.Printf("restored %s from %s\n", name, args[0])
			return nil
		},
	}), databaseFlags)
}
