package models_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// patience limits waits: other tests have transactions on the same server, which hold up the
// feed.
const patience = 30 * time.Second

// replica is what a follower knows.
type replica struct {
	cursor database.Cursor
	names  map[int64]string
}

func newReplica() *replica { return &replica{names: make(map[int64]string)} }

// replicaFromNow returns a replica that knows that there are no rows yet, and so reads no row
// by key.
func replicaFromNow(t *testing.T, feed *models.PlantFeed) *replica {
	t.Helper()
	r := newReplica()
	now, err := feed.Read(t.Context(), database.Now(), 1)
	if err != nil {
		t.Fatal(err)
	}
	r.apply(now)
	return r
}

func (r *replica) apply(changes models.PlantChanges) {
	for _, c := range changes.Rows {
		delete(r.names, c.ID)
		if c.Row != nil {
			r.names[c.ID] = c.Row.Name
		}
	}
	r.cursor = changes.Next
}

// contentOf returns the names of all plants.
func contentOf(t *testing.T, db *database.DB) map[int64]string {
	t.Helper()
	var all []models.Plant
	if err := db.WithContext(t.Context()).Select("id", "name").Find(&all).Error; err != nil {
		t.Fatal(err)
	}
	names := make(map[int64]string)
	for _, p := range all {
		names[p.ID] = p.Name
	}
	return names
}

// follow lets r read the feed until it has the content of db.
func (r *replica) follow(t *testing.T, feed *models.PlantFeed, db *database.DB, limit int) {
	t.Helper()
	want := contentOf(t, db)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := feed.Follow(ctx, func(next models.NextChanges) error {
		for !maps.Equal(r.names, want) {
			changes, err := next(ctx, r.cursor, limit)
			if err != nil {
				return err
			}
			r.apply(changes)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("got %v, want %v: %v", r.names, want, err)
	}
}

// importAll imports plants.
func importAll(t *testing.T, store *models.PlantStore, o models.ImportOptions, plants ...models.Plant) {
	t.Helper()
	rows := func(yield func(models.ImportRow[models.Plant], error) bool) {
		for i, p := range plants {
			if !yield(models.ImportRow[models.Plant]{Line: i + 1, Row: p}, nil) {
				return
			}
		}
	}
	if report, err := store.Import(t.Context(), rows, o); err != nil || report.Rejected > 0 {
		t.Fatalf("got %+v, %v", report, err)
	}
}

func TestFeedHasEveryWrite(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		ctx, feed := t.Context(), models.NewPlantFeed(store)
		r := replicaFromNow(t, feed)
		create := func(id int64, name string) error {
			return store.Create(ctx, &models.Plant{ID: id, Name: name})
		}
		for _, step := range []struct {
			name string
			do   func() error
		}{
			{"nothing", func() error { return nil }},
			{"create the least id", func() error { return create(math.MinInt64, "least") }},
			{"create the greatest id", func() error { return create(math.MaxInt64, "greatest") }},
			{"create", func() error { return create(0, "zero") }},
			{"put a new one", func() error {
				_, err := store.Put(ctx, &models.Plant{ID: 1, Name: "one"}, models.Condition{})
				return err
			}},
			{"put an old one", func() error {
				_, err := store.Put(ctx, &models.Plant{ID: 1, Name: "uno"}, models.Condition{})
				return err
			}},
			{"patch", func() error {
				_, err := store.Patch(ctx, &models.Plant{ID: 1, Name: "eins"}, []string{"name"}, models.Condition{})
				return err
			}},
			{"delete", func() error { return store.Delete(ctx, 1, models.Condition{}) }},
			{"create it again", func() error { return create(1, "un") }},
			{"delete, create and delete", func() error {
				return errors.Join(store.Delete(ctx, 1, models.Condition{}), create(1, "ein"), store.Delete(ctx, 1, models.Condition{}))
			}},
			{"import", func() error {
				importAll(t, store, models.ImportOptions{}, models.Plant{ID: 5, Name: "five"}, models.Plant{ID: 6, Name: "six"})
				return nil
			}},
			{"import and replace", func() error {
				importAll(t, store, models.ImportOptions{Replace: true}, models.Plant{ID: 6, Name: "seis"}, models.Plant{ID: 7, Name: "seven"})
				return nil
			}},
			{"import many, of which some exist", func() error {
				importAll(t, store, models.ImportOptions{}, numbered(1000, 1)...)
				importAll(t, store, models.ImportOptions{}, numbered(1000, 300)...)
				return nil
			}},
			{"import many that exist", func() error {
				importAll(t, store, models.ImportOptions{}, numbered(1000, 300)...)
				return nil
			}},
			{"an UPDATE by hand", func() error { return db.Exec("UPDATE plants SET name = 'by hand' WHERE id = 7").Error }},
			{"another id by hand", func() error { return db.Exec("UPDATE plants SET id = 8 WHERE id = 7").Error }},
			{"an INSERT by hand", func() error {
				return db.Exec("INSERT INTO plants (id, name, created_at, updated_at) VALUES (9, 'nine', '2026-01-01', '2026-01-01')").Error
			}},
			{"a DELETE by hand", func() error { return db.Exec("DELETE FROM plants").Error }},
		} {
			t.Run(step.name, func(t *testing.T) {
				if err := step.do(); err != nil {
					t.Fatal(err)
				}
				r.follow(t, feed, db, 2)
				newReplica().follow(t, feed, db, 3) // from the beginning
			})
		}
	})
}

// numbered returns plants with the ids from first on that are named after them.
func numbered(first, n int64) []models.Plant {
	plants := make([]models.Plant, n)
	for i := range plants {
		id := first + int64(i)
		plants[i] = models.Plant{ID: id, Name: fmt.Sprintf("plant %d", id)}
	}
	return plants
}

// TestFeedOfLargeImports: the new plants of an import have an order of their own in
// PostgreSQL's feed.
func TestFeedOfLargeImports(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.Postgres(t))
	store := models.NewPlantStore(db)
	feed, first := models.NewPlantFeed(store), int64(-5000)
	r := replicaFromNow(t, feed)
	for _, rows := range []int64{1, 10_000, 50_000, 50_001} {
		t.Run(strconv.FormatInt(rows, 10), func(t *testing.T) {
			plants := numbered(first, rows)
			rand.Shuffle(len(plants), func(i, j int) { plants[i], plants[j] = plants[j], plants[i] })
			importAll(t, store, models.ImportOptions{}, plants...)
			r.follow(t, feed, db, 999)
			newReplica().follow(t, feed, db, 1000)
			if err := store.Delete(t.Context(), first, models.Condition{}); err != nil {
				t.Fatal(err)
			}
			r.follow(t, feed, db, 1)
			first += rows
		})
	}
}

func TestFeedIsForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		ctx, feed := t.Context(), models.NewPlantFeed(store)
		importAll(t, store, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"}, models.Plant{ID: 2, Name: "two"}, models.Plant{ID: 3, Name: "three"})
		r, begun := newReplica(), newReplica()
		r.follow(t, feed, db, 10)
		first, err := feed.Read(ctx, begun.cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		begun.apply(first)
		old := r.cursor
		if err := store.Delete(ctx, 1, models.Condition{}); err != nil {
			t.Fatal(err)
		}
		r.follow(t, feed, db, 10)
		for range 2 { // nothing is that old
			if err := db.PurgeFeed(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := feed.Read(ctx, old, 10); err != nil {
			t.Errorf("within the retention: got %v", err)
		}
		for range 2 { // the second one knows what is old
			if err := db.PurgeFeed(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		if db.System() == "postgresql" {
			var imports int
			if err := db.Raw("SELECT count(*) FROM plant_imports").Scan(&imports).Error; err != nil || imports > 0 {
				t.Errorf("got %d parts of imports, %v, want none", imports, err)
			}
		}
		for name, cursor := range map[string]database.Cursor{"before the deletion": old, "while it read all": begun.cursor} {
			t.Run(name, func(t *testing.T) {
				if _, err := feed.Read(ctx, cursor, 10); !errors.Is(err, database.ErrCursor) {
					t.Errorf("got %v, want ErrCursor", err)
				}
			})
		}
		t.Run("after the deletion", func(t *testing.T) {
			if err := store.Create(ctx, &models.Plant{ID: 4, Name: "four"}); err != nil {
				t.Fatal(err)
			}
			r.follow(t, feed, db, 10)
			if _, err := feed.Read(ctx, r.cursor, 10); err != nil {
				t.Error(err)
			}
		})
		t.Run("from the beginning", func(t *testing.T) { newReplica().follow(t, feed, db, 1) })
		t.Run("what came right after what is forgotten", func(t *testing.T) {
			err := errors.Join(db.PurgeFeed(ctx, 0), store.Delete(ctx, 2, models.Condition{}), store.Delete(ctx, 3, models.Condition{}), db.PurgeFeed(ctx, 0))
			if err != nil {
				t.Fatal(err)
			}
			r.follow(t, feed, db, 10)
		})
	})
}

// TestFeedWaitsForTransactions shows the trap that the feed avoids: transactions commit in
// another order than they begin.
func TestFeedWaitsForTransactions(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.Postgres(t))
	store := models.NewPlantStore(db)
	feed := models.NewPlantFeed(store)
	r := replicaFromNow(t, feed)
	late := db.Begin()
	defer late.Rollback()
	if err := late.Exec("INSERT INTO plants (id, name, created_at, updated_at) VALUES (1, 'late', now(), now())").Error; err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context(), &models.Plant{ID: 2, Name: "early"}); err != nil {
		t.Fatal(err)
	}
	naive := newNaive()
	naive.read(t, db)
	if !maps.Equal(naive.names, map[int64]string{2: "early"}) {
		t.Fatalf("the naive reader has %v, want 2", naive.names)
	}
	changes, err := feed.Read(t.Context(), r.cursor, 10)
	if err != nil || len(changes.Rows) > 0 {
		t.Fatalf("got %v, %v, want no change before the first transaction ends", changes.Rows, err)
	}
	r.apply(changes)
	if err := late.Commit().Error; err != nil {
		t.Fatal(err)
	}
	r.follow(t, feed, db, 10)
	naive.read(t, db)
	if len(naive.names) != 1 {
		t.Errorf("the naive reader has %v, want it to miss 1", naive.names)
	}
}

// naive is a reader that asks for all that is committed after the last position it has seen.
type naive struct {
	last  int64
	names map[int64]string
}

func newNaive() *naive { return &naive{names: make(map[int64]string)} }

func (n *naive) read(t *testing.T, db *database.DB) {
	t.Helper()
	var rows []struct {
		ID, Changed int64
		Name        string
	}
	if err := db.Raw("SELECT id, changed, name FROM plants WHERE changed > ? ORDER BY changed", n.last).Scan(&rows).Error; err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		n.last, n.names[row.ID] = row.Changed, row.Name
	}
}

// TestFeedAfterACrash uses up numbers of transactions that leave no trace on disk: after a
// crash, PostgreSQL uses them again, for changes that a follower must not have passed.
func TestFeedAfterACrash(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	db := dbtest.Migrated(t, server.URL)
	for _, statement := range []string{"ALTER SYSTEM SET wal_writer_delay = '10s'", "SELECT pg_reload_conf()"} { // leaves a trace
		if err := db.Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
	store := models.NewPlantStore(db)
	feed, r := models.NewPlantFeed(store), newReplica()
	for id := int64(1); id < 20; id += 2 { // a checkpoint, or another process that writes, leaves one, too
		before, after := crash(t, server, db, store, feed, r, id)
		r.follow(t, feed, db, 10)
		if after <= before {
			return
		}
	}
	t.Fatal("no number of a transaction was used again")
}

// crash creates a plant with id before, and one with the next id after a crash of server. It returns
// the numbers of the last transactions.
func crash(t *testing.T, server *dbtest.Server, db *database.DB, store *models.PlantStore, feed *models.PlantFeed, r *replica, id int64) (before, after int64) {
	t.Helper()
	if err := store.Create(t.Context(), &models.Plant{ID: id, Name: "before"}); err != nil {
		t.Fatal(err)
	}
	r.follow(t, feed, db, 10)
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
	r.apply(changes)
	if err := errors.Join(server.Kill(), server.Start()); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); ; {
		if err = store.Create(t.Context(), &models.Plant{ID: id + 1, Name: "after"}); err == nil {
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
				if err := database.Backup(t.Context(), dbtest.Options(url), backup, zap.NewNop()); err != nil {
					t.Fatal(err)
				}
				importAll(t, store, models.ImportOptions{}, models.Plant{ID: 2, Name: "lost"})
				r.follow(t, models.NewPlantFeed(store), db, 10)
			}()
			if _, err := database.Restore(t.Context(), dbtest.Options(url), backup, func(string) error { return nil }); err != nil {
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
					if err := db.PurgeFeed(t.Context(), 0); err != nil {
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
			r.follow(t, models.NewPlantFeed(store), db, 10)
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
	db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Prepare(t.Context()); err != nil {
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
	feed := models.NewPlantFeed(store)
	cursor := r.cursor
	for id := range int64(5) { // so that the position of the cursor exists again
		importAll(t, store, models.ImportOptions{}, models.Plant{ID: 10 + id, Name: "new"})
	}
	r = newReplica()
	r.follow(t, feed, db, 10)
	if _, err := feed.Read(t.Context(), cursor, 10); !errors.Is(err, database.ErrCursor) {
		t.Errorf("the cursor of the original: got %v, want ErrCursor", err)
	}
	r.follow(t, feed, db, 10)
	importAll(t, store, models.ImportOptions{}, models.Plant{ID: 3, Name: "three"})
	if err := store.Delete(t.Context(), 1, models.Condition{}); err != nil {
		t.Fatal(err)
	}
	r.follow(t, feed, db, 10)
	again := openMigrated(t, o.URL) // a restart is no copy
	defer again.Close()
	if _, err := feed.Read(t.Context(), r.cursor, 10); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

// TestFeedOfManyTransactions: positions go on after 2,147,483,647.
func TestFeedOfManyTransactions(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	dbtest.Exec(t, url, "CREATE OR REPLACE FUNCTION feed_position(transaction bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT transaction + 5000000000'")
	store := models.NewPlantStore(db)
	feed := models.NewPlantFeed(store)
	r := replicaFromNow(t, feed)
	importAll(t, store, models.ImportOptions{}, numbered(1, 100)...)
	if err := store.Delete(t.Context(), 7, models.Condition{}); err != nil {
		t.Fatal(err)
	}
	r.follow(t, feed, db, 10)
	newReplica().follow(t, feed, db, 10)
	if err := db.PurgeFeed(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestFeedWakesFollowers shows that followers share what is read: each gets every change.
func TestFeedWakesFollowers(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		feed := models.NewPlantFeed(store)
		const followers, plants = 20, 300
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var group sync.WaitGroup
		for range followers {
			group.Go(func() {
				r := newReplica()
				err := feed.Follow(ctx, func(next models.NextChanges) error {
					for len(r.names) < plants {
						changes, err := next(ctx, r.cursor, 7)
						if err != nil {
							return err
						}
						r.apply(changes)
					}
					return nil
				})
				if err != nil {
					t.Errorf("%d changes of %d: %v", len(r.names), plants, err)
				}
			})
		}
		for id := range int64(plants) {
			if err := store.Create(t.Context(), &models.Plant{ID: id, Name: "x"}); err != nil {
				t.Error(err)
			}
		}
		group.Wait()
	})
}

// TestFollowersLearnOfFaults shows that those who wait get an error that does not pass by
// itself.
func TestFollowersLearnOfFaults(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		feed := models.NewPlantFeed(store)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := feed.Follow(ctx, func(next models.NextChanges) error {
			until, cancel := context.WithTimeout(ctx, time.Second) // ample for the shared reader to start
			defer cancel()
			changes, err := next(until, database.Now(), 1)
			if err != nil {
				return fmt.Errorf("before: %w", err)
			}
			if err := db.Exec("ALTER TABLE feed RENAME TO lost").Error; err != nil {
				return err
			}
			_, err = next(ctx, changes.Next, 1)
			return err
		})
		if err == nil || !strings.HasPrefix(err.Error(), "read the feed") {
			t.Errorf("got %v, want that of reading the feed", err)
		}
	})
}

func TestParseCursor(t *testing.T) {
	for text, ok := range map[string]bool{
		"0": true, "abc.1": true, "abc.1.-5": true, "abc.0.5.7": true, "abc.0.-9223372036854775808.7": true,
		"": false, "1": false, "abc": false, ".1": false, "abc.-1": false, "abc.01": false, "abc.1.x": false, "abc.1.2.-3": false,
		"abc.1.2.3.4": false, "abc.1.2.0": false, strings.Repeat("a", 41) + ".1": false,
	} {
		t.Run(text, func(t *testing.T) {
			c, got := database.ParseCursor(text)
			if got != ok || ok && c.String() != text {
				t.Errorf("got %v, %v, want %v", c, got, ok)
			}
		})
	}
	// As the pattern in the OpenAPI document allows them, they are cursors of another database.
	for _, text := range []string{"abc.1.-9223372036854775808", "abc.1.9999999999999999999"} {
		t.Run(text, func(t *testing.T) {
			if _, ok := database.ParseCursor(text); !ok {
				t.Error("got no cursor")
			}
		})
	}
}
