package models_test

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/limit"
	"plantstore/models"
)

// repair is a row of a table that has no store.
type repair struct {
	ID      int64
	PotCode string
	Note    string
}

// repairedPot is a pot with its repairs, for Preload.
type repairedPot struct {
	pot
	Code    string   `gorm:"primaryKey"`
	Repairs []repair `gorm:"foreignKey:PotCode;references:Code"`
}

func (repairedPot) TableName() string { return "pots" }

// eachRepairStore runs test with a store of pots and a table of repairs on each kind of database.
func eachRepairStore(t *testing.T, test func(t *testing.T, store *models.Store[pot, string], db *database.DB)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		store, db := newPotStore(t, url)
		key := "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY"
		if db.Dialector.Name() == "sqlite" {
			key = "INTEGER PRIMARY KEY"
		}
		if err := db.Exec("CREATE TABLE repairs (id " + key + ", pot_code text NOT NULL, note text NOT NULL CHECK (note <> ''))").Error; err != nil {
			t.Fatal(err)
		}
		create(t, store, somePots...)
		test(t, store, db)
	})
}

// mend returns a closure that notes a repair, and changes columns of a pot.
func mend(note string) func(*gorm.DB, *pot) error {
	return func(tx *gorm.DB, p *pot) error {
		p.Width, p.Label = p.Width+1, &note
		return tx.Create(&repair{PotCode: p.Code, Note: note}).Error
	}
}

func TestUpdate(t *testing.T) {
	failure := errors.New("failure")
	eachRepairStore(t, func(t *testing.T, store *models.Store[pot, string], db *database.DB) {
		stale := []time.Time{time.Unix(1, 0).UTC()}
		for _, test := range []struct {
			name      string
			key       string
			condition func(*pot) models.Condition // for the pot that is stored
			do        func(*gorm.DB, *pot) error
			want      any // an error, or the type of an error
		}{
			{"any version", "a", nil, mend("glued"), nil},
			{"the version that the client has seen", "a", func(p *pot) models.Condition {
				return models.Condition{Versions: append(stale, p.UpdatedAt)}
			}, mend("glued"), nil},
			{"another version", "a", func(*pot) models.Condition { return models.Condition{Versions: stale} }, mend("glued"), models.ErrCondition},
			{"no version at all", "a", func(*pot) models.Condition { return models.Condition{Versions: []time.Time{}} }, mend("glued"), models.ErrCondition},
			{"an existing row", "a", func(*pot) models.Condition { return models.Condition{Exists: true} }, mend("glued"), nil},
			{"an absent row", "a", func(*pot) models.Condition { return models.Condition{Absent: true} }, mend("glued"), models.ErrCondition},
			{"no such row", "x", nil, mend("glued"), new(models.NotFoundError)},
			{"the closure fails", "a", nil, func(tx *gorm.DB, p *pot) error { return errors.Join(mend("glued")(tx, p), failure) }, failure},
			{"the row breaks a rule", "a", nil, mend(strings.Repeat("x", 21)), new(models.InvalidError)},
			{"the closure changes the key", "a", nil, func(tx *gorm.DB, p *pot) error {
				defer func() { p.Code = "0" }()
				return mend("glued")(tx, p)
			}, nil},
			{"the closure deletes the row", "a", nil, func(tx *gorm.DB, p *pot) error {
				return errors.Join(mend("glued")(tx, p), tx.Delete(p).Error)
			}, "the row was not stored"},
		} {
			t.Run(test.name, func(t *testing.T) {
				before, _ := store.Get(t.Context(), test.key)
				others, repairs := bareAll(list(t, store)), countOf(t, db, "repairs")
				var condition models.Condition
				if test.condition != nil {
					condition = test.condition(before)
				}
				outcome, err := store.Update(t.Context(), test.key, condition, test.do)
				if test.want != nil {
					if !isLike(err, test.want) || outcome.Row != nil {
						t.Errorf("got %+v, %v, want %v", outcome, err, test.want)
					}
					if now, n := bareAll(list(t, store)), countOf(t, db, "repairs"); n != repairs || !reflect.DeepEqual(now, others) {
						t.Errorf("got %+v and %d repairs, want them as before", now, n)
					}
					return
				}
				want := bare(*before)
				want.Width, want.Label = want.Width+1, new("glued")
				if err != nil || outcome.Created || !reflect.DeepEqual(bare(*outcome.Row), want) {
					t.Fatalf("got %+v, %v, want %+v", outcome, err, want)
				}
				if !outcome.Row.CreatedAt.Equal(before.CreatedAt) || !outcome.Row.UpdatedAt.After(before.UpdatedAt) {
					t.Errorf("got the timestamps of %+v, want a new version of %+v", outcome.Row, before)
				}
				stored, err := store.Get(t.Context(), test.key)
				if n := countOf(t, db, "repairs"); err != nil || n != repairs+1 || !reflect.DeepEqual(stored, outcome.Row) {
					t.Errorf("got %+v, %v and %d repairs, want %+v", stored, err, n, outcome.Row)
				}
			})
		}
		t.Run("concurrent updates of a row", func(t *testing.T) {
			const updates = 20
			before, err := store.Get(t.Context(), "B")
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for i := range updates {
				group.Go(func() {
					err := limit.ErrBusy
					for errors.Is(err, limit.ErrBusy) { // on a slow machine, the turns of so many take longer than they may wait
						_, err = store.Update(t.Context(), "B", models.Condition{}, mend(strconv.Itoa(i)))
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
			if after, err := store.Get(t.Context(), "B"); err != nil || after.Width != before.Width+updates {
				t.Errorf("got %+v, %v, want %d", after, err, before.Width+updates)
			}
		})
	})
}

// isLike reports whether err is target, is of its type, or has its text.
func isLike(err error, target any) bool {
	switch target := target.(type) {
	case *models.NotFoundError:
		_, ok := errors.AsType[*models.NotFoundError](err)
		return ok
	case *models.InvalidError:
		_, ok := errors.AsType[*models.InvalidError](err)
		return ok
	case error:
		return errors.Is(err, target)
	}
	return err != nil && strings.Contains(err.Error(), target.(string))
}

func list(t *testing.T, store *models.Store[pot, string]) []pot {
	t.Helper()
	all, err := store.List(t.Context(), models.Filter[string]{Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func countOf(t *testing.T, db *database.DB, table string) (n int) {
	t.Helper()
	if err := db.Raw("SELECT count(*) FROM " + table).Scan(&n).Error; err != nil {
		t.Fatal(err)
	}
	return n
}

// TestUpdateOfALockedRow: the closure gets the row as the holder of the lock leaves it.
func TestUpdateOfALockedRow(t *testing.T) {
	t.Parallel()
	store, holder := storeWithHolder(t, 30*time.Second)
	if _, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "old"}); err != nil {
		t.Fatal(err)
	}
	if err := holder.Exec("UPDATE plants SET name = 'held'").Error; err != nil {
		t.Fatal(err)
	}
	updated := make(chan string, 1)
	go func() {
		outcome, err := store.Update(t.Context(), 1, models.Condition{}, func(_ *gorm.DB, p *models.Plant) error {
			p.Name += " and updated"
			return nil
		})
		if err != nil {
			updated <- err.Error()
			return
		}
		updated <- outcome.Row.Name
	}()
	if _, err := store.Create(t.Context(), &models.Plant{ID: 2, Name: "free"}); err != nil {
		t.Errorf("another row: got %v", err)
	}
	if err := holder.Commit().Error; err != nil {
		t.Fatal(err)
	}
	if got := <-updated; got != "held and updated" {
		t.Errorf("got %q", got)
	}
}

// TestUpdateIsAChange: followers of the feed see it.
func TestUpdateIsAChange(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := models.NewPlantStore(db)
		if _, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "old"}); err != nil {
			t.Fatal(err)
		}
		feed, r := models.NewFeed(store), newReplica()
		follow(t, r, feed, db, 10)
		if _, err := store.Update(t.Context(), 1, models.Condition{}, func(_ *gorm.DB, p *models.Plant) error {
			p.Name = "new"
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		follow(t, r, feed, db, 10)
	})
}

func TestQuery(t *testing.T) {
	eachRepairStore(t, func(t *testing.T, store *models.Store[pot, string], _ *database.DB) {
		for _, note := range []string{"glued", "painted"} {
			if _, err := store.Update(t.Context(), "B", models.Condition{}, mend(note)); err != nil {
				t.Fatal(err)
			}
		}
		t.Run("a join", func(t *testing.T) {
			var pots []pot
			err := store.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB {
				return tx.Joins("JOIN repairs ON repairs.pot_code = pots.code").Where("note = ?", "glued").Find(&pots)
			})
			if err != nil || len(pots) != 1 || pots[0].Code != "B" || *pots[0].Label != "painted" {
				t.Errorf("got %+v, %v", pots, err)
			}
		})
		t.Run("Preload", func(t *testing.T) {
			var pots []repairedPot
			err := store.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB { return tx.Preload("Repairs").Order("code").Find(&pots) })
			if err != nil || len(pots) != len(somePots) || len(pots[1].Repairs) != 2 || pots[1].Repairs[1].Note != "painted" {
				t.Errorf("got %+v, %v", pots, err)
			}
		})
		t.Run("rows of no model", func(t *testing.T) {
			var counts []struct {
				PotCode string
				Repairs int
			}
			err := store.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB {
				return tx.Table("repairs").Select("pot_code, count(*) AS repairs").Group("pot_code").Scan(&counts)
			})
			if err != nil || len(counts) != 1 || counts[0].PotCode != "B" || counts[0].Repairs != 2 {
				t.Errorf("got %+v, %v", counts, err)
			}
		})
		t.Run("no row", func(t *testing.T) {
			err := store.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB { return tx.Take(new(pot), "material = ?", "gold") })
			if !isLike(err, new(models.NotFoundError)) {
				t.Errorf("got %v, want a NotFoundError", err)
			}
		})
		t.Run("a wrong column", func(t *testing.T) {
			err := store.Query(t.Context(), database.Few, func(tx *gorm.DB) *gorm.DB { return tx.Where("colour = ?", "red").Find(&[]pot{}) })
			if err == nil || !strings.HasPrefix(err.Error(), "query pots: ") {
				t.Errorf("got %v", err)
			}
		})
	})
}

// TestReadsAfterAnUpdate: a standby that lacks the update does not serve the reads of the client who made it.
func TestReadsAfterAnUpdate(t *testing.T) {
	t.Parallel()
	primary := dbtest.OwnServer(t)
	standby := primary.OwnStandby(t)
	dbtest.Migrated(t, primary.URL)
	o := dbtest.Options(primary.URL)
	o.ReplicaURLs, o.MaxReplicaLag = []string{standby.URL}, time.Minute
	db := dbtest.Open(t, o)
	if err := db.UseStandbys(); err != nil {
		t.Fatal(err)
	}
	store := models.NewPlantStore(db)
	writer, other := limit.WithClient(t.Context(), "writer"), limit.WithClient(t.Context(), "other")
	if _, err := store.Create(other, &models.Plant{ID: 1, Name: "old"}); err != nil {
		t.Fatal(err)
	}
	for begin := time.Now(); db.Standby(other) == nil; time.Sleep(10 * time.Millisecond) {
		if time.Since(begin) > patience {
			t.Fatal("the standby is not used")
		}
	}
	dbtest.Exec(t, standby.URL, "SELECT pg_wal_replay_pause()")
	outcome, err := store.Update(writer, 1, models.Condition{}, func(_ *gorm.DB, p *models.Plant) error {
		p.Name = "new"
		return nil
	})
	if err != nil || outcome.Position == 0 {
		t.Fatalf("got %+v, %v", outcome, err)
	}
	for want, ctx := range map[string]context.Context{"new": writer, "old": other} {
		if p, err := store.Get(ctx, 1); err != nil || p.Name != want {
			t.Errorf("Get: got %+v, %v, want %s", p, err, want)
		}
		var name string
		if err := store.Query(ctx, database.Few, func(tx *gorm.DB) *gorm.DB { return tx.Model(&models.Plant{}).Pluck("name", &name) }); err != nil || name != want {
			t.Errorf("Query: got %s, %v, want %s", name, err, want)
		}
	}
	t.Run("a position for another replica", func(t *testing.T) {
		ctx := database.WithPosition(other, outcome.Position)
		if p, err := store.Get(ctx, 1); err != nil || p.Name != "new" {
			t.Errorf("got %+v, %v, want new", p, err)
		}
	})
}

// stampedPot is a pot with a third timestamp.
type stampedPot struct {
	Code      string `gorm:"primaryKey"`
	Material  string
	Width     int64
	Holed     bool
	CreatedAt time.Time
	GlazedAt  time.Time `gorm:"autoUpdateTime"`
	UpdatedAt time.Time
}

func (stampedPot) TableName() string { return "pots" }

func (stampedPot) Rules() models.Rules {
	rules := pot{}.Rules()
	return models.Rules{"code": rules["code"], "material": rules["material"]}
}

func TestUpdateKeepsTheTimeOfCreation(t *testing.T) {
	t.Parallel()
	pots, db := newPotStore(t, dbtest.SQLite(t))
	if err := db.Exec("ALTER TABLE pots ADD COLUMN glazed_at timestamp").Error; err != nil {
		t.Fatal(err)
	}
	before := somePots[0]
	create(t, pots, before)
	if err := db.Exec("UPDATE pots SET glazed_at = updated_at, created_at = ?", time.Unix(1, 0).UTC()).Error; err != nil {
		t.Fatal(err)
	}
	store := models.NewStore[stampedPot, string](db)
	got, err := store.Update(t.Context(), before.Code, models.Condition{}, func(_ *gorm.DB, p *stampedPot) error {
		p.Width++
		return nil
	})
	if err != nil || !got.Row.CreatedAt.Equal(time.Unix(1, 0)) || got.Row.Width != before.Width+1 {
		t.Errorf("got %+v, %v, want the time of creation, and the new width", got.Row, err)
	}
}
