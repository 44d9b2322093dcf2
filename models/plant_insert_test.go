package models

import (
	"errors"
	"slices"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// TestInsertedRowsStayInserted: the role may not read the rows of keys that are taken, so
// that the outcome of one row is unknown. The others are stored, and succeed.
func TestInsertedRowsStayInserted(t *testing.T) {
	t.Parallel()
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	dbtest.Exec(t, owner, "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (2, 'before', NULL, now(), now())")
	_, as := dbtest.AsRole(t, owner, "GRANT INSERT, SELECT (id) ON plants TO NAME") // enough for ON CONFLICT and RETURNING

	store := NewPlantStore(dbtest.Open(t, dbtest.Options(as)))
	outcomes, stored := insert(t, store, Plant{ID: 1, Name: "new"}, Plant{ID: 2, Name: "taken"}, Plant{ID: 1, Name: "new"}, Plant{ID: 3, Name: "new"})
	if err := errors.Join(outcomes...); err != nil {
		t.Fatal(err)
	}
	if want := []bool{true, false, false, true}; !slices.Equal(stored, want) {
		t.Errorf("got %t, want %t", stored, want)
	}
	_, err := store.Create(t.Context(), &Plant{ID: 2, Name: "taken"})
	if _, known := errors.AsType[*ExistsError](err); known || err == nil {
		t.Errorf("a plant that cannot be read: got %v, want an error other than ExistsError", err)
	}
}

// insert inserts plants in a batch. It returns the outcome of each, and whether it was stored.
func insert(t *testing.T, store *PlantStore, plants ...Plant) (outcomes []error, stored []bool) {
	t.Helper()
	changes := make([]*table.Change, len(plants))
	for i := range plants {
		changes[i] = &table.Change{Statement: store.table.Insert, Row: valueOf(&plants[i])}
	}
	outcomes = store.changeBatch(t.Context(), changes)
	for _, c := range changes {
		stored = append(stored, c.Stored.IsValid())
	}
	return outcomes, stored
}

// TestRepeatedBatches: a batch stores the rows whose keys are free, and the first of the rows with the same key.
func TestRepeatedBatches(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		store := NewPlantStore(dbtest.Migrated(t, url))
		repeated := []Plant{{ID: 1, Name: "one"}, {ID: 2, Name: "two"}, {ID: 4, Name: "four"}}
		for _, test := range []struct {
			name  string
			batch []Plant
			want  []bool
		}{
			{"new", repeated, []bool{true, true, true}},
			{"repeated", repeated, []bool{false, false, false}},
			{
				"some are new",
				[]Plant{{ID: 2, Name: "other"}, {ID: 3, Name: "three"}, {ID: 3, Name: "other"}, {ID: 1, Name: "one"}},
				[]bool{false, true, false, false},
			},
			{"new again", []Plant{{ID: 6, Name: "six"}, {ID: 5, Name: "five"}}, []bool{true, true}},
			{"new, in plain INSERTs", []Plant{{ID: 8, Name: "eight"}, {ID: 7, Name: "seven"}}, []bool{true, true}},
			{"the same id", []Plant{{ID: 9, Name: "a"}, {ID: 9, Name: "b"}, {ID: 9, Name: "a"}}, []bool{true, false, false}},
		} {
			t.Run(test.name, func(t *testing.T) {
				outcomes, stored := insert(t, store, slices.Clone(test.batch)...)
				if err := errors.Join(outcomes...); err != nil || !slices.Equal(stored, test.want) {
					t.Errorf("got %t and %v, want %t", stored, err, test.want)
				}
			})
		}
		if three, err := store.Get(t.Context(), 3); err != nil || three.Name != "three" {
			t.Errorf("got %+v and %v, want the first plant with the id", three, err)
		}
	})
}

// TestRepeatedRequests: after a taken key, Create reads first, without a write, which the last requests prove: the table
// allows none.
func TestRepeatedRequests(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := NewPlantStore(db)
		create := func() error {
			_, err := store.Create(t.Context(), &Plant{ID: 1, Name: "one"})
			return err
		}
		if err := create(); err != nil {
			t.Fatal(err)
		}
		_ = create()
		lock := "LOCK TABLE plants IN EXCLUSIVE MODE"
		if db.Dialect.Facts().System == "sqlite" {
			lock = "UPDATE plants SET name = name"
		}
		writer := dbtest.Open(t, dbtest.Options(url)).Begin()
		defer writer.Rollback()
		if err := writer.Exec(lock).Error; err != nil {
			t.Fatal(err)
		}
		for range 3 {
			err := create()
			if exists, ok := errors.AsType[*ExistsError](err); !ok || !exists.Same {
				t.Errorf("got %v, want that it exists with the same content", err)
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
		if db.Dialect.Facts().System == "sqlite" { // which cannot add a CHECK
			statement = "CREATE TRIGGER no_poison BEFORE INSERT ON plants WHEN NEW.name = 'poison' BEGIN SELECT RAISE(ABORT, 'no poison'); END"
		}
		if err := db.Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
		outcomes, stored := insert(t, NewPlantStore(db),
			Plant{ID: 1, Name: "poison"}, Plant{ID: 1, Name: "good"}, Plant{ID: 1, Name: "good"}, Plant{ID: 2, Name: "other"})
		if outcomes[0] == nil {
			t.Error("the row that breaks the CHECK was stored")
		}
		if err := errors.Join(outcomes[1:]...); err != nil {
			t.Error(err)
		}
		if want := []bool{false, true, false, true}; !slices.Equal(stored, want) {
			t.Errorf("got %t, want %t", stored, want)
		}
	})
}

// TestRejectedRowRepeatsNothing: a row of a batch breaks a CHECK, so the other rows are stored in several statements.
// PostgreSQL ends their transaction in favor of another, after it has written the first row. Another attempt stores that row
// once.
func TestRejectedRowRepeatsNothing(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	dbtest.Exec(t, url, `ALTER TABLE plants ADD CONSTRAINT no_poison CHECK (name <> 'poison');
		CREATE SEQUENCE attempts;
		CREATE FUNCTION deadlock() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('attempts') = 1 THEN RAISE SQLSTATE '40P01'; END IF; RETURN NEW; END $$;
		CREATE TRIGGER deadlock BEFORE INSERT ON plants FOR EACH ROW WHEN (NEW.name = 'late') EXECUTE FUNCTION deadlock()`)
	outcomes, stored := insert(t, NewPlantStore(db), Plant{ID: 1, Name: "good"}, Plant{ID: 2, Name: "poison"}, Plant{ID: 3, Name: "late"})
	if want := []bool{true, false, true}; !slices.Equal(stored, want) || outcomes[0] != nil || outcomes[2] != nil {
		t.Errorf("got %t, %v, want %t", stored, outcomes, want)
	}
	if !fault.IsRowRejected(outcomes[1]) {
		t.Errorf("got %v, want that row 2 is rejected", outcomes[1])
	}
	var attempts int
	if err := db.Raw("SELECT nextval('attempts')").Scan(&attempts).Error; err != nil || attempts != 3 {
		t.Errorf("got %d, %v, want that row 3 was tried twice", attempts-1, err)
	}
}
