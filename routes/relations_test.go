package routes

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"plantstore/controllers"
	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
)

// grower is a resource to which seedlings refer.
type grower struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (grower) Rules() models.Rules {
	return models.Rules{"name": models.Unique{Rule: models.Text{Min: 1, Max: 20}}}
}

type growerContent struct {
	Name *string `json:"name" binding:"required"`
}

type seedling struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	GrowerID  *int64
	Height    int64
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (seedling) Rules() models.Rules { return models.Rules{"grower_id": models.Ref{To: grower{}}} }

type seedlingContent struct {
	GrowerID *int64 `json:"grower_id,omitzero"`
	Height   *int64 `json:"height" binding:"required"`
}

// TestRelationsAreAnswers sends requests that break a reference, a unique value or a CHECK.
func TestRelationsAreAnswers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		o, _ := optionsOn(t, url)
		o.Verify = anyToken
		const times = "created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL)"
		for _, table := range []string{
			"CREATE TABLE growers (id bigint PRIMARY KEY, name text NOT NULL UNIQUE, " + times,
			"CREATE TABLE seedlings (id bigint PRIMARY KEY, grower_id bigint REFERENCES growers, height bigint NOT NULL CONSTRAINT seedlings_height CHECK (height < 100), " + times,
		} {
			if o.DB.Dialector.Name() == "sqlite" {
				table = strings.NewReplacer("timestamptz", "timestamp", "bigint PRIMARY", "integer PRIMARY").Replace(table)
			}
			if err := o.DB.Exec(table).Error; err != nil {
				t.Fatal(err)
			}
		}
		growers := controllers.NewResource[grower, int64, growerContent](o.DB, controllers.Lists{})
		seedlings := controllers.NewResource[seedling, int64, seedlingContent](o.DB, controllers.Lists{Equal: []string{"grower_id"}, Sort: []string{"created_at"}})
		parent := seedlings.Parents()[0]
		rows := []Route{{"GET", "/" + parent.Name + "/:id/" + seedlings.Name(), models.ScopeAdmin, []string{"after", "limit", "sort", "count"}, nil, parent.List}}
		upload := []middleware.Handler{middleware.BodyLimit(o.Bulk.MaxBodyBytes), middleware.Bulk(o.Bulk, o.Verify), controllers.Receive(o.Bulk.MaxBodyBytes)}
		for _, r := range []Handlers{growers, seedlings} {
			path := "/" + r.Name()
			rows = append(rows,
				Route{"POST", path, models.ScopeAdmin, nil, nil, r.Create},
				Route{"PUT", path + "/:id", models.ScopeAdmin, nil, nil, r.Put},
				Route{"PATCH", path + "/:id", models.ScopeAdmin, nil, nil, r.Patch},
				Route{"DELETE", path + "/:id", models.ScopeAdmin, nil, nil, r.Delete},
				Route{"POST", path + "/import", models.ScopeAdmin, []string{"mode"}, upload, r.Import})
		}
		server := httptest.NewServer(NewWith(o, rows))
		defer server.Close()
		call := func(t *testing.T, method, path, body string) (status int, response, link string) {
			t.Helper()
			kind := "application/json"
			if strings.Contains(path, "/import") {
				kind = "application/x-ndjson"
			}
			status, headers, text := sendTo(t, server, method, path, kind, body)
			return status, text, headers.Get("Link")
		}
		for path, body := range map[string]string{"/growers": `{"id":1,"name":"Kew"}`, "/seedlings": `{"id":1,"height":1}`} {
			if status, response, _ := call(t, "POST", path, body); status != http.StatusCreated {
				t.Fatalf("got %d %s", status, response)
			}
		}
		const (
			noGrower  = "grower_id: there is no grower 99"
			nameTaken = "name must be unique, and another row has the same value"
			tooHigh   = "the row breaks the rule seedlings_height"
		)
		for _, test := range []struct {
			method, path, body string
			status, code       int
			message            string
		}{
			{"POST", "/seedlings", `{"id":2,"grower_id":99,"height":1}`, 400, 40008, noGrower},
			{"PUT", "/seedlings/2", `{"grower_id":99,"height":1}`, 400, 40008, noGrower},
			{"PUT", "/seedlings/1", `{"grower_id":99,"height":1}`, 400, 40008, noGrower},
			{"PATCH", "/seedlings/1", `{"grower_id":99}`, 400, 40008, noGrower},
			{"POST", "/seedlings/import", `{"id":2,"grower_id":99,"height":1}`, 400, 40008, "line 1: " + noGrower + "; nothing was stored"},
			{"POST", "/seedlings", `{"id":2,"height":100}`, 400, 40006, tooHigh},
			{"PATCH", "/seedlings/1", `{"height":100}`, 400, 40006, tooHigh},
			{"POST", "/seedlings/import", `{"id":2,"height":100}`, 400, 40006, "line 1: " + tooHigh + "; nothing was stored"},
			{"POST", "/growers", `{"id":2,"name":"Kew"}`, 409, 40903, nameTaken},
			{"PUT", "/growers/2", `{"name":"Kew"}`, 409, 40903, nameTaken},
			{"POST", "/growers/import", `{"id":2,"name":"Kew"}`, 409, 40903, "line 1: " + nameTaken + "; nothing was stored"},
			{"POST", "/seedlings", `{"id":2,"grower_id":1,"height":2}`, 201, 0, ""},
			{"DELETE", "/growers/1", "", 409, 40904, "grower 1 still has seedlings"},
			{"POST", "/seedlings/import?mode=partial", `{"id":3,"grower_id":1,"height":1}` + "\n" + `{"id":4,"grower_id":99,"height":1}`, 200, 0, ""},
		} {
			t.Run(test.method+" "+test.path+" "+test.body, func(t *testing.T) {
				status, response, _ := call(t, test.method, test.path, test.body)
				var got struct {
					Error   int
					Message string
				}
				if response != "" {
					if err := json.Unmarshal([]byte(response), &got); err != nil {
						t.Fatal(err)
					}
				}
				if status != test.status || got.Error != test.code || got.Message != test.message {
					t.Errorf("got %d %s, want %d with %d %q", status, response, test.status, test.code, test.message)
				}
			})
		}
		for _, test := range []struct{ path, ids, link string }{
			{"/growers/1/seedlings", "[2 3]", ""},
			{"/growers/1/seedlings?limit=1&sort=-id&count=true", "[3]", `</growers/1/seedlings?after=3&count=true&limit=1&sort=-id>; rel="next"`},
			{"/growers/99/seedlings", "[]", ""},
		} {
			t.Run(test.path, func(t *testing.T) {
				status, response, link := call(t, "GET", test.path, "")
				var seedlings []struct{ ID json.Number }
				if err := json.Unmarshal([]byte(response), &seedlings); status != 200 || err != nil {
					t.Fatalf("got %d %s", status, response)
				}
				ids := make([]string, len(seedlings))
				for i, s := range seedlings {
					ids[i] = s.ID.String()
				}
				if got := "[" + strings.Join(ids, " ") + "]"; got != test.ids || link != test.link {
					t.Errorf("got %s, Link %s, want %s, %s", got, link, test.ids, test.link)
				}
			})
		}
		for _, path := range []string{"/growers/x/seedlings", "/growers/1/seedlings?grower_id=1"} {
			if status, response, _ := call(t, "GET", path, ""); status != 400 || !strings.Contains(response, "40007") {
				t.Errorf("%s: got %d %s, want error 40007", path, status, response)
			}
		}
	})
}
