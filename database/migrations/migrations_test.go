package migrations_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/pressly/goose/v3"

	"plantstore/database/dbtest"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// TestDownUndoesUp applies each migration, undoes it, and applies it again.
func TestDownUndoesUp(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(url))
		provider := dbtest.Migrations(t, db)
		for before := dbtest.SchemaOf(t, db); ; {
			up, err := provider.UpByOne(t.Context())
			if errors.Is(err, goose.ErrNoNextVersion) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			after := dbtest.SchemaOf(t, db)
			if _, err := provider.Down(t.Context()); err != nil {
				t.Fatal(err)
			}
			if got := dbtest.SchemaOf(t, db); !slices.Equal(got, before) {
				t.Errorf("Down of %s leaves\n%s\nwant as before Up\n%s", up.Source.Path, strings.Join(got, "\n"), strings.Join(before, "\n"))
			}
			if _, err := provider.UpByOne(t.Context()); err != nil {
				t.Fatalf("the second Up: %v", err)
			}
			if got := dbtest.SchemaOf(t, db); !slices.Equal(got, after) {
				t.Errorf("the second Up of %s makes\n%s\nwant as the first\n%s", up.Source.Path, strings.Join(got, "\n"), strings.Join(after, "\n"))
			}
			before = after
		}
	})
}

// TestMigrationsSayWhetherOlderVersionsWork: without that, older replicas stop during an update.
func TestMigrationsSayWhetherOlderVersionsWork(t *testing.T) {
	files, err := filepath.Glob("*/*.sql")
	if err != nil || len(files) == 0 {
		t.Fatalf("got %v, %v, want the migrations", files, err)
	}
	for _, file := range files {
		version, _ := strconv.Atoi(strings.TrimLeft(filepath.Base(file)[:5], "0"))
		if version <= 3 { // which adds the table
			continue
		}
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			compatible := fmt.Sprintf("INSERT INTO compatible_migrations VALUES (%d)", version)
			if !strings.Contains(string(text), compatible) && !strings.Contains(string(text), "\n-- incompatible: ") {
				t.Errorf("end Up with %s; or say in a comment -- incompatible: why older versions cannot run", compatible)
			}
		})
	}
}

// TestBothDatabasesHaveTheSameMigrations compares the names of their files.
func TestBothDatabasesHaveTheSameMigrations(t *testing.T) {
	names := func(kind string) (names []string) {
		files, err := os.ReadDir(kind)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			names = append(names, file.Name())
		}
		return names
	}
	if postgres, sqlite := names("postgres"), names("sqlite"); !slices.Equal(postgres, sqlite) {
		t.Errorf("PostgreSQL has %v, and SQLite %v", postgres, sqlite)
	}
}
