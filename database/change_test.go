package database_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// mistyped is a table of goose's with another type than it has.
type mistyped struct {
	Version int64 `gorm:"primaryKey;autoIncrement:false"`
	Text    int64 `gorm:"column:text"`
}

func (mistyped) TableName() string { return "mistyped" }

// TestRunReportsWhatItCannotScan: such as after a column got another type. In some of pgx's modes,
// the end of a batch does not.
func TestRunReportsWhatItCannotScan(t *testing.T) {
	t.Run("exec", func(t *testing.T) {
		t.Parallel()
		testUnreadable(t, dbtest.Postgres(t)+"&default_query_exec_mode=exec")
	})
	dbtest.Each(t, testUnreadable)
}

func testUnreadable(t *testing.T, url string) {
	t.Helper()
	db := dbtest.Migrated(t, url)
	for _, statement := range []string{"CREATE TABLE mistyped (version bigint, text text)", "INSERT INTO mistyped VALUES (1, 'text')"} {
		if err := db.WithContext(t.Context()).Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
	update := &table.Statement{Table: table.Of[mistyped](), Write: "UPDATE mistyped SET version = @version", Returns: 2}
	change := func(version int64) *table.Change {
		return &table.Change{Statement: update, Row: reflect.ValueOf(&mistyped{Version: version}).Elem()}
	}
	for name, changes := range map[string][]*table.Change{"one": {change(1)}, "more": {change(1), change(2)}} {
		t.Run(name, func(t *testing.T) {
			if err := db.Run(t.Context(), changes, time.Now()); err == nil && changes[0].Err == nil {
				t.Error("got no error for a text in an int64")
			}
		})
	}
}

// TestVersionsInABatch: a row that is created, deleted and created again in one batch has
// another version than before.
func TestVersionsInABatch(t *testing.T) {
	type pot struct {
		Code                 string `gorm:"primaryKey"`
		CreatedAt, UpdatedAt time.Time
	}
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		create := "CREATE TABLE pots (code text PRIMARY KEY, created_at timestamp, updated_at timestamp)"
		if err := db.WithContext(t.Context()).Exec(create).Error; err != nil {
			t.Fatal(err)
		}
		pots := table.Of[pot]()
		insert := &table.Statement{Table: pots, Write: pots.Insert.Write, Conflict: " ON CONFLICT (code) DO NOTHING", Returns: len(pots.Columns)}
		change := func(s *table.Statement, code string) *table.Change {
			return &table.Change{Statement: s, Row: reflect.ValueOf(&pot{Code: code}).Elem()}
		}
		first, second, other := change(insert, "a"), change(insert, "a"), change(insert, "b")
		remove := change(&table.Statement{Table: pots, Write: "DELETE FROM pots", Returns: 1}, "a")
		if err := db.Run(t.Context(), []*table.Change{first, other, remove, second}, db.NowFunc()); err != nil {
			t.Fatal(err)
		}
		for _, c := range []*table.Change{first, second, other, remove} {
			if !c.Stored.IsValid() {
				t.Fatalf("%s %v was not made", c.Write, c.Row)
			}
		}
		before, after := first.Stored.Interface().(pot), second.Stored.Interface().(pot)
		if !after.UpdatedAt.After(before.UpdatedAt) {
			t.Errorf("got %v, then %v, want a later version", before, after)
		}
	})
}

// TestInsertInATransactionReportsFaults: a fault of the database is not one of a row.
func TestInsertInATransactionReportsFaults(t *testing.T) {
	t.Parallel()
	type pot struct {
		Code string `gorm:"primaryKey"`
	}
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	err := db.Transaction(t.Context(), func(tx *database.DB) error {
		for _, statement := range []string{"CREATE TABLE pots (code text PRIMARY KEY)", "PRAGMA max_page_count = 1"} { // no more than now
			if err := tx.Exec(statement).Error; err != nil {
				return err
			}
		}
		var changes []*table.Change
		insert := table.Of[pot]().Insert
		for _, code := range []string{"a", strings.Repeat("b", 1<<20), "c"} {
			changes = append(changes, &table.Change{Statement: insert, Row: reflect.ValueOf(&pot{Code: code}).Elem()})
		}
		err := tx.Run(t.Context(), changes, time.Now())
		if err == nil {
			t.Error("inserted into a full database")
		}
		return err
	})
	if !fault.IsUnavailable(err) {
		t.Errorf("got %v, want that the disk is full", err)
	}
}
