package database_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database"
	"plantstore/database/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// value returns what a query of one value answers.
func value(t *testing.T, db *database.DB, query string) string {
	t.Helper()
	var v string
	if err := db.WithContext(t.Context()).Raw(query).Scan(&v).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

func TestSQLiteIsDurable(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Options(t, dbtest.SQLite(t)))
	for query, want := range map[string]string{
		"PRAGMA journal_mode": "wal",
		"PRAGMA synchronous":  "2", // FULL
		"PRAGMA busy_timeout": "5000",
		"PRAGMA temp_store":   "2", // MEMORY
	} {
		if got := value(t, db, query); got != want {
			t.Errorf("%s is %s, want %s", query, got, want)
		}
	}
	// 3.51.3 mends a fault that could damage a database in WAL mode.
	var major, minor, patch int
	version := value(t, db, "SELECT sqlite_version()")
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	if major*1_000_000+minor*1_000+patch < 3_051_003 {
		t.Errorf("SQLite %s is older than 3.51.3", version)
	}
}

func TestSQLiteFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(folder, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for path, want := range map[string]string{
		write("empty.db", ""):                          "has no bytes",
		write("text.db", strings.Repeat("text ", 999)): "file is not a database",
		folder:                   "is a folder",
		folder + "/text.db/x.db": "create the folder",
		":memory:":               "names no file",
	} {
		_, err := database.Open(t.Context(), dbtest.Options(t, "sqlite:"+path))
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", path, err, want)
		}
	}
	if text, err := os.ReadFile(filepath.Join(folder, "empty.db")); err != nil || len(text) != 0 {
		t.Errorf("the empty file was touched: %d bytes, %v", len(text), err)
	}
	// Any name will do, and half a file of a start that was cut off is no obstacle.
	odd := filepath.Join(folder, "new", "a?b#c%41 é.db")
	if err := os.Mkdir(filepath.Dir(odd), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(odd+".new", []byte("half"), 0o600); err != nil {
		t.Fatal(err)
	}
	db := dbtest.Open(t, dbtest.Options(t, "sqlite:"+odd))
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(odd); err != nil || info.Size() == 0 || info.Mode() != 0o600 {
		t.Errorf("%v, %v", info, err)
	}
}

// TestSQLiteIsNotMadeTwice: a file that vanishes under the service is a fault,
// and not a new and empty database.
func TestSQLiteIsNotMadeTwice(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	first := dbtest.Open(t, dbtest.Options(t, url))
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	pool, err := first.Reads(t.Context()).DB()
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxIdleConns(0) // the next query opens the file anew
	if err := first.Ping(t.Context()); err == nil {
		t.Error("the database answers without its file")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was made anew")
	}
}

func TestPostgresIsDurable(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_apply": "remote_apply"} {
		url := dbtest.Postgres(t)
		name := url[strings.LastIndex(url, "/")+1:]
		name, _, _ = strings.Cut(name, "?")
		dbtest.Exec(t, url, fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = %s", name, setting))
		if got := value(t, dbtest.Open(t, dbtest.Options(t, url)), "SHOW synchronous_commit"); got != want {
			t.Errorf("where it is %s by default, synchronous_commit is %s, want %s", setting, got, want)
		}
	}
}

func TestPostgresEncodings(t *testing.T) {
	t.Parallel()
	dbtest.Open(t, dbtest.Options(t, dbtest.PostgresWith(t, "ENCODING 'SQL_ASCII'")))
	_, err := database.Open(t.Context(), dbtest.Options(t, dbtest.PostgresWith(t, "ENCODING 'LATIN1'")))
	if err == nil || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
		t.Errorf("LATIN1: got %v", err)
	}
}

func TestPostgresRefusalsAreNotWaitedFor(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	o := dbtest.Options(t, strings.Replace(url, "/test_", "/none_", 1))
	o.StartTimeout = time.Hour
	if _, err := database.Open(t.Context(), o); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a database that does not exist: %v", err)
	}
}

func TestOpenRefusesURLs(t *testing.T) {
	t.Parallel()
	const secret = "canary-1234"
	for _, url := range []string{"", secret, "mysql://u:" + secret + "@h/d", "postgres://u:" + secret + "@h:port/d", "postgres://u:" + secret + "%@h/d"} {
		if _, err := database.Open(t.Context(), dbtest.Options(t, url)); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%q: got %v", url, err)
		}
	}
}

func TestMigrateAndRollback(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(t, url))
		for range 2 {
			applied, err := db.Migrate(t.Context())
			if err != nil || len(applied) == 0 || applied[0].Version != 1 {
				t.Fatalf("%v, %v", applied, err)
			}
			if again, err := db.Migrate(t.Context()); err != nil || len(again) != 0 {
				t.Fatalf("again: %v, %v", again, err)
			}
			all, err := db.Migrations(t.Context())
			if err != nil || len(all) != len(applied) || all[0].AppliedAt.IsZero() {
				t.Fatalf("%v, %v", all, err)
			}
			for range applied {
				if _, err := db.Rollback(t.Context()); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := db.Rollback(t.Context()); err == nil {
				t.Error("a migration was undone where there is none")
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
				db, err := database.Open(t.Context(), dbtest.Options(t, url))
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
		once := 0
		for _, n := range applied {
			if n > 0 {
				once++
			}
		}
		if once != 1 {
			t.Errorf("migrations were applied by %d processes: %v", once, applied)
		}
	})
}

// TestPingBesideAWriter: an import may hold SQLite's one writer for seconds.
func TestPingBesideAWriter(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	err := db.Transaction(t.Context(), func(*database.DB) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return db.Ping(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

func TestSlowQueriesAreNamedWithoutValues(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		core, logs := observer.New(zap.DebugLevel)
		o := dbtest.Options(t, url)
		o.Logger, o.SlowQuery = zap.New(core), time.Nanosecond
		db := dbtest.Open(t, o)
		var n int
		if err := db.WithContext(t.Context()).Raw("SELECT length(?)", "canary").Scan(&n).Error; err != nil {
			t.Fatal(err)
		}
		slow := logs.FilterMessage("slow query").All()
		if len(slow) == 0 || !strings.Contains(fmt.Sprint(slow[len(slow)-1].ContextMap()["sql"]), "SELECT length(") {
			t.Errorf("logged %v", logs.All())
		}
		if _, err := db.InsertNew(t.Context(), "canaries", database.ColumnOf("id", "bigint", []int64{1})); err == nil {
			t.Error("inserted into a table that does not exist")
		}
		if last := logs.FilterMessage("slow query").All(); fmt.Sprint(last[len(last)-1].ContextMap()["sql"]) != "INSERT INTO canaries" {
			t.Errorf("logged %v", logs.All())
		}
		if strings.Contains(fmt.Sprint(logs.All()), "canary") {
			t.Error("a value is in the log")
		}
	})
}

func TestIsUnavailable(t *testing.T) {
	for _, test := range []struct {
		err  error
		want bool
	}{
		{nil, false},
		{errors.New("x"), false},
		{sql.ErrNoRows, false},
		{context.DeadlineExceeded, true},
		{fmt.Errorf("x: %w", context.Canceled), true},
		{driver.ErrBadConn, true},
		{&net.OpError{Op: "dial", Err: errors.New("refused")}, true},
		{&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC}, false},
		{sql.ErrTxDone, true},
		{&pgconn.PgError{Code: "23505"}, false},
		{&pgconn.PgError{Code: "23514"}, false},
		{&pgconn.PgError{Code: "42P01"}, false},
		{&pgconn.PgError{Code: "57P01"}, true},
		{&pgconn.PgError{Code: "53300"}, true},
		{&pgconn.PgError{Code: "08006"}, true},
		{&pgconn.PgError{Code: "25006"}, true},
		{&pgconn.PgError{Code: "40001"}, true},
	} {
		if got := database.IsUnavailable(test.err); got != test.want {
			t.Errorf("%v: got %v", test.err, got)
		}
	}
}
