package models_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
	"plantstore/models"
)

// grower is a model to which seedlings refer.
type grower struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (grower) Rules() models.Rules {
	return models.Rules{"name": models.Unique{Rule: models.Text{Min: 1, Max: 20}}}
}

// seedling is a model with a reference, a unique value, and a CHECK that is not a rule.
type seedling struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	GrowerID  *int64
	Label     *string
	Height    int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (seedling) Rules() models.Rules {
	return models.Rules{"grower_id": models.Ref{To: grower{}}, "label": models.Unique{Rule: models.Text{Max: 20}}}
}

type nursery struct {
	db        *database.DB
	growers   *models.Store[grower, int64]
	seedlings *models.Store[seedling, int64]
}

// eachNursery runs test on each kind of database, with the growers 1 and 2, and the seedling 1 of the grower 1.
func eachNursery(t *testing.T, test func(t *testing.T, n nursery)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Open(t, dbtest.Options(url))
		const times = "created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)"
		for _, table := range []string{
			"CREATE TABLE growers (id bigint PRIMARY KEY, name text NOT NULL CONSTRAINT growers_name_key UNIQUE, " + times,
			"CREATE TABLE seedlings (id bigint PRIMARY KEY, grower_id bigint REFERENCES growers ON DELETE RESTRICT, label text UNIQUE, " +
				"height bigint NOT NULL CONSTRAINT seedlings_height CHECK (height < 100), " + times,
		} {
			if db.Dialector.Name() == "sqlite" {
				table = strings.ReplaceAll(strings.ReplaceAll(table, "timestamptz", "timestamp"), "bigint PRIMARY", "integer PRIMARY")
			}
			if err := db.Exec(table).Error; err != nil {
				t.Fatal(err)
			}
		}
		n := nursery{db, models.NewStore[grower, int64](db), models.NewStore[seedling, int64](db)}
		for _, err := range []error{
			errorOf(n.growers.Create(t.Context(), &grower{ID: 1, Name: "Kew"})),
			errorOf(n.growers.Create(t.Context(), &grower{ID: 2, Name: "Eden"})),
			errorOf(n.seedlings.Create(t.Context(), &seedling{ID: 1, GrowerID: new(int64(1)), Label: new("first")})),
			errorOf(n.seedlings.Create(t.Context(), &seedling{ID: 2})),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		test(t, n)
	})
}

const (
	noGrower    = "grower_id: there is no grower 99"
	labelTaken  = "label must be unique, and another row has the same value"
	tooHigh     = "seedlings_height"
	stillGrower = "grower 1 still has seedlings"
)

// brokenRow returns what a client learns of a constraint that a row breaks, or "" for nil.
func brokenRow(t *testing.T, err error) string {
	t.Helper()
	if err == nil {
		return ""
	}
	if check, ok := errors.AsType[*fault.CheckError](err); ok {
		return check.Constraint
	}
	if unique, ok := errors.AsType[*fault.UniqueError](err); ok {
		return unique.Error()
	}
	if reference, ok := errors.AsType[*fault.ReferenceError](err); ok {
		return reference.Error()
	}
	t.Errorf("got %v, want an error of a constraint", err)
	return ""
}

// brokenSeedlings break a constraint each.
var brokenSeedlings = map[string]seedling{
	noGrower:   {GrowerID: new(int64(99))},
	labelTaken: {Label: new("first")},
	tooHigh:    {Height: 100},
}

func TestBrokenConstraints(t *testing.T) {
	eachNursery(t, func(t *testing.T, n nursery) {
		for want, broken := range brokenSeedlings {
			for verb, write := range map[string]func(s *seedling) error{
				"insert": func(s *seedling) error {
					s.ID = 3
					return errorOf(n.seedlings.Create(t.Context(), s))
				},
				"put a new row": func(s *seedling) error {
					s.ID = 3
					return errorOf(n.seedlings.Put(t.Context(), s, models.Condition{}))
				},
				"put if it is absent": func(s *seedling) error {
					s.ID = 3
					return errorOf(n.seedlings.Put(t.Context(), s, models.Condition{Absent: true}))
				},
				"replace": func(s *seedling) error {
					s.ID = 2
					return errorOf(n.seedlings.Put(t.Context(), s, models.Condition{Exists: true}))
				},
				"patch": func(s *seedling) error {
					s.ID = 2
					columns := map[string][]string{noGrower: {"grower_id"}, labelTaken: {"label"}, tooHigh: {"height"}}
					return errorOf(n.seedlings.Patch(t.Context(), s, columns[want], models.Condition{}))
				},
				"update": func(broken *seedling) error {
					return errorOf(n.seedlings.Update(t.Context(), 2, models.Condition{}, func(_ *gorm.DB, s *seedling) error {
						s.GrowerID, s.Label, s.Height = broken.GrowerID, broken.Label, broken.Height
						return nil
					}))
				},
			} {
				t.Run(verb+": "+want, func(t *testing.T) {
					if got := brokenRow(t, write(&broken)); got != want {
						t.Errorf("got %q, want %q", got, want)
					}
				})
			}
		}
		if rows, err := n.seedlings.List(t.Context(), models.Filter[int64]{Limit: 9}); err != nil || len(rows) != 2 || rows[1].Height != 0 || rows[1].Label != nil || rows[1].GrowerID != nil {
			t.Errorf("got %+v, %v, want what was stored before", rows, err)
		}
		t.Run("delete a row with references to it", func(t *testing.T) {
			if got := brokenRow(t, errorOf(n.growers.Delete(t.Context(), 1, models.Condition{}))); got != stillGrower {
				t.Errorf("got %q, want %q", got, stillGrower)
			}
			if err := errorOf(n.growers.Delete(t.Context(), 2, models.Condition{})); err != nil {
				t.Errorf("without references: got %v", err)
			}
		})
		t.Run("a key that is taken comes before a unique value", func(t *testing.T) {
			for want, s := range map[bool]seedling{true: {ID: 1, GrowerID: new(int64(1)), Label: new("first")}, false: {ID: 2, Label: new("first"), GrowerID: new(int64(99))}} {
				if got, ok := errors.AsType[*models.ExistsError](errorOf(n.seedlings.Create(t.Context(), &s))); !ok || got.Same != want {
					t.Errorf("got %v, want an ExistsError with Same %t", got, want)
				}
			}
		})
	})
}

// TestBrokenConstraintIsAlone: of many writes at the same time, only the rows that break a constraint fail.
func TestBrokenConstraintIsAlone(t *testing.T) {
	eachNursery(t, func(t *testing.T, n nursery) {
		const rows = 120
		outcomes := make([]string, rows)
		inParallel(rows, func(i int) {
			s := &seedling{ID: int64(100 + i), Label: new(fmt.Sprint("label ", i/4*4)), GrowerID: new(int64(1))}
			switch i % 4 {
			case 1:
				s.GrowerID = new(int64(99))
				fallthrough
			case 3:
				s.Label = nil
			}
			outcomes[i] = brokenRow(t, errorOf(n.seedlings.Create(t.Context(), s)))
		})
		for i := 0; i < rows; i += 4 {
			group := outcomes[i : i+4]
			if group[1] != noGrower || group[3] != "" {
				t.Errorf("got %q, want only that the second row has no grower, and the fourth is stored", group)
			}
			if taken := []string{group[0], group[2]}; !slices.Contains(taken, "") || !slices.Contains(taken, labelTaken) {
				t.Errorf("got %q for two rows with the same label, want one of them to be stored", taken)
			}
		}
		inParallel(rows, func(i int) {
			s, want := &seedling{ID: int64(100 + i), Height: int64(i % 50)}, ""
			if i%3 == 0 {
				s.Height, want = 100, tooHigh
			}
			if got := brokenRow(t, errorOf(n.seedlings.Put(t.Context(), s, models.Condition{}))); got != want {
				t.Errorf("put %d: got %q, want %q", i, got, want)
			}
		})
	})
}

func inParallel(n int, do func(i int)) {
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() { do(i) })
	}
	all.Wait()
}

func TestImportOfBrokenRows(t *testing.T) {
	rows := []seedling{
		{ID: 1, GrowerID: new(int64(2)), Label: new("again")}, // exists with different content
		{ID: 2},
		{ID: 10, Label: new("new")},
		{ID: 11, GrowerID: new(int64(99))},
		{ID: 12, Label: new("new")},
		{ID: 13, Height: 100},
		{ID: 14, GrowerID: new(int64(1))},
		{ID: 11, GrowerID: new(int64(99))},
	}
	broken := map[int]string{4: noGrower, 5: labelTaken, 6: tooHigh, 8: noGrower}
	for _, replace := range []bool{false, true} {
		for _, partial := range []bool{false, true} {
			t.Run(fmt.Sprintf("replace=%t partial=%t", replace, partial), func(t *testing.T) {
				eachNursery(t, func(t *testing.T, n nursery) {
					report, err := n.seedlings.Import(t.Context(), replacing(replace, importRows(rows)), models.ImportOptions{Partial: partial})
					if err != nil {
						t.Fatal(err)
					}
					got, want := make(map[int]string), map[int]string{}
					for _, rejected := range report.Errors {
						if exists, ok := errors.AsType[*models.ExistsError](rejected.Err); ok {
							got[rejected.Line] = exists.Error()
						} else {
							got[rejected.Line] = brokenRow(t, rejected.Err)
						}
					}
					for line, text := range broken {
						want[line] = text
					}
					if !replace {
						want[1] = "seedling 1 exists with different content"
					}
					if fmt.Sprint(got) != fmt.Sprint(want) {
						t.Errorf("got\n%v, want\n%v", got, want)
					}
					replaced := map[bool]int{true: 1}[replace]
					if report.Rows != 8 || report.Created != 2 || report.Unchanged != 1 || report.Replaced != replaced || report.Rejected != len(want) || report.Stored != partial {
						t.Errorf("got %+v", report)
					}
					stored, err := n.seedlings.List(t.Context(), models.Filter[int64]{Limit: 9})
					if all := map[bool]int{true: 4, false: 2}[partial]; err != nil || len(stored) != all {
						t.Errorf("got %d rows, %v, want %d", len(stored), err, all)
					}
				})
			})
		}
	}
	t.Run("a replacement breaks a constraint", func(t *testing.T) {
		eachNursery(t, func(t *testing.T, n nursery) {
			rows := []seedling{{ID: 1, GrowerID: new(int64(99))}, {ID: 2, Height: 1}, {ID: 3}}
			report, err := n.seedlings.Import(t.Context(), replacing(true, importRows(rows)), models.ImportOptions{Partial: true})
			if err != nil || report.Replaced != 1 || report.Created != 1 || report.Rejected != 1 || !report.Stored || report.Errors[0].Line != 1 {
				t.Fatalf("got %+v, %v, want that only line 1 is rejected", report, err)
			}
			if got := brokenRow(t, report.Errors[0].Err); got != noGrower {
				t.Errorf("got %q, want %q", got, noGrower)
			}
		})
	})
}

// TestDeleteBesideInserts deletes a row while rows that refer to it are inserted. Each write has one of its
// answers, and no reference is broken.
func TestDeleteBesideInserts(t *testing.T) {
	eachNursery(t, func(t *testing.T, n nursery) {
		const rounds, inserts = 20, 10
		for round := range rounds {
			id := int64(1000 + round)
			if err := errorOf(n.growers.Create(t.Context(), &grower{ID: id, Name: fmt.Sprint("grower ", id)})); err != nil {
				t.Fatal(err)
			}
			deleted, inserted := "", make([]string, inserts+1)
			inParallel(inserts+1, func(i int) {
				if i == inserts/2 {
					deleted = brokenRow(t, errorOf(n.growers.Delete(t.Context(), id, models.Condition{})))
					return
				}
				s := &seedling{ID: id*100 + int64(i), GrowerID: &id}
				inserted[i] = brokenRow(t, errorOf(n.seedlings.Create(t.Context(), s)))
			})
			want := []string{"", fmt.Sprintf("grower_id: there is no grower %d", id)}
			for _, got := range inserted {
				if !slices.Contains(want, got) {
					t.Errorf("insert: got %q, want one of %q", got, want)
				}
			}
			if want := fmt.Sprintf("grower %d still has seedlings", id); deleted != "" && deleted != want {
				t.Errorf("delete: got %q, want %q", deleted, want)
			}
		}
		var broken int64
		err := n.db.Raw("SELECT count(*) FROM seedlings s WHERE grower_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM growers g WHERE g.id = s.grower_id)").Scan(&broken).Error
		if err != nil || broken != 0 {
			t.Errorf("got %d broken references, %v", broken, err)
		}
	})
}

// TestStatementWithoutItsColumn: a statement that a person has written names a table or a column that does not
// exist. The database works, so to retry is no use.
func TestStatementWithoutItsColumn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		plants := models.NewPlantStore(db)
		write := func(statement string) error {
			_, err := db.Write(t.Context(), "test", func(tx *database.DB) error { return tx.Exec(statement).Error })
			return err
		}
		for name, err := range map[string]error{
			"a column of a query": plants.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB { return tx.Where("colour = 1").Find(&[]models.Plant{}) }),
			"a column of a write": write("UPDATE plants SET colour = 1"),
			"a table":             write("DELETE FROM planets"),
		} {
			t.Run(name, func(t *testing.T) {
				if err == nil || errors.Is(err, fault.ErrUnavailable) {
					t.Errorf("got %v, want an error other than ErrUnavailable", err)
				}
			})
		}
		if err := db.Exec("ALTER TABLE plants RENAME COLUMN tag TO tags").Error; err != nil {
			t.Fatal(err)
		}
		_, err := plants.List(t.Context(), models.Filter[int64]{Limit: 1})
		if want := db.Dialect.Facts().System == "postgresql"; err == nil || errors.Is(err, fault.ErrUnavailable) != want {
			t.Errorf("a column of a model: got %v, want an unavailable database on PostgreSQL", err)
		}
	})
}
