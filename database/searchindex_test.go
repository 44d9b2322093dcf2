package database_test

import (
	"slices"
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// indexes returns the names of the indexes of plants, without those of the key and the feed.
func indexes(t *testing.T, db *database.DB) []string {
	t.Helper()
	query := "SELECT indexname FROM pg_indexes WHERE tablename = 'plants' AND indexname NOT IN ('plants_pkey', 'plants_changed') ORDER BY 1"
	if db.Dialector.Name() == "sqlite" {
		query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'plants' ORDER BY 1"
	}
	var names []string
	if err := db.WithContext(t.Context()).Raw(query).Scan(&names).Error; err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSearchIndexes(t *testing.T) {
	for name, test := range map[string]struct {
		url  string
		want []string
	}{
		"SQLite":     {dbtest.SQLite(t), []string{"plants_tag"}},
		"PostgreSQL": {dbtest.Postgres(t), []string{"plants_name_trgm", "plants_tag"}},
	} {
		t.Run(name, func(t *testing.T) {
			db := dbtest.Migrated(t, test.url)
			for range 2 { // twice is harmless
				if err := db.CreateSearchIndexes(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := indexes(t, db); !slices.Equal(got, test.want) {
					t.Errorf("got %v, want %v", got, test.want)
				}
			}
			if err := db.DropSearchIndexes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := indexes(t, db); len(got) != 0 {
				t.Errorf("after DropSearchIndexes: got %v", got)
			}
		})
	}
}

// TestSearchIndexesWithoutExtension: a role that may not create pg_trgm gets an error,
// and the index that does not need it.
func TestSearchIndexesWithoutExtension(t *testing.T) {
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	_, as := dbtest.AsRole(t, owner, "ALTER TABLE plants OWNER TO NAME", "GRANT CREATE, USAGE ON SCHEMA public TO NAME")
	db := dbtest.Open(t, dbtest.Options(as))
	if err := db.CreateSearchIndexes(t.Context()); err == nil || !strings.Contains(err.Error(), "pg_trgm") {
		t.Errorf("got %v, want an error that names pg_trgm", err)
	}
	if got := indexes(t, db); !slices.Equal(got, []string{"plants_tag"}) {
		t.Errorf("got %v, want plants_tag", got)
	}
}
