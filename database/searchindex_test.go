package database_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// indexes returns the names of the indexes of plants, but that of the key.
func indexes(t *testing.T, db *database.DB) []string {
	t.Helper()
	query := "SELECT indexname FROM pg_indexes WHERE tablename = 'plants' AND indexname <> 'plants_pkey' ORDER BY 1"
	if db.Name() == "sqlite" {
		query = "SELECT name FROM sqlite_master WHERE type = 'index' AND tbl_name = 'plants' ORDER BY 1"
	}
	var names []string
	if err := db.WithContext(t.Context()).Raw(query).Scan(&names).Error; err != nil {
		t.Fatal(err)
	}
	return names
}

func TestSearchIndexes(t *testing.T) {
	for what, test := range map[string]struct {
		url  string
		want []string
	}{
		"SQLite":     {dbtest.SQLite(t), []string{"plants_tag"}},
		"PostgreSQL": {dbtest.Postgres(t), []string{"plants_name_trgm", "plants_tag"}},
	} {
		t.Run(what, func(t *testing.T) {
			db := dbtest.Migrated(t, test.url)
			for range 2 { // a second time does no harm
				if err := db.CreateSearchIndexes(t.Context()); err != nil {
					t.Fatal(err)
				}
				if got := indexes(t, db); !slices.Equal(got, test.want) {
					t.Errorf("created %v, want %v", got, test.want)
				}
			}
			if err := db.DropSearchIndexes(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := indexes(t, db); len(got) != 0 {
				t.Errorf("%v are left", got)
			}
		})
	}
}

// TestSearchIndexesWithoutExtension: who may not have pg_trgm is told so, and has
// the index that needs none.
func TestSearchIndexesWithoutExtension(t *testing.T) {
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	role := strings.ToLower(strings.ReplaceAll(t.Name(), "/", "_"))
	for _, statement := range []string{
		"DROP ROLE IF EXISTS " + role, "CREATE ROLE " + role + " LOGIN", "ALTER TABLE plants OWNER TO " + role,
		"GRANT CREATE, USAGE ON SCHEMA public TO " + role,
	} {
		dbtest.Exec(t, owner, statement)
	}
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	t.Cleanup(func() { dbtest.Exec(t, owner, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	db := dbtest.Open(t, dbtest.Options(t, u.String()))
	if err := db.CreateSearchIndexes(t.Context()); err == nil || !strings.Contains(err.Error(), "pg_trgm") {
		t.Errorf("got %v, want an error that names pg_trgm", err)
	}
	if got := indexes(t, db); !slices.Equal(got, []string{"plants_tag"}) {
		t.Errorf("created %v", got)
	}
}
