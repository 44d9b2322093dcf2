package database_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database/dbtest"
)

// TestMigrationLock holds the lock of another process: only what has migrations to apply
// waits for it.
func TestMigrationLock(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	core, logs := observer.New(zap.InfoLevel)
	db := dbtest.OpenWith(t, dbtest.Options(url), dbtest.Batches, zap.New(core))
	if err := db.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	const lock = "UPDATE goose_lock SET locked = TRUE, locked_by = 'another', lease_expires_at = now() + interval '1 hour'"
	dbtest.Exec(t, url, lock)
	t.Run("nothing is pending", func(t *testing.T) {
		if err := db.Prepare(t.Context()); err != nil {
			t.Error(err)
		}
		if logs.FilterMessageSnippet("another process").Len() > 0 {
			t.Error("it waited for the lock")
		}
	})
	t.Run("a migration is pending", func(t *testing.T) {
		dbtest.Exec(t, url, "UPDATE goose_lock SET locked = FALSE")
		if err := rollback(t, db); err != nil {
			t.Fatal(err)
		}
		dbtest.Exec(t, url, lock)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		prepared := make(chan error, 1)
		go func() { prepared <- db.Prepare(ctx) }()
		for logs.FilterMessageSnippet("waiting for another process").Len() == 0 {
			select {
			case err := <-prepared:
				t.Fatalf("got %v, want it to wait for the lock", err)
			case <-time.After(10 * time.Millisecond):
			}
		}
		dbtest.Exec(t, url, "UPDATE goose_lock SET lease_expires_at = now() - interval '1 hour'") // as if the other had died
		if err := <-prepared; err != nil {
			t.Error(err)
		}
	})
}
