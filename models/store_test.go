package models_test

import (
	"errors"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// pot is a model with a text key and columns of other types than a plant's.
type pot struct {
	Code      string `gorm:"primaryKey"`
	Material  string
	Width     int64
	Holed     bool
	Label     *string
	Depth     *int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (pot) Rules() models.Rules {
	return models.Rules{
		"code":     models.Text{Min: 1, Max: 10, NotBlank: true},
		"material": models.Text{Match: regexp.MustCompile("^(clay|tin)$")},
		"label":    models.Text{Max: 20},
		"depth":    models.Integer{Min: -5, Max: 400},
	}
}

// eachPotStore runs test with a store of pots on each kind of database.
func eachPotStore(t *testing.T, test func(t *testing.T, store *models.Store[pot, string])) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		store, _ := newPotStore(t, url)
		test(t, store)
	})
}

// newPotStore returns a store of pots in the database at url, which has no table of them.
func newPotStore(t *testing.T, url string) (*models.Store[pot, string], *database.DB) {
	t.Helper()
	db := dbtest.Open(t, dbtest.Options(url))
	table := "CREATE TABLE pots (code text PRIMARY KEY NOT NULL, material text NOT NULL, width bigint NOT NULL, " +
		"holed boolean NOT NULL, label text, depth bigint, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)"
	if db.Dialector.Name() == "sqlite" {
		table = strings.ReplaceAll(table, "timestamptz", "timestamp")
	}
	if err := db.Exec(table).Error; err != nil {
		t.Fatal(err)
	}
	return models.NewStore[pot, string](db), db
}

// bare returns a pot without its timestamps, for reflect.DeepEqual.
func bare(p pot) pot {
	p.CreatedAt, p.UpdatedAt = time.Time{}, time.Time{}
	return p
}

func bareAll(pots []pot) []pot {
	all := slices.Clone(pots)
	for i := range all {
		all[i] = bare(all[i])
	}
	return all
}

func create(t *testing.T, store *models.Store[pot, string], pots ...pot) {
	t.Helper()
	for _, p := range pots {
		if _, err := store.Create(t.Context(), &p); err != nil {
			t.Fatalf("%s: %v", p.Code, err)
		}
	}
}

// somePots are in the order of a list.
var somePots = []pot{
	{Code: "0", Material: "clay", Width: -1, Holed: true, Label: new(""), Depth: new(int64(0))},
	{Code: "B", Material: "tin", Width: 1 << 60, Label: new("Big 100%")},
	{Code: "a", Material: "clay", Depth: new(int64(-5))},
	{Code: "é'\"", Material: "tin", Holed: true, Label: new("small_big")},
}

func TestCreateWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		for _, want := range somePots {
			sent := want
			create(t, store, sent)
			got, err := store.Get(t.Context(), want.Code)
			if err != nil || !reflect.DeepEqual(bare(*got), want) || got.CreatedAt.IsZero() || !got.CreatedAt.Equal(got.UpdatedAt) {
				t.Errorf("%s: got %+v, %v, want %+v", want.Code, got, err, want)
			}
		}
		for name, test := range map[string]struct {
			change func(*pot)
			same   bool
		}{
			"the same content":     {func(*pot) {}, true},
			"another material":     {func(p *pot) { p.Material = "tin" }, false},
			"another width":        {func(p *pot) { p.Width = 1 }, false},
			"without the hole":     {func(p *pot) { p.Holed = false }, false},
			"nil instead of empty": {func(p *pot) { p.Label = nil }, false},
			"nil instead of zero":  {func(p *pot) { p.Depth = nil }, false},
		} {
			t.Run("a key is taken by "+name, func(t *testing.T) {
				again := somePots[0]
				test.change(&again)
				want := models.ExistsError{Noun: "pot", Key: "0", Same: test.same}
				if exists, ok := errors.AsType[*models.ExistsError](errorOf(store.Create(t.Context(), &again))); !ok || *exists != want {
					t.Errorf("got %+v, want %+v", exists, want)
				}
			})
		}
		for field, invalid := range map[string]pot{
			"code": {Material: "clay"}, "material": {Code: "x", Material: "wood"}, "label": {Code: "x", Material: "tin", Label: new("a\nb")},
			"depth": {Code: "x", Material: "tin", Depth: new(int64(401))},
		} {
			t.Run("an invalid "+field+" is rejected", func(t *testing.T) {
				if got, ok := errors.AsType[*models.InvalidError](errorOf(store.Create(t.Context(), &invalid))); !ok || got.Field != field {
					t.Errorf("got %v, want %s as invalid", got, field)
				}
			})
		}
		if rows, err := store.List(t.Context(), models.Filter[string]{Limit: 10}); err != nil || !reflect.DeepEqual(bareAll(rows), somePots) {
			t.Errorf("got %+v, %v, want %+v", rows, err, somePots)
		}
	})
}

func TestListWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		create(t, store, somePots...)
		for name, test := range map[string]struct {
			filter models.Filter[string]
			want   []pot
		}{
			"the first page":            {models.Filter[string]{Limit: 3}, somePots[:3]},
			"after a key":               {models.Filter[string]{Limit: 3, After: new("B")}, somePots[2:]},
			"after an empty key":        {models.Filter[string]{Limit: 1, After: new("")}, somePots[:1]},
			"after the last key":        {models.Filter[string]{Limit: 3, After: new("é'\"")}, []pot{}},
			"by a text":                 {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"material", "=", []any{"tin"}}}}, []pot{somePots[1], somePots[3]}},
			"by a boolean":              {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"holed", "=", []any{true}}}}, []pot{somePots[0], somePots[3]}},
			"by a part in another case": {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"label", models.Contains, []any{"bIG"}}}}, []pot{somePots[1], somePots[3]}},
			"by a percent sign":         {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"label", models.Contains, []any{"0%"}}}}, []pot{somePots[1]}},
			"by an underscore":          {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"label", models.Contains, []any{"_"}}}}, []pot{somePots[3]}},
			"by two columns":            {models.Filter[string]{Limit: 9, Where: []models.Comparison{{"material", "=", []any{"tin"}}, {"label", models.Contains, []any{"100"}}}}, []pot{somePots[1]}},
		} {
			t.Run(name, func(t *testing.T) {
				if got, err := store.List(t.Context(), test.filter); err != nil || !reflect.DeepEqual(bareAll(got), test.want) {
					t.Errorf("got %+v, %v, want %+v", bareAll(got), err, test.want)
				}
			})
		}
		t.Run("an unknown column is an error", func(t *testing.T) {
			if got, err := store.List(t.Context(), models.Filter[string]{Limit: 9, Where: []models.Comparison{{"colour", "=", []any{"red"}}}}); err == nil {
				t.Errorf("got %+v, want an error", got)
			}
		})
	})
}

func TestPutWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		first := pot{Code: "a", Material: "clay", Width: 1, Label: new("x")}
		if _, err := store.Put(t.Context(), &first, models.Condition{Exists: true}); !errors.Is(err, models.ErrCondition) {
			t.Errorf("replace a row that does not exist: got %v, want ErrCondition", err)
		}
		if put, err := store.Put(t.Context(), &first, models.Condition{Absent: true}); err != nil || !put.Created {
			t.Fatalf("a new row: got %t, %v", put.Created, err)
		}
		second := pot{Code: "a", Material: "tin", Holed: true, Depth: new(int64(2))}
		want := second
		if put, err := store.Put(t.Context(), &second, models.Condition{Versions: []time.Time{first.UpdatedAt}}); err != nil || put.Created {
			t.Fatalf("a version: got %t, %v", put.Created, err)
		}
		if !second.UpdatedAt.After(first.UpdatedAt) || !second.CreatedAt.Equal(first.CreatedAt) {
			t.Errorf("got the timestamps %v, %v after %v", second.CreatedAt, second.UpdatedAt, first.UpdatedAt)
		}
		if got, err := store.Get(t.Context(), "a"); err != nil || !reflect.DeepEqual(bare(*got), want) || !reflect.DeepEqual(bare(second), want) {
			t.Errorf("got %+v, %v, want %+v", got, err, want)
		}
		for name, condition := range map[string]models.Condition{
			"an earlier version": {Versions: []time.Time{first.UpdatedAt}}, "no version": {Versions: []time.Time{}}, "no such row": {Absent: true},
		} {
			t.Run("a put that requires "+name+" fails", func(t *testing.T) {
				if _, err := store.Put(t.Context(), &pot{Code: "a", Material: "clay"}, condition); !errors.Is(err, models.ErrCondition) {
					t.Errorf("got %v, want ErrCondition", err)
				}
			})
		}
	})
}

func TestPatchWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		create(t, store, somePots...)
		before, err := store.Get(t.Context(), "0")
		if err != nil {
			t.Fatal(err)
		}
		want := bare(*before)
		want.Width, want.Label = 7, nil
		patched, err := store.Patch(t.Context(), &pot{Code: "0", Width: 7}, []string{"width", "label"}, models.Condition{Versions: []time.Time{before.UpdatedAt}})
		got := patched.Row
		if err != nil || !reflect.DeepEqual(bare(*got), want) || !got.UpdatedAt.After(before.UpdatedAt) || !got.CreatedAt.Equal(before.CreatedAt) {
			t.Fatalf("got %+v, %v, want %+v", got, err, want)
		}
		for name, test := range map[string]struct {
			pot       pot
			column    string
			condition models.Condition
			want      any
		}{
			"a key cannot be changed":           {pot{Code: "0"}, "code", models.Condition{}, &models.InvalidError{Field: "code", Reason: "cannot be changed"}},
			"an unknown column cannot":          {pot{Code: "0"}, "colour", models.Condition{}, &models.InvalidError{Field: "colour", Reason: "cannot be changed"}},
			"a timestamp cannot":                {pot{Code: "0"}, "updated_at", models.Condition{}, &models.InvalidError{Field: "updated_at", Reason: "cannot be changed"}},
			"an invalid value is rejected":      {pot{Code: "0", Label: new("a\nb")}, "label", models.Condition{}, &models.InvalidError{Field: "label", Reason: "contains the control character U+000A at character 2"}},
			"a missing row is not found":        {pot{Code: "x"}, "width", models.Condition{}, &models.NotFoundError{Noun: "pot"}},
			"an earlier version is rejected":    {pot{Code: "0"}, "width", models.Condition{Versions: []time.Time{before.UpdatedAt}}, models.ErrCondition},
			"a row that exists is not absent":   {pot{Code: "0"}, "width", models.Condition{Absent: true}, models.ErrCondition},
			"a missing row has no version":      {pot{Code: "x"}, "width", models.Condition{Versions: []time.Time{before.UpdatedAt}}, &models.NotFoundError{Noun: "pot"}},
			"a missing row is not found either": {pot{Code: "x"}, "width", models.Condition{Absent: true}, &models.NotFoundError{Noun: "pot"}},
		} {
			t.Run(name, func(t *testing.T) {
				if _, err := store.Patch(t.Context(), &test.pot, []string{test.column}, test.condition); !reflect.DeepEqual(err, test.want) {
					t.Errorf("got %v, want %v", err, test.want)
				}
			})
		}
		if got, err := store.List(t.Context(), models.Filter[string]{Limit: 9}); err != nil || !reflect.DeepEqual(bareAll(got), append([]pot{want}, somePots[1:]...)) {
			t.Errorf("got %+v, %v, want a change in the first row only", bareAll(got), err)
		}
	})
}

func TestDeleteWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		create(t, store, somePots...)
		if _, err := store.Delete(t.Context(), "B", models.Condition{Versions: []time.Time{time.Now()}}); !errors.Is(err, models.ErrCondition) {
			t.Errorf("another version: got %v, want ErrCondition", err)
		}
		if _, err := store.Delete(t.Context(), "B", models.Condition{}); err != nil {
			t.Fatal(err)
		}
		want := &models.NotFoundError{Noun: "pot"}
		if _, err := store.Delete(t.Context(), "B", models.Condition{}); !reflect.DeepEqual(err, want) {
			t.Errorf("a second time: got %v, want %v", err, want)
		}
		if _, err := store.Get(t.Context(), "B"); !reflect.DeepEqual(err, want) {
			t.Errorf("get: got %v, want %v", err, want)
		}
		if got, err := store.List(t.Context(), models.Filter[string]{Limit: 9}); err != nil || len(got) != len(somePots)-1 {
			t.Errorf("got %+v, %v, want the others", got, err)
		}
	})
}

// importRows returns rows as those of an import.
func importRows[T any](rows []T) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		for i, row := range rows {
			if !yield(models.ImportRow[T]{Line: i + 1, Row: row}, nil) {
				return
			}
		}
	}
}

// replacing returns rows that replace stored rows if replace is set.
func replacing[T any](replace bool, rows iter.Seq2[models.ImportRow[T], error]) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		for row, err := range rows {
			if replace {
				row.Kind = models.Replace
			}
			if !yield(row, err) {
				return
			}
		}
	}
}

// TestImportOfALeftOutRow: a row that a trigger leaves out fails an import, of plants and of others.
func TestImportOfALeftOutRow(t *testing.T) {
	t.Parallel()
	leaveOut := func(table string) string {
		return "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;" +
			"CREATE TRIGGER leave_out BEFORE INSERT ON " + table + " FOR EACH ROW WHEN (NEW.created_at IS NOT NULL) EXECUTE FUNCTION leave_out()"
	}
	t.Run("plants", func(t *testing.T) {
		db := dbtest.Migrated(t, dbtest.Postgres(t))
		store := models.NewPlantStore(db)
		if err := db.Exec(leaveOut("plants")).Error; err != nil {
			t.Fatal(err)
		}
		report, err := store.Import(t.Context(), func(yield func(models.ImportRow[models.Plant], error) bool) {
			yield(models.ImportRow[models.Plant]{Line: 1, Row: models.Plant{ID: 1, Name: "x"}}, nil)
		}, models.ImportOptions{})
		if err == nil || report.Stored {
			t.Errorf("got %+v, %v, want an error", report, err)
		}
	})
	t.Run("pots", func(t *testing.T) {
		store, db := newPotStore(t, dbtest.Postgres(t))
		if err := db.Exec(leaveOut("pots")).Error; err != nil {
			t.Fatal(err)
		}
		if report, err := store.Import(t.Context(), importRows(somePots), models.ImportOptions{}); err == nil || report.Stored {
			t.Errorf("got %+v, %v, want an error", report, err)
		}
	})
}

// TestPutOfALeftOutRow: a row that a trigger leaves out is no unmet condition.
func TestPutOfALeftOutRow(t *testing.T) {
	leaveOut := map[string]string{
		"postgresql": "CREATE FUNCTION leave_out() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;" +
			"CREATE TRIGGER leave_out BEFORE INSERT ON plants FOR EACH ROW EXECUTE FUNCTION leave_out()",
		"sqlite": "CREATE TRIGGER leave_out BEFORE INSERT ON plants BEGIN SELECT RAISE(IGNORE); END",
	}
	eachStore(t, func(t *testing.T, store *models.PlantStore, db *database.DB) {
		if err := db.Exec(leaveOut[db.Dialect.Facts().System]).Error; err != nil {
			t.Fatal(err)
		}
		if _, err := store.Put(t.Context(), &models.Plant{ID: 1, Name: "x"}, models.Condition{}); err == nil || errors.Is(err, models.ErrCondition) {
			t.Errorf("got %v, want an error that is not ErrCondition", err)
		}
	})
}

func TestImportAndExportWithATextKey(t *testing.T) {
	eachPotStore(t, func(t *testing.T, store *models.Store[pot, string]) {
		other := somePots[1]
		other.Width = 3
		replaced := somePots[1]
		replaced.Label, replaced.Depth = new("replaced"), nil
		invalid := pot{Code: "x", Material: "wood"}
		for _, test := range []struct {
			name    string
			rows    []pot
			options models.ImportOptions
			replace bool
			want    models.ImportReport
		}{
			{
				name: "a dry run stores nothing", rows: somePots, options: models.ImportOptions{DryRun: true},
				want: models.ImportReport{Rows: 4, Created: 4},
			},
			{name: "new rows are created", rows: somePots[1:], want: models.ImportReport{Rows: 3, Created: 3, Stored: true}},
			{name: "rows that exist are unchanged", rows: somePots, want: models.ImportReport{Rows: 4, Created: 1, Unchanged: 3, Stored: true}},
			{
				name: "other content is rejected", rows: []pot{{Code: "y", Material: "tin"}, other, invalid},
				want: models.ImportReport{Rows: 3, Created: 1, Rejected: 2},
			},
			{
				name: "other content replaces", rows: []pot{somePots[0], replaced, somePots[2]}, replace: true,
				want: models.ImportReport{Rows: 3, Replaced: 1, Keys: []string{replaced.Code}, Unchanged: 2, Stored: true},
			},
			{
				name: "a dry run replaces nothing", rows: []pot{{Code: "y", Material: "tin"}, somePots[1]}, options: models.ImportOptions{DryRun: true}, replace: true,
				want: models.ImportReport{Rows: 2, Created: 1, Replaced: 1},
			},
			{
				name: "a rejected row keeps the others from replacing", rows: []pot{somePots[1], invalid}, replace: true,
				want: models.ImportReport{Rows: 2, Replaced: 1, Rejected: 1},
			},
			{
				name: "a key belongs to its first row", rows: []pot{somePots[1], replaced, somePots[1], somePots[3], other}, options: models.ImportOptions{Partial: true}, replace: true,
				want: models.ImportReport{Rows: 5, Replaced: 1, Keys: []string{replaced.Code}, Unchanged: 2, Rejected: 2, Stored: true},
			},
			{
				name: "the rest of a partial import is stored", rows: []pot{{Code: "z", Material: "tin"}, other, invalid}, options: models.ImportOptions{Partial: true},
				want: models.ImportReport{Rows: 3, Created: 1, Rejected: 2, Stored: true},
			},
		} {
			t.Run(test.name, func(t *testing.T) {
				got, err := store.Import(t.Context(), replacing(test.replace, importRows(test.rows)), test.options)
				if len(got.Errors) != got.Rejected {
					t.Errorf("got the errors %v of %d rejected rows", got.Errors, got.Rejected)
				}
				got.Errors = nil
				if err != nil || !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %+v, %v, want %+v", got, err, test.want)
				}
			})
		}
		var exported []pot
		err := store.Export(t.Context(), models.Filter[string]{}, models.Each(func(p *pot) error { exported = append(exported, *p); return nil }))
		want := slices.Insert(slices.Clone(somePots), 3, pot{Code: "z", Material: "tin"})
		if err != nil || !reflect.DeepEqual(exported, want) {
			t.Errorf("got %+v, %v, want %+v", exported, err, want)
		}
		exported = nil
		filter := models.Filter[string]{After: new("0"), Where: []models.Comparison{{"material", "=", []any{"tin"}}}}
		err = store.Export(t.Context(), filter, models.Each(func(p *pot) error { exported = append(exported, *p); return nil }))
		want = slices.DeleteFunc(want, func(p pot) bool { return p.Code <= "0" || p.Material != "tin" })
		if err != nil || !reflect.DeepEqual(exported, want) || len(want) == 0 {
			t.Errorf("with a filter: got %+v, %v, want %+v", exported, err, want)
		}
		stop := errors.New("stop")
		if err := store.Export(t.Context(), models.Filter[string]{}, models.Each(func(*pot) error { return stop })); !errors.Is(err, stop) {
			t.Errorf("got %v, want the error of yield", err)
		}
	})
}

// wrongRule is a model with the rule of a text for a number.
type wrongRule struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
}

func (wrongRule) Rules() models.Rules { return models.Rules{"id": models.Text{Max: 1}} }

// missingRule is a model with a rule for a column that it does not have.
type missingRule struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
}

func (missingRule) Rules() models.Rules { return models.Rules{"name": models.Text{Max: 1}} }

// noRule is a model with a text that has no rule.
type noRule struct {
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Name *string
}

func (noRule) Rules() models.Rules { return nil }

// otherKind is a model with a column that the file of an import cannot keep.
type otherKind struct {
	ID    int64 `gorm:"primaryKey;autoIncrement:false"`
	Width int16
}

func (otherKind) Rules() models.Rules { return nil }

// noTimes is a model without timestamps.
type noTimes struct {
	ID int64 `gorm:"primaryKey;autoIncrement:false"`
}

func (noTimes) Rules() models.Rules { return nil }

func TestNewStorePanics(t *testing.T) {
	db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
	for name, test := range map[string]struct {
		newStore func(*database.DB)
		want     string
	}{
		"if the key has another type":   {func(db *database.DB) { models.NewStore[pot, int64](db) }, "is of type string"},
		"if a rule is of another type":  {func(db *database.DB) { models.NewStore[wrongRule, int64](db) }, "wrongRule.ID must be an int64, a float64, a bool, a time.Time, or of a type that fits its rule"},
		"if a rule is without a column": {func(db *database.DB) { models.NewStore[missingRule, int64](db) }, "a rule for an unknown column"},
		"if a text has no rule":         {func(db *database.DB) { models.NewStore[noRule, int64](db) }, "noRule.Name must be an int64, a float64, a bool, a time.Time, or of a type that fits its rule"},
		"if a column is an int16":       {func(db *database.DB) { models.NewStore[otherKind, int64](db) }, "otherKind.Width must be an int64, a float64"},
		"if there are no timestamps":    {func(db *database.DB) { models.NewStore[noTimes, int64](db) }, "noTimes must have the fields CreatedAt and UpdatedAt"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if cause, _ := recover().(string); !strings.Contains(cause, test.want) {
					t.Errorf("got %q, want %q", cause, test.want)
				}
			}()
			test.newStore(db)
		})
	}
}
