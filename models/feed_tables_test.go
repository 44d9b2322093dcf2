package models_test

import (
	"context"
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/sqlite"
	"plantstore/database/table"
	"plantstore/models"
)

// gardenBed is a model with a feed of its own.
type gardenBed struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (gardenBed) Rules() models.Rules { return models.Rules{"name": models.Text{Min: 1, Max: 100}} }

func (gardenBed) Feed() string { return "garden_bed_feed" }

func newBed(id int64, name string) gardenBed { return gardenBed{ID: id, Name: name} }

// addBeds adds the table of garden beds, with its feed, to db.
func addBeds(t *testing.T, db *database.DB) {
	t.Helper()
	columns := "id bigint PRIMARY KEY NOT NULL, name text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL"
	if db.Dialect.Facts().System == "sqlite" {
		columns = strings.NewReplacer("bigint", "INTEGER", "timestamptz", "TIMESTAMP").Replace(columns)
	}
	if err := db.Exec("CREATE TABLE garden_beds (" + columns + ")").Error; err != nil {
		t.Fatal(err)
	}
	dbtest.AddFeed(t, db, table.Of[gardenBed]())
}

// openWithBeds opens the database at url, which has garden beds. The caller closes it.
func openWithBeds(t *testing.T, url string) (*database.DB, *models.PlantStore, *models.Store[gardenBed, int64]) {
	t.Helper()
	followed := append(models.Tables(), table.Of[gardenBed]())
	db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, followed, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Schema.Prepare(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, models.NewPlantStore(db), models.NewStore[gardenBed, int64](db)
}

// TestFeedOfASecondTable: a table that gets a feed leaves the feeds of the other tables as they are.
func TestFeedOfASecondTable(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		before := dbtest.Migrated(t, url)
		store := models.NewPlantStore(before)
		importAll(t, store, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"}, models.Plant{ID: 2, Name: "two"})
		r := newReplica()
		follow(t, r, models.NewFeed(store), before, 10)
		addBeds(t, before)
		db, plants, beds := openWithBeds(t, url)
		defer db.Close()
		feed, bedFeed := models.NewFeed(plants), models.NewFeed(beds)
		begun := replicaFromNow(t, bedFeed)
		checkFeed(t, beds, db, "garden_beds", newBed)
		none := func(t *testing.T) {
			t.Helper()
			changes, err := feed.Read(t.Context(), r.cursor, 10)
			if err != nil || len(changes.Rows) > 0 {
				t.Errorf("the feed of plants: got %v, %v, want no change", changes.Rows, err)
			}
		}
		t.Run("its changes are not in the other feed", none)
		t.Run("its cursor is not valid there", func(t *testing.T) {
			if _, err := feed.Read(t.Context(), begun.cursor, 10); !errors.Is(err, database.ErrCursor) {
				t.Errorf("got %v, want ErrCursor", err)
			}
		})
		t.Run("what it forgets, the other feed does not", func(t *testing.T) {
			for range 2 { // the second one knows what is old
				if err := db.Feed(table.Of[gardenBed]()).Purge(t.Context(), 0); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := bedFeed.Read(t.Context(), begun.cursor, 10); !errors.Is(err, database.ErrCursor) {
				t.Errorf("the feed of garden beds: got %v, want ErrCursor", err)
			}
			none(t)
		})
		t.Run("a write wakes the followers of its table", func(t *testing.T) {
			if _, err := plants.Create(t.Context(), &models.Plant{ID: 3, Name: "three"}); err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 10)
		})
	})
}

// TestFeedsOfACopy: all feeds of a restored backup begin anew.
func TestFeedsOfACopy(t *testing.T) {
	check := func(t *testing.T, url string, cursors ...database.Cursor) {
		t.Helper()
		db, plants, beds := openWithBeds(t, url)
		defer db.Close()
		feed, bedFeed := models.NewFeed(plants), models.NewFeed(beds)
		for i, read := range []func(context.Context, database.Cursor) error{
			func(ctx context.Context, c database.Cursor) error { _, err := feed.Read(ctx, c, 10); return err },
			func(ctx context.Context, c database.Cursor) error { _, err := bedFeed.Read(ctx, c, 10); return err },
		} {
			if err := read(t.Context(), cursors[i]); !errors.Is(err, database.ErrCursor) {
				t.Errorf("feed %d: got %v, want ErrCursor", i, err)
			}
		}
		r, b := newReplica(), newReplica()
		follow(t, r, feed, db, 10)
		follow(t, b, bedFeed, db, 10)
		importAll(t, plants, models.ImportOptions{}, models.Plant{ID: 3, Name: "three"})
		if _, err := beds.Delete(t.Context(), 1, models.Condition{}); err != nil {
			t.Fatal(err)
		}
		follow(t, r, feed, db, 10)
		follow(t, b, bedFeed, db, 10)
	}
	fill := func(t *testing.T, url string) []database.Cursor {
		t.Helper()
		addBeds(t, dbtest.Migrated(t, url))
		db, plants, beds := openWithBeds(t, url)
		defer db.Close()
		importAll(t, plants, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"})
		importAll(t, beds, models.ImportOptions{}, newBed(1, "one"), newBed(2, "two"))
		r, b := newReplica(), newReplica()
		follow(t, r, models.NewFeed(plants), db, 10)
		follow(t, b, models.NewFeed(beds), db, 10)
		return []database.Cursor{r.cursor, b.cursor}
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		url, copied := dbtest.SQLite(t), dbtest.SQLite(t)
		cursors := fill(t, url)
		backup := filepath.Join(t.TempDir(), "backup.db")
		if err := sqlite.Backup(t.Context(), sqlite.Options{Path: strings.TrimPrefix(url, "sqlite:"), Timeout: time.Second}, backup, zap.NewNop()); err != nil {
			t.Fatal(err)
		}
		if err := sqlite.Restore(t.Context(), strings.TrimPrefix(copied, "sqlite:"), backup, func() error { return nil }); err != nil {
			t.Fatal(err)
		}
		check(t, copied, cursors...)
	})
	t.Run("PostgreSQL", func(t *testing.T) {
		t.Parallel()
		url, copied := dbtest.OwnServer(t).URL, dbtest.OwnServer(t).URL // a younger cluster
		useUp(t, url, 1500)
		cursors := fill(t, url)
		text, err := exec.Command(tool(t, "pg_dump"), "--no-owner", url).Output()
		if err != nil {
			t.Fatal(err)
		}
		restore := exec.Command(tool(t, "psql"), "-q", "-v", "ON_ERROR_STOP=1", copied)
		restore.Stdin = strings.NewReader(string(text))
		if output, err := restore.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
		check(t, copied, cursors...)
	})
}
