package dbtest

import (
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"plantstore/database"
	"plantstore/database/migrations"
	"plantstore/database/table"
)

// Options returns the options of tests for the database at url.
func Options(url string) database.Options {
	return database.Options{URL: url, Migrate: true, MaxConnections: 15, Timeout: 5 * time.Second, StartTimeout: 30 * time.Second, Check: true, TemporaryBytes: 1 << 30}
}

// Tables has the table whose changes are a feed in the migrations.
var Tables = []*table.Table{{Name: "plants", Noun: "plant", Feed: "feed"}}

// AddFeed gives a table a feed of changes, as a migration does.
func AddFeed(t testing.TB, db *database.DB, to *table.Table) {
	t.Helper()
	text, err := migrations.Files.ReadFile("feed/" + db.Dialect.Facts().Migrations + ".sql")
	if err != nil {
		t.Fatal(err)
	}
	up, _, _ := strings.Cut(string(text), "-- +goose Down")
	if err := db.Exec(to.FeedSQL(up)).Error; err != nil {
		t.Fatal(err)
	}
}

// Batches are the limits of batches in tests.
var Batches = database.BatchOptions{Flushers: 2, MaxBatch: 16, Queue: 1000}

// Open opens a database until the test ends.
func Open(t testing.TB, o database.Options) *database.DB {
	t.Helper()
	return OpenWith(t, o, Batches, zaptest.NewLogger(t))
}

// OpenWith is Open with other limits of batches and another log.
func OpenWith(t testing.TB, o database.Options, batches database.BatchOptions, log *zap.Logger) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), o, batches, Tables, log)
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

// Migrated opens the database at url until the test ends, and migrates it.
func Migrated(t testing.TB, url string) *database.DB {
	t.Helper()
	return Prepared(t, Options(url))
}

// Prepared is Open, and prepares the database.
func Prepared(t testing.TB, o database.Options) *database.DB {
	t.Helper()
	db := Open(t, o)
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}
