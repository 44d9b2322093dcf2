package database_test

import (
	"context"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

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
