package database_test

import (
	"strings"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
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
	table := database.TableOf[mistyped]()
	for name, changes := range map[string][]*database.Change{
		"one":  {{Row: &mistyped{Version: 1}}},
		"more": {{Row: &mistyped{Version: 1}}, {Row: &mistyped{Version: 2}}},
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range changes {
				c.Table, c.Write, c.Returns = table, "UPDATE mistyped SET version = @version", 2
			}
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
		table := database.TableOf[pot]()
		put := func() *database.Change {
			return &database.Change{
				Table: table, Write: table.Insert, Conflict: " ON CONFLICT (code) DO NOTHING", Returns: len(table.Columns), Row: &pot{Code: "a"},
			}
		}
		remove := &database.Change{Table: table, Write: "DELETE FROM pots", Returns: 1, Row: &pot{Code: "a"}}
		first, second, other := put(), put(), put()
		other.Row = &pot{Code: "b"}
		if err := db.Run(t.Context(), []*database.Change{first, other, remove, second}, db.NowFunc()); err != nil {
			t.Fatal(err)
		}
		before, _ := first.Stored.(*pot)
		after, _ := second.Stored.(*pot)
		if before == nil || after == nil || other.Stored == nil || remove.Stored == nil || !after.UpdatedAt.After(before.UpdatedAt) {
			t.Errorf("got %v, then %v, want a later version", before, after)
		}
	})
}

// TestInsertNewInATransactionReportsFaults: a fault of the database is not one of a row.
func TestInsertNewInATransactionReportsFaults(t *testing.T) {
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
		_, err := database.InsertNew(t.Context(), tx, database.TableOf[pot](), []*pot{{Code: "a"}, {Code: strings.Repeat("b", 1<<20)}, {Code: "c"}})
		if err == nil {
			t.Error("inserted into a full database")
		}
		return err
	})
	if !database.IsUnavailable(err) {
		t.Errorf("got %v, want that the disk is full", err)
	}
}
