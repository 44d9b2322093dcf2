package database_test

import (
	"context"
	"errors"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// plant has a part of the columns of the table plants.
type plant struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Name string
}

// checkReady waits until db is ready, or is not for a reason.
func checkReady(t *testing.T, db *database.DB, reason string) {
	t.Helper()
	err := eventually(t, func() error { return db.Ready(t.Context()) }, func(err error) bool {
		if reason == "" || err == nil {
			return reason == "" && err == nil
		}
		return errors.Is(err, fault.ErrUnavailable) && strings.Contains(err.Error(), reason)
	})
	if err != nil {
		t.Errorf("want %q: %v", reason, err)
	}
}

func TestReadyDependsOnTheSchema(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(url))
		checkReady(t, db, "schema")
		if err := db.Schema.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		db.Require(table.Of[plant]())
		checkReady(t, db, "")
		for _, step := range []struct{ statement, reason string }{
			{"ALTER TABLE plants RENAME COLUMN name TO called", "schema"},
			{"ALTER TABLE plants RENAME COLUMN called TO name", ""},
			{"ALTER TABLE plants ADD COLUMN another bigint", ""},
			{"INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)", "schema"},
			{"INSERT INTO compatible_migrations (version) VALUES (9999)", ""},
			{"ALTER TABLE plants RENAME TO plants_old", "schema"},
			{"ALTER TABLE plants_old RENAME TO plants", ""},
		} {
			if err := db.Exec(step.statement).Error; err != nil {
				t.Fatal(err)
			}
			checkReady(t, db, step.reason)
		}
	})
}

// TestReadyDependsOnTheRights: a role that lacks a right is named as the reason.
func TestReadyDependsOnTheRights(t *testing.T) {
	t.Parallel()
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	role, as := dbtest.AsRole(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO NAME")
	db := dbtest.Open(t, dbtest.Options(as))
	db.Require(table.Of[plant]())
	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		t.Run(right, func(t *testing.T) {
			checkReady(t, db, "")
			dbtest.Exec(t, owner, "REVOKE "+right+" ON plants FROM "+role)
			reason := "its role lacks a right"
			if right != "SELECT" { // whose error names the table
				reason += ": to write the table plants"
			}
			checkReady(t, db, reason)
			dbtest.Exec(t, owner, "GRANT "+right+" ON plants TO "+role)
			checkReady(t, db, "")
		})
	}
}

// forbidTableAs makes PostgreSQL report a full disk for CREATE TABLE AS.
func forbidTableAs(t *testing.T, url string) {
	t.Helper()
	dbtest.Exec(t, url, "CREATE FUNCTION full_disk() RETURNS event_trigger LANGUAGE plpgsql AS "+
		"$$ BEGIN RAISE 'no space left on device' USING ERRCODE = 'disk_full'; END $$")
	dbtest.Exec(t, url, "CREATE EVENT TRIGGER full_disk ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION full_disk()")
}

// TestReadyDependsOnTheDisk makes PostgreSQL report a full disk.
func TestReadyDependsOnTheDisk(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	write := func() error {
		_, err := db.Write(t.Context(), "write", func(tx *database.DB) error {
			return tx.Exec("CREATE TABLE IF NOT EXISTS x AS SELECT 1").Error
		})
		return err
	}
	checkReady(t, db, "")
	forbidTableAs(t, url)
	if err := write(); !strings.Contains(err.Error(), "its disk is full") {
		t.Fatalf("got %v", err)
	}
	for range 2 { // it lasts
		checkReady(t, db, "its disk is full")
	}
	dbtest.Exec(t, url, "ALTER EVENT TRIGGER full_disk DISABLE")
	checkReady(t, db, "")
	if err := write(); err != nil {
		t.Error(err)
	}
}

// TestLockedTable: a table that is locked, such as by a migration, makes no replica unready that has nothing to write, and a
// start waits for it, and says for whom.
func TestLockedTable(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db, logs := migratedWithLog(t, url)
	db.Require(table.Of[plant]())
	tx, err := mustOpenSQL(t, url).Begin()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback() }()
	if _, err := tx.Exec("LOCK TABLE plants"); err != nil {
		t.Fatal(err)
	}
	if err := db.Ready(t.Context()); err != nil {
		t.Errorf("Ready: got %v", err)
	}
	prepared := prepareUntil(t, db, logs, "perhaps for the locks")
	by, _ := logs.FilterMessageSnippet("perhaps for the locks").All()[0].ContextMap()["locked_by"].(string)
	if want := regexp.MustCompile(`^pid [1-9]\d*, application .*, role postgres, in a transaction for 00:0`); !want.MatchString(by) {
		t.Errorf("locked by: got %q, want %s", by, want)
	}
	if err := errors.Join(tx.Rollback(), <-prepared); err != nil {
		t.Errorf("Prepare: got %v", err)
	}
}

// TestReadyAfterASlowRead: a read that takes too long, such as a search, is no reason to test a write.
func TestReadyAfterASlowRead(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(dbtest.Postgres(t))
	o.Timeout = 100 * time.Millisecond
	db := dbtest.Prepared(t, o)
	forbidTableAs(t, o.URL)
	err := db.Read(t.Context(), "search", database.Few, func(tx *gorm.DB) error { return tx.Exec("SELECT pg_sleep(10)").Error })
	if !errors.Is(err, fault.ErrTimeout) {
		t.Errorf("Read: got %v, want ErrTimeout", err)
	}
	if err := db.Ready(t.Context()); err != nil {
		t.Errorf("Ready: got %v", err)
	}
}

// TestReadyCost calls Ready thousands of times, from clients some of which are gone.
func TestReadyCost(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	watcher := dbtest.Migrated(t, url)
	others := value(t, watcher, backends) // of the watcher
	db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	commits := func() int {
		n, _ := strconv.Atoi(value(t, watcher, "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()"))
		return n
	}
	before, begin := commits(), time.Now()
	gone, leave := context.WithCancel(t.Context())
	leave()
	var group sync.WaitGroup
	const calls = 5000
	for i := range calls {
		group.Go(func() {
			ctx := t.Context()
			if i%10 == 0 {
				ctx = gone
			}
			if err := db.Ready(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	for time.Since(begin) < 1500*time.Millisecond { // one more check
		if err := db.Ready(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if err := db.Close(); err != nil { // a connection reports its transactions when it ends
		t.Fatal(err)
	}
	awaitValue(t, watcher, backends, others)
	after := commits()
	if most := 150; after-before > most { // some are the watcher's
		t.Errorf("calls for %v cost %d transactions, want at most %d", time.Since(begin), after-before, most)
	}
}

// TestReadyWhileAWriteHangs: a disk that hangs lets a write of SQLite neither end nor fail.
func TestReadyWhileAWriteHangs(t *testing.T) {
	t.Parallel()
	o := dbtest.Options(dbtest.SQLite(t))
	o.Timeout = 100 * time.Millisecond
	db := dbtest.Prepared(t, o)
	thaw := make(chan struct{})
	w := database.NewWriter(db, func(_ context.Context, batch []int) []error {
		_ = db.Connection(func(*gorm.DB) error { // the only one that writes
			<-thaw
			return nil
		})
		return make([]error, len(batch))
	})
	done := make(chan error, 1)
	go func() { done <- w.Do(t.Context(), 1) }()
	checkReady(t, db, "test a write")
	close(thaw)
	if err := <-done; err != nil {
		t.Error(err)
	}
	checkReady(t, db, "")
}
