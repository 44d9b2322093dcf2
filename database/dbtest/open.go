package dbtest

import (
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"plantstore/database"
)

// Options returns the options by which tests open the database at url.
func Options(t testing.TB, url string) database.Options {
	return database.Options{
		URL: url, MaxConnections: 8, Timeout: 5 * time.Second, StartTimeout: 30 * time.Second, Logger: zaptest.NewLogger(t),
	}
}

// Open opens a database until the test ends.
func Open(t testing.TB, o database.Options) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// Migrated opens the database at url until the test ends, with its schema.
func Migrated(t testing.TB, url string) *database.DB {
	t.Helper()
	db := Open(t, Options(t, url))
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}
