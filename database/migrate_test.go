package database_test

import (
	"database/sql"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database"
	"plantstore/database/dbtest"
)

func TestMigrateAndRollback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(url))
		for range 2 {
			applied, err := db.Schema.Migrate(t.Context())
			if err != nil || len(applied) == 0 || applied[0].Version != 1 {
				t.Fatalf("got %v, %v, want every migration", applied, err)
			}
			if again, err := db.Schema.Migrate(t.Context()); err != nil || len(again) != 0 {
				t.Fatalf("the second time: got %v, %v, want no migration", again, err)
			}
			all, err := db.Schema.Migrations(t.Context())
			if err != nil || len(all) != len(applied) || all[0].AppliedAt.IsZero() {
				t.Fatalf("got %v, %v, want every migration as applied", all, err)
			}
			for range applied {
				if err := rollback(t, db); err != nil {
					t.Fatal(err)
				}
			}
			if err := rollback(t, db); err == nil {
				t.Error("undid a migration when no migration was applied")
			}
		}
	})
}

// rollback undoes the last migration of db.
func rollback(t *testing.T, db *database.DB) error {
	t.Helper()
	last, _, err := db.Schema.Last(t.Context())
	if err != nil {
		return err
	}
	return db.Schema.Rollback(t.Context(), last)
}

// TestRollbackOfAnEarlierMigration: another operator has undone the migration between the question
// to this one and the answer. The one before it must stay.
func TestRollbackOfAnEarlierMigration(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		asked, _, err := db.Schema.Last(t.Context())
		if err = errors.Join(err, rollback(t, db)); err != nil {
			t.Fatal(err)
		}
		before, _, err := db.Schema.Last(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := db.Schema.Rollback(t.Context(), asked); err == nil || !strings.Contains(err.Error(), "meanwhile, the last one is "+before.Name) {
			t.Errorf("got %v, want an error", err)
		}
		if after, _, err := db.Schema.Last(t.Context()); err != nil || after.Version != before.Version {
			t.Errorf("got %v, %v, want %v", after, err, before)
		}
	})
}

func TestPrepare(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		o := dbtest.Options(url)
		o.Migrate = false
		db := dbtest.Open(t, o)
		if err := db.Schema.Prepare(t.Context()); err == nil || !strings.Contains(err.Error(), "plantstore migrate up") {
			t.Fatalf("with pending migrations and no leave to apply them: got %v, want an error that says how to", err)
		}
		if all, err := db.Schema.Migrations(t.Context()); err != nil || len(all) == 0 || !all[0].AppliedAt.IsZero() {
			t.Fatalf("after the error: got %v, %v, want no migration applied", all, err)
		}
		if err := dbtest.Open(t, dbtest.Options(url)).Schema.Prepare(t.Context()); err != nil {
			t.Fatalf("with leave: %v", err)
		}
		if err := db.Schema.Prepare(t.Context()); err != nil {
			t.Errorf("with nothing pending: %v", err)
		}
	})
}

// TestMigrationsWaitForLocks: a migration meets a transaction that takes long. It waits,
// says so, and holds up nothing else.
func TestMigrationsWaitForLocks(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, held string
		migrate    func(*database.DB) error
	}{
		{"a migration that drops a table that is being read", "SELECT count(*) FROM plants", func(db *database.DB) error {
			for {
				if err := rollback(t, db); err != nil {
					return err
				}
				if _, _, err := db.Schema.Last(t.Context()); errors.Is(err, database.ErrNothingApplied) {
					return nil
				}
			}
		}},
		{"a migration at startup", "LOCK TABLE goose_db_version IN SHARE MODE", func(db *database.DB) error {
			return db.Schema.Prepare(t.Context())
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Postgres(t)
			core, logs := observer.New(zap.WarnLevel)
			o := dbtest.Options(url)
			o.Timeout = 1200 * time.Millisecond
			db := dbtest.OpenWith(t, o, dbtest.Batches, zap.New(core))
			if err := db.Schema.Prepare(t.Context()); err != nil {
				t.Fatal(err)
			}
			for range db.Schema.Version() - 4 { // leaves migrations to apply, and the next one changes plants
				if err := rollback(t, db); err != nil {
					t.Fatal(err)
				}
			}
			tx, err := mustOpenSQL(t, url).Begin()
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(test.held); err != nil {
				t.Fatal(err)
			}
			migrated := make(chan error, 1)
			go func() { migrated <- test.migrate(db) }()
			for begin := time.Now(); logs.FilterMessageSnippet("migration waits").Len() == 0; time.Sleep(10 * time.Millisecond) {
				if time.Since(begin) > 30*time.Second {
					t.Fatal("it does not say so")
				}
			}
			// Three attempts of the migration pass.
			for begin := time.Now(); time.Since(begin) < 3*time.Second; time.Sleep(5 * time.Millisecond) {
				_, err := db.Write(t.Context(), "write", func(tx *database.DB) error {
					return tx.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (1, 'x', NULL, now(), now()) ON CONFLICT DO NOTHING").Error
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			if err := errors.Join(tx.Rollback(), <-migrated); err != nil {
				t.Error(err)
			}
		})
	}
}

func mustOpenSQL(t *testing.T, url string) *sql.DB {
	t.Helper()
	pool, err := sql.Open("pgx", url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = pool.Close() })
	return pool
}

// TestMigrateReadOnly: the error says why nothing was migrated.
func TestMigrateReadOnly(t *testing.T) {
	t.Parallel()
	u, err := url.Parse(dbtest.Postgres(t))
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("default_transaction_read_only", "on")
	u.RawQuery = query.Encode()
	_, err = dbtest.Open(t, dbtest.Options(u.String())).Schema.Migrate(t.Context())
	if err == nil || !strings.Contains(err.Error(), "it is read-only: is default_transaction_read_only set") {
		t.Errorf("got %v, want that the database is read-only", err)
	}
}

// TestMigrationsNeedTheOwner: the error says what to do, and the log does not claim that a
// transaction is in the way.
func TestMigrationsNeedTheOwner(t *testing.T) {
	t.Parallel()
	for name, migrated := range map[string]bool{"an empty database": false, "the tables of another role": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			owner := dbtest.Postgres(t)
			if migrated {
				dbtest.Migrated(t, owner)
			}
			_, as := dbtest.AsRole(t, owner)
			core, logs := observer.New(zap.WarnLevel)
			db := dbtest.OpenWith(t, dbtest.Options(as), dbtest.Batches, zap.New(core))
			_, err := db.Schema.Migrate(t.Context())
			if err == nil || !strings.Contains(err.Error(), "(SQLSTATE 42501)") || strings.Count(err.Error(), "the role must own the database, its tables and its functions: as a superuser, run ALTER DATABASE") != 1 {
				t.Errorf("got %v, want an error with 42501 and what to do", err)
			}
			if logs.Len() != 0 {
				t.Errorf("got %v, want no warning", logs.All())
			}
		})
	}
}

func TestNewerSchema(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		o := dbtest.Options(url)
		o.Migrate = false
		programs := map[string]*database.DB{"with database.migrate": db, "without database.migrate": dbtest.Open(t, o)}
		for _, step := range []struct {
			statement, status string
			compatible        bool
		}{
			{"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9998, TRUE)", "09998 (unknown: applied by a newer version)", false},
			{"INSERT INTO compatible_migrations (version) VALUES (9998)", "09998 (unknown: applied by a newer version, compatible with this one)", true},
			{"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)", "09999 (unknown: applied by a newer version)", false},
		} {
			if err := db.Exec(step.statement).Error; err != nil {
				t.Fatal(err)
			}
			for name, program := range programs {
				err := program.Schema.Prepare(t.Context())
				if step.compatible != (err == nil) || err != nil && !strings.Contains(err.Error(), "newer") {
					t.Errorf("%s, %s: got %v", step.statement, name, err)
				}
			}
			all, err := db.Schema.Migrations(t.Context())
			if err != nil || all[len(all)-1].String() != step.status || all[len(all)-1].AppliedAt.IsZero() {
				t.Errorf("got %v, %v, want %s", all, err, step.status)
			}
		}
		if _, _, err := db.Schema.Last(t.Context()); err == nil || !strings.Contains(err.Error(), "newer version") {
			t.Errorf("roll back an unknown migration: got %v", err)
		}
	})
}

func TestLast(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		err := db.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (1, 'x', NULL, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP), (2, 'x', NULL, CURRENT_TIMESTAMP, CURRENT_TIMESTAMP)").Error
		if err != nil {
			t.Fatal(err)
		}
		feed := "the column changed of plants with 2 rows, the table plant_imports with 0 rows, the table plant_deletions with 0 rows, the table feed_marks with 0 rows, the table feed with 1 rows"
		if db.Dialect.Facts().System == "sqlite" {
			feed = "the table plant_changes with 2 rows, the table feed_marks with 0 rows, the table feed with 1 rows"
		}
		for range db.Schema.Version() - 6 { // to what this test knows
			if err := rollback(t, db); err != nil {
				t.Fatal(err)
			}
		}
		for _, want := range []string{"no data", "no data", feed, "the table compatible_migrations with 0 rows", "the table tokens with 0 rows", "the table plants with 2 rows"} {
			last, loss, err := db.Schema.Last(t.Context())
			if err != nil || loss != want {
				t.Errorf("%v: got %q, %v, want %s", last, loss, err, want)
			}
			if err := rollback(t, db); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := db.Schema.Last(t.Context()); !errors.Is(err, database.ErrNothingApplied) {
			t.Errorf("got %v", err)
		}
	})
}

// TestMigrationBuildsATableAnew drops a table to which rows refer, and puts another table in its place. The rows
// stay, and a reference that the new table breaks is an error.
func TestMigrationBuildsATableAnew(t *testing.T) {
	t.Parallel()
	const first = "-- +goose Up\nCREATE TABLE growers (id INTEGER PRIMARY KEY);\n" +
		"CREATE TABLE seedlings (id INTEGER PRIMARY KEY, grower_id INTEGER REFERENCES growers ON DELETE CASCADE);\n" +
		"INSERT INTO growers VALUES (1); INSERT INTO seedlings VALUES (1, 1);\n-- +goose Down\nDROP TABLE growers; DROP TABLE seedlings;"
	const anew = "-- +goose Up\nCREATE TABLE better (id INTEGER PRIMARY KEY, name TEXT);\nINSERT INTO better SELECT id, 'x' FROM growers%s;\n" +
		"DROP TABLE growers;\nALTER TABLE better RENAME TO growers;\n-- +goose Down\nINSERT INTO growers VALUES (1, 'x');"
	for name, test := range map[string]struct{ where, want string }{
		"the references hold":   {"", ""},
		"a reference is broken": {" WHERE id <> 1", "a row of seedlings refers to a row of growers that does not exist"},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
			pool, _ := db.Dialect.Pools()
			locker, err := db.Dialect.Locker(zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			files := fstest.MapFS{"1_first.sql": {Data: []byte(first)}, "2_anew.sql": {Data: fmt.Appendf(nil, anew, test.where)}}
			provider, err := goose.NewProvider(goose.DialectSQLite3, pool, files, goose.WithSessionLocker(locker), goose.WithDisableGlobalRegistry(true))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := provider.UpTo(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			_, err = provider.Up(t.Context())
			if test.want == "" && err != nil || test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)) {
				t.Errorf("got %v, want %q", err, test.want)
			}
			var seedlings int
			if err := pool.QueryRowContext(t.Context(), "SELECT count(*) FROM seedlings").Scan(&seedlings); err != nil || seedlings != 1 {
				t.Errorf("got %d seedlings, %v, want the one from before", seedlings, err)
			}
			if test.want != "" {
				_, err = provider.Down(t.Context())
				if err != nil {
					t.Errorf("undo the migration: %v", err)
				}
			}
			if _, err := pool.ExecContext(t.Context(), "INSERT INTO seedlings VALUES (2, 99)"); err == nil {
				t.Error("a reference to nothing was stored after the migration")
			}
		})
	}
}
