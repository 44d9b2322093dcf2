package database_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/dbtest"
)

func TestMigrateAndRollback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(url))
		for range 2 {
			applied, err := db.Migrate(t.Context())
			if err != nil || len(applied) == 0 || applied[0].Version != 1 {
				t.Fatalf("got %v, %v, want every migration", applied, err)
			}
			if again, err := db.Migrate(t.Context()); err != nil || len(again) != 0 {
				t.Fatalf("the second time: got %v, %v, want no migration", again, err)
			}
			all, err := db.Migrations(t.Context())
			if err != nil || len(all) != len(applied) || all[0].AppliedAt.IsZero() {
				t.Fatalf("got %v, %v, want every migration as applied", all, err)
			}
			for range applied {
				if _, err := db.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Rollback(t.Context()); err == nil {
				t.Error("undid a migration when no migration was applied")
			}
		}
	})
}

func TestMigrateConcurrently(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const processes = 6
		applied := make([]int, processes)
		var group sync.WaitGroup
		for i := range processes {
			group.Go(func() {
				db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, zap.NewNop())
				if err != nil {
					t.Error(err)
					return
				}
				migrations, err := db.Migrate(t.Context())
				if err := errors.Join(err, db.Close()); err != nil {
					t.Error(err)
				}
				applied[i] = len(migrations)
			})
		}
		group.Wait()
		migrated := 0
		for _, n := range applied {
			if n > 0 {
				migrated++
			}
		}
		if migrated != 1 {
			t.Errorf("%d processes applied migrations, want 1: %v", migrated, applied)
		}
	})
}

func TestPrepare(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		o := dbtest.Options(url)
		o.Migrate = false
		db := dbtest.Open(t, o)
		if err := db.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "plantstore migrate up") {
			t.Fatalf("with pending migrations and no leave to apply them: got %v, want an error that says how to", err)
		}
		if all, err := db.Migrations(t.Context()); err != nil || len(all) == 0 || !all[0].AppliedAt.IsZero() {
			t.Fatalf("after the error: got %v, %v, want no migration applied", all, err)
		}
		if err := dbtest.Open(t, dbtest.Options(url)).Prepare(t.Context()); err != nil {
			t.Fatalf("with leave: %v", err)
		}
		if err := db.Prepare(t.Context()); err != nil {
			t.Errorf("with nothing pending: %v", err)
		}
	})
}
