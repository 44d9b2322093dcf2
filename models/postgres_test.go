package models_test

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"iter"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database/dbtest"
	"plantstore/database/limit"
	"plantstore/models"
)

// everyOperation uses each operation of the stores, with plants from first, and
// returns the results, which do not depend on first.
func everyOperation(t *testing.T, plants *models.PlantStore, tokens *models.TokenStore, first int64) (results []string) {
	t.Helper()
	ctx := t.Context()
	step := func(result any, err error) {
		t.Helper()
		text, _ := json.Marshal(result)
		results = append(results, strings.ReplaceAll(fmt.Sprint(string(text), " ", err), fmt.Sprint("plant ", first+1), "plant 2"))
	}
	wrote := func(o models.Outcome[models.Plant], err error) { t.Helper(); step(o.Created, err) }
	const name = `a\b'c € NULL`
	create := func(id int64, tag *string) {
		p := models.Plant{ID: id, Name: name, Tag: tag}
		wrote(plants.Create(ctx, &p))
	}
	create(first, nil)
	create(first+1, new("NULL"))
	create(first+1, new(""))
	read := func(p *models.Plant, err error) {
		t.Helper()
		if err != nil {
			step(nil, err)
			return
		}
		at := p.CreatedAt.UTC()
		if time.Since(at).Abs() > time.Minute || !p.UpdatedAt.Equal(at) && time.Since(p.UpdatedAt).Abs() > time.Minute {
			t.Errorf("plant %d: got the times %v and %v", p.ID, p.CreatedAt, p.UpdatedAt)
		}
		p.ID -= first
		step(content(*p), nil)
	}
	read(plants.Get(ctx, first))
	put := models.Plant{ID: first + 2, Name: name}
	wrote(plants.Put(ctx, &put, models.Condition{}))
	again := models.Plant{ID: first + 2, Name: "again"}
	wrote(plants.Put(ctx, &again, models.Condition{Versions: []time.Time{put.UpdatedAt}}))
	patched, err := plants.Patch(ctx, &models.Plant{ID: first, Tag: new("x")}, []string{"tag"}, models.Condition{})
	read(patched.Row, err)
	rows := func(yield func(models.ImportRow[models.Plant], error) bool) {
		for i := range int64(3) { // the first exists
			if !yield(models.ImportRow[models.Plant]{Line: int(i), Row: models.Plant{ID: first + 2 + i, Name: "again"}}, nil) {
				return
			}
		}
	}
	report, err := plants.Import(ctx, rows, models.ImportOptions{})
	step(report, err)
	list, err := plants.List(ctx, models.Filter[int64]{After: new(first - 1), Limit: 10, Where: []models.Comparison{{"name", models.Contains, []any{"a"}}}})
	step(nil, err)
	for _, p := range list {
		if p.ID < first+10 { // not of another client
			read(&p, nil)
		}
	}
	exported := 0
	step(nil, plants.Export(ctx, models.Filter[int64]{}, models.Each(func(p *models.Plant) error {
		if p.ID >= first && p.ID < first+10 {
			exported++
		}
		return nil
	})))
	step(exported, nil)
	for i := range int64(5) {
		wrote(plants.Delete(ctx, first+i, models.Condition{}))
	}
	token := models.Token{Name: name, Scopes: models.Scopes{models.ReadScope("plants")}, ExpiresAt: new(time.Now().Add(time.Hour))}
	secret, err := tokens.Create(ctx, &token)
	step(nil, err)
	step(nil, tokens.Touch(ctx, []string{token.ID}))
	ids, err := tokens.ActiveIDs(ctx)
	step(slices.Contains(ids, token.ID), err)
	found, err := tokens.Find(ctx, []string{token.ID, "pst_unknown"})
	if hash, _ := models.HashToken(secret); len(found) != 1 || string(found[0].Hash) != string(hash[:]) || !found[0].ExpiresAt.Equal(*token.ExpiresAt) ||
		found[0].LastUsedAt == nil || time.Since(*found[0].LastUsedAt).Abs() > time.Minute {
		t.Errorf("got %+v, %v, want %+v", found, err, token)
	}
	_, err = tokens.List(ctx, "", 1000)
	step(nil, err)
	step(nil, tokens.Revoke(ctx, token.ID))
	return results
}

// TestSessionSettings: the defaults of a database or a role do not change what is stored or
// how it looks, in binary format or as text.
func TestSessionSettings(t *testing.T) {
	t.Parallel()
	plain := dbtest.Migrated(t, dbtest.Postgres(t))
	want := everyOperation(t, models.NewPlantStore(plain), models.NewTokenStore(plain), 1)
	for _, mode := range []string{"cache_statement", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			url := dbtest.Postgres(t)
			name := url[strings.LastIndex(url, "/")+1 : strings.Index(url, "?")]
			for setting, value := range map[string]string{
				"DateStyle": "'German, DMY'", "IntervalStyle": "sql_standard", "TimeZone": "'Asia/Kathmandu'", "extra_float_digits": "-15",
				"bytea_output": "escape", "array_nulls": "off", "standard_conforming_strings": "off", "default_transaction_isolation": "serializable",
			} {
				dbtest.Exec(t, url, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", name, setting, value))
			}
			db := dbtest.Migrated(t, url+"&default_query_exec_mode="+mode)
			if got := everyOperation(t, models.NewPlantStore(db), models.NewTokenStore(db), 1); !slices.Equal(got, want) {
				t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
			}
			var isolation string
			if err := db.Raw("SHOW transaction_isolation").Scan(&isolation).Error; err != nil || isolation != "read committed" {
				t.Errorf("got the isolation %s, %v", isolation, err)
			}
		})
	}
}

// TestStatementsNameTheirColumns: SELECT * and RETURNING * fail on running replicas when a
// column is added.
func TestStatementsNameTheirColumns(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		core, logs := observer.New(zap.WarnLevel)
		o := dbtest.Options(url)
		o.SlowQuery = time.Nanosecond
		db := dbtest.OpenWith(t, o, dbtest.Batches, zap.New(core))
		if err := db.Schema.Prepare(t.Context()); err != nil {
			t.Fatal(err)
		}
		everyOperation(t, models.NewPlantStore(db), models.NewTokenStore(db), 1)
		star := regexp.MustCompile(`(?i)(SELECT|RETURNING)\s+(\S*\.)?\*`)
		statements := 0
		for _, line := range logs.FilterMessage("slow query").All() {
			statements++
			if text := fmt.Sprint(line.ContextMap()["sql"]); star.MatchString(text) {
				t.Error(text)
			}
		}
		if statements < 20 {
			t.Errorf("got %d statements", statements)
		}
	})
}

// TestSchemaChangesUnderLoad changes the tables as the migrations of a newer version would,
// so that plans that connections have cached become obsolete. No operation fails.
func TestSchemaChangesUnderLoad(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	plants, tokens := models.NewPlantStore(db), models.NewTokenStore(db)
	want := everyOperation(t, plants, tokens, 1)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for client := range int64(2) { // as many as there are slots for imports and exports
		group.Go(func() {
			for first := (client + 1) * 1_000_000; ; first += 10 {
				select {
				case <-stop:
					return
				default:
				}
				if got := everyOperation(t, plants, tokens, first); !slices.Equal(got, want) {
					t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
				}
			}
		})
	}
	for i := range 10 {
		for _, statement := range []string{
			"ALTER TABLE plants ADD COLUMN extra%d bigint", "ALTER TABLE tokens ADD COLUMN extra%d bigint",
			"ALTER TABLE plants ALTER COLUMN tag TYPE varchar(%d)", "ALTER TABLE tokens ALTER COLUMN name TYPE varchar(%d)",
			"ALTER TABLE plants ALTER COLUMN tag TYPE text -- %d", "ALTER TABLE tokens ALTER COLUMN name TYPE text -- %d",
		} {
			dbtest.Exec(t, url, fmt.Sprintf(statement, 300+i))
			time.Sleep(20 * time.Millisecond) // for some operations in between
		}
	}
	close(stop)
	group.Wait()
}

// TestImportsInOppositeOrder: neither may wait for a row of the other that waits for it. PostgreSQL
// is kept from ending a deadlock.
func TestImportsInOppositeOrder(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	dbtest.Exec(t, url, "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 3600000', current_database()); END $$")
	for _, test := range []struct {
		name    string
		present bool // a row exists, so that the rows cannot be copied at once
	}{{"new rows", false}, {"some rows exist", true}} {
		t.Run(test.name, func(t *testing.T) {
			db := dbtest.Migrated(t, url)
			store := models.NewPlantStore(db)
			const rows = 10_000
			if err := db.Exec("TRUNCATE plants CASCADE").Error; err != nil {
				t.Fatal(err)
			}
			if test.present {
				for _, id := range []int64{0, rows - 1} {
					if _, err := store.Create(t.Context(), &models.Plant{ID: id, Name: "x"}); err != nil {
						t.Fatal(err)
					}
				}
			}
			// Both wait for this lock, and then begin at the same time.
			tx := db.Begin()
			if err := tx.Exec("LOCK TABLE plants IN EXCLUSIVE MODE").Error; err != nil {
				t.Fatal(err)
			}
			ordered := func(id func(i int64) int64) iter.Seq2[models.ImportRow[models.Plant], error] {
				return func(yield func(models.ImportRow[models.Plant], error) bool) {
					for i := range int64(rows) {
						if !yield(models.ImportRow[models.Plant]{Line: int(i) + 1, Row: models.Plant{ID: id(i), Name: "x"}}, nil) {
							return
						}
					}
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			reports := make([]models.ImportReport, 2)
			var group sync.WaitGroup
			for n, id := range []func(int64) int64{func(i int64) int64 { return i }, func(i int64) int64 { return rows - 1 - i }} {
				group.Go(func() {
					var err error
					client := limit.WithClient(ctx, strconv.Itoa(n)) // one of each client runs at a time
					if reports[n], err = store.Import(client, ordered(id), models.ImportOptions{}); err != nil {
						t.Error(err)
					}
				})
			}
			for waiting := 0; waiting < 2; time.Sleep(5 * time.Millisecond) {
				err := db.Raw("SELECT count(*) FROM pg_locks WHERE relation = 'plants'::regclass AND NOT granted").Scan(&waiting).Error
				if err = cmp.Or(err, ctx.Err()); err != nil {
					t.Fatal(err)
				}
			}
			if err := tx.Rollback().Error; err != nil {
				t.Fatal(err)
			}
			group.Wait()
			created, unchanged := reports[0].Created+reports[1].Created, reports[0].Unchanged+reports[1].Unchanged
			if created+unchanged != 2*rows || unchanged < rows || reports[0].Rejected+reports[1].Rejected > 0 {
				t.Errorf("got %+v and %+v", reports[0], reports[1])
			}
			countPlants(t, db, rows)
		})
	}
}

// TestSerializationFailures: PostgreSQL rolls back every other attempt to write.
func TestSerializationFailures(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	db := dbtest.Migrated(t, url)
	plants, tokens := models.NewPlantStore(db), models.NewTokenStore(db)
	want := everyOperation(t, plants, tokens, 1)
	// The numbers of a sequence survive a rollback.
	for _, statement := range []string{
		"CREATE SEQUENCE attempts",
		"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " +
			"IF nextval('attempts') % 2 = 1 THEN RAISE 'try again' USING ERRCODE = 'serialization_failure'; END IF; RETURN NULL; END $$",
	} {
		dbtest.Exec(t, url, statement)
	}
	for _, table := range []string{"plants", "tokens"} {
		dbtest.Exec(t, url, "CREATE TRIGGER fail BEFORE INSERT OR DELETE ON "+table+" FOR EACH STATEMENT EXECUTE FUNCTION fail()")
		dbtest.Exec(t, url, "CREATE TRIGGER fail_update AFTER UPDATE ON "+table+" FOR EACH ROW EXECUTE FUNCTION fail()")
	}
	if got := everyOperation(t, plants, tokens, 1); !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// TestImportCountsRowsOnce: PostgreSQL rolls back the first attempt to replace a row.
func TestImportCountsRowsOnce(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	store := models.NewPlantStore(dbtest.Migrated(t, url))
	if _, err := store.Create(t.Context(), &models.Plant{ID: 1, Name: "x"}); err != nil {
		t.Fatal(err)
	}
	// The numbers of a sequence survive a rollback.
	for _, statement := range []string{
		"CREATE SEQUENCE attempts",
		"CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN " +
			"IF nextval('attempts') = 1 THEN RAISE 'try again' USING ERRCODE = 'serialization_failure'; END IF; RETURN NULL; END $$",
		"CREATE TRIGGER fail AFTER UPDATE ON plants FOR EACH ROW EXECUTE FUNCTION fail()",
	} {
		dbtest.Exec(t, url, statement)
	}
	rows := func(yield func(models.ImportRow[models.Plant], error) bool) {
		_ = yield(models.ImportRow[models.Plant]{Line: 1, Row: models.Plant{ID: 1, Name: "replaced"}}, nil) &&
			yield(models.ImportRow[models.Plant]{Line: 2, Row: models.Plant{ID: 2, Name: "x"}}, nil)
	}
	want := models.ImportReport{Rows: 2, Created: 1, Replaced: 1, Keys: []string{"1"}, Stored: true}
	if got, err := store.Import(t.Context(), replacing(true, rows), models.ImportOptions{}); err != nil || !reflect.DeepEqual(got, want) {
		t.Errorf("got %+v, %v, want %+v", got, err, want)
	}
}
