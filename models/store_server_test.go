package models_test

import (
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// jar is a model with columns that the server sets.
type jar struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Label     string
	State     string `gorm:"default:closed"`
	Openings  int64
	OpenedAt  *int64
	Fill      *int64 `gorm:"default:100"`
	Size      *int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (jar) Rules() models.Rules {
	return models.Rules{
		"label":     models.Text{Min: 1, Max: 20},
		"state":     models.Server{Rule: models.Text{Min: 1, Max: 10}},
		"openings":  models.Server{},
		"opened_at": models.Server{},
		"fill":      models.Server{Rule: models.Integer{Min: 0, Max: 100}},
	}
}

// newJars returns a store of jars in a new table.
func newJars(t *testing.T, url string) *models.Store[jar, int64] {
	t.Helper()
	db := dbtest.Open(t, dbtest.Options(url))
	table := "CREATE TABLE jars (id bigint PRIMARY KEY NOT NULL, label text NOT NULL, state text NOT NULL, openings bigint NOT NULL, " +
		"opened_at bigint, fill bigint, size bigint, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)"
	if db.Dialector.Name() == "sqlite" {
		table = strings.ReplaceAll(table, "timestamptz", "timestamp")
	}
	if err := db.Exec(table).Error; err != nil {
		t.Fatal(err)
	}
	return models.NewStore[jar, int64](db)
}

func bareJar(j *jar) jar {
	bare := *j
	bare.CreatedAt, bare.UpdatedAt = time.Time{}, time.Time{}
	return bare
}

func TestColumnsOfTheServer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		store := newJars(t, url)
		importOf := func(o models.ImportOptions, jars ...jar) models.ImportReport {
			report, err := store.Import(t.Context(), func(yield func(models.ImportRow[jar], error) bool) {
				for i, j := range jars {
					if !yield(models.ImportRow[jar]{Line: i + 1, Row: j}, nil) {
						return
					}
				}
			}, o)
			if err != nil {
				t.Error(err)
			}
			report.Errors = nil
			return report
		}
		check := func(t *testing.T, want jar) {
			t.Helper()
			got, err := store.Get(t.Context(), want.ID)
			if err != nil || !reflect.DeepEqual(bareJar(got), want) {
				t.Errorf("got %+v, %v, want %+v", got, err, want)
			}
		}
		fresh := func(id int64, label string) jar {
			return jar{ID: id, Label: label, State: "closed", Fill: new(int64(100))}
		}

		t.Run("a new row", func(t *testing.T) {
			created := jar{ID: 1, Label: "created"}
			if _, err := store.Create(t.Context(), &created); err != nil || !reflect.DeepEqual(bareJar(&created), fresh(1, "created")) {
				t.Errorf("got %+v, %v", created, err)
			}
			check(t, fresh(1, "created"))
			put := jar{ID: 2, Label: "put"}
			outcome, err := store.Put(t.Context(), &put, models.Condition{})
			if err != nil || !outcome.Created || !reflect.DeepEqual(bareJar(outcome.Row), fresh(2, "put")) {
				t.Errorf("got %+v, %v", outcome, err)
			}
			if report := importOf(models.ImportOptions{}, jar{ID: 3, Label: "loaded"}, jar{ID: 4, Label: "loaded"}); report.Created != 2 {
				t.Errorf("got %+v", report)
			}
			if report := importOf(models.ImportOptions{Partial: true}, jar{ID: 5}, jar{ID: 4, Label: "x"}, jar{ID: 6, Label: "inserted"}); report.Created != 1 || report.Rejected != 2 {
				t.Errorf("got %+v", report)
			}
			check(t, fresh(3, "loaded"))
			check(t, fresh(4, "loaded"))
			check(t, fresh(6, "inserted"))
		})
		t.Run("a new row with a state that the program has chosen", func(t *testing.T) {
			open := jar{ID: 7, Label: "x", State: "open", Openings: 3}
			if _, err := store.Create(t.Context(), &open); err != nil {
				t.Fatal(err)
			}
			want := fresh(7, "x")
			want.State, want.Openings = "open", 3
			check(t, want)
		})

		want := fresh(1, "created")
		want.State, want.Openings, want.OpenedAt, want.Fill = "open", 1, new(int64(1e12)), new(int64(0))
		t.Run("Update sets them", func(t *testing.T) {
			outcome, err := store.Update(t.Context(), 1, models.Condition{}, func(_ *gorm.DB, j *jar) error {
				j.State, j.Openings, j.OpenedAt, j.Fill = "open", j.Openings+1, new(int64(1e12)), new(int64(0))
				return nil
			})
			if err != nil || !reflect.DeepEqual(bareJar(outcome.Row), want) {
				t.Errorf("got %+v, %v, want %+v", outcome.Row, err, want)
			}
			check(t, want)
		})
		t.Run("Update checks their rules", func(t *testing.T) {
			_, err := store.Update(t.Context(), 1, models.Condition{}, func(_ *gorm.DB, j *jar) error {
				j.Fill = new(int64(101))
				return nil
			})
			if invalid, ok := errors.AsType[*models.InvalidError](err); !ok || invalid.Field != "fill" {
				t.Errorf("got %v", err)
			}
		})
		t.Run("the same content", func(t *testing.T) {
			for _, again := range []jar{{ID: 1, Label: "created"}, {ID: 1, Label: "created", State: "lost"}} {
				if exists, ok := errors.AsType[*models.ExistsError](errorOf(store.Create(t.Context(), &again))); !ok || !exists.Same {
					t.Errorf("got %+v", exists)
				}
				if report := importOf(models.ImportOptions{}, again); report.Unchanged != 1 {
					t.Errorf("got %+v", report)
				}
			}
			check(t, want)
		})
		for name, write := range map[string]func(*jar) (*jar, error){
			"Put leaves them alone": func(j *jar) (*jar, error) {
				outcome, err := store.Put(t.Context(), j, models.Condition{})
				return outcome.Row, err
			},
			"Put of an existing row leaves them alone": func(j *jar) (*jar, error) {
				outcome, err := store.Put(t.Context(), j, models.Condition{Exists: true})
				return outcome.Row, err
			},
			"Patch leaves them alone": func(j *jar) (*jar, error) {
				outcome, err := store.Patch(t.Context(), j, []string{"label", "size"}, models.Condition{})
				return outcome.Row, err
			},
			"an import that replaces leaves them alone": func(j *jar) (*jar, error) {
				report, err := store.Import(t.Context(), replacing(true, importRows([]jar{*j})), models.ImportOptions{})
				if err != nil || report.Replaced != 1 {
					t.Errorf("got %+v, %v", report, err)
				}
				return store.Get(t.Context(), j.ID)
			},
		} {
			t.Run(name, func(t *testing.T) {
				want.Label, want.Size = name[:20], new(int64(len(name)))
				sent := jar{ID: 1, Label: want.Label, Size: want.Size, State: "lost", Openings: 9}
				got, err := write(&sent)
				if err != nil || !reflect.DeepEqual(bareJar(got), want) {
					t.Errorf("got %+v, %v, want %+v", got, err, want)
				}
				check(t, want)
			})
		}
		t.Run("Patch cannot change them", func(t *testing.T) {
			err := errorOf(store.Patch(t.Context(), &jar{ID: 1, State: "lost"}, []string{"state"}, models.Condition{}))
			if invalid, ok := errors.AsType[*models.InvalidError](err); !ok || invalid.Field != "state" {
				t.Errorf("got %v", err)
			}
		})
		t.Run("a list has them, and an export does not", func(t *testing.T) {
			jars, err := store.List(t.Context(), models.Filter[int64]{Limit: 1})
			if err != nil || !reflect.DeepEqual(bareJar(&jars[0]), want) {
				t.Errorf("got %+v, %v, want %+v", jars, err, want)
			}
			var exported []jar
			err = store.Export(t.Context(), models.Filter[int64]{}, models.Each(func(j *jar) error {
				exported = append(exported, *j)
				return nil
			}))
			if err != nil || !reflect.DeepEqual(exported[0], jar{ID: 1, Label: want.Label, Size: want.Size}) {
				t.Errorf("got %+v, %v", exported, err)
			}
		})
	})
}

// The models below rely on GORM for what a store does not do.
type (
	hooked struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	defaulted struct {
		ID        int64  `gorm:"primaryKey;autoIncrement:false"`
		Name      string `gorm:"default:x"`
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	computed struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		OpenedAt  int64 `gorm:"default:now()"`
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	owned struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		JarID     int64
		Jar       jar
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	readOnly struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		Size      int64 `gorm:"->"`
		CreatedAt time.Time
		UpdatedAt time.Time
	}
)

func (*hooked) BeforeCreate(*gorm.DB) error { return nil }

func (hooked) Rules() models.Rules    { return nil }
func (defaulted) Rules() models.Rules { return models.Rules{"name": models.Text{Max: 1}} }
func (computed) Rules() models.Rules  { return models.Rules{"opened_at": models.Server{}} }
func (owned) Rules() models.Rules     { return nil }
func (readOnly) Rules() models.Rules  { return nil }

func TestNewStorePanicsIfItIgnoresGORM(t *testing.T) {
	db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
	for name, test := range map[string]struct {
		newStore func(*database.DB)
		want     string
	}{
		"a hook":                     {func(db *database.DB) { models.NewStore[hooked, int64](db) }, "models_test.hooked has a hook of GORM, which its store does not call: "},
		"a default of content":       {func(db *database.DB) { models.NewStore[defaulted, int64](db) }, "models_test.defaulted.Name has the tag default, "},
		"a default that is computed": {func(db *database.DB) { models.NewStore[computed, int64](db) }, "models_test.computed.OpenedAt has the tag default, "},
		"an association":             {func(db *database.DB) { models.NewStore[owned, int64](db) }, "models_test.owned.Jar is an association, which its store does not write: "},
		"a column that is read-only": {func(db *database.DB) { models.NewStore[readOnly, int64](db) }, "models_test.readOnly.Size has a tag of GORM that its store ignores: "},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if cause, _ := recover().(string); !strings.HasPrefix(cause, test.want) || strings.Contains(cause, "\n") {
					t.Errorf("got %q, want %q", cause, test.want)
				}
			}()
			test.newStore(db)
		})
	}
}
