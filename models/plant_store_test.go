package models_test

import (
	"context"
	"errors"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
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

func TestTablesHaveTheLimitsToo(t *testing.T) {
	eachStore(t, func(t *testing.T, _ *models.PlantStore, db *database.DB) {
		for _, test := range []struct {
			name  string
			plant models.Plant
			check string
		}{
			{"an empty name", models.Plant{ID: 1, Name: ""}, "plants_name_length"},
			{"a blank name", models.Plant{ID: 2, Name: "  "}, "plants_name_not_blank"},
			{"a long name", models.Plant{ID: 3, Name: strings.Repeat("é", 256)}, "plants_name_length"},
			{"a long tag", models.Plant{ID: 4, Name: "x", Tag: new(strings.Repeat("é", 256))}, "plants_tag_length"},
		} {
			t.Run(test.name+" is rejected", func(t *testing.T) {
				err := fault.In("insert", db.WithContext(t.Context()).Create(&test.plant).Error)
				broken, ok := errors.AsType[*fault.CheckError](err)
				if !ok || broken.Constraint != test.check {
					t.Errorf("got %v, want the CHECK %s", err, test.check)
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
	if _, err := models.NewPlantStore(db).Create(t.Context(), &p); err != nil {
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
		o.Timeout = 2 * time.Second
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
		create := func() error {
			_, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"})
			return err
		}
		err := create()
		for attempts := 0; errors.Is(err, fault.ErrTimeout) && attempts < 10; attempts++ { // a busy machine may not respond in time
			err = create()
		}
		if !fault.NothingStored(err) {
			t.Errorf("got %v, want that nothing was stored", err)
		}
		if err := tx.Rollback().Error; err != nil {
			t.Fatal(err)
		}
		// The same store works again. On a slow machine it may need more than one attempt.
		for attempts := 0; (fault.NothingStored(err) || errors.Is(err, fault.ErrUnavailable)) && attempts < 100; attempts++ {
			err = create()
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
		if _, err := store.Create(ctx, &models.Plant{ID: 1, Name: "x"}); !errors.Is(err, context.Canceled) {
			t.Errorf("got %v, want context.Canceled", err)
		}
	})
}

// TestBatchWithRepeatedIDs has a batch with the same id many times, and ids that are
// taken already.
func TestBatchWithRepeatedIDs(t *testing.T) {
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		if _, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "first"}); err != nil {
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
				_, err := store.Create(t.Context(), &p)
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

// TestRejectedRowHarmsNoOther: a row that only the database rejects, by what an operator may have
// added, fails alone.
func TestRejectedRowHarmsNoOther(t *testing.T) {
	t.Parallel()
	trigger := func(body string) string {
		return "CREATE FUNCTION poison() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " + body + `; END $$;
			CREATE TRIGGER poison BEFORE INSERT ON plants FOR EACH ROW WHEN (NEW.name = 'poison') EXECUTE FUNCTION poison()`
	}
	for _, test := range []struct {
		name   string
		url    func(testing.TB) string
		poison string
	}{
		{"SQLite, a trigger", dbtest.SQLite, "CREATE TRIGGER poison BEFORE INSERT ON plants WHEN NEW.name = 'poison' BEGIN SELECT RAISE(ABORT, 'poison'); END"},
		{"SQLite, a trigger that ignores it", dbtest.SQLite, "CREATE TRIGGER poison BEFORE INSERT ON plants WHEN NEW.name = 'poison' BEGIN SELECT RAISE(IGNORE); END"},
		{"PostgreSQL, a CHECK", dbtest.Postgres, "ALTER TABLE plants ADD CONSTRAINT poison CHECK (name <> 'poison')"},
		{"PostgreSQL, a trigger", dbtest.Postgres, trigger("RAISE 'poison'")},
		{"PostgreSQL, a value too large for an index", dbtest.Postgres, `
			CREATE FUNCTION long() RETURNS text IMMUTABLE LANGUAGE sql AS $$ SELECT string_agg(md5(i::text), '') FROM generate_series(1, 400) i $$;
			CREATE INDEX poison ON plants ((CASE WHEN name = 'poison' THEN long() END))`},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := test.url(t)
			owner := dbtest.Migrated(t, url)
			if err := owner.Exec(test.poison).Error; err != nil {
				t.Fatal(err)
			}
			if owner.Dialector.Name() != "sqlite" {
				_, url = dbtest.AsRole(t, url, "GRANT SELECT, INSERT ON plants TO NAME")
			}
			db := dbtest.Open(t, dbtest.Options(url))
			testPoison(t, models.NewPlantStore(db), db)
		})
	}
}

// TestHiddenRow: the row that has the key of a new one is hidden from the role of the service.
func TestHiddenRow(t *testing.T) {
	t.Parallel()
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	dbtest.Exec(t, owner, `INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (1, 'x', 'hidden', now(), now());
		ALTER TABLE plants ENABLE ROW LEVEL SECURITY; CREATE POLICY hidden ON plants USING (tag IS DISTINCT FROM 'hidden') WITH CHECK (true)`)
	_, as := dbtest.AsRole(t, owner, "GRANT SELECT, INSERT ON plants TO NAME")
	db := dbtest.Open(t, dbtest.Options(as))
	if _, err := models.NewPlantStore(db).Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); err == nil || errors.Is(err, fault.ErrUnavailable) {
		t.Errorf("got %v, want an error that is no outage", err)
	}
	countPlants(t, db, 0)
}

// testPoison fails the test unless the database rejects plants with the name poison, and no others.
func testPoison(t *testing.T, store *models.PlantStore, db *database.DB) {
	t.Helper()
	var group sync.WaitGroup
	for id := range int64(100) {
		p := models.Plant{ID: id, Name: "x"}
		if id%10 == 5 {
			p.Name = "poison"
		}
		group.Go(func() {
			_, err := store.Create(t.Context(), &p)
			if (err != nil) != (p.Name == "poison") || errors.Is(err, fault.ErrUnavailable) {
				t.Errorf("%s, id %d: %v", p.Name, id, err)
			}
		})
	}
	group.Wait()
	countPlants(t, db, 90)
}
