package cmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"plantstore/database"
)

func newMigrate(s *settings) *cobra.Command {
	return newGroup("migrate", "Migrate the database schema", "migrate status",
		newMigration(s, "up", "Apply every pending migration", migrateUp),
		addYes(newMigration(s, "down", "Roll back the last migration, with the data it added", migrateDown)),
		newMigration(s, "status", "List all migrations and when they were applied", migrateStatus))
}

// newMigration returns a command that calls action with the configured database and prints its report. Only
// migrate up creates a database.
func newMigration(s *settings, name, short string, action func(*cobra.Command, *database.DB) (string, error)) *cobra.Command {
	return s.addTo(&cobra.Command{
		Use: name, Short: short, Example: "  plantstore migrate " + name, Args: takes(0),
		RunE: func(cmd *cobra.Command, _ []string) error {
			return s.withDatabase(cmd.Context(), name == "up", func(db *database.DB, _ *zap.Logger) error {
				report, err := action(cmd, db)
				if err == nil {
					_, err = fmt.Println(report)
				}
				return err
			})
		},
	}, databaseFlags)
}

func migrateUp(cmd *cobra.Command, db *database.DB) (string, error) {
	applied, err := db.Schema.Migrate(cmd.Context())
	for _, m := range applied { // also before a failure
		_, _ = fmt.Println("applied", m.Name)
	}
	if err != nil {
		return "", databaseError(err)
	}
	if len(applied) == 0 {
		return "no pending migrations", nil
	}
	return "migrated " + db.Name(), nil
}

func migrateDown(cmd *cobra.Command, db *database.DB) (string, error) {
	last, loss, err := db.Schema.Last(cmd.Context())
	if err != nil {
		return "", err
	}
	if err := confirm(cmd, fmt.Sprintf("Roll back %s of the database %s? This deletes %s.", last, db.Name(), loss)); err != nil {
		return "", err
	}
	return fmt.Sprintf("rolled back %s of the database %s", last, db.Name()), db.Schema.Rollback(cmd.Context(), last)
}

func migrateStatus(cmd *cobra.Command, db *database.DB) (string, error) {
	all, err := db.Schema.Migrations(cmd.Context())
	var lines []string
	for _, m := range all {
		applied := "pending"
		if !m.AppliedAt.IsZero() {
			applied = m.AppliedAt.UTC().Format(time.RFC3339)
		}
		lines = append(lines, fmt.Sprintf("%-20s  %s", applied, m))
	}
	return strings.Join(lines, "\n"), err
}
