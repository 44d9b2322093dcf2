package models_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// eachStore runs test with a new store on each kind of database.
func eachStore(t *testing.T, test func(t *testing.T, store *models.PlantStore, db *database.DB)) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		test(t, newStore(t, db, 5*time.Second), db)
	})
}

func newStore(t *testing.T, db *database.DB, timeout time.Duration) *models.PlantStore {
	store := models.NewPlantStore(db, models.WriteOptions{Timeout: timeout, Flushers: 2, MaxBatch: 16, Queue: 1000})
	t.Cleanup(store.Close)
	return store
}

// stored returns the row of id.
func stored(t *testing.T, db *database.DB, id int64) models.Plant {
	t.Helper()
	var p models.Plant
	if err := db.WithContext(t.Context()).Where("id = ?", id).Take(&p).Error; err != nil {
		t.Fatalf("id %d: %v", id, err)
	}
	return p
}

func TestCreateStoresExactly(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		for _, p := range []models.Plant{
			{ID: 0, Name: "zero"},
			{ID: -1, Name: "minus one", Tag: new("")},
			{ID: 9007199254740993, Name: "beyond float64", Tag: new("tag")},
			{ID: math.MaxInt64, Name: " blanks stay "},
			{ID: math.MinInt64, Name: "e\u0301 and \u00e9 are not the same", Tag: new(" ")},
			{ID: 1, Name: strings.Repeat("🌵", 255), Tag: new(strings.Repeat("🌵", 255))},
			{ID: 2, Name: `'; DROP TABLE plants; -- "`, Tag: new(`\ % _ $1 ? @name`)},
			{ID: 3, Name: "\u200b\ufeff\U0010ffff"},
		} {
			if err := store.Create(t.Context(), &p); err != nil {
				t.Errorf("id %d: %v", p.ID, err)
				continue
			}
			got := stored(t, db, p.ID)
			if !got.SameContent(&p) {
				t.Errorf("id %d: stored %q, %v; sent %q, %v", p.ID, got.Name, got.Tag, p.Name, p.Tag)
			}
			if !got.CreatedAt.Equal(p.CreatedAt) || !got.UpdatedAt.Equal(p.UpdatedAt) {
				t.Errorf("id %d: stored times %v, %v; returned %v, %v", p.ID, got.CreatedAt, got.UpdatedAt, p.CreatedAt, p.UpdatedAt)
			}
			if age := time.Since(p.CreatedAt); age < -time.Second || age > time.Minute || p.CreatedAt.Location() != time.UTC {
				t.Errorf("id %d: created at %v", p.ID, p.CreatedAt)
			}
		}
	})
}

func TestCreateTakenID(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		first := models.Plant{ID: 7, Name: "Monstera deliciosa", Tag: new("houseplant")}
		if err := store.Create(t.Context(), &first); err != nil {
			t.Fatal(err)
		}
		for _, test := range []struct {
			again string
			plant models.Plant
			same  bool
		}{
			{"the same", models.Plant{ID: 7, Name: "Monstera deliciosa", Tag: new("houseplant")}, true},
			{"another name", models.Plant{ID: 7, Name: "monstera deliciosa", Tag: new("houseplant")}, false},
			{"another tag", models.Plant{ID: 7, Name: "Monstera deliciosa", Tag: new("")}, false},
			{"no tag", models.Plant{ID: 7, Name: "Monstera deliciosa"}, false},
		} {
			err := store.Create(t.Context(), &test.plant)
			exists, ok := errors.AsType[*models.ExistsError](err)
			if !ok || exists.Same != test.same || exists.ID != 7 {
				t.Errorf("%s: got %v, want ExistsError with Same %v", test.again, err, test.same)
			}
		}
		if got := stored(t, db, 7); !got.SameContent(&first) || !got.UpdatedAt.Equal(first.UpdatedAt) {
			t.Errorf("the stored plant has changed to %+v", got)
		}
	})
}

func TestCreateInvalidStoresNothing(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "a\x00b"})
		if _, ok := errors.AsType[*models.InvalidError](err); !ok {
			t.Errorf("got %v, want InvalidError", err)
		}
		var rows int64
		if err := db.Model(&models.Plant{}).Count(&rows).Error; err != nil || rows != 0 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

func TestCreateSameIDConcurrently(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		const attempts = 40
		results := make(chan error, attempts)
		var group sync.WaitGroup
		for range attempts {
			group.Go(func() { results <- store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}) })
		}
		group.Wait()
		close(results)
		created := 0
		for err := range results {
			if err == nil {
				created++
			} else if exists, ok := errors.AsType[*models.ExistsError](err); !ok || !exists.Same {
				t.Errorf("a loser got %v", err)
			}
		}
		if created != 1 {
			t.Errorf("%d attempts created the plant, want 1", created)
		}
	})
}

func TestDatabaseKeepsTheLimitsToo(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *models.PlantStore, db *database.DB) {
		for fault, p := range map[string]models.Plant{
			"an empty name": {ID: 1, Name: ""},
			"a blank name":  {ID: 2, Name: "  "},
			"a long name":   {ID: 3, Name: strings.Repeat("é", 256)},
			"a long tag":    {ID: 4, Name: "x", Tag: new(strings.Repeat("é", 256))},
		} {
			if err := db.WithContext(t.Context()).Create(&p).Error; err == nil {
				t.Errorf("%s was stored", fault)
			}
		}
	})
}

func TestCreateInASCIIDatabase(t *testing.T) {
	// What initdb makes where no locale is set: it stores bytes, and counts them.
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.PostgresWith(t, "ENCODING 'SQL_ASCII'"))
	store := newStore(t, db, 5*time.Second)
	p := models.Plant{ID: 1, Name: strings.Repeat("🌵", 255), Tag: new(strings.Repeat("é", 255))}
	if err := store.Create(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, db, 1); !got.SameContent(&p) {
		t.Errorf("stored %+v", got)
	}
}

// TestCreateTimesOut holds the table so that no row can be written.
func TestCreateTimesOut(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		holder, db := dbtest.Migrated(t, url), dbtest.Migrated(t, url)
		tx := holder.WithContext(t.Context()).Begin()
		defer tx.Rollback()
		if err := tx.Error; err != nil {
			t.Fatal(err)
		}
		if strings.HasPrefix(url, "postgres") {
			if err := tx.Exec("LOCK TABLE plants").Error; err != nil {
				t.Fatal(err)
			}
		}
		store := newStore(t, db, 50*time.Millisecond)
		if err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, models.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}

		// Free again, it works again, on the same store.
		if err := tx.Rollback().Error; err != nil {
			t.Fatal(err)
		}
		patient := newStore(t, db, 5*time.Second)
		if err := patient.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); err != nil {
			t.Error(err)
		}
	})
}

func TestCreateCancelled(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := store.Create(ctx, &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// TestBatchTellsTwinsApart has a batch with the same id many times, and ids that
// are taken already.
func TestBatchTellsTwinsApart(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		if err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "first"}); err != nil {
			t.Fatal(err)
		}
		type outcome struct{ created, same, other int }
		results := make(map[int64]*outcome)
		var mu sync.Mutex
		var group sync.WaitGroup
		for i := range 300 {
			p := models.Plant{ID: int64(i % 3), Name: "first"}
			if i%2 == 1 {
				p.Name = "second"
			}
			group.Go(func() {
				err := store.Create(t.Context(), &p)
				mu.Lock()
				defer mu.Unlock()
				if results[p.ID] == nil {
					results[p.ID] = &outcome{}
				}
				exists, ok := errors.AsType[*models.ExistsError](err)
				switch {
				case err == nil:
					results[p.ID].created++
				case !ok:
					t.Error(err)
				case exists.Same:
					results[p.ID].same++
				default:
					results[p.ID].other++
				}
			})
		}
		group.Wait()
		for id, want := range map[int64]outcome{0: {1, 49, 50}, 1: {0, 50, 50}, 2: {1, 49, 50}} {
			if *results[id] != want {
				t.Errorf("id %d: %+v, want %+v", id, *results[id], want)
			}
		}
		var rows int64
		if err := db.Model(&models.Plant{}).Count(&rows).Error; err != nil || rows != 3 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

// TestPoisonHarmsNoOther: a row that the database alone refuses fails by itself.
func TestPoisonHarmsNoOther(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		poison := "ALTER TABLE plants ADD CONSTRAINT poison CHECK (name <> 'poison')"
		if db.Name() == "sqlite" {
			poison = "CREATE TRIGGER poison BEFORE INSERT ON plants WHEN NEW.name = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END"
		}
		if err := db.Exec(poison).Error; err != nil {
			t.Fatal(err)
		}
		var group sync.WaitGroup
		for id := range int64(100) {
			p := models.Plant{ID: id, Name: "x"}
			if id%10 == 5 {
				p.Name = "poison"
			}
			group.Go(func() {
				err := store.Create(t.Context(), &p)
				if (err != nil) != (p.Name == "poison") || errors.Is(err, models.ErrUnavailable) {
					t.Errorf("%s, id %d: %v", p.Name, id, err)
				}
			})
		}
		group.Wait()
		var rows int64
		if err := db.Model(&models.Plant{}).Count(&rows).Error; err != nil || rows != 90 {
			t.Errorf("%d rows, %v", rows, err)
		}
	})
}

func TestClosedStoreWritesNoMore(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		store.Close()
		if err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, models.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// TestCreateBesideALockedRow: somebody holds on to a row, as a person at a console
// does or an import that goes on for long. The plants that are written with it are
// stored all the same.
func TestCreateBesideALockedRow(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.Postgres(t))
	store := newStore(t, db, 3*time.Second)
	holder := db.WithContext(t.Context()).Begin()
	if err := holder.Exec("INSERT INTO plants VALUES (5, 'held', NULL, now(), now())").Error; err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for id := range int64(20) {
		group.Go(func() {
			err := store.Create(t.Context(), &models.Plant{ID: id, Name: "free"})
			if id == 5 && !errors.Is(err, models.ErrUnavailable) || id != 5 && err != nil {
				t.Errorf("plant %d: %v", id, err)
			}
		})
	}
	group.Wait()
	if err := holder.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	if err := store.Create(t.Context(), &models.Plant{ID: 5, Name: "free"}); err != nil {
		t.Error(err)
	}
}
