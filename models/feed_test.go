package models_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

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
func replicaFromNow[T models.Model](t *testing.T, feed *models.Feed[T]) *replica {
	t.Helper()
	r := newReplica()
	now, err := feed.Read(t.Context(), database.Now(), 1)
	if err != nil {
		t.Fatal(err)
	}
	apply(r, now)
	return r
}

func apply[T any](r *replica, changes models.Changes[T]) {
	for _, c := range changes.Rows {
		delete(r.names, c.ID)
		if c.Row != nil {
			r.names[c.ID] = reflect.ValueOf(c.Row).Elem().FieldByName("Name").String()
		}
	}
	r.cursor = changes.Next
}

// contentOf returns the names of all rows of T.
func contentOf[T any](t *testing.T, db *database.DB) map[int64]string {
	t.Helper()
	var all []struct {
		ID   int64
		Name string
	}
	if err := db.WithContext(t.Context()).Model(new(T)).Find(&all).Error; err != nil {
		t.Fatal(err)
	}
	names := make(map[int64]string)
	for _, row := range all {
		names[row.ID] = row.Name
	}
	return names
}

// follow lets r read the feed until it has the content of db.
func follow[T models.Model](t *testing.T, r *replica, feed *models.Feed[T], db *database.DB, limit int) {
	t.Helper()
	want := contentOf[T](t, db)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := feed.Follow(ctx, func(next models.NextChanges[T]) error {
		for !maps.Equal(r.names, want) {
			changes, err := next(ctx, r.cursor, limit)
			if err != nil {
				return err
			}
			apply(r, changes)
		}
		return nil
	})
	if err != nil {
		t.Fatalf("got %v, want %v: %v", r.names, want, err)
	}
}

// importAll imports all.
func importAll[T models.Model](t *testing.T, store *models.Store[T, int64], o models.ImportOptions, all ...T) {
	t.Helper()
	if err := tryImport(t.Context(), store, o, all...); err != nil {
		t.Fatal(err)
	}
}

// tryImport imports all, and fails if a row is rejected.
func tryImport[T models.Model](ctx context.Context, store *models.Store[T, int64], o models.ImportOptions, all ...T) error {
	report, err := store.Import(ctx, importRows(all), o)
	if err == nil && report.Rejected > 0 {
		err = fmt.Errorf("got %+v", report)
	}
	return err
}

func TestFeedHasEveryWrite(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		checkFeed(t, store, db, "plants", func(id int64, name string) models.Plant { return models.Plant{ID: id, Name: name} })
	})
}

// checkFeed checks that the feed of table has every write.
func checkFeed[T models.Model](t *testing.T, store *models.Store[T, int64], db *database.DB, table string, row func(id int64, name string) T) {
	ctx, feed := t.Context(), models.NewFeed(store)
	r := replicaFromNow(t, feed)
	create := func(id int64, name string) error { return errorOf(store.Create(ctx, new(row(id, name)))) }
	put := func(id int64, name string) error {
		return errorOf(store.Put(ctx, new(row(id, name)), models.Condition{}))
	}
	remove := func(id int64) error { return errorOf(store.Delete(ctx, id, models.Condition{})) }
	numbered := func(first, n int64) (all []T) {
		for id := first; id < first+n; id++ {
			all = append(all, row(id, strconv.FormatInt(id, 10)))
		}
		return all
	}
	importing := func(o models.ImportOptions, all ...T) error { return tryImport(ctx, store, o, all...) }
	byHand := func(statement string) error { return db.Exec(strings.ReplaceAll(statement, "rows", table)).Error }
	for _, step := range []struct {
		name string
		do   func() error
	}{
		{"nothing", func() error { return nil }},
		{"create the least id", func() error { return create(math.MinInt64, "least") }},
		{"create the greatest id", func() error { return create(math.MaxInt64, "greatest") }},
		{"create", func() error { return create(0, "zero") }},
		{"put a new one", func() error { return put(1, "one") }},
		{"put an old one", func() error { return put(1, "uno") }},
		{"patch", func() error {
			return errorOf(store.Patch(ctx, new(row(1, "eins")), []string{"name"}, models.Condition{}))
		}},
		{"delete", func() error { return remove(1) }},
		{"create it again", func() error { return create(1, "un") }},
		{"delete, create and delete", func() error { return errors.Join(remove(1), create(1, "ein"), remove(1)) }},
		{"import", func() error { return importing(models.ImportOptions{}, row(5, "five"), row(6, "six")) }},
		{"import and replace", func() error {
			report, err := store.Import(ctx, replacing(true, importRows([]T{row(6, "seis"), row(7, "seven")})), models.ImportOptions{})
			if report.Replaced != 1 {
				err = fmt.Errorf("got %+v, %w", report, err)
			}
			return err
		}},
		{"import many, of which some exist", func() error {
			return errors.Join(importing(models.ImportOptions{}, numbered(1000, 1)...), importing(models.ImportOptions{}, numbered(1000, 300)...))
		}},
		{"import many that exist", func() error { return importing(models.ImportOptions{}, numbered(1000, 300)...) }},
		{"an UPDATE by hand", func() error { return byHand("UPDATE rows SET name = 'by hand' WHERE id = 7") }},
		{"another id by hand", func() error { return byHand("UPDATE rows SET id = 8 WHERE id = 7") }},
		{"an INSERT by hand", func() error {
			return byHand("INSERT INTO rows (id, name, created_at, updated_at) VALUES (9, 'nine', '2026-01-01', '2026-01-01')")
		}},
		{"import many", func() error { return importing(models.ImportOptions{}, numbered(2000, 300)...) }},
		{"all rows are put away", func() error {
			return errors.Join(byHand("CREATE TABLE yesterday AS SELECT * FROM rows"), byHand("DELETE FROM rows"))
		}},
		{"and come back with their positions", func() error { return byHand("INSERT INTO rows SELECT * FROM yesterday") }},
		{"a DELETE by hand", func() error { return errors.Join(byHand("DELETE FROM rows"), byHand("DROP TABLE yesterday")) }},
	} {
		t.Run(step.name, func(t *testing.T) {
			if err := step.do(); err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 2)
			follow(t, newReplica(), feed, db, 3) // from the beginning
		})
	}
}

// TestFeedOfRowsThatExist: an import that keeps rows does not tell of them, since it did not write
// them.
func TestFeedOfRowsThatExist(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		const first, exist, imported, last = 1000, 50, 300, 5000
		feed := models.NewFeed(store)
		r := replicaFromNow(t, feed)
		importAll(t, store, models.ImportOptions{}, numbered(first, exist)...)
		follow(t, r, feed, db, exist)
		r.names = make(map[int64]string)
		importAll(t, store, models.ImportOptions{}, numbered(first, imported)...)
		if _, err := store.Create(t.Context(), &models.Plant{ID: last, Name: "last"}); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := feed.Follow(ctx, func(next models.NextChanges[models.Plant]) error {
			for end := false; !end; _, end = r.names[last] {
				changes, err := next(ctx, r.cursor, imported)
				if err != nil {
					return err
				}
				apply(r, changes)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for id := range r.names {
			if id < first+exist {
				t.Errorf("told of %d, which the import kept", id)
			}
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
	feed, first := models.NewFeed(store), int64(-5000)
	r := replicaFromNow(t, feed)
	for _, rows := range []int64{1, 10_000, 50_000, 50_001} {
		t.Run(strconv.FormatInt(rows, 10), func(t *testing.T) {
			plants := numbered(first, rows)
			rand.Shuffle(len(plants), func(i, j int) { plants[i], plants[j] = plants[j], plants[i] })
			importAll(t, store, models.ImportOptions{}, plants...)
			follow(t, r, feed, db, 999)
			follow(t, newReplica(), feed, db, 1000)
			if _, err := store.Delete(t.Context(), first, models.Condition{}); err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 1)
			first += rows
		})
	}
}

// TestFeedOfAnotherSearchPath: a program that names the schema of the plants writes to their feed, and
// not to that of the schema in its search_path.
func TestFeedOfAnotherSearchPath(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.Postgres(t))
	store := models.NewPlantStore(db)
	feed := models.NewFeed(store)
	if _, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "one"}); err != nil {
		t.Fatal(err)
	}
	r := newReplica()
	follow(t, r, feed, db, 10)
	elsewhere := func(t *testing.T, statement string) {
		t.Helper()
		var schema string
		err := db.WithContext(t.Context()).Transaction(func(tx *gorm.DB) error {
			return errors.Join(tx.Raw("SELECT current_schema()").Scan(&schema).Error,
				tx.Exec("SET LOCAL search_path TO pg_catalog").Error, tx.Exec(fmt.Sprintf(statement, schema+".plants")).Error)
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, test := range []struct{ name, statement string }{
		{"update", "UPDATE %s SET name = 'other'"},
		{"change of an id", "UPDATE %s SET id = 2"},
		{"insert", "INSERT INTO %s (id, name, created_at, updated_at) VALUES (3, 'three', now(), now())"},
		{"delete", "DELETE FROM %s"},
	} {
		t.Run(test.name, func(t *testing.T) {
			elsewhere(t, test.statement)
			follow(t, r, feed, db, 10)
		})
	}
	t.Run("truncate", func(t *testing.T) {
		elsewhere(t, "TRUNCATE %s CASCADE")
		if _, err := feed.Read(t.Context(), r.cursor, 10); !errors.Is(err, database.ErrCursor) {
			t.Errorf("got %v, want ErrCursor", err)
		}
	})
}

func TestFeedIsForgotten(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		ctx, feed := t.Context(), models.NewFeed(store)
		importAll(t, store, models.ImportOptions{}, models.Plant{ID: 1, Name: "one"}, models.Plant{ID: 2, Name: "two"}, models.Plant{ID: 3, Name: "three"})
		r, begun := newReplica(), newReplica()
		follow(t, r, feed, db, 10)
		first, err := feed.Read(ctx, begun.cursor, 1)
		if err != nil {
			t.Fatal(err)
		}
		apply(begun, first)
		old := r.cursor
		if _, err := store.Delete(ctx, 1, models.Condition{}); err != nil {
			t.Fatal(err)
		}
		follow(t, r, feed, db, 10)
		for range 2 { // nothing is that old
			if err := db.Feed(dbtest.Tables[0]).Purge(ctx, time.Hour); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := feed.Read(ctx, old, 10); err != nil {
			t.Errorf("within the retention: got %v", err)
		}
		if db.Dialect.Facts().System == "postgresql" { // more than are forgotten at a time
			err := db.Exec("INSERT INTO plant_imports SELECT 1, n, n, '{}' FROM generate_series(1, 2500) n").Error
			if err != nil {
				t.Fatal(err)
			}
		}
		for range 2 { // the second one knows what is old
			if err := db.Feed(dbtest.Tables[0]).Purge(ctx, 0); err != nil {
				t.Fatal(err)
			}
		}
		if db.Dialect.Facts().System == "postgresql" {
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
			if _, err := store.Create(ctx, &models.Plant{ID: 4, Name: "four"}); err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 10)
			if _, err := feed.Read(ctx, r.cursor, 10); err != nil {
				t.Error(err)
			}
		})
		t.Run("from a position that does not exist yet", func(t *testing.T) {
			epoch, _, _ := strings.Cut(r.cursor.String(), ".")
			for _, text := range []string{epoch + ".999999999999", epoch + ".0.5.999999999999"} {
				future, ok := database.ParseCursor(text)
				if _, err := feed.Read(ctx, future, 10); !ok || !errors.Is(err, database.ErrCursor) {
					t.Errorf("%s: got %v, want ErrCursor", text, err)
				}
			}
		})
		t.Run("from a time", func(t *testing.T) {
			if err := db.Feed(dbtest.Tables[0]).Purge(ctx, time.Hour); err != nil { // notes where the feed is
				t.Fatal(err)
			}
			now := time.Now()
			if _, err := store.Create(ctx, &models.Plant{ID: 5, Name: "five"}); err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 10) // up to that plant
			from, ok := database.ParseCursor(now.Format(time.RFC3339Nano))
			changes, err := feed.Read(ctx, from, 10)
			if last := len(changes.Rows) - 1; !ok || err != nil || last < 0 || changes.Rows[last].ID != 5 {
				t.Errorf("got %+v, %v, want the plant 5", changes.Rows, err)
			}
			early, _ := database.ParseCursor(now.Add(-time.Hour).Format(time.RFC3339Nano))
			if _, err := feed.Read(ctx, early, 10); !errors.Is(err, database.ErrCursor) {
				t.Errorf("before what is forgotten: got %v, want ErrCursor", err)
			}
		})
		t.Run("from the beginning", func(t *testing.T) { follow(t, newReplica(), feed, db, 1) })
		t.Run("what came right after what is forgotten", func(t *testing.T) {
			err := errors.Join(db.Feed(dbtest.Tables[0]).Purge(ctx, 0), errorOf(store.Delete(ctx, 2, models.Condition{})), errorOf(store.Delete(ctx, 3, models.Condition{})), db.Feed(dbtest.Tables[0]).Purge(ctx, 0))
			if err != nil {
				t.Fatal(err)
			}
			follow(t, r, feed, db, 10)
		})
	})
}

// TestFeedWaitsForTransactions shows the trap that the feed avoids: transactions commit in
// another order than they begin.
func TestFeedWaitsForTransactions(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.Postgres(t))
	store := models.NewPlantStore(db)
	feed := models.NewFeed(store)
	r := replicaFromNow(t, feed)
	late := db.Begin()
	defer late.Rollback()
	if err := late.Exec("INSERT INTO plants (id, name, created_at, updated_at) VALUES (1, 'late', now(), now())").Error; err != nil {
		t.Fatal(err)
	}
	if _, err := store.Create(t.Context(), &models.Plant{ID: 2, Name: "early"}); err != nil {
		t.Fatal(err)
	}
	changes, err := feed.Read(t.Context(), r.cursor, 10)
	if err != nil || len(changes.Rows) > 0 {
		t.Fatalf("got %v, %v, want no change before the first transaction ends", changes.Rows, err)
	}
	apply(r, changes)
	if err := late.Commit().Error; err != nil {
		t.Fatal(err)
	}
	follow(t, r, feed, db, 10)
}

// TestFeedOfManyTransactions: positions go on after 2,147,483,647.
func TestFeedOfManyTransactions(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	dbtest.Exec(t, url, "CREATE OR REPLACE FUNCTION feed_position(transaction bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT transaction + 5000000000'")
	store := models.NewPlantStore(db)
	feed := models.NewFeed(store)
	r := replicaFromNow(t, feed)
	importAll(t, store, models.ImportOptions{}, numbered(1, 100)...)
	if _, err := store.Delete(t.Context(), 7, models.Condition{}); err != nil {
		t.Fatal(err)
	}
	follow(t, r, feed, db, 10)
	follow(t, newReplica(), feed, db, 10)
	if err := db.Feed(dbtest.Tables[0]).Purge(t.Context(), 0); err != nil {
		t.Error(err)
	}
}

// TestFeedWakesFollowers shows that followers share what is read: each gets every change.
func TestFeedWakesFollowers(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		feed := models.NewFeed(store)
		const followers, plants = 20, 300
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		var group sync.WaitGroup
		for range followers {
			group.Go(func() {
				r := newReplica()
				err := feed.Follow(ctx, func(next models.NextChanges[models.Plant]) error {
					for len(r.names) < plants {
						changes, err := next(ctx, r.cursor, 7)
						if err != nil {
							return err
						}
						apply(r, changes)
					}
					return nil
				})
				if err != nil {
					t.Errorf("%d changes of %d: %v", len(r.names), plants, err)
				}
			})
		}
		for id := range int64(plants) {
			if _, err := store.Create(t.Context(), &models.Plant{ID: id, Name: "x"}); err != nil {
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
		feed := models.NewFeed(store)
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		err := feed.Follow(ctx, func(next models.NextChanges[models.Plant]) error {
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
