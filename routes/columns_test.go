package routes

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
)

// specimen is a model with a column of each type, as a value and as a pointer.
type specimen struct {
	ID           int64 `gorm:"primaryKey;autoIncrement:false"`
	Name         string
	MaybeName    *string
	Notes        string
	MaybeNotes   *string
	Status       string
	MaybeStatus  *string
	Site         string
	MaybeSite    *string
	Count        int64
	MaybeCount   *int64
	Alive        bool
	MaybeAlive   *bool
	Weight       float64
	MaybeWeight  *float64
	SeenAt       time.Time
	MaybeSeenAt  *time.Time
	Since        models.Day
	MaybeSince   *models.Day
	Price        models.Number
	MaybePrice   *models.Number
	Batch        string
	MaybeBatch   *string
	Address      models.JSON
	MaybeAddress *models.JSON
	Labels       models.JSON
	MaybeLabels  *models.JSON
	CreatedAt    time.Time
	UpdatedAt    time.Time
}

func (specimen) Rules() models.Rules {
	rules := models.Rules{
		"name":    models.Text{Min: 1, Max: 20},
		"notes":   models.Text{Max: 200, Lines: true},
		"status":  models.OneOf("new", "in use", "a|b"),
		"site":    models.URL(40),
		"weight":  models.Float{Min: -1e6, Max: 1e6},
		"since":   models.Date(),
		"price":   models.Decimal(13, 2),
		"batch":   models.UUID(),
		"address": models.Object(200),
		"labels":  models.List(3, models.Text{Min: 1, Max: 10}),
	}
	for name, rule := range maps.Clone(rules) {
		rules["maybe_"+name] = rule
	}
	return rules
}

type specimenContent struct {
	Name         *string                `json:"name" binding:"required"`
	MaybeName    *string                `json:"maybe_name,omitzero"`
	Notes        *string                `json:"notes" binding:"required"`
	MaybeNotes   *string                `json:"maybe_notes,omitzero"`
	Status       *string                `json:"status" binding:"required"`
	MaybeStatus  *string                `json:"maybe_status,omitzero"`
	Site         *string                `json:"site" binding:"required"`
	MaybeSite    *string                `json:"maybe_site,omitzero"`
	Count        *int64                 `json:"count" binding:"required"`
	MaybeCount   *int64                 `json:"maybe_count,omitzero"`
	Alive        *bool                  `json:"alive" binding:"required"`
	MaybeAlive   *bool                  `json:"maybe_alive,omitzero"`
	Weight       *float64               `json:"weight" binding:"required"`
	MaybeWeight  *float64               `json:"maybe_weight,omitzero"`
	SeenAt       *controllers.Timestamp `json:"seen_at" binding:"required"`
	MaybeSeenAt  *controllers.Timestamp `json:"maybe_seen_at,omitzero"`
	Since        *models.Day            `json:"since" binding:"required"`
	MaybeSince   *models.Day            `json:"maybe_since,omitzero"`
	Price        *models.Number         `json:"price" binding:"required"`
	MaybePrice   *models.Number         `json:"maybe_price,omitzero"`
	Batch        *string                `json:"batch" binding:"required"`
	MaybeBatch   *string                `json:"maybe_batch,omitzero"`
	Address      *models.JSON           `json:"address" binding:"required"`
	MaybeAddress *models.JSON           `json:"maybe_address,omitzero"`
	Labels       *models.JSON           `json:"labels" binding:"required"`
	MaybeLabels  *models.JSON           `json:"maybe_labels,omitzero"`
}

// specimenColumn is a column with values in JSON.
type specimenColumn struct {
	name    string
	values  []string          // as responses have them
	same    string            // another form of the first value
	invalid map[string]string // why a value is rejected
}

var specimenColumns = []specimenColumn{
	{"name", []string{`"a"`, `"=1+1"`, `"-5"`}, `"\u0061"`, map[string]string{
		`""`: "40006 name must have 1 to 20 characters, not 0", `"a\nb"`: "40006 name contains the control character U+000A at character 2",
		`"a\u0000"`: "40006 name contains the control character U+0000 at character 2", `5`: "40004 name must be a string",
	}},
	{"notes", []string{`"a\n\tb"`, `""`, `"=a\n=b\n\n"`}, `"a\u000a\tb"`, map[string]string{
		`"a\rb"`: "40006 notes contains the control character U+000D at character 2",
	}},
	{"status", []string{`"new"`, `"in use"`, `"a|b"`}, `"n\u0065w"`, map[string]string{`"a"`: "40006 status must be one of new, in use, a|b", `""`: "40006 status must be one of new, in use, a|b"}},
	{"site", []string{`"https://example.org/a?b=%20#c"`, `"http://localhost:8080"`}, "", map[string]string{
		`"ftp://example.org"`: "40006 site must be an address of at most 40 characters that starts with http:// or https://",
		`"https://example.org/` + strings.Repeat("x", 21) + `"`: "40006 site must be an address of at most 40 characters that starts with http:// or https://",
		`"https://example.org/a b"`:                             "40006 site must be an address of at most 40 characters that starts with http:// or https://",
		`"javascript:alert(1)//http://a"`:                       "40006 site must be an address of at most 40 characters that starts with http:// or https://",
	}},
	{"count", []string{`-9223372036854775808`, `9223372036854775807`, `0`}, "", map[string]string{
		`1.5`: "40005 count must be an integer literal from -9223372036854775808 to 9223372036854775807, without fraction, exponent or quotes",
	}},
	{"alive", []string{`true`, `false`}, "", map[string]string{`"true"`: "40004 alive must be true or false"}},
	{"weight", []string{`0.1`, `-1000000`, `123456.78901234567`, `0`}, `1e-1`, map[string]string{
		`1000000.1`: "40006 weight must be from -1e+06 to 1e+06, not 1.0000001e+06", `1e999`: "40004 weight must be a number that a float64 can hold", `"1"`: "40004 weight must be a number that a float64 can hold",
	}},
	{"seen_at", []string{`"2026-11-27T09:30:00.123456Z"`, `"0000-01-01T00:00:00.000000Z"`, `"9999-12-31T23:59:59.999999Z"`, `"1969-07-20T20:17:40.500000Z"`}, `"2026-11-27t10:30:00.123456789+01:00"`, map[string]string{
		`"9999-12-31T23:59:59-01:00"`: "40006 seen_at must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z", `"0000-01-01T00:00:00+00:01"`: "40006 seen_at must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z",
		`"2026-11-27"`: "40006 seen_at must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z", `5`: "40004 seen_at must be a time of RFC 3339, as a string",
	}},
	{"since", []string{`"2026-11-27"`, `"0001-01-01"`, `"9999-12-31"`}, "", map[string]string{
		`"2026-02-29"`: "40006 since must be a date from 0001-01-01 to 9999-12-31", `"10000-01-01"`: "40006 since must be a date from 0001-01-01 to 9999-12-31",
		`"0000-01-01"`: "40006 since must be a date from 0001-01-01 to 9999-12-31", `"infinity"`: "40006 since must be a date from 0001-01-01 to 9999-12-31", `20261127`: "40004 since must be a string",
	}},
	{"price", []string{`"4.5"`, `"-9999999999999.99"`, `"9999999999999.99"`, `"0"`, `"-0.01"`, `"10000000"`}, `"4.50"`, map[string]string{
		`"10000000000000"`: "40006 price must be a decimal number with at most 13 digits before and 2 after the point", `"1.234"`: "40006 price must be a decimal number with at most 13 digits before and 2 after the point",
		`"1e3"`: "40006 price must be a decimal number with at most 13 digits before and 2 after the point", `"NaN"`: "40006 price must be a decimal number with at most 13 digits before and 2 after the point",
		`4.5`: "40004 price must be a string",
	}},
	{"batch", []string{`"0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e"`, `"00000000-0000-0000-0000-000000000000"`}, "", map[string]string{
		`"0198C5F0-5b1e-7c3a-9d2e-3f4a5b6c7d8e"`: "40006 batch must be a UUID in lower case, such as 0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e",
		`"0198c5f05b1e7c3a9d2e3f4a5b6c7d8e"`:     "40006 batch must be a UUID in lower case, such as 0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e",
	}},
	{"address", []string{`{"city":"Genève","x":[1.50,null,{"a":"<&> \n=","b":9007199254740993}],"zip":1201}`, `{}`, `{"a":"; =1"}`, `{"a":[1e400,-0,"\\u0000"]}`, `{"a":` + strings.Repeat("[", 90) + strings.Repeat("]", 90) + `}`}, `{"x": [1.50, null, {"a":"<&> \n\u003d", "b":9007199254740993}], "zip":1201, "city":"Gen\u00e8ve"}`, map[string]string{
		`[]`: objectError, `"{}"`: objectError, `{"a":"\u0000"}`: objectError, `{"\u0000":1}`: objectError, `{"a":"\\\\\u0000"}`: objectError, `{"a":"` + strings.Repeat("x", 200) + `"}`: objectError, `true`: objectError,
		`{"a":1,"a":2}`: "40003 duplicate field address.a",
	}},
	{"labels", []string{`["a","b","a"]`, `[]`, `["=x"]`}, `[ "\u0061", "b", "a" ]`, map[string]string{
		`["a",null]`: listError, `{}`: listError, `["a","b","c","d"]`: listError, `[""]`: listError, `["a\u0000"]`: listError, `[1]`: listError, `"a"`: listError,
	}},
}

const (
	objectError = "40006 address must be an object of at most 200 bytes, without U+0000"
	listError   = "40006 labels must be an array of at most 3 texts, which are valid"
)

// specimens returns the handler of specimens in the database at url.
func specimens(t *testing.T, url string) (http.Handler, *database.DB) {
	t.Helper()
	o, _ := optionsOf(t)
	o.Verify, o.DB = anyToken, dbtest.Migrated(t, url)
	var columns []string
	rules := specimen{}.Rules()
	for _, c := range table.Of[specimen]().Columns {
		kind := c.Type // without a rule
		if rule := rules[c.DBName]; rule != nil {
			kind = rule.SQL()
		}
		column := c.DBName + " " + kind.Postgres
		if o.DB.Name() == strings.TrimPrefix(url, "sqlite:") {
			column = c.DBName + " " + kind.SQLite
		}
		if c.FieldType.Kind() != reflect.Pointer {
			column += " NOT NULL"
		}
		columns = append(columns, column)
	}
	columns[0] += " PRIMARY KEY"
	if err := o.DB.Exec("CREATE TABLE specimens (" + strings.Join(columns, ", ") + ")").Error; err != nil {
		t.Fatal(err)
	}
	r := controllers.NewResource[specimen, int64, specimenContent](o.DB, controllers.Lists{
		Unindexed: []string{"status", "site", "batch", "maybe_since", "maybe_price", "maybe_seen_at", "maybe_weight", "alive"},
		Sort:      []string{"since", "price", "seen_at", "weight", "count", "batch"},
	})
	if err := o.DB.CheckColumns(t.Context()); err != nil {
		t.Fatal(err)
	}
	body := []middleware.Handler{middleware.BodyLimit(1 << 20)}
	upload := append(slices.Clone(body), middleware.Bulk(o.Bulk, o.Verify), controllers.Receive(1<<20))
	parameters := []string{"limit", "sort", "after"}
	for _, f := range r.Filters() {
		parameters = append(parameters, f.Name)
	}
	const scope = models.ScopeAdmin
	return NewWith(o, []Route{
		{"POST", "/specimens", scope, nil, body, r.Create},
		{"GET", "/specimens", scope, parameters, body, r.List},
		{"GET", "/specimens/:id", scope, nil, body, r.Get},
		{"PUT", "/specimens/:id", scope, nil, body, r.Put},
		{"PATCH", "/specimens/:id", scope, nil, body, r.Patch},
		{"DELETE", "/specimens/:id", scope, nil, body, r.Delete},
		{"POST", "/specimens/import", scope, []string{"mode", "dry_run", "on_conflict", "ignore_columns"}, upload, r.Import},
		{"GET", "/specimens/export", scope, nil, body, r.Export},
	}), o.DB
}

// specimenOf returns the content of a specimen in JSON: the nth value of each column, or its other form if n is negative.
func specimenOf(n int) map[string]json.RawMessage {
	content := map[string]json.RawMessage{}
	for _, c := range specimenColumns {
		value := c.same
		if n >= 0 || value == "" {
			value = c.values[max(n, 0)%len(c.values)]
		}
		content[c.name], content["maybe_"+c.name] = json.RawMessage(value), json.RawMessage(value)
	}
	return content
}

func TestColumnsOfEveryType(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		handler, _ := specimens(t, url)
		server := httptest.NewServer(handler)
		t.Cleanup(server.Close)
		call := func(t *testing.T, method, path, contentType, body string) *httptest.ResponseRecorder {
			t.Helper()
			request, err := http.NewRequestWithContext(t.Context(), method, server.URL+"/specimens"+path, strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			request.Header.Set("Authorization", "Bearer x")
			request.Header.Set("Accept", contentType)
			if body != "" {
				request.Header.Set("Content-Type", contentType)
			}
			response := httptest.NewRecorder()
			got, err := server.Client().Do(request)
			if err != nil {
				t.Error(err)
				return response
			}
			defer got.Body.Close()
			response.Code = got.StatusCode
			maps.Copy(response.Header(), got.Header)
			_, _ = response.Body.ReadFrom(got.Body)
			return response
		}
		const inJSON, inNDJSON, inCSV = "application/json", "application/x-ndjson", "text/csv"
		encode := func(id any, content map[string]json.RawMessage) string {
			row := map[string]any{}
			for name, value := range content {
				row[name] = value
			}
			if id != nil {
				row["id"] = id
			}
			text, _ := json.Marshal(row) //nolint:errchkjson // valid JSON
			return string(text)
		}
		// check compares the content in text with want, byte for byte.
		check := func(t *testing.T, text string, want map[string]json.RawMessage) {
			t.Helper()
			got := map[string]json.RawMessage{}
			if err := json.Unmarshal([]byte(text), &got); err != nil {
				t.Fatalf("%v in %s", err, text)
			}
			for _, name := range []string{"id", "created_at", "updated_at"} {
				delete(got, name)
			}
			for _, name := range slices.Sorted(maps.Keys(want)) {
				if string(got[name]) != string(want[name]) {
					t.Errorf("%s: got %s, want %s", name, got[name], want[name])
				}
			}
			if len(got) != len(want) {
				t.Errorf("got %d fields, want %d: %s", len(got), len(want), text)
			}
		}
		must := func(t *testing.T, r *httptest.ResponseRecorder, status int) string {
			t.Helper()
			if r.Code != status {
				t.Fatalf("got %d %s, want %d", r.Code, r.Body, status)
			}
			return r.Body.String()
		}
		get := func(t *testing.T, id int, want map[string]json.RawMessage) {
			t.Helper()
			check(t, must(t, call(t, "GET", fmt.Sprintf("/%d", id), inJSON, ""), 200), want)
		}
		rejected := func(t *testing.T, r *httptest.ResponseRecorder, want string) {
			t.Helper()
			var e struct {
				Error   int
				Message string
			}
			_ = json.Unmarshal(r.Body.Bytes(), &e)
			if got := fmt.Sprintf("%d %s", e.Error, e.Message); got != want {
				t.Errorf("got %s, want %s", got, want)
			}
		}

		t.Run("POST", func(t *testing.T) {
			check(t, must(t, call(t, "POST", "", inJSON, encode(1, specimenOf(0))), 201), specimenOf(0))
			get(t, 1, specimenOf(0))
			for i, same := range []int{0, -1} {
				if r := call(t, "POST", "", inJSON, encode(1, specimenOf(same))); !strings.Contains(r.Body.String(), "40902") {
					t.Errorf("again, %d: got %s", i, r.Body)
				}
			}
			for _, c := range specimenColumns {
				for _, name := range []string{c.name, "maybe_" + c.name} {
					other := specimenOf(0)
					other[name] = json.RawMessage(c.values[1])
					if r := call(t, "POST", "", inJSON, encode(1, other)); !strings.Contains(r.Body.String(), "40901") {
						t.Errorf("another %s: got %s", name, r.Body)
					}
				}
			}
			must(t, call(t, "POST", "", inJSON, encode(2, specimenOf(-1))), 201)
			get(t, 2, specimenOf(0))
			zero := specimenOf(0)
			for _, prefix := range []string{"", "maybe_"} {
				zero[prefix+"weight"], zero[prefix+"price"] = json.RawMessage("-0.0"), json.RawMessage(`"-0.00"`)
			}
			must(t, call(t, "PUT", "/2", inJSON, encode(nil, zero)), 200)
			for _, prefix := range []string{"", "maybe_"} {
				zero[prefix+"weight"], zero[prefix+"price"] = json.RawMessage("0"), json.RawMessage(`"0"`)
			}
			get(t, 2, zero)
		})
		t.Run("many at the same time", func(t *testing.T) { // in batches
			var posts sync.WaitGroup
			for i := range 40 {
				posts.Go(func() { call(t, "POST", "", inJSON, encode(100+i, specimenOf(i))) })
			}
			posts.Wait()
			for i := range 40 {
				posts.Go(func() { call(t, "PUT", fmt.Sprintf("/%d", 100+i), inJSON, encode(nil, specimenOf(i+1))) })
			}
			posts.Wait()
			for i := range 40 {
				get(t, 100+i, specimenOf(i+1))
			}
			var page []json.RawMessage
			if err := json.Unmarshal([]byte(must(t, call(t, "GET", "?limit=100", inJSON, ""), 200)), &page); err != nil || len(page) != 42 {
				t.Fatalf("got %d rows, %v", len(page), err)
			}
			check(t, string(page[41]), specimenOf(40))
		})
		t.Run("lists", func(t *testing.T) {
			type row struct {
				ID                   int
				Status, Since, Price string
				SeenAt               string `json:"seen_at"`
				Batch                string
				Weight, Count        json.Number
			}
			list := func(query string) (rows []row) {
				t.Helper()
				for next := "/specimens?limit=7&" + query; next != ""; {
					r := call(t, "GET", strings.TrimPrefix(next, "/specimens"), inJSON, "")
					var page []row
					if err := json.Unmarshal([]byte(must(t, r, 200)), &page); err != nil {
						t.Fatal(err)
					}
					rows = append(rows, page...)
					link := r.Header().Get("Link")
					_, next, _ = strings.Cut(link, "<")
					next, _, _ = strings.Cut(next, ">")
				}
				return rows
			}
			all := list("")
			number := func(text string) float64 {
				n, err := json.Number(text).Float64()
				if err != nil {
					t.Fatal(err)
				}
				return n
			}
			for sort, order := range map[string]func(a, b row) int{
				"price":   func(a, b row) int { return cmp.Compare(number(a.Price), number(b.Price)) },
				"weight":  func(a, b row) int { return cmp.Compare(number(string(a.Weight)), number(string(b.Weight))) },
				"count":   func(a, b row) int { return cmp.Compare(number(string(a.Count)), number(string(b.Count))) },
				"since":   func(a, b row) int { return cmp.Compare(a.Since, b.Since) },
				"seen_at": func(a, b row) int { return cmp.Compare(a.SeenAt, b.SeenAt) },
				"batch":   func(a, b row) int { return cmp.Compare(a.Batch, b.Batch) },
			} {
				t.Run("by "+sort, func(t *testing.T) {
					want := slices.SortedStableFunc(slices.Values(all), func(a, b row) int { return cmp.Or(order(a, b), cmp.Compare(a.ID, b.ID)) })
					if got := list("sort=" + sort); !slices.Equal(got, want) {
						t.Errorf("got %v, want %v", got, want)
					}
					slices.Reverse(want)
					if got := list("sort=-" + sort); !slices.Equal(got, want) {
						t.Errorf("descending: got %v, want %v", got, want)
					}
				})
			}
			for query, keep := range map[string]func(row) bool{
				"price_after=-0.01": func(r row) bool { return number(r.Price) > -0.01 }, "price_before=9.50": func(r row) bool { return number(r.Price) < 9.5 },
				"maybe_price=4.50": func(r row) bool { return r.Price == "4.5" }, "maybe_since=2026-11-27": func(r row) bool { return r.Since == "2026-11-27" },
				"since_after=2026-11-26": func(r row) bool { return r.Since > "2026-11-26" }, "weight_before=0.1": func(r row) bool { return number(string(r.Weight)) < 0.1 },
				"maybe_weight=0.1": func(r row) bool { return r.Weight == "0.1" }, "seen_before=2026-11-27T09:30:00.123456Z": func(r row) bool { return r.SeenAt < "2026-11-27T09:30:00.123456Z" },
				"maybe_seen_at=2026-11-27T10:30:00.123456%2B01:00": func(r row) bool { return r.SeenAt == "2026-11-27T09:30:00.123456Z" },
				"status=in%20use": func(r row) bool { return r.Status == "in use" }, "batch=0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e": func(r row) bool { return r.Batch != "00000000-0000-0000-0000-000000000000" },
			} {
				t.Run(query, func(t *testing.T) {
					var got, want []int
					for _, r := range list(query + "&sort=id") {
						got = append(got, r.ID)
					}
					for _, r := range all {
						if keep(r) {
							want = append(want, r.ID)
						}
					}
					if !slices.Equal(got, want) || len(want) == 0 {
						t.Errorf("got %v, want %v", got, want)
					}
				})
			}
			for query, want := range map[string]string{
				"maybe_price=1.234":      "40007 maybe_price must be a decimal number with at most 13 digits before and 2 after the point",
				"since_after=2026-02-29": "40007 since_after must be a date from 0001-01-01 to 9999-12-31", "status=a": "40007 status must be one of new, in use, a|b",
				"maybe_weight=x": "40007 maybe_weight must be a number that a float64 can hold",
			} {
				rejected(t, call(t, "GET", "?"+query, inJSON, ""), want)
			}
		})
		t.Run("PUT", func(t *testing.T) {
			for n := range 7 {
				check(t, must(t, call(t, "PUT", "/1", inJSON, encode(nil, specimenOf(n))), 200), specimenOf(n))
				get(t, 1, specimenOf(n))
			}
			required := specimenOf(1)
			maps.DeleteFunc(required, func(name string, _ json.RawMessage) bool { return strings.HasPrefix(name, "maybe_") })
			must(t, call(t, "PUT", "/1", inJSON, encode(nil, required)), 200)
			get(t, 1, required)
		})
		t.Run("PATCH", func(t *testing.T) {
			want := specimenOf(1)
			must(t, call(t, "PUT", "/1", inJSON, encode(nil, want)), 200)
			for _, c := range specimenColumns {
				for _, name := range []string{c.name, "maybe_" + c.name} {
					want[name] = json.RawMessage(c.values[0])
					check(t, must(t, call(t, "PATCH", "/1", inJSON, encode(nil, map[string]json.RawMessage{name: want[name]})), 200), want)
				}
				delete(want, "maybe_"+c.name)
				must(t, call(t, "PATCH", "/1", inJSON, `{"maybe_`+c.name+`":null}`), 200)
				get(t, 1, want)
				rejected(t, call(t, "PATCH", "/1", inJSON, `{"`+c.name+`":null}`), "40004 "+c.name+" must not be null")
			}
		})
		t.Run("invalid values", func(t *testing.T) {
			for _, c := range specimenColumns {
				for value, want := range c.invalid {
					for _, prefix := range []string{"", "maybe_"} {
						row := specimenOf(0)
						row[prefix+c.name] = json.RawMessage(value)
						want := strings.Replace(want, " "+c.name, " "+prefix+c.name, 1)
						want = strings.Replace(want, "field "+c.name, "field "+prefix+c.name, 1)
						rejected(t, call(t, "PATCH", "/1", inJSON, encode(nil, map[string]json.RawMessage{prefix + c.name: row[prefix+c.name]})), want)
						rejected(t, call(t, "POST", "", inJSON, encode(3, row)), want)
						code, message, _ := strings.Cut(want, " ")
						rejected(t, call(t, "POST", "/import", inNDJSON, encode(3, row)), code+" line 1: "+message+"; nothing was stored")
					}
				}
			}
			for cell, want := range map[string]string{
				"seen_at\nyesterday": "40006 line 2: seen_at must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z; nothing was stored",
				"address\n[1":        strings.Replace(objectError, "address", "line 2: address", 1) + "; nothing was stored",
				"weight\nNaN":        "40004 line 2: weight must be a number that a float64 can hold; nothing was stored",
				"price\n4.567":       "40006 line 2: price must be a decimal number with at most 13 digits before and 2 after the point; nothing was stored",
			} {
				name, value, _ := strings.Cut(cell, "\n")
				export := call(t, "GET", "/export", inCSV, "").Body.String()
				header, _, _ := strings.Cut(export, "\n")
				row := make([]string, strings.Count(header, ",")+1)
				for i, column := range strings.Split(header, ",") {
					switch {
					case column == "id":
						row[i] = "77"
					case column == name:
						row[i] = value
					case !strings.HasPrefix(column, "maybe_"):
						row[i] = map[string]string{
							"name": "a", "notes": "a", "status": "new", "site": "http://a", "count": "1", "alive": "true", "weight": "1",
							"seen_at": "2026-11-27T00:00:00Z", "since": "2026-11-27", "price": "1", "batch": "0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e", "address": "{}", "labels": "[]",
						}[column]
					}
				}
				rejected(t, call(t, "POST", "/import", inCSV, header+"\n"+strings.Join(row, ",")+"\n"), want)
			}
		})
		for _, contentType := range []string{inNDJSON, inCSV} {
			t.Run("import and export of "+contentType, func(t *testing.T) {
				for n := range 7 {
					must(t, call(t, "PUT", fmt.Sprintf("/%d", 1+n), inJSON, encode(nil, specimenOf(n))), map[bool]int{true: 200, false: 201}[n < 2 || contentType == inCSV])
				}
				file := must(t, call(t, "GET", "/export", contentType, ""), 200)
				report := func(query, body, want string) {
					t.Helper()
					if r := must(t, call(t, "POST", "/import"+query, contentType, body), 200); !strings.Contains(r, want) {
						t.Errorf("%s: got %s, want %s", query, r, want)
					}
				}
				if contentType == inCSV && !strings.Contains(file, ",-9999999999999.99,") {
					t.Errorf("got a negative decimal number as a text:\n%s", file)
				}
				report("", file, `"rows":47,"created":0,"replaced":0,"unchanged":47,`)
				for n := range 7 {
					must(t, call(t, "PUT", fmt.Sprintf("/%d", 1+n), inJSON, encode(nil, specimenOf(n+1))), 200)
				}
				report("?on_conflict=replace&dry_run=true", file, `"replaced":7,"unchanged":40,`)
				report("?on_conflict=replace", file, `"replaced":7,"unchanged":40,`)
				for n := range 7 {
					get(t, 1+n, specimenOf(n))
				}
				for id := range 200 {
					call(t, "DELETE", fmt.Sprintf("/%d", id), inJSON, "")
				}
				report("?dry_run=true", file, `"created":47,`)
				report("", file, `"created":47,`)
				for n := range 7 {
					get(t, 1+n, specimenOf(n))
				}
				if again := must(t, call(t, "GET", "/export", contentType, ""), 200); again != file {
					t.Errorf("got another export:\n%s\n%s", again, file)
				}
			})
		}
	})
}

// TestSchemasFollowRules: the schema of a column accepts what its rule accepts, and rejects what it rejects,
// except for what only words can say.
func TestSchemasFollowRules(t *testing.T) {
	words := []string{`"0000-01-01"`, `{"a":"\u0000"}`, `{"\u0000":1}`, `{"a":"\\\\\u0000"}`, `{"a":"` + strings.Repeat("x", 200) + `"}`}
	for _, c := range specimenColumns {
		rule := specimen{}.Rules()[c.name]
		if rule == nil {
			continue
		}
		text, err := json.Marshal(rule.Schema())
		if err != nil {
			t.Fatal(err)
		}
		var schema openapi3.Schema
		if err := schema.UnmarshalJSON(text); err != nil {
			t.Fatal(err)
		}
		accepts := func(text string) bool {
			var value any
			if err := json.Unmarshal([]byte(text), &value); err != nil {
				return true // a number beyond a float64
			}
			return schema.VisitJSON(value) == nil
		}
		t.Run(c.name, func(t *testing.T) {
			for _, value := range append(slices.Clone(c.values), c.same) {
				if value != "" && !accepts(value) {
					t.Errorf("%s rejects %s", text, value)
				}
			}
			for value, why := range c.invalid {
				if strings.HasPrefix(why, "40006") && accepts(value) != slices.Contains(words, value) {
					t.Errorf("%s accepts %s: %t", text, value, accepts(value))
				}
			}
		})
	}
}

// TestColumnsOfAnotherType: a column of the database that cannot hold what its field has ends the start.
func TestColumnsOfAnotherType(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		_, db := specimens(t, url)
		for _, statement := range []string{"ALTER TABLE specimens DROP COLUMN since", "ALTER TABLE specimens ADD COLUMN since timestamp"} {
			if err := db.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		want := "the column specimens.since is of type timestamp in the database, and routes.specimen.Since, a models.Day, needs "
		if err := db.CheckColumns(t.Context()); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	})
}
