package models

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"plantstore/database/dbtest"
	"plantstore/database/fault"
)

// TestUnknownCommit: the database does not know whether it has committed a batch, so the
// rows tell.
func TestUnknownCommit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := NewPlantStore(db)
		stored := &Plant{ID: 1, Name: "stored"}
		other := &Plant{ID: 2, Name: "of another client"}
		if err := store.insert(t.Context(), db, []*Plant{stored, other}, make([]error, 2), areFree); err != nil {
			t.Fatal(err)
		}
		late := stored.CreatedAt.Add(time.Second)
		batch := []*Plant{
			stored,
			{ID: 1, Name: "stored", CreatedAt: stored.CreatedAt, UpdatedAt: stored.UpdatedAt},
			{ID: 2, Name: "of another client", CreatedAt: late, UpdatedAt: late},
			{ID: 2, Name: "different", CreatedAt: late, UpdatedAt: late},
			{ID: 3, Name: "not there", CreatedAt: late, UpdatedAt: late},
		}
		outcomes := make([]error, len(batch))
		unknown := &pgconn.PgError{Code: "40003"}
		if err := store.findOut(t.Context(), db, batch, outcomes, unknown); err != nil {
			t.Fatal(err)
		}
		for i, test := range []struct {
			name string
			ok   func(error) bool
		}{
			{"a row of the batch", func(err error) bool { return err == nil }},
			{"the same row again", exists(true)},
			{"a row that was there before", exists(true)},
			{"another row with its key", exists(false)},
			{"a row that is not there", func(err error) bool {
				return fault.IsUnknown(err) && errors.Is(fault.In("insert plant", err), fault.ErrUnavailable)
			}},
		} {
			t.Run(test.name, func(t *testing.T) {
				if !test.ok(outcomes[i]) {
					t.Errorf("got %v", outcomes[i])
				}
			})
		}
	})
}

// TestUnknownCommitOfACreate: the row was stored by the attempt whose outcome is unknown.
func TestUnknownCommitOfACreate(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	store := NewPlantStore(dbtest.Migrated(t, url))
	create := func() error {
		_, err := store.Create(t.Context(), &Plant{ID: 1, Name: "x"})
		return err
	}
	if err := create(); err != nil {
		t.Fatal(err)
	}
	dbtest.Exec(t, url, "CREATE FUNCTION unknown() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'unknown' USING ERRCODE = '40003'; END $$")
	dbtest.Exec(t, url, "CREATE TRIGGER unknown BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION unknown()")
	if err := create(); !exists(true)(err) {
		t.Errorf("got %v, want that it exists with the same content", err)
	}
}

func exists(same bool) func(error) bool {
	return func(err error) bool {
		e, ok := errors.AsType[*ExistsError](err)
		return ok && e.Same == same
	}
}
