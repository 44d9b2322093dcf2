package database_test

import (
	"context"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// lockByAnother takes the lock of migrations for another process.
const lockByAnother = "UPDATE goose_lock SET locked = TRUE, locked_by = 'another', lease_expires_at = now() + interval '1 hour'"

// migratedWithLog opens the database at url and migrates it, as [dbtest.Migrated] does, and also
// returns its log.
func migratedWithLog(t *testing.T, url string) (*database.DB, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.InfoLevel)
	db := dbtest.OpenWith(t, dbtest.Options(url), dbtest.Batches, zap.New(core))
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, logs
}

// prepareUntil starts to prepare db, for a minute at most, and returns when that waits and has
// logged message.
func prepareUntil(t *testing.T, db *database.DB, logs *observer.ObservedLogs, message string) <-chan error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	t.Cleanup(cancel)
	prepared := make(chan error, 1)
	go func() { prepared <- db.Schema.Prepare(ctx) }()
	for logs.FilterMessageSnippet(message).Len() == 0 {
		select {
		case err := <-prepared:
			t.Fatalf("Prepare: got %v, want it to wait: %q", err, message)
		case <-time.After(10 * time.Millisecond):
		}
	}
	return prepared
}

// TestMigrationLock holds the lock of another process: only what has migrations to apply
// waits for it.
func TestMigrationLock(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db, logs := migratedWithLog(t, url)
	dbtest.Exec(t, url, lockByAnother)
	t.Run("nothing is pending", func(t *testing.T) {
		if err := db.Schema.Prepare(t.Context()); err != nil {
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
		dbtest.Exec(t, url, lockByAnother)
		prepared := prepareUntil(t, db, logs, "waiting for another process")
		dbtest.Exec(t, url, "UPDATE goose_lock SET lease_expires_at = now() - interval '1 hour'") // as if the other had died
		if err := <-prepared; err != nil {
			t.Error(err)
		}
	})
}

// TestMigrationLockIsReleased: the connection of a migration ends while it waits for the lock of
// another process. The lock that it then gets would not expire while the process runs.
func TestMigrationLockIsReleased(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db, logs := migratedWithLog(t, url)
	if err := rollback(t, db); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, url, lockByAnother)
	prepared := prepareUntil(t, db, logs, "waiting for another process")
	// The connections that ask for the lock stay.
	dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity "+
		"WHERE datname = current_database() AND query NOT LIKE '%goose_lock%' AND pid <> pg_backend_pid()")
	dbtest.Exec(t, url, "UPDATE goose_lock SET locked = FALSE")
	if err := <-prepared; err == nil {
		t.Error("got nil, want the error of the connection")
	}
	if got := value(t, db, "SELECT count(*) FROM goose_lock WHERE locked"); got != "0" {
		t.Error("the lock is held")
	}
}

// TestMigrationKeepsLockTimeout: a migration waits longer for locks than what uses its connection
// afterwards.
func TestMigrationKeepsLockTimeout(t *testing.T) {
	t.Parallel()
	pool, err := dbtest.Migrated(t, dbtest.Postgres(t)).DB.DB()
	if err != nil {
		t.Fatal(err)
	}
	for range pool.Stats().OpenConnections {
		conn, err := pool.Conn(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		var got string
		if err := conn.QueryRowContext(t.Context(), "SHOW lock_timeout").Scan(&got); err != nil || got != "2ms" {
			t.Errorf("got %s, %v, want 2ms", got, err)
		}
	}
}
