package routes

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database"
	"plantstore/database/dbtest"
)

// TestListsSortNoTable lists each resource in each order, with each filter, and checks that the plan of the
// statement sorts nothing, and begins at the row of a cursor: an index has the rows in their order. PostgreSQL, which would sort a small table,
// avoids it here if it can.
func TestListsSortNoTable(t *testing.T) {
	document := readDocument(t)
	dbtest.Each(t, func(t *testing.T, url string) {
		core, log := observer.New(zap.WarnLevel)
		o := dbtest.Options(url)
		o.SlowQuery = time.Nanosecond // logs each statement
		db := dbtest.OpenWith(t, o, database.BatchOptions{Flushers: 1, MaxBatch: 1, Queue: 1}, zap.New(core))
		if _, err := db.Schema.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		options, _ := optionsOf(t)
		options.DB, options.Verify = db, anyToken
		server := httptest.NewServer(New(options))
		defer server.Close()
		for _, r := range Resources(options) {
			for _, column := range slices.Concat(r.Lists().Equal, r.Lists().Sort) {
				t.Run(r.Name()+" has an index on "+column, func(t *testing.T) {
					if !db.Migrator().HasIndex(r.Name(), r.Name()+"_"+column) {
						t.Errorf("got no index %s_%s", r.Name(), column)
					}
				})
			}
			for _, query := range listQueries(t, r, document) {
				t.Run(r.Name()+"?"+query, func(t *testing.T) {
					log.TakeAll()
					request, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+"/"+r.Name()+"?"+query, nil)
					request.Header.Set("Authorization", "Bearer x")
					response, err := http.DefaultClient.Do(request)
					if err != nil {
						t.Fatal(err)
					}
					defer response.Body.Close()
					if response.StatusCode != http.StatusOK {
						t.Fatalf("got %s", response.Status)
					}
					lines := log.FilterMessage("slow query").TakeAll()
					if len(lines) == 0 {
						t.Fatal("no statement was logged")
					}
					text := lines[0].ContextMap()["sql"].(string)
					plan := planOf(t, db, url, text)
					if strings.Contains(plan, "Sort") || strings.Contains(plan, "TEMP B-TREE") {
						t.Errorf("%s sorts:\n%s", text, plan)
					}
					if isPair.MatchString(text) && !searchesPair.MatchString(plan) {
						t.Errorf("%s does not begin at a row:\n%s", text, plan)
					}
				})
			}
		}
	})
}

// isPair matches a comparison of a column and the key with a row, and searchesPair the search of an index for it.
var (
	isPair       = regexp.MustCompile(`\(\w+, \w+\) [<>] \(`)
	searchesPair = regexp.MustCompile(`Index Cond: .*ROW\(\w+, \w+\) [<>] ROW|SEARCH .*\(\w+,\w+\)[<>]\(\?,\?\)`)
)

// readDocument returns the OpenAPI document.
func readDocument(t *testing.T) (document map[string]any) {
	t.Helper()
	text, err := os.ReadFile("../docs/openapi.json")
	if err == nil {
		err = json.Unmarshal(text, &document)
	}
	if err != nil {
		t.Fatal(err)
	}
	return document
}

// listQueries returns a query for each order of the lists of r, alone, behind a row, with each filter, and with both.
// The values are the examples in document.
func listQueries(t *testing.T, r Resource, document map[string]any) (all []string) {
	t.Helper()
	at := func(path ...string) any {
		value := any(document)
		for _, name := range path {
			value = value.(map[string]any)[name]
		}
		return value
	}
	example := func(column string) any {
		return at("components", "schemas", "Stored"+reflect.TypeOf(r.Model()).Name(), "properties", column, "example")
	}
	valueOf := func(column string) string {
		value := example(column)
		if ref, refers := r.Model().Rules().Ref(column); refers && value == nil {
			value = at("components", "schemas", "Stored"+reflect.TypeOf(ref.To).Name(), "properties", "id", "example")
		}
		return fmt.Sprint(value)
	}
	for _, sort := range r.Sorts() {
		after := valueOf("id")
		if column := strings.TrimPrefix(sort, "-"); column != "id" {
			value, _ := json.Marshal(example(column))
			after = base64.RawURLEncoding.EncodeToString([]byte(after + " " + string(value)))
		}
		for _, behind := range []url.Values{{}, {"after": {after}}} {
			behind.Set("sort", sort)
			all = append(all, behind.Encode())
			for _, f := range r.Filters() {
				behind.Set(f.Name, valueOf(f.Column.DBName))
				all = append(all, behind.Encode())
				if f.Name == "tag" { // which may be any text
					behind.Add(f.Name, "x")
					all = append(all, behind.Encode())
				}
				behind.Del(f.Name)
			}
		}
	}
	return all
}

// planOf returns the plan of a statement whose parameters have unknown values.
func planOf(t *testing.T, db *database.DB, url, text string) string {
	t.Helper()
	var plan []string
	if db.Dialect.Facts().System == "sqlite" {
		var steps []struct{ Detail string }
		if err := db.Reads(t.Context()).Raw("EXPLAIN QUERY PLAN "+text, make([]any, strings.Count(text, "?"))...).Scan(&steps).Error; err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(steps)
	}
	conn, err := pgconn.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	values := strings.Repeat("NULL, ", strings.Count(text, "$"))
	results, err := conn.Exec(t.Context(), "SET enable_sort = off; SET plan_cache_mode = force_generic_plan; PREPARE list AS "+text+
		"; EXPLAIN EXECUTE list("+strings.TrimSuffix(values, ", ")+")").ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range results[len(results)-1].Rows {
		plan = append(plan, string(row[0]))
	}
	return strings.Join(plan, "\n")
}
