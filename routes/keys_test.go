package routes

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/controllers"
	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
)

// crate is a resource whose key is a UUID.
type crate struct {
	ID        models.ID `gorm:"primaryKey;autoIncrement:false"`
	Label     string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (crate) Rules() models.Rules {
	return models.Rules{"id": models.UUID(), "label": models.Text{Min: 1, Max: 20}}
}

type crateContent struct {
	Label *string `json:"label" binding:"required"`
}

// bulb is a resource that refers to crates.
type bulb struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	CrateID   *models.ID
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (bulb) Rules() models.Rules { return models.Rules{"crate_id": models.Ref{To: crate{}}} }

type bulbContent struct {
	CrateID *models.ID `json:"crate_id,omitzero"`
}

// crateIDs are three UUIDs in ascending order.
var crateIDs = []string{"00000000-0000-0000-0000-00000000000a", "0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e", "f0000000-0000-4000-8000-000000000000"}

// sendTo sends a request with a token and a body of a media type, and returns the status, the headers and the body of its response.
func sendTo(t *testing.T, server *httptest.Server, method, path, kind, body string) (status int, headers http.Header, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	request.Header = http.Header{"Authorization": {"Bearer x"}, "Content-Type": {kind}, "Accept": {kind}}
	r, err := server.Client().Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Body.Close()
	read, err := io.ReadAll(r.Body)
	if err != nil {
		t.Fatal(err)
	}
	return r.StatusCode, r.Header, string(read)
}

// TestUUIDsAreKeys uses every operation of a resource whose key is a UUID, and of a resource that refers to it.
func TestUUIDsAreKeys(t *testing.T) {
	dbtest.Each(t, testUUIDs)
	t.Run("PostgreSQL without prepared statements", func(t *testing.T) { // pgx does not ask for the types of arrays
		testUUIDs(t, dbtest.Postgres(t)+"&default_query_exec_mode=exec")
	})
}

func testUUIDs(t *testing.T, url string) {
	t.Parallel()
	o, _ := optionsOn(t, url)
	o.Verify = anyToken
	const times = "created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)"
	for _, table := range []string{
		"CREATE TABLE crates (id uuid PRIMARY KEY NOT NULL, label text NOT NULL, " + times,
		"CREATE INDEX crates_label ON crates (label, id)",
		"CREATE TABLE bulbs (id bigint PRIMARY KEY, crate_id uuid REFERENCES crates, " + times,
	} {
		if o.DB.Dialector.Name() == "sqlite" {
			table = strings.NewReplacer("timestamptz", "timestamp", "bigint PRIMARY", "integer PRIMARY", "uuid", "text").Replace(table)
		}
		if err := o.DB.Exec(table).Error; err != nil {
			t.Fatal(err)
		}
	}
	crates := controllers.NewResource[crate, models.ID, crateContent](o.DB, controllers.Lists{Sort: []string{"label"}})
	bulbs := controllers.NewResource[bulb, int64, bulbContent](o.DB, controllers.Lists{Equal: []string{"crate_id"}})
	if err := o.DB.CheckColumns(t.Context()); err != nil {
		t.Fatal(err)
	}
	list := []string{"after", "limit", "sort", "crate_id"}
	parent := bulbs.Parents()[0]
	rows := []Route{{"GET", "/" + parent.Name + "/:id/bulbs", models.ScopeAdmin, list, nil, parent.List}}
	upload := []middleware.Handler{middleware.BodyLimit(o.Bulk.MaxBodyBytes), middleware.Bulk(o.Bulk, o.Verify), controllers.Receive(o.Bulk.MaxBodyBytes)}
	for _, r := range []Handlers{crates, bulbs} {
		path := "/" + r.Name()
		rows = append(rows,
			Route{"POST", path, models.ScopeAdmin, nil, nil, r.Create},
			Route{"GET", path, models.ScopeAdmin, list, nil, r.List},
			Route{"GET", path + "/:id", models.ScopeAdmin, nil, nil, r.Get},
			Route{"PUT", path + "/:id", models.ScopeAdmin, nil, nil, r.Put},
			Route{"PATCH", path + "/:id", models.ScopeAdmin, nil, nil, r.Patch},
			Route{"DELETE", path + "/:id", models.ScopeAdmin, nil, nil, r.Delete},
			Route{"POST", path + "/import", models.ScopeAdmin, []string{"on_conflict"}, upload, r.Import},
			Route{"GET", path + "/export", models.ScopeAdmin, nil, nil, r.Export})
	}
	server := httptest.NewServer(NewWith(o, rows))
	t.Cleanup(server.Close)
	call := func(t *testing.T, method, path, kind, body string) (string, http.Header) {
		t.Helper()
		status, headers, text := sendTo(t, server, method, path, kind, body)
		return fmt.Sprint(status, " ", strings.TrimSpace(text)), headers
	}
	const inJSON, inNDJSON, inCSV = "application/json", "application/x-ndjson", "text/csv"
	stamps := regexp.MustCompile(`,"(created|updated)_at":"[^"]+"|,"(errors|report)":.*|\r`)
	a, b, c := crateIDs[0], crateIDs[1], crateIDs[2]
	for _, test := range []struct{ method, path, kind, body, want string }{
		{"POST", "/crates", inJSON, `{"id":"` + b + `","label":"x"}`, `201 {"id":"` + b + `","label":"x"}`},
		{"POST", "/crates", inJSON, `{"id":"` + b + `","label":"x"}`, `409 {"error":40902,"message":"crate ` + b + ` exists with the same content: an earlier attempt of this request succeeded"}`},
		{"POST", "/crates", inJSON, `{"id":"` + strings.ToUpper(b) + `","label":"x"}`, `400 {"error":40006,"message":"id must be a UUID in lower case, such as ` + b + `"`},
		{"POST", "/crates", inJSON, `{"id":7,"label":"x"}`, `400 {"error":40004,"message":"id must be a string"`},
		{"POST", "/crates", inJSON, `{"id":null,"label":"x"}`, `400 {"error":40004,"message":"id must not be null"`},
		{"POST", "/crates", inJSON, `{}`, `400 {"error":40004,"message":"label is required"`},
		{"GET", "/crates/" + b, inJSON, "", `200 {"id":"` + b + `","label":"x"}`},
		{"GET", "/crates/" + a, inJSON, "", `404 {"error":40401,"message":"no such crate"}`},
		{"GET", "/crates/7", inJSON, "", `400 {"error":40007,"message":"id must be a UUID in lower case, such as ` + b + `"}`},
		{"PUT", "/crates/" + a, inJSON, `{"id":"` + a + `","label":"y"}`, `201 {"id":"` + a + `","label":"y"}`},
		{"PUT", "/crates/" + a, inJSON, `{"id":"` + b + `","label":"y"}`, `400 {"error":40006,"message":"id must be ` + a + ` as in the path, or absent"`},
		{"PATCH", "/crates/" + a, inJSON, `{"label":"x"}`, `200 {"id":"` + a + `","label":"x"}`},
		{"PUT", "/crates/" + c, inJSON, `{"label":"w"}`, `201 {"id":"` + c + `","label":"w"}`},
		{"GET", "/crates?limit=2", inJSON, "", `200 [{"id":"` + a + `","label":"x"},{"id":"` + b + `","label":"x"}]`},
		{"GET", "/crates?after=" + b, inJSON, "", `200 [{"id":"` + c + `","label":"w"}]`},
		{"GET", "/crates?after=x", inJSON, "", `400 {"error":40007,"message":"after must be a UUID in lower case, such as ` + b + `"}`},
		{"GET", "/crates/export", inCSV, "", "200 id,label\n" + a + ",x\n" + b + ",x\n" + c + ",w"},
		{"POST", "/crates/import", inCSV, "id,label\n" + c + ",v\n" + a + ",x\n", `409 {"error":40901,"message":"line 2: crate ` + c + ` exists with different content and is unchanged: choose another id; nothing was stored"`},
		{"POST", "/crates/import?on_conflict=replace", inCSV, "id,label\n" + c + ",v\n" + a + ",x\n", `200 {"rows":2,"created":0,"replaced":1,"unchanged":1,"merged":0,"deleted":0,"refused":0,"stored":true`},
		{"POST", "/crates/import", inNDJSON, `{"id":"x","label":"v"}`, `400 {"error":40006,"message":"line 1: id must be a UUID in lower case, such as ` + b + `; nothing was stored"`},
		{"POST", "/crates/import?on_conflict=merge", inNDJSON, `{"id":"x","label":"v"}`, `400 {"error":40006,"message":"line 1: id must be a UUID in lower case, such as ` + b + `; nothing was stored"`},
		{"POST", "/crates/import", inNDJSON, `{"id":"x","crate":null}`, `400 {"error":40006,"message":"line 1: id must be a UUID in lower case, such as ` + b + `; nothing was stored"`},
		{"POST", "/bulbs", inJSON, `{"id":1,"crate_id":"` + c + `"}`, `201 {"id":1,"crate_id":"` + c + `"}`},
		{"POST", "/bulbs", inJSON, `{"id":2,"crate_id":"0198c5f0-5b1e-7c3a-9d2e-000000000000"}`, `400 {"error":40008,"message":"crate_id: there is no crate 0198c5f0-5b1e-7c3a-9d2e-000000000000"}`},
		{"POST", "/bulbs", inJSON, `{"id":2,"crate_id":"x"}`, `400 {"error":40006,"message":"crate_id must be a UUID in lower case, such as ` + b + `"`},
		{"GET", "/bulbs?crate_id=" + c, inJSON, "", `200 [{"id":1,"crate_id":"` + c + `"}]`},
		{"GET", "/bulbs?crate_id=x", inJSON, "", `400 {"error":40007,"message":"crate_id must be a UUID in lower case, such as ` + b + `"}`},
		{"GET", "/crates/" + c + "/bulbs", inJSON, "", `200 [{"id":1,"crate_id":"` + c + `"}]`},
		{"DELETE", "/crates/" + c, inJSON, "", `409 {"error":40904,"message":"crate ` + c + ` still has bulbs"}`},
		{"DELETE", "/bulbs/1", inJSON, "", "204 "},
		{"DELETE", "/crates/" + c, inJSON, "", "204 "},
	} {
		t.Run(test.method+" "+test.path+" "+test.body, func(t *testing.T) {
			got, _ := call(t, test.method, test.path, test.kind, test.body)
			if want := test.want; stamps.ReplaceAllString(got, "") != want {
				t.Errorf("got %s, want %s", got, want)
			}
		})
	}
	t.Run("pages in the order of a column", func(t *testing.T) {
		next, ids := "/crates?sort=-label&limit=1", []string(nil)
		for next != "" {
			page, header := call(t, "GET", next, inJSON, "")
			ids = append(ids, page[len(`200 [{"id":"`):][:len(a)])
			next, _, _ = strings.Cut(strings.TrimPrefix(header.Get("Link"), "<"), ">")
		}
		if want := []string{b, a}; !slices.Equal(ids, want) {
			t.Errorf("got %v, want %v", ids, want)
		}
	})
	version7 := regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
	t.Run("the server makes an id", func(t *testing.T) {
		created, header := call(t, "POST", "/crates", inJSON, `{"label":"new"}`)
		var got struct{ ID string }
		_ = json.Unmarshal([]byte(strings.TrimPrefix(created, "201 ")), &got)
		if !version7.MatchString(got.ID) || header.Get("Location") != "/crates/"+got.ID {
			t.Errorf("got %s, Location %s, want a UUID of version 7", created, header.Get("Location"))
		}
	})
	if o.DB.Dialector.Name() == "postgres" {
		t.Run("the id of an unknown outcome", func(t *testing.T) {
			run := func(statement string) {
				if err := o.DB.Exec(statement).Error; err != nil {
					t.Fatal(err)
				}
			}
			run("CREATE FUNCTION no_space() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'full' USING ERRCODE = '53100'; END $$")
			run("CREATE TRIGGER crates_full BEFORE INSERT ON crates EXECUTE FUNCTION no_space()")
			failed, _ := call(t, "POST", "/crates", inJSON, `{"label":"again"}`)
			run("DROP TRIGGER crates_full ON crates")
			id := regexp.MustCompile(`"error":50302,.*: retry with the same id ([0-9a-f-]{36});`).FindStringSubmatch(failed)
			if id == nil {
				t.Fatalf("got %s, want the id to retry with", failed)
			}
			body := `{"id":"` + id[1] + `","label":"again"}`
			first, _ := call(t, "POST", "/crates", inJSON, body)
			second, _ := call(t, "POST", "/crates", inJSON, body)
			if !strings.HasPrefix(first, "201 ") || !strings.HasPrefix(second, `409 {"error":40902,`) {
				t.Errorf("got %s and %s, want that the first is stored", first, second)
			}
		})
	}
	t.Run("an import makes ids", func(t *testing.T) {
		for kind, body := range map[string]string{inNDJSON: `{"label":"import"}`, inCSV: "label\nimport"} {
			if got, _ := call(t, "POST", "/crates/import", kind, body); !strings.HasPrefix(got, `200 {"rows":1,"created":1`) {
				t.Errorf("got %s, want a new row", got)
			}
		}
		rows, _ := call(t, "GET", "/crates/export", inNDJSON, "")
		if n := len(regexp.MustCompile(`"id":"[0-9a-f]{8}-[0-9a-f]{4}-7[^"]+","label":"import"`).FindAllString(rows, -1)); n != 2 {
			t.Errorf("got %s, want two imported rows", rows)
		}
	})
}

// followedCrate is a crate with a feed.
type followedCrate crate

func (followedCrate) Rules() models.Rules { return crate{}.Rules() }

func (followedCrate) Feed() string { return "crate_feed" }

func TestUUIDsHaveNoFeed(t *testing.T) {
	defer func() {
		const want = "routes.followedCrate has a feed, which has only keys that are int64s: remove its method Feed"
		if got := recover(); got != want {
			t.Errorf("got %v, want a panic with %s", got, want)
		}
	}()
	controllers.NewResource[followedCrate, models.ID, crateContent](nil, controllers.Lists{}).Changes(nil)
}
