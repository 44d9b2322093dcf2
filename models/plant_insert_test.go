package models

import (
	"errors"
	"testing"

	"plantstore/database/dbtest"
)

// TestInsertedRowsStayInserted: the role may not read the rows of keys that are taken, so
// that the outcome of one row is unknown. The others are stored, and succeed.
func TestInsertedRowsStayInserted(t *testing.T) {
	t.Parallel()
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	dbtest.Exec(t, owner, "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (2, 'before', NULL, now(), now())")
	_, as := dbtest.AsRole(t, owner, "GRANT INSERT, SELECT (id) ON plants TO NAME") // enough for ON CONFLICT and RETURNING

	batch := []*Plant{{ID: 1, Name: "new"}, {ID: 2, Name: "taken"}, {ID: 1, Name: "new"}, {ID: 3, Name: "new, too"}}
	db := dbtest.Open(t, dbtest.Options(as))
	outcomes := NewPlantStore(db).insert(t.Context(), db, batch, areFree)
	if outcomes[0] != nil || outcomes[3] != nil {
		t.Errorf("new plants: got %v, %v", outcomes[0], outcomes[3])
	}
	if _, known := errors.AsType[*ExistsError](outcomes[1]); known || outcomes[1] == nil {
		t.Errorf("a plant that cannot be read: got %v, want an error other than ExistsError", outcomes[1])
	}
	if exists, ok := errors.AsType[*ExistsError](outcomes[2]); !ok || !exists.Same {
		t.Errorf("a repeated plant: got %v, want ExistsError with Same", outcomes[2])
	}
}

// TestRepeatedBatches: after a batch of taken keys, the store looks for them first, without
// a write, which the last batch proves: the table allows none.
func TestRepeatedBatches(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := NewPlantStore(db)
		isNil := func(err error) bool { return err == nil }
		repeated := []*Plant{{ID: 1, Name: "one"}, {ID: 2, Name: "two"}, {ID: 4, Name: "four"}}
		for _, test := range []struct {
			name  string
			batch []*Plant
			ok    []func(error) bool
		}{
			{"new", repeated, []func(error) bool{isNil, isNil, isNil}},
			{"repeated", repeated, []func(error) bool{exists(true), exists(true), exists(true)}},
			{
				"some are new",
				[]*Plant{{ID: 2, Name: "other"}, {ID: 3, Name: "three"}, {ID: 3, Name: "other"}, {ID: 1, Name: "one"}},
				[]func(error) bool{exists(false), isNil, exists(false), exists(true)},
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				outcomes := store.insertBatch(t.Context(), test.batch)
				for i, ok := range test.ok {
					if !ok(outcomes[i]) {
						t.Errorf("%+v: got %v", *test.batch[i], outcomes[i])
					}
				}
			})
		}
		lock := "LOCK TABLE plants IN EXCLUSIVE MODE"
		if db.Dialect().Facts().System == "sqlite" {
			lock = "UPDATE plants SET name = name"
		}
		writer := dbtest.Open(t, dbtest.Options(url)).Begin()
		defer writer.Rollback()
		if err := writer.Exec(lock).Error; err != nil {
			t.Fatal(err)
		}
		for i, err := range store.insertBatch(t.Context(), repeated) {
			if !exists(true)(err) {
				t.Errorf("%+v: got %v", *repeated[i], err)
			}
		}
	})
}

// TestRejectedRowIsAlone: two rows of a batch have the same key, and the first one breaks a CHECK.
// The other one does not, and is stored.
func TestRejectedRowIsAlone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		statement := "ALTER TABLE plants ADD CONSTRAINT no_poison CHECK (name <> 'poison')"
		if db.Dialect().Facts().System == "sqlite" { // which cannot add a CHECK
			statement = "CREATE TRIGGER no_poison BEFORE INSERT ON plants WHEN NEW.name = 'poison' BEGIN SELECT RAISE(ABORT, 'no poison'); END"
		}
		if err := db.Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
		batch := []*Plant{{ID: 1, Name: "poison"}, {ID: 1, Name: "good"}, {ID: 1, Name: "good"}, {ID: 2, Name: "other"}}
		outcomes := NewPlantStore(db).insertBatch(t.Context(), batch)
		if outcomes[0] == nil {
			t.Error("the row that breaks the CHECK was stored")
		}
		if outcomes[1] != nil || outcomes[3] != nil {
			t.Errorf("got %v, %v, want that the other rows were stored", outcomes[1], outcomes[3])
		}
		if !exists(true)(outcomes[2]) {
			t.Errorf("got %v, want that it exists with the same content", outcomes[2])
		}
	})
}

func exists(same bool) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*ExistsError](err)
		return ok && e.Same == same
	}
}
