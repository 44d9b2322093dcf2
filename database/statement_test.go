package database_test

import (
	"errors"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// TestRunReportsWhatItCannotScan: such as after a column got another type.
func TestRunReportsWhatItCannotScan(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		statement := &database.Statement{
			Text:    "INSERT INTO compatible_migrations VALUES (@version) RETURNING 'text'",
			Args:    map[string]any{"version": int64(1000)},
			Targets: []any{new(int64)},
		}
		outcomes, err := db.Run(t.Context(), []*database.Statement{statement})
		if err == nil && errors.Join(outcomes...) == nil {
			t.Error("got no error for a text in an int64")
		}
	})
}
