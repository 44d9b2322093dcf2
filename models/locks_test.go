package models_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/models"
)

// storeWithHolder returns a store in PostgreSQL whose operations have the time limit
// timeout, and a transaction for another holder of its rows.
func storeWithHolder(t *testing.T, timeout time.Duration) (*models.PlantStore, *gorm.DB) {
	t.Helper()
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	o := dbtest.Options(url)
	o.Timeout = timeout
	db := dbtest.Open(t, o)
	return models.NewPlantStore(db), db.WithContext(t.Context()).Begin()
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
			"INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (?, 'held', NULL, now(), now())",
			func(ctx context.Context, store *models.PlantStore, id int64) error {
				return errorOf(store.Create(ctx, &models.Plant{ID: id, Name: "new"}))
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
			store, holder := storeWithHolder(t, 30*time.Second)
			for id := range lockedIDs {
				if test.stored {
					if _, err := store.Create(t.Context(), &models.Plant{ID: id, Name: "old"}); err != nil {
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

// TestManyLockedRows: a client writes rows that its own import holds, beside another client.
// They are too many, and too scattered, to find each of them in one batch.
func TestManyLockedRows(t *testing.T) {
	t.Parallel()
	const rows = 200
	isLocked := func(id int64) bool { return id%4 == 0 }
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	o := dbtest.Options(url)
	o.Timeout = 30 * time.Second
	db := dbtest.OpenWith(t, o, database.BatchOptions{Flushers: 1, MaxBatch: rows, Queue: 10 * rows}, zaptest.NewLogger(t))
	store := models.NewPlantStore(db)
	if err := db.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT n, 'old', NULL, now(), now() FROM generate_series(0, ?) n", rows-1).Error; err != nil {
		t.Fatal(err)
	}
	holder := db.WithContext(t.Context()).Begin()
	if err := holder.Exec("UPDATE plants SET name = 'held' WHERE id % 4 = 0").Error; err != nil {
		t.Fatal(err)
	}
	put := func(client string, id int64) error {
		_, err := store.Put(limit.WithClient(t.Context(), client), &models.Plant{ID: id, Name: "new"}, models.Condition{})
		return err
	}
	var importer, other sync.WaitGroup
	for id := range int64(rows) {
		if isLocked(id) {
			importer.Go(func() { _ = put("importer", id) }) // most fail: it may have few that wait
			continue
		}
		other.Go(func() {
			if err := put("other", id); err != nil {
				t.Errorf("the free row %d: got %v", id, err)
			}
		})
	}
	other.Wait()
	if err := holder.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	importer.Wait()
}

// TestWaitersOfAClient: a client has a share of the writes that wait for locks. Others have
// theirs.
func TestWaitersOfAClient(t *testing.T) {
	t.Parallel()
	const each, all = 16, 20
	store, holder := storeWithHolder(t, 30*time.Second)
	if err := holder.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT n, 'held', NULL, now(), now() FROM generate_series(1, 100) n").Error; err != nil {
		t.Fatal(err)
	}
	create := func(client string, id int64) error {
		return errorOf(store.Create(limit.WithClient(t.Context(), client), &models.Plant{ID: id, Name: "new"}))
	}
	outcomes := make(chan error, all)
	for id := range int64(all) {
		go func() { outcomes <- create("greedy", id+1) }()
	}
	for range all - each {
		if err := <-outcomes; !errors.Is(err, limit.ErrShare) {
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

// TestSecondWaiterOfARow: the error of those who wait for a row behind another looks like
// that of a locked table.
func TestSecondWaiterOfARow(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	o := dbtest.Options(url)
	o.Timeout = time.Minute
	dbtest.Migrated(t, url)
	one := database.BatchOptions{Flushers: 1, MaxBatch: 16, Queue: 1000}
	store, others := models.NewPlantStore(dbtest.OpenWith(t, o, one, zaptest.NewLogger(t))), dbtest.Open(t, dbtest.Options(url))
	if err := others.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT n, 'old', NULL, now(), now() FROM generate_series(1, 50) n").Error; err != nil {
		t.Fatal(err)
	}
	soon, cancel := context.WithTimeout(t.Context(), 10*time.Second) // not that of the locked row
	defer cancel()
	patch := func(ctx context.Context, client string, id int64) error {
		_, err := store.Patch(limit.WithClient(ctx, client), &models.Plant{ID: id, Name: "new"}, []string{"name"}, models.Condition{})
		return err
	}
	const lock = "UPDATE plants SET name = 'held' WHERE id = 1"
	holder, first := others.Begin(), others.Begin()
	if err := errors.Join(holder.Exec(lock).Error, first.Exec("SET LOCAL lock_timeout = 0").Error); err != nil {
		t.Fatal(err)
	}
	waits, second := make(chan error, 1), make(chan error, 1)
	go func() { waits <- errors.Join(first.Exec(lock).Error, first.Rollback().Error) }()
	for waiting := 0; waiting == 0; time.Sleep(5 * time.Millisecond) {
		if err := others.Raw("SELECT count(*) FROM pg_locks WHERE locktype = 'tuple' AND granted").Scan(&waiting).Error; err != nil {
			t.Fatal(err)
		}
	}
	go func() { second <- patch(t.Context(), "second", 1) }()
	for id := range int64(50) {
		if err := patch(soon, "other", max(id, 2)); err != nil {
			t.Errorf("free row %d: got %v", id, err)
		}
	}
	if err := holder.Rollback().Error; err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(<-waits, <-second); err != nil {
		t.Error(err)
	}
}

func TestLockedRowsFailAtLast(t *testing.T) {
	store, holder := storeWithHolder(t, 5*time.Second) // a sixth is left for the last attempt, also on a busy machine
	defer holder.Rollback()
	if err := holder.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (5, 'held', NULL, now(), now())").Error; err != nil {
		t.Fatal(err)
	}
	for name, write := range map[string]func() error{
		"POST": func() error { return errorOf(store.Create(t.Context(), &models.Plant{ID: 5, Name: "new"})) },
		"PUT": func() error {
			_, err := store.Put(t.Context(), &models.Plant{ID: 5, Name: "new"}, models.Condition{})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			outcomes := make(chan error)
			for range 3 { // which take turns
				go func() { outcomes <- write() }()
			}
			for range 3 {
				if err := <-outcomes; !fault.IsLocked(err) {
					t.Errorf("got %v, want the error of a locked row", err)
				}
			}
		})
	}
}

// TestListsOfAClient: the lists of a client that asks for many, which take long, do not keep
// others from theirs.
func TestListsOfAClient(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	dbtest.Migrated(t, url)
	dbtest.Exec(t, url, `
		ALTER TABLE plants RENAME TO stored;
		CREATE VIEW plants AS SELECT stored.* FROM (SELECT pg_sleep(0.1)) AS slow, stored;
		INSERT INTO stored VALUES (1, 'x', NULL, now(), now())`)
	store := models.NewPlantStore(dbtest.Open(t, dbtest.Options(url)))
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			for ctx.Err() == nil {
				_, err := store.List(limit.WithClient(ctx, "greedy"), models.Filter[int64]{Limit: 1})
				if err != nil && !errors.Is(err, limit.ErrBusy) && ctx.Err() == nil {
					t.Error(err)
				}
			}
		})
	}
	rejected, begin := 0, time.Now()
	for range 20 {
		if _, err := store.List(limit.WithClient(t.Context(), "other"), models.Filter[int64]{Limit: 1}); err != nil {
			rejected++
		}
	}
	took := time.Since(begin) // of 20 lists of 0.1 s each
	cancel()
	group.Wait()
	if rejected > 0 || took > 8*time.Second {
		t.Errorf("%d of 20 lists of another client were rejected, and the others took %v", rejected, took)
	}
}
