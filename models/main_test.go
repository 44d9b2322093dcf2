package models_test

import (
	"os"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"plantstore/database"
	"plantstore/database/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// open returns the database at url, migrated.
func open(t *testing.T, url string) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), database.Options{
		URL: url, MaxConnections: 8, Timeout: 5 * time.Second, StartTimeout: 5 * time.Second, Logger: zaptest.NewLogger(t),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}
