package database_test

import (
	"errors"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
	for _, test := range []struct {
		name, state string
		attempts    int
	}{
		{"serialization_failure", "40001", 3},
		{"deadlock_detected", "40P01", 3},
		{"idle_session_timeout", "57P05", 3},
		{"a cached plan is obsolete", "0A000", 5},
		{"admin_shutdown may come after a commit", "57P01", 1},
		{"unique_violation", "23505", 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			fault := &pgconn.PgError{Code: test.state}
			attempts, failures := 0, 100
			do := func(*database.DB) error {
				if attempts++; attempts <= failures {
					return fault
				}
				return nil
			}
			if _, err := db.Write(t.Context(), "write", do); !errors.Is(err, fault) || attempts != test.attempts {
				t.Errorf("got %v after %d attempts, want the error after %d", err, attempts, test.attempts)
			}
			attempts, failures = 0, test.attempts-1
			if _, err := db.Write(t.Context(), "write", do); err != nil || attempts != test.attempts {
				t.Errorf("got %v after %d attempts, want success after %d", err, attempts, test.attempts)
			}
		})
	}
	t.Run("a whole transaction is retried, not a part of it", func(t *testing.T) {
		transactions, parts := 0, 0
		err := db.Transaction(t.Context(), func(tx *database.DB) error {
			transactions++
			return tx.Retry(t.Context(), func() error {
				parts++
				return &pgconn.PgError{Code: "40001"}
			})
		})
		if err == nil || transactions != 3 || parts != 3 {
			t.Errorf("got %v, %d transactions and %d parts, want 3", err, transactions, parts)
		}
	})
	t.Run("nothing was stored, so it is not called unknown", func(t *testing.T) {
		err := fault.In("write", &pgconn.PgError{Code: "40P01"})
		if !fault.NothingStored(err) || errors.Is(err, fault.ErrUnavailable) {
			t.Errorf("got %v", err)
		}
	})
}

// TestConnectionsHaveALifetime reads a field that database/sql does not show.
func TestConnectionsHaveALifetime(t *testing.T) {
	t.Parallel()
	pool, err := dbtest.Open(t, dbtest.Options(dbtest.Postgres(t))).DB.DB()
	if err != nil {
		t.Fatal(err)
	}
	if got := time.Duration(reflect.ValueOf(pool).Elem().FieldByName("maxLifetime").Int()); got <= 0 || got > time.Hour {
		t.Errorf("got %v", got)
	}
}
