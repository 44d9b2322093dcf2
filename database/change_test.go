package database_test

import (
	"errors"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// mistyped is a table of goose's with another type than it has.
type mistyped struct {
	Version int64 `gorm:"primaryKey;autoIncrement:false"`
	Text    int64 `gorm:"column:text"`
}

func (mistyped) TableName() string { return "mistyped" }

// TestRunReportsWhatItCannotScan: such as after a column got another type.
func TestRunReportsWhatItCannotScan(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
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
				outcomes, err := db.Run(t.Context(), changes)
				if err == nil && errors.Join(outcomes...) == nil {
					t.Error("got no error for a text in an int64")
				}
			})
		}
	})
}
