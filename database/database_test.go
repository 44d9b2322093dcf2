package database_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/limit"
	"plantstore/database/table"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// value returns the value that query selects.
func value(t *testing.T, db *database.DB, query string) string {
	t.Helper()
	var v string
	if err := db.WithContext(t.Context()).Raw(query).Scan(&v).Error; err != nil {
		t.Fatalf("%s: %v", query, err)
	}
	return v
}

// awaitValue waits until a query returns want.
func awaitValue(t *testing.T, db *database.DB, query, want string) {
	t.Helper()
	for begin := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		got := value(t, db, query)
		if got == want {
			return
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("%s: still %s, want %s", query, got, want)
		}
	}
}

func TestSQLiteIsDurable(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
	for pragma, want := range map[string]string{
		"journal_mode": "wal",
		"synchronous":  "2",    // FULL
		"busy_timeout": "4166", // less than the time limit of an operation, 5 s, so that a lock is not mistaken for a timeout
		"temp_store":   "2",    // MEMORY
	} {
		t.Run(pragma+" is "+want, func(t *testing.T) {
			if got := value(t, db, "PRAGMA "+pragma); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	// 3.51.3 fixes a bug that could damage a database in WAL mode.
	var major, minor, patch int
	version := value(t, db, "SELECT sqlite_version()")
	if _, err := fmt.Sscanf(version, "%d.%d.%d", &major, &minor, &patch); err != nil {
		t.Fatal(err)
	}
	if major*1_000_000+minor*1_000+patch < 3_051_003 {
		t.Errorf("SQLite %s is older than 3.51.3", version)
	}
}

// TestLimitIsAParameter: each text of a query stays prepared, so clients must not choose parts
// of it.
func TestLimitIsAParameter(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		query := dbtest.Open(t, dbtest.Options(url)).Session(&gorm.Session{DryRun: true}).Table("plants")
		var rows []map[string]any
		built := query.Limit(7).Find(&rows).Statement
		if text := built.SQL.String(); strings.Contains(text, "7") || len(built.Vars) != 1 || built.Vars[0] != 7 {
			t.Errorf("got %s with %v, want a parameter", text, built.Vars)
		}
	})
}

func TestSQLiteFiles(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	file := filepath.Join(folder, "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct{ name, path, want string }{
		{"a folder is rejected", folder, "is a directory"},
		{"a file as the folder is rejected", file + "/x.db", "create the folder"},
		{"a database in memory is rejected", ":memory:", "names no file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if err := openError(t, "sqlite:"+test.path); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
	t.Run("any name is valid, and the rest of an interrupted start is overwritten", func(t *testing.T) {
		path := filepath.Join(folder, "new", "a?b#c%41 é.db")
		if err := os.Mkdir(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path+".new", []byte("half"), 0o600); err != nil {
			t.Fatal(err)
		}
		db := dbtest.Open(t, dbtest.Options("sqlite:"+path))
		if _, err := db.Schema.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		if info, err := os.Stat(path); err != nil || info.Size() == 0 || info.Mode() != 0o600 {
			t.Errorf("got %v, %v", info, err)
		}
	})
}

// openError opens the database at url, which must fail, and returns the error.
func openError(t *testing.T, url string) error {
	t.Helper()
	return openOptionsError(t, dbtest.Options(url))
}

func openOptionsError(t *testing.T, o database.Options) error {
	t.Helper()
	db, err := database.Open(t.Context(), o, dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err == nil {
		_ = db.Close()
	}
	return err
}

// TestSQLiteDoesNotRecreateItsFile: a file that vanishes while the service runs is a
// fault, and must not become a new and empty database.
func TestSQLiteDoesNotRecreateItsFile(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	path := strings.TrimPrefix(url, "sqlite:")
	first := dbtest.Migrated(t, url)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	pool, err := first.Reads(t.Context()).DB()
	if err != nil {
		t.Fatal(err)
	}
	pool.SetMaxIdleConns(0) // the next query opens the file again
	if err := first.Ready(t.Context()); err == nil {
		t.Error("the database responds without its file")
	}
	if _, err := os.Stat(path); err == nil {
		t.Error("the file was created again")
	}
}

func TestPostgresIsDurable(t *testing.T) {
	t.Parallel()
	for setting, want := range map[string]string{"off": "on", "on": "on", "local": "local", "remote_apply": "remote_apply"} {
		t.Run("synchronous_commit "+setting+" becomes "+want, func(t *testing.T) {
			url := dbtest.Postgres(t)
			name := url[strings.LastIndex(url, "/")+1:]
			name, _, _ = strings.Cut(name, "?")
			dbtest.Exec(t, url, fmt.Sprintf("ALTER DATABASE %s SET synchronous_commit = %s", name, setting))
			if got := value(t, dbtest.Open(t, dbtest.Options(url)), "SHOW synchronous_commit"); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
}

func TestPostgresEncodings(t *testing.T) {
	t.Parallel()
	dbtest.Open(t, dbtest.Options(dbtest.PostgresWith(t, "ENCODING 'SQL_ASCII'")))
	err := openError(t, dbtest.PostgresWith(t, "ENCODING 'LATIN1'"))
	if err == nil || !strings.Contains(err.Error(), "ENCODING 'UTF8'") {
		t.Errorf("LATIN1: got %v", err)
	}
}

func TestOpenDoesNotRetryIfPostgresRejectsIt(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	o := dbtest.Options(strings.Replace(url, "/test_", "/none_", 1))
	o.StartTimeout = time.Hour
	if err := openOptionsError(t, o); err == nil || !strings.Contains(err.Error(), "does not exist") {
		t.Errorf("a database that does not exist: got %v", err)
	}
}

func TestOpenRejectsURLsWithoutRepeatingThem(t *testing.T) {
	t.Parallel()
	const secret = "canary-1234"
	for name, url := range map[string]string{
		"empty":                 "",
		"no scheme":             secret,
		"an unknown scheme":     "mysql://u:" + secret + "@h/d",
		"a port of letters":     "postgres://u:" + secret + "@h:port/d",
		"a wrong percent in it": "postgres://u:" + secret + "%@h/d",
	} {
		t.Run(name, func(t *testing.T) {
			if err := openError(t, url); err == nil || strings.Contains(err.Error(), secret) {
				t.Errorf("got %v", err)
			}
		})
	}
}

// TestReadyDuringAWrite: an import may occupy SQLite's one writer for seconds.
func TestReadyDuringAWrite(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	err := db.Transaction(t.Context(), func(*database.DB) error {
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		return db.Ready(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// TestOverload takes every slot for reads. A client can have half of them.
func TestOverload(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		o := dbtest.Options(url)
		o.Timeout = 3 * time.Second
		o.MaxConnections = 14
		db := dbtest.Open(t, o)
		const slots = 4
		nothing := func(*gorm.DB) error { return nil }
		started, end, ended := make(chan struct{}), make(chan struct{}), make(chan error)
		read := func(client string) {
			ctx := limit.WithClient(t.Context(), client)
			ended <- db.Read(ctx, "get plant", database.Few, func(*gorm.DB) error { started <- struct{}{}; <-end; return nil })
		}
		for i := range slots {
			if i == slots/2 {
				third := limit.WithClient(t.Context(), "0")
				if err := db.Read(third, "get plant", database.Few, nothing); !errors.Is(err, limit.ErrBusy) {
					t.Errorf("more than half, by one client: got %v, want ErrOverloaded", err)
				}
			}
			go read(strconv.Itoa(i / 2))
			<-started
		}
		if err := db.Read(t.Context(), "get plant", database.Few, nothing); !errors.Is(err, limit.ErrBusy) || !strings.HasPrefix(err.Error(), "get plant: ") {
			t.Errorf("Read: got %v, want ErrOverloaded with the operation", err)
		}
		if err := db.Read(t.Context(), "read tokens", database.AtOnce, nothing); err != nil {
			t.Errorf("Background: got %v", err)
		}
		if _, err := db.Write(t.Context(), "put plant", func(*database.DB) error { return nil }); err != nil {
			t.Errorf("Write: got %v", err)
		}
		close(end)
		for range slots {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if err := db.Read(t.Context(), "get plant", database.Few, nothing); err != nil {
			t.Errorf("Read, with free slots: got %v", err)
		}
	})
}

// canary is a model without a table.
type canary struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
}

func TestSlowQueriesAreLoggedWithoutValues(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		core, logs := observer.New(zap.DebugLevel)
		o := dbtest.Options(url)
		o.SlowQuery = time.Nanosecond
		db := dbtest.OpenWith(t, o, dbtest.Batches, zap.New(core))
		var n int
		if err := db.WithContext(t.Context()).Raw("SELECT length(?)", "canary").Scan(&n).Error; err != nil {
			t.Fatal(err)
		}
		slow := logs.FilterMessage("slow query").All()
		if len(slow) == 0 || !strings.Contains(fmt.Sprint(slow[len(slow)-1].ContextMap()["sql"]), "SELECT length(") {
			t.Errorf("got the log %v", logs.All())
		}
		if err := db.Run(t.Context(), []*table.Change{{Statement: table.Of[canary]().Insert, Row: reflect.ValueOf(&canary{ID: 1}).Elem()}}, time.Now()); err == nil {
			t.Error("inserted into a table that does not exist")
		}
		if last := logs.FilterMessage("slow query").All(); fmt.Sprint(last[len(last)-1].ContextMap()["sql"]) != "INSERT INTO canaries (id)" {
			t.Errorf("got the log %v", logs.All())
		}
		if strings.Contains(fmt.Sprint(logs.All()), "canary") {
			t.Error("a value is in the log")
		}
	})
}

// TestPurgeTakesNoTurn: on a slow disk, the upkeep of the feed took the turn of single writes for so long that they failed.
func TestPurgeTakesNoTurn(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Options(dbtest.Postgres(t))) // on SQLite, both need the only connection that writes
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	_, err := db.Write(t.Context(), "put plant", func(*database.DB) error {
		return db.Feed(dbtest.Tables[0]).Purge(t.Context(), time.Hour)
	})
	if err != nil {
		t.Errorf("got %v", err)
	}
}
