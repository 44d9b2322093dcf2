package models_test

import (
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/sqlite"
	"plantstore/models"
)

// TestFeedAfterACrash uses up numbers of transactions that leave no trace on disk: after a
// crash, PostgreSQL uses them again, for changes that a follower must not have passed.
func TestFeedAfterACrash(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	db := dbtest.Migrated(t, server.URL)
	for _, statement := range []string{"ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"} { // what it writes leaves a trace
		if err := db.Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
	store := models.NewPlantStore(db)
	feed, r := models.NewFeed(store), newReplica()
	// crash creates the plant id, and the next one after a crash. It returns the numbers of the last transactions.
	crash := func(id int64) (before, after int64) {
		if _, err := store.Create(t.Context(), &models.Plant{ID: id, Name: "before"}); err != nil {
			t.Fatal(err)
		}
		follow(t, r, feed, db, 10)
		for range 50 {
			tx := db.Begin()
			if err := tx.Raw("SELECT txid_current()").Scan(&before).Error; err != nil {
				t.Fatal(err)
			}
			tx.Rollback()
		}
		changes, err := feed.Read(t.Context(), r.cursor, 10)
		if err != nil {
			t.Fatal(err)
		}
		apply(r, changes)
		if err := errors.Join(server.Kill(), server.Start()); err != nil {
			t.Fatal(err)
		}
		for begin := time.Now(); ; {
			if _, err = store.Create(t.Context(), &models.Plant{ID: id + 1, Name: "after"}); err == nil {
				break
			}
			if exists, ok := errors.AsType[*models.ExistsError](err); ok && exists.Same {
				break
			}
			if time.Since(begin) > patience {
				t.Fatal(err)
			}
		}
		if err := db.Raw("SELECT txid_current()").Scan(&after).Error; err != nil {
			t.Fatal(err)
		}
		return before, after
	}
	for id := int64(1); id < 20; id += 2 { // a checkpoint, or another process that writes, leaves a trace, too
		before, after := crash(id)
		follow(t, r, feed, db, 10)
		if after <= before {
			return
		}
	}
	t.Fatal("no number of a transaction was used again")
}

func TestFeedOfACopy(t *testing.T) {
	for name, migrates := range map[string]bool{"SQLite": true, "SQLite, without database.migrate": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.SQLite(t)
			backup := filepath.Join(t.TempDir(), "backup.db")
			r := newReplica()
			func() {
				db := openMigrated(t, url)
				defer db.Close()
				store := models.NewPlantStore(db)
				importAll(t, store, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"})
				if err := sqlite.Backup(t.Context(), sqlite.Options{Path: strings.TrimPrefix(url, "sqlite:"), Timeout: time.Second}, backup, zap.NewNop()); err != nil {
					t.Fatal(err)
				}
				importAll(t, store, models.ImportOptions{}, models.Plant{ID: 2, Name: "lost"})
				follow(t, r, models.NewFeed(store), db, 10)
			}()
			if err := sqlite.Restore(t.Context(), strings.TrimPrefix(url, "sqlite:"), backup, func() error { return nil }); err != nil {
				t.Fatal(err)
			}
			o := dbtest.Options(url)
			o.Migrate = migrates
			checkCopy(t, o, r)
		})
	}
	for name, test := range map[string]struct {
		use    int // transactions of the other cluster
		forget bool
	}{
		"PostgreSQL, a younger cluster":                        {0, false},
		"PostgreSQL, an older cluster":                         {3000, false},
		"PostgreSQL, a younger cluster, all changes forgotten": {0, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var urls [2]string
			for i := range urls {
				urls[i] = dbtest.OwnServer(t).URL
			}
			db, r := openMigrated(t, urls[0]), newReplica()
			defer db.Close()
			useUp(t, urls[0], 1500)
			useUp(t, urls[1], test.use)
			store := models.NewPlantStore(db)
			importAll(t, store, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"})
			if test.forget {
				for range 2 { // the second one forgets what the first one has noted
					if err := db.Feed(dbtest.Tables[0]).Purge(t.Context(), 0); err != nil {
						t.Fatal(err)
					}
				}
			}
			dump := exec.Command(tool(t, "pg_dump"), "--no-owner", urls[0])
			text, err := dump.Output()
			if err != nil {
				t.Fatal(err)
			}
			importAll(t, store, models.ImportOptions{}, models.Plant{ID: 2, Name: "lost"})
			follow(t, r, models.NewFeed(store), db, 10)
			restore := exec.Command(tool(t, "psql"), "-q", "-v", "ON_ERROR_STOP=1", urls[1])
			restore.Stdin = strings.NewReader(string(text))
			if output, err := restore.CombinedOutput(); err != nil {
				t.Fatalf("%v: %s", err, output)
			}
			checkCopy(t, dbtest.Options(urls[1]), r)
		})
	}
}

// openMigrated is dbtest.Migrated, but the caller closes the database.
func openMigrated(t *testing.T, url string) *database.DB {
	t.Helper()
	db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

// useUp uses so many numbers of transactions.
func useUp(t *testing.T, url string, transactions int) {
	t.Helper()
	dbtest.Exec(t, url, fmt.Sprintf("DO $$ BEGIN FOR i IN 1..%d LOOP PERFORM txid_current(); COMMIT; END LOOP; END $$", transactions))
}

// tool returns the path of a program of PostgreSQL.
func tool(t *testing.T, name string) string {
	t.Helper()
	if path, err := exec.LookPath(name); err == nil {
		return path
	}
	paths, _ := filepath.Glob("/usr/lib/postgresql/*/bin/" + name)
	if len(paths) == 0 {
		t.Fatalf("%s is not installed", name)
	}
	return slices.Max(paths)
}

// checkCopy checks that a copy rejects the cursor of a follower of the original, and
// that it can be followed.
func checkCopy(t *testing.T, o database.Options, r *replica) {
	t.Helper()
	db := dbtest.Prepared(t, o)
	store := models.NewPlantStore(db)
	feed := models.NewFeed(store)
	cursor := r.cursor
	for id := range int64(5) { // so that the position of the cursor exists again
		importAll(t, store, models.ImportOptions{}, models.Plant{ID: 10 + id, Name: "new"})
	}
	r = newReplica()
	follow(t, r, feed, db, 10)
	if _, err := feed.Read(t.Context(), cursor, 10); !errors.Is(err, database.ErrCursor) {
		t.Errorf("the cursor of the original: got %v, want ErrCursor", err)
	}
	follow(t, r, feed, db, 10)
	importAll(t, store, models.ImportOptions{}, models.Plant{ID: 3, Name: "three"})
	if _, err := store.Delete(t.Context(), 1, models.Condition{}); err != nil {
		t.Fatal(err)
	}
	follow(t, r, feed, db, 10)
	again := openMigrated(t, o.URL) // a restart is no copy
	defer again.Close()
	if _, err := feed.Read(t.Context(), r.cursor, 10); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}
