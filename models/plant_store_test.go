package models_test

import (
	"context"
	"errors"
	"math"
	"reflect"
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
		test(t, models.NewPlantStore(db), db)
	})
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

// content returns a plant without its timestamps, for reflect.DeepEqual.
func content(p models.Plant) models.Plant {
	p.CreatedAt, p.UpdatedAt = time.Time{}, time.Time{}
	return p
}

// countPlants fails the test unless db has want plants.
func countPlants(t *testing.T, db *database.DB, want int64) {
	t.Helper()
	var got int64
	if err := db.Model(&models.Plant{}).Count(&got).Error; err != nil || got != want {
		t.Errorf("got %d rows, %v, want %d", got, err, want)
	}
}

func TestCreateStoresExactly(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		for name, p := range map[string]models.Plant{
			"zero is an id":                {ID: 0, Name: "zero"},
			"an empty tag":                 {ID: -1, Name: "minus one", Tag: new("")},
			"an id beyond float64":         {ID: 9007199254740993, Name: "x", Tag: new("tag")},
			"the greatest id":              {ID: math.MaxInt64, Name: " spaces stay "},
			"the least id, not normalized": {ID: math.MinInt64, Name: "e\u0301 and \u00e9 are not the same", Tag: new(" ")},
			"the longest texts":            {ID: 1, Name: strings.Repeat("🌵", 255), Tag: new(strings.Repeat("🌵", 255))},
			"special characters of SQL":    {ID: 2, Name: `'; DROP TABLE plants; -- "`, Tag: new(`\ % _ $1 ? @name`)},
			"characters without width":     {ID: 3, Name: "\u200b\ufeff\U0010ffff"},
		} {
			t.Run(name, func(t *testing.T) {
				sent := p
				if err := store.Create(t.Context(), &p); err != nil {
					t.Fatal(err)
				}
				got := stored(t, db, p.ID)
				if !reflect.DeepEqual(content(got), sent) {
					t.Errorf("got %q, %v, want %q, %v", got.Name, got.Tag, sent.Name, sent.Tag)
				}
				if !got.CreatedAt.Equal(p.CreatedAt) || !got.UpdatedAt.Equal(p.UpdatedAt) {
					t.Errorf("stored at %v, %v, returned %v, %v", got.CreatedAt, got.UpdatedAt, p.CreatedAt, p.UpdatedAt)
				}
				if age := time.Since(p.CreatedAt); age < -time.Second || age > time.Minute || p.CreatedAt.Location() != time.UTC {
					t.Errorf("created at %v", p.CreatedAt)
				}
			})
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
			name  string
			plant models.Plant
			same  bool
		}{
			{"the same content", models.Plant{ID: 7, Name: "Monstera deliciosa", Tag: new("houseplant")}, true},
			{"another name", models.Plant{ID: 7, Name: "monstera deliciosa", Tag: new("houseplant")}, false},
			{"another tag", models.Plant{ID: 7, Name: "Monstera deliciosa", Tag: new("")}, false},
			{"no tag", models.Plant{ID: 7, Name: "Monstera deliciosa"}, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				err := store.Create(t.Context(), &test.plant)
				want := models.ExistsError{Noun: "plant", Key: int64(7), Same: test.same}
				if exists, ok := errors.AsType[*models.ExistsError](err); !ok || *exists != want {
					t.Errorf("got %v, want %v", err, &want)
				}
			})
		}
		if got := stored(t, db, 7); !reflect.DeepEqual(content(got), content(first)) || !got.UpdatedAt.Equal(first.UpdatedAt) {
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
		countPlants(t, db, 0)
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
				t.Errorf("got %v, want nil or ExistsError with Same", err)
			}
		}
		if created != 1 {
			t.Errorf("%d attempts created the plant, want 1", created)
		}
	})
}

func TestTablesHaveTheLimitsToo(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *models.PlantStore, db *database.DB) {
		for name, p := range map[string]models.Plant{
			"an empty name": {ID: 1, Name: ""},
			"a blank name":  {ID: 2, Name: "  "},
			"a long name":   {ID: 3, Name: strings.Repeat("é", 256)},
			"a long tag":    {ID: 4, Name: "x", Tag: new(strings.Repeat("é", 256))},
		} {
			t.Run(name+" is rejected", func(t *testing.T) {
				if err := db.WithContext(t.Context()).Create(&p).Error; err == nil {
					t.Error("it was stored")
				}
			})
		}
	})
}

// TestCreateInASCIIDatabase: initdb creates such a database if no locale is set. It
// stores bytes, and counts them.
func TestCreateInASCIIDatabase(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.PostgresWith(t, "ENCODING 'SQL_ASCII'"))
	p := models.Plant{ID: 1, Name: strings.Repeat("🌵", 255), Tag: new(strings.Repeat("é", 255))}
	if err := models.NewPlantStore(db).Create(t.Context(), &p); err != nil {
		t.Fatal(err)
	}
	if got := stored(t, db, 1); !reflect.DeepEqual(content(got), content(p)) {
		t.Errorf("got %+v, want %+v", got, p)
	}
}

// TestCreateTimesOut locks the table so that no row can be written.
func TestCreateTimesOut(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		holder := dbtest.Migrated(t, url)
		o := dbtest.Options(url)
		o.Timeout = 600 * time.Millisecond
		store := models.NewPlantStore(dbtest.Open(t, o))
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
		if err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, database.ErrOverloaded) {
			t.Errorf("got %v, want ErrOverloaded", err)
		}
		if err := tx.Rollback().Error; err != nil {
			t.Fatal(err)
		}
		// The same store works again. On a slow machine it may need more than one attempt.
		err := database.ErrOverloaded
		for attempts := 0; (errors.Is(err, database.ErrOverloaded) || errors.Is(err, database.ErrUnavailable)) && attempts < 100; attempts++ {
			err = store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"})
		}
		if exists, ok := errors.AsType[*models.ExistsError](err); err != nil && (!ok || !exists.Same) {
			t.Errorf("after the lock was released: got %v", err)
		}
	})
}

func TestCreateEndsWithItsContext(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, _ *database.DB) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := store.Create(ctx, &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// TestBatchWithRepeatedIDs has a batch with the same id many times, and ids that are
// taken already.
func TestBatchWithRepeatedIDs(t *testing.T) {
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
				t.Errorf("id %d: got %+v, want %+v", id, *results[id], want)
			}
		}
		countPlants(t, db, 3)
	})
}

// TestRejectedRowHarmsNoOther: a row that only the database rejects fails alone.
func TestRejectedRowHarmsNoOther(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		poison := "ALTER TABLE plants ADD CONSTRAINT poison CHECK (name <> 'poison')"
		if db.Dialector.Name() == "sqlite" {
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
				if (err != nil) != (p.Name == "poison") || errors.Is(err, database.ErrUnavailable) {
					t.Errorf("%s, id %d: %v", p.Name, id, err)
				}
			})
		}
		group.Wait()
		countPlants(t, db, 90)
	})
}

func TestCreateFailsAfterClose(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		if err := db.Close(); err != nil {
			t.Fatal(err)
		}
		if err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, database.ErrUnavailable) {
			t.Errorf("got %v, want ErrUnavailable", err)
		}
	})
}

// TestLockedRows: another transaction has locked rows, as an import or a person at a console
// does. Writes of other rows do not notice.
func TestLockedRows(t *testing.T) {
	const locked = 6
	lockedIDs := func(yield func(int64) bool) {
		for id := range int64(locked) {
			if !yield(3 * id) {
				return
			}
		}
	}
	for _, test := range []struct {
		name   string
		stored bool   // the rows exist
		lock   string // locks the row
		write  func(ctx context.Context, store *models.PlantStore, id int64) error
	}{
		{
			"inserted and not committed", false,
			"INSERT INTO plants VALUES (?, 'held', NULL, now(), now())",
			func(ctx context.Context, store *models.PlantStore, id int64) error {
				return store.Create(ctx, &models.Plant{ID: id, Name: "new"})
			},
		},
		{
			"updated and not committed", true,
			"UPDATE plants SET name = 'held' WHERE id = ?",
			func(ctx context.Context, store *models.PlantStore, id int64) error {
				_, err := store.Put(ctx, &models.Plant{ID: id, Name: "new"}, models.Condition{})
				return err
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Postgres(t)
			dbtest.Migrated(t, url)
			o := dbtest.Options(url)
			o.Timeout = 30 * time.Second
			db := dbtest.Open(t, o)
			store := models.NewPlantStore(db)
			holder := db.WithContext(t.Context()).Begin()
			for id := range lockedIDs {
				if test.stored {
					if err := store.Create(t.Context(), &models.Plant{ID: id, Name: "old"}); err != nil {
						t.Fatal(err)
					}
				}
				if err := holder.Exec(test.lock, id).Error; err != nil {
					t.Fatal(err)
				}
			}
			waiting := make(chan error, locked)
			for id := range lockedIDs {
				go func() { waiting <- test.write(t.Context(), store, id) }()
			}
			var group sync.WaitGroup
			for id := range int64(100) {
				if id%3 != 0 || id/3 >= locked {
					group.Go(func() {
						if err := test.write(t.Context(), store, id); err != nil {
							t.Errorf("free row %d: got %v", id, err)
						}
						if _, err := store.Get(t.Context(), id); err != nil {
							t.Errorf("reading row %d: got %v", id, err)
						}
					})
				}
			}
			group.Wait()
			if len(waiting) > 0 {
				t.Errorf("a locked row: got %v while it is locked", <-waiting)
			}
			if err := holder.Rollback().Error; err != nil {
				t.Fatal(err)
			}
			for range locked {
				if err := <-waiting; err != nil {
					t.Errorf("a row that is free again: got %v", err)
				}
			}
		})
	}
}

// TestWaitersOfAClient: a client has a share of the writes that wait for locks. Others have
// theirs.
func TestWaitersOfAClient(t *testing.T) {
	t.Parallel()
	const each, all = 16, 20
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	o := dbtest.Options(url)
	o.Timeout = 30 * time.Second
	db := dbtest.Open(t, o)
	store := models.NewPlantStore(db)
	holder := db.WithContext(t.Context()).Begin()
	if err := holder.Exec("INSERT INTO plants SELECT n, 'held', NULL, now(), now() FROM generate_series(1, 100) n").Error; err != nil {
		t.Fatal(err)
	}
	create := func(client string, id int64) error {
		return store.Create(database.WithClient(t.Context(), client), &models.Plant{ID: id, Name: "new"})
	}
	outcomes := make(chan error, all)
	for id := range int64(all) {
		go func() { outcomes <- create("greedy", id+1) }()
	}
	for range all - each {
		if err := <-outcomes; !errors.Is(err, database.ErrShare) {
			t.Errorf("got %v, want ErrShare", err)
		}
	}
	other := make(chan error, 1)
	go func() { other <- create("other", 50) }()
	if err := create("other", 1000); err != nil {
		t.Errorf("a free row: got %v", err)
	}
	if err := holder.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	for range each {
		if err := <-outcomes; err != nil {
			t.Errorf("a row that is free again: got %v", err)
		}
	}
	if err := <-other; err != nil {
		t.Errorf("another client: got %v", err)
	}
}

func TestLockedRowsFailAtLast(t *testing.T) {
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	o := dbtest.Options(url)
	o.Timeout = 300 * time.Millisecond
	db := dbtest.Open(t, o)
	store := models.NewPlantStore(db)
	holder := db.WithContext(t.Context()).Begin()
	defer holder.Rollback()
	if err := holder.Exec("INSERT INTO plants VALUES (5, 'held', NULL, now(), now())").Error; err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"POST": func() error { return store.Create(t.Context(), &models.Plant{ID: 5, Name: "new"}) },
		"PUT": func() error {
			_, err := store.Put(t.Context(), &models.Plant{ID: 5, Name: "new"}, models.Condition{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			if err := write(); !errors.Is(err, database.ErrOverloaded) {
				t.Errorf("got %v, want ErrOverloaded", err)
			}
		})
	}
}
