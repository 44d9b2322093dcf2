package database_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// TestWALIsShortened: without help, the WAL grows for as long as there is always a reader,
// and it keeps its size after a reader that lasts.
func TestWALIsShortened(t *testing.T) {
	for _, test := range []struct {
		name string
		read func(t *testing.T, db *database.DB, done <-chan struct{})
	}{
		{"under constant reads", func(t *testing.T, db *database.DB, done <-chan struct{}) {
			t.Helper()
			var readers sync.WaitGroup
			for range 4 {
				readers.Go(func() {
					for {
						select {
						case <-done:
							return
						default:
						}
						var n int
						// Takes a few milliseconds, so that the readers overlap.
						err := db.Reads(t.Context()).Raw("WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n WHERE i < 5000) SELECT count(*) FROM n, sqlite_schema").Scan(&n).Error
						if err != nil {
							t.Error(err)
							return
						}
					}
				})
			}
			readers.Wait()
		}},
		{"after a long read", func(t *testing.T, db *database.DB, done <-chan struct{}) {
			t.Helper()
			rows, err := db.Reads(t.Context()).Raw("SELECT * FROM sqlite_schema").Rows()
			if err != nil {
				t.Error(err)
				return
			}
			defer rows.Close()
			rows.Next()
			<-done // the reader sees the snapshot of its first row
			if err := rows.Err(); err != nil {
				t.Error(err)
			}
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			const limit = 64 << 20 // walLimit
			url := dbtest.SQLite(t)
			db := dbtest.Migrated(t, url)
			size := func() int64 {
				info, err := os.Stat(strings.TrimPrefix(url, "sqlite:") + "-wal")
				if err != nil {
					t.Fatal(err)
				}
				return info.Size()
			}
			exec := func(statement string) {
				if err := db.WithContext(t.Context()).Exec(statement).Error; err != nil {
					t.Fatal(err)
				}
			}
			exec("CREATE TABLE filler (value BLOB)")
			done := make(chan struct{})
			var reading sync.WaitGroup
			reading.Go(func() { test.read(t, db, done) })
			for size() <= limit {
				exec("INSERT INTO filler VALUES (zeroblob(8000000))")
			}
			long := test.name == "after a long read"
			if long {
				close(done)
				reading.Wait()
			}
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			for size() > limit {
				select {
				case <-ctx.Done():
					t.Fatalf("the WAL still has %d bytes", size())
				case <-time.After(50 * time.Millisecond):
				}
			}
			if !long {
				close(done)
				reading.Wait()
			}
		})
	}
}

// TestWALOfAnotherFile: SQLite applies any WAL that it finds beside a file.
func TestWALOfAnotherFile(t *testing.T) {
	t.Parallel()
	// running returns a copy of a database as a killed service leaves it, with 2,000 plants,
	// and two kinds of backups of its first 1,000.
	path := filepath.Join(t.TempDir(), "plantstore.db")
	url := dbtest.SQLite(t)
	db := dbtest.Migrated(t, url)
	insertPlants(t, db, 1, 1000)
	backup, vacuumed := path+".backup", path+".vacuumed"
	if err := database.Backup(t.Context(), dbtest.Options(url), backup, zap.NewNop()); err != nil {
		t.Fatal(err)
	}
	if err := db.WithContext(t.Context()).Exec("VACUUM INTO ?", vacuumed).Error; err != nil {
		t.Fatal(err)
	}
	insertPlants(t, db, 1001, 2000)
	copyFile(t, pathOf(url), path+".killed")
	copyFile(t, pathOf(url)+"-wal", path+"-wal")
	for range 600 { // an import of many plants changes the schema, too
		if err := db.WithContext(t.Context()).Exec("CREATE TABLE brief (x); DROP TABLE brief").Error; err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, pathOf(url)+"-wal", path+".later-wal")
	// The WAL begins again, and has no first page.
	for _, statement := range []string{"PRAGMA wal_checkpoint(TRUNCATE)", "UPDATE plants SET name = 'changed' WHERE id = 1"} {
		if err := db.WithContext(t.Context()).Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
	copyFile(t, pathOf(url)+"-wal", path+".rows-wal")

	for _, test := range []struct {
		name, file, wal string
		plants          string // 0 if it must not start
	}{
		{"the WAL of a killed service is applied", path + ".killed", path + "-wal", "2000"},
		{"beside a backup it is rejected", backup, path + "-wal", ""},
		{"and after many imports", backup, path + ".later-wal", ""},
		{"and if it has only rows", backup, path + ".rows-wal", ""},
		{"also beside a copy by VACUUM INTO", vacuumed, path + ".rows-wal", ""},
		{"beside a copy by VACUUM INTO it is rejected", vacuumed, path + "-wal", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			here := filepath.Join(t.TempDir(), "plantstore.db")
			copyFile(t, test.file, here)
			copyFile(t, test.wal, here+"-wal")
			o := dbtest.Options("sqlite:" + here)
			if test.plants != "" {
				if got := value(t, dbtest.Open(t, o), "SELECT count(*) FROM plants"); got != test.plants {
					t.Errorf("got %s plants, want %s", got, test.plants)
				}
				return
			}
			if err := openOptionsError(t, o); err == nil || !strings.Contains(err.Error(), here+"-wal") {
				t.Errorf("got %v, want the path of the WAL", err)
			}
			// The message tells how to go on.
			remove(t, here+"-wal")
			if err := os.Remove(here + "-shm"); err != nil && !errors.Is(err, os.ErrNotExist) {
				t.Fatal(err)
			}
			if got := value(t, dbtest.Open(t, o), "SELECT count(*) FROM plants"); got != "1000" {
				t.Errorf("without the WAL: got %s plants, want 1000", got)
			}
		})
	}
}
