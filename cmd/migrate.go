package cmd

import (
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"plantstore/database"
)

func newMigrate(s *settings) *cobra.Command {
	return newGroup("migrate", "Migrate the database schema", "migrate status",
		newDatabaseCommand(s, "migrate up", "Apply every pending migration", creates, migrateUp),
		addYes(newDatabaseCommand(s, "migrate down", "Roll back the last migration, with the data it added", uses, migrateDown)),
		newDatabaseCommand(s, "migrate status", "List all migrations and when they were applied", uses, migrateStatus))
}

func migrateUp(cmd *cobra.Command, db *database.DB) (string, error) {
	applied, err := db.Schema().Migrate(cmd.Context())
	for _, m := range applied { // also before a failure
		_, _ = fmt.Println("applied", m.Name)
	}
	if len(applied) == 0 {
		return "no pending migrations", standbyError(err)
	}
	return "migrated " + db.Name(), err
}

func migrateDown(cmd *cobra.Command, db *database.DB) (string, error) {
	last, loss, err := db.Schema().Last(cmd.Context())
	if err != nil {
		return "", err
	}
	if err := confirm(cmd, fmt.Sprintf("Roll back %s of the database %s? This deletes %s.", last, db.Name(), loss)); err != nil {
		return "", err
	}
	return fmt.Sprintf("rolled back %s of the database %s", last, db.Name()), db.Schema().Rollback(cmd.Context(), last)
}

func migrateStatus(cmd *cobra.Command, db *database.DB) (string, error) {
	all, err := db.Schema().Migrations(cmd.Context())
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
