package main

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/models"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// pot is a model with a column of each kind.
type pot struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	Country   string
	Code      *string
	Website   *string
	Size      *int64
	Weight    *float64
	Glazed    bool
	Notes     *string
	Since     *models.Day
	Price     *models.Number
	Features  *models.JSON
	Serial    *string
	PlantID   *int64
	Label     *string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (pot) Rules() models.Rules {
	return models.Rules{
		"name":     models.Text{Min: 2, Max: 5, NotBlank: true},
		"country":  models.Text{Match: regexp.MustCompile("^[A-Z]{2}$")},
		"code":     models.Text{Match: regexp.MustCompile(`^(a'b|[x-z]-\d?|\*)$`)},
		"website":  models.Text{Match: regexp.MustCompile(`^https?://[a-z./]+$`)},
		"size":     models.Integer{Min: 1, Max: 5},
		"weight":   models.Float{Min: -0.5, Max: 1e9},
		"notes":    models.Text{Max: 3, Lines: true},
		"since":    models.Date(),
		"price":    models.Decimal(3, 2),
		"features": models.Object(100),
		"serial":   models.UUID(),
		"plant_id": models.Ref{To: models.Plant{}},
		"label":    models.Unique{Rule: models.Text{Max: 9}},
	}
}

// TestMigrationRepeatsTheRules creates a table, and a column at a time, and inserts rows past the store.
func TestMigrationRepeatsTheRules(t *testing.T) {
	base := map[string]string{"id": "1", "name": "'pot'", "country": "'NL'", "glazed": "true", "created_at": "'2026-01-01'", "updated_at": "'2026-01-01'"}
	columns := []string{"id", "name", "country", "code", "website", "size", "weight", "glazed", "notes", "since", "price", "features", "serial", "plant_id", "label", "created_at", "updated_at"}
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		k := onPostgres
		if strings.HasPrefix(url, "sqlite:") {
			k = onSQLite
		}
		db := dbtest.Migrated(t, url)
		run := func(t *testing.T, statements string) {
			t.Helper()
			for statement := range strings.SplitSeq(statements, ";\n") {
				if err := db.WithContext(t.Context()).Exec(statement).Error; err != nil {
					t.Fatalf("%v in\n%s", err, statement)
				}
			}
		}
		for _, present := range [][]string{nil, {"id", "name", "country", "glazed", "created_at", "updated_at"}} {
			s, err := stepsOf(pot{}, present)
			if err != nil {
				t.Fatal(err)
			}
			if present != nil {
				run(t, "CREATE TABLE pots (id bigint PRIMARY KEY, name text, country text, glazed boolean, created_at timestamp, updated_at timestamp)")
			}
			up, down, _ := strings.Cut(s.text(k, 99), "\n\n-- +goose Down\n")
			run(t, strings.TrimSuffix(up, ";"))
			run(t, "INSERT INTO plants (id, name, created_at, updated_at) VALUES (7, 'x', '2026-01-01', '2026-01-01') ON CONFLICT DO NOTHING")
			run(t, "INSERT INTO pots (id, name, country, glazed, label, created_at, updated_at) VALUES (2, 'pot', 'NL', true, 'taken', '2026-01-01', '2026-01-01')")
			for column, values := range map[string]struct{ valid, invalid []string }{
				"name":     {[]string{"'ab'", "'ab🌵de'"}, []string{"'a'", "'abcdef'", "'   '", "NULL"}},
				"country":  {[]string{"'NL'"}, []string{"'nl'", "'NLD'", "''", "'N1'"}},
				"code":     {[]string{"'a''b'", "'x-'", "'z-7'", "'*'", "NULL"}, []string{"'ab'", "'w-1'", "'x-a'", "'x'", "'+'"}},
				"website":  {[]string{"'https://example.org/a'", "'http://x'"}, []string{"'https://'", "'ftp://x'", "'https://A'"}},
				"size":     {[]string{"1", "5", "NULL"}, []string{"0", "6"}},
				"weight":   {[]string{"-0.5", "1000000000"}, []string{"-0.51", "1000000001"}},
				"glazed":   {[]string{"false"}, []string{"NULL"}},
				"since":    {[]string{"'2026-11-27'", "'0001-01-01'"}, []string{"'2026-02-30'", "'x'"}},
				"price":    {[]string{"12.5", "-999.99", "0", "0.29"}, []string{"1000", "'x'"}},
				"features": {[]string{`'{"a":1}'`}, []string{"'[]'", "'{'"}},
				"serial":   {[]string{"'0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e'"}, []string{"'0198c5f0'", "''"}},
				"plant_id": {[]string{"7"}, []string{"8"}},
				"label":    {[]string{"'ab'"}, []string{"'taken'"}},
				"notes":    {[]string{"''", "'a\nb'"}, []string{"'abcd'"}},
			} {
				if present != nil && base[column] != "" {
					continue
				}
				insert := func(value string) error {
					row := make([]string, len(columns))
					for i, c := range columns {
						row[i] = base[c]
						if row[i] == "" {
							row[i] = "NULL"
						}
						if c == column {
							row[i] = value
						}
					}
					statement := "INSERT INTO pots (" + strings.Join(columns, ", ") + ") VALUES (" + strings.Join(row, ", ") + ")"
					return db.WithContext(t.Context()).Exec(statement).Error
				}
				for _, value := range values.valid {
					t.Run(fmt.Sprint(column, " ", value), func(t *testing.T) {
						if err := insert(value); err != nil {
							t.Error(err)
						}
						run(t, "DELETE FROM pots WHERE id = 1")
					})
				}
				for _, value := range values.invalid {
					t.Run(fmt.Sprint(column, " ", value), func(t *testing.T) {
						if insert(value) == nil {
							t.Error("the database accepts it")
							run(t, "DELETE FROM pots WHERE id = 1")
						}
					})
				}
			}
			run(t, strings.TrimSuffix(down, ";\n"))
			if present != nil {
				run(t, "DROP TABLE pots")
			}
		}
	})
}

// shed is a model with a feed of changes.
type shed struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (shed) Rules() models.Rules { return nil }

func (shed) Feed() string { return "shed_feed" }

// TestMigrationOfAFeed migrates up and down twice, so that the second time would meet what the first left behind.
func TestMigrationOfAFeed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		k := onPostgres
		if strings.HasPrefix(url, "sqlite:") {
			k = onSQLite
		}
		db := dbtest.Migrated(t, url)
		s, err := stepsOf(shed{}, nil)
		if err != nil {
			t.Fatal(err)
		}
		up, down, _ := strings.Cut(s.text(k, 99), "-- +goose Down")
		for range 2 {
			if err := db.Exec(up).Error; err != nil {
				t.Fatalf("%v in\n%s", err, up)
			}
			var feeds int
			if err := db.Raw("SELECT count(*) FROM shed_feed").Scan(&feeds).Error; err != nil || feeds != 1 {
				t.Errorf("got %d rows, %v, want the state of the feed", feeds, err)
			}
			if err := db.Exec(down).Error; err != nil {
				t.Fatalf("%v in\n%s", err, down)
			}
		}
	})
}

// TestMigrationsRepeatTheModels compares the schema that the migrations make with the schema of tables that are
// made anew from the models: the columns, their types, NOT NULL, CHECKs, REFERENCES, indexes and feeds.
func TestMigrationsRepeatTheModels(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		k, create := onPostgres, dbtest.Postgres
		if strings.HasPrefix(url, "sqlite:") {
			k, create = onSQLite, dbtest.SQLite
		}
		other := create(t)
		migrated, anew := dbtest.Open(t, dbtest.Options(url)), dbtest.Open(t, dbtest.Options(other))
		if _, err := dbtest.Migrations(t, migrated).Up(t.Context()); err != nil {
			t.Fatal(err)
		}
		if k == onPostgres { // for the feeds: migration 4 creates it
			dbtest.Exec(t, other, "CREATE FUNCTION feed_position(transaction bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT transaction + 0'")
		}
		for left := models.All(); len(left) > 0; {
			var later []models.Model
			var failed error
			for _, model := range left {
				s, err := stepsOf(model, nil)
				if err != nil {
					t.Fatal(err)
				}
				up, _, _ := strings.Cut(s.text(k, 0), "INSERT INTO compatible_migrations")
				if err := anew.WithContext(t.Context()).Exec(up).Error; err != nil { // it may refer to a table that a later model makes
					later, failed = append(later, model), fmt.Errorf("%w in\n%s", err, up)
				}
			}
			if len(later) == len(left) {
				t.Fatal(failed)
			}
			left = later
		}
		got, want := dbtest.SchemaOf(t, migrated), dbtest.SchemaOf(t, anew)
		without := func(lines, others []string) []string {
			return slices.DeleteFunc(slices.Clone(lines), func(line string) bool { return slices.Contains(others, line) })
		}
		missing := slices.DeleteFunc(without(want, got), func(line string) bool {
			return strings.HasPrefix(line, "tokens CHECK ") // the table is older than the rules, and only the program writes it
		})
		if len(missing) > 0 {
			t.Errorf("the models need\n%s\nand the migrations make instead\n%s\ngo run -tags nomsgpack ./docs/gen migration TABLE writes a migration for columns and indexes",
				strings.Join(missing, "\n"), strings.Join(without(got, want), "\n"))
		}
	})
}

func TestMigrationNeedsSomethingToDo(t *testing.T) {
	t.Chdir("../..")
	for name, want := range map[string]string{"plants": "the migrations make all columns and indexes of plants", "pots": "no model of the table pots"} {
		t.Run(name, func(t *testing.T) {
			written, err := writeMigrations(t.Context(), name)
			if err == nil || !strings.Contains(err.Error(), want) || len(written) > 0 {
				t.Errorf("got %v, %v, want an error with %s", written, err, want)
			}
		})
	}
	t.Run("a required column", func(t *testing.T) {
		_, err := stepsOf(pot{}, []string{"id"})
		if err == nil || !strings.Contains(err.Error(), "pots.name needs a value in the rows that exist") {
			t.Errorf("got %v, want an error", err)
		}
	})
	if all, err := filepath.Glob("database/migrations/*/*pots*"); err != nil || len(all) > 0 {
		t.Errorf("got %v, %v, want no file", all, err)
	}
}
