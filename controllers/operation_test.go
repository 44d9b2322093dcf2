package controllers

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
)

// shrub is a model with columns of the server, as a developer declares it.
type shrub struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	Height    *int64
	State     string `gorm:"default:dry"`
	WateredAt *time.Time
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (shrub) Rules() models.Rules {
	return models.Rules{
		"name":       models.Text{Min: 1, Max: 50},
		"state":      models.Server{Rule: models.Text{Min: 1, Max: 10}},
		"watered_at": models.Server{},
	}
}

type shrubContent struct {
	Name      *string    `json:"name" binding:"required"`
	Height    *int64     `json:"height,omitzero"`
	State     *string    `json:"state,omitzero"`
	WateredAt *Timestamp `json:"watered_at,omitzero"`
}

// shrubs is a resource with an operation of its own.
type shrubs struct {
	*Resource[shrub, int64, shrubContent]
}

// What follows is the whole operation POST /shrubs/{id}/water, apart from its annotations.

// watering is a row of the table waterings.
type watering struct {
	ID      int64
	ShrubID int64
	Litres  int64
}

// newWatering is a watering as a client sends it.
type newWatering struct {
	Litres *int64 `json:"litres" binding:"required"`
}

// Water stores that a shrub was watered, and responds with the shrub.
func (h *shrubs) Water(c *gin.Context) error {
	id, condition, err := h.parseTarget(c)
	if err != nil {
		return err
	}
	var in newWatering
	if err := bindJSON(c, &in); err != nil {
		return err
	}
	outcome, err := h.store.Update(middleware.ContextOf(c), id, condition, func(tx *gorm.DB, row *shrub) error {
		row.State, row.WateredAt = "wet", new(tx.NowFunc())
		return tx.Create(&watering{ShrubID: id, Litres: *in.Litres}).Error
	})
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	return h.respond(c, http.StatusOK, outcome.Row)
}

// shrubService serves shrubs from a new table in the database at url.
type shrubService struct {
	http.Handler
	db *database.DB
}

func newShrubService(t *testing.T, url string) *shrubService {
	t.Helper()
	db := dbtest.Open(t, dbtest.Options(url))
	key, moment := "bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY", "timestamptz"
	if db.Dialector.Name() == "sqlite" {
		key, moment = "INTEGER PRIMARY KEY", "timestamp"
	}
	for _, table := range []string{
		"CREATE TABLE shrubs (id bigint PRIMARY KEY, name text NOT NULL, height bigint, state text NOT NULL, watered_at " + moment + ", " +
			"created_at " + moment + " NOT NULL, updated_at " + moment + " NOT NULL)",
		"CREATE TABLE waterings (id " + key + ", shrub_id bigint NOT NULL, litres bigint NOT NULL CONSTRAINT waterings_litres CHECK (litres > 0))",
	} {
		if err := db.Exec(table).Error; err != nil {
			t.Fatal(err)
		}
	}
	h := &shrubs{NewResource[shrub, int64, shrubContent](db, Lists{Equal: []string{"state"}})}
	e := gin.New()
	e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}), NewFailures(zap.NewNop()).Respond)
	for path, handler := range map[string]middleware.Handler{
		"POST /shrubs": h.Create, "GET /shrubs": h.List, "GET /shrubs/:id": h.Get, "PUT /shrubs/:id": h.Put, "PATCH /shrubs/:id": h.Patch,
		"GET /shrubs/export": h.Export, "POST /shrubs/:id/water": h.Water,
	} {
		method, path, _ := strings.Cut(path, " ")
		query := middleware.Handle(Query("after", "limit", "state"))
		e.Handle(method, path, query, middleware.Handle(handler))
	}
	e.POST("/shrubs/import", middleware.Handle(Query("on_conflict")), middleware.Handle(Receive(1<<20)), middleware.Handle(h.Import))
	return &shrubService{e, db}
}

// call sends a request, with headers such as "Accept: text/csv", and returns the response.
func (s *shrubService) call(t *testing.T, method, path, body string, headers ...string) *httptest.ResponseRecorder {
	t.Helper()
	r := httptest.NewRequestWithContext(t.Context(), method, path, strings.NewReader(body))
	for _, header := range headers {
		name, value, _ := strings.Cut(header, ": ")
		r.Header.Set(name, value)
	}
	w := httptest.NewRecorder()
	s.ServeHTTP(w, r)
	return w
}

// check sends a request and compares the status and the body without times.
func (s *shrubService) check(t *testing.T, method, path, body string, status int, want string, headers ...string) {
	t.Helper()
	w := s.call(t, method, path, body, headers...)
	got, _, _ := strings.Cut(w.Body.String(), `,"created_at"`)
	if w.Code != status || strings.TrimSuffix(got, "\n") != want {
		t.Errorf("%s %s %s: got %d %s, want %d %s", method, path, body, w.Code, w.Body, status, want)
	}
}

// faultOf returns the Error of a body with a fault in field.
func faultOf(field, fault string) string {
	return `{` + fault + `,"errors":[{"field":"` + field + `",` + fault + `}]}`
}

func (s *shrubService) waterings(t *testing.T) (n int) {
	t.Helper()
	if err := s.db.Raw("SELECT count(*) FROM waterings").Scan(&n).Error; err != nil {
		t.Fatal(err)
	}
	return n
}

// etagOf returns the ETag of a response, which is not spelled as net/http canonicalizes it.
func etagOf(w *httptest.ResponseRecorder) string { return map[string][]string(w.Header())["ETag"][0] }

func TestOperationOfItsOwn(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := newShrubService(t, url)
		s.check(t, "POST", "/shrubs", `{"id":1,"name":"Rosa"}`, 201, `{"id":1,"name":"Rosa","state":"dry"`)
		before := etagOf(s.call(t, "GET", "/shrubs/1", ""))
		for _, test := range []struct {
			name, id, body string
			headers        []string
			status, code   int
		}{
			{"a shrub that does not exist", "2", `{"litres":3}`, nil, 404, 40401},
			{"an id that is no number", "x", `{"litres":3}`, nil, 400, 40007},
			{"no litres", "1", `{}`, nil, 400, 40004},
			{"litres that the database rejects", "1", `{"litres":0}`, nil, 400, 40006},
			{"another version", "1", `{"litres":3}`, []string{`If-Match: "x"`}, 412, 41201},
			{"the version that the client has seen", "1", `{"litres":3}`, []string{"If-Match: " + before}, 200, 0},
			{"the same version again", "1", `{"litres":3}`, []string{"If-Match: " + before}, 412, 41201},
			{"any version", "1", `{"litres":3}`, nil, 200, 0},
		} {
			t.Run(test.name, func(t *testing.T) {
				waterings := s.waterings(t)
				w := s.call(t, "POST", "/shrubs/"+test.id+"/water", test.body, test.headers...)
				if test.code != 0 {
					waterings--
					if !strings.HasPrefix(w.Body.String(), fmt.Sprintf(`{"error":%d,`, test.code)) {
						t.Errorf("got %s, want %d", w.Body, test.code)
					}
				} else if read := s.call(t, "GET", "/shrubs/1", ""); read.Body.String() != w.Body.String() || etagOf(read) != etagOf(w) {
					t.Errorf("got %v %s, which reads as %v %s", w.Header(), w.Body, read.Header(), read.Body)
				} else if !strings.Contains(w.Body.String(), `"state":"wet","watered_at":"20`) {
					t.Errorf("got %s", w.Body)
				}
				if w.Code != test.status || s.waterings(t) != waterings+1 {
					t.Errorf("got %d %s and %d waterings", w.Code, w.Body, s.waterings(t))
				}
			})
		}
	})
}

func TestColumnsOfTheServer(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := newShrubService(t, url)
		const inJSON, inCSV = "Content-Type: application/x-ndjson", "Content-Type: text/csv"
		wet := `"state":"wet","watered_at":`
		s.check(t, "POST", "/shrubs", `{"id":1,"name":"Rosa"}`, 201, `{"id":1,"name":"Rosa","state":"dry"`)
		s.call(t, "POST", "/shrubs/1/water", `{"litres":3}`)
		stored := func() string { return s.call(t, "GET", "/shrubs/1", "").Body.String() }
		_, rest, _ := strings.Cut(stored(), wet)
		at, _, _ := strings.Cut(rest, ",")
		wet += at

		t.Run("bodies that create or patch do not have them", func(t *testing.T) {
			rejected := faultOf("state", `"error":40002,"message":"the server sets state: leave it out"`)
			s.check(t, "POST", "/shrubs", `{"id":2,"name":"Rosa","state":"wet"}`, 400, rejected)
			s.check(t, "PATCH", "/shrubs/1", `{"state":"dry"}`, 400, rejected)
			s.check(t, "PATCH", "/shrubs/1", `{"watered_at":null}`, 400, faultOf("watered_at", `"error":40006,"message":"watered_at cannot be changed"`))
		})
		t.Run("GET, then PUT of the same body", func(t *testing.T) {
			s.check(t, "PUT", "/shrubs/1", stored(), 200, `{"id":1,"name":"Rosa",`+wet)
		})
		t.Run("PUT and PATCH leave them alone", func(t *testing.T) {
			s.check(t, "PUT", "/shrubs/1", `{"name":"Salix","state":"dry"}`, 200, `{"id":1,"name":"Salix",`+wet)
			s.check(t, "PUT", "/shrubs/1", `{"name":"Salix","height":3}`, 200, `{"id":1,"name":"Salix","height":3,`+wet)
			s.check(t, "PATCH", "/shrubs/1", `{"height":4}`, 200, `{"id":1,"name":"Salix","height":4,`+wet)
		})
		t.Run("a value that is sent back must have its type", func(t *testing.T) {
			s.check(t, "PUT", "/shrubs/1", `{"name":"Salix","watered_at":"x"}`, 400,
				faultOf("watered_at", `"error":40006,"message":"watered_at must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z"`))
		})
		t.Run("the same content", func(t *testing.T) {
			s.check(t, "POST", "/shrubs", `{"id":1,"name":"Salix","height":4}`, 409,
				`{"error":40902,"message":"shrub 1 exists with the same content: an earlier attempt of this request succeeded"}`)
		})
		t.Run("imports ignore them", func(t *testing.T) {
			for _, test := range []struct{ path, body, as, want string }{
				{"", strings.TrimSpace(stored()), inJSON, `"replaced":0,"unchanged":1,`},
				{"?on_conflict=replace", `{"id":1,"name":"Acer","state":"dry"}`, inJSON, `"replaced":1,"unchanged":0,`},
				{"?on_conflict=replace", "id,name,height,state,watered_at\n1,Salix,4,dry,2026-01-01T00:00:00Z\n", inCSV, `"replaced":1,"unchanged":0,`},
			} {
				if w := s.call(t, "POST", "/shrubs/import"+test.path, test.body, test.as); w.Code != 200 || !strings.Contains(w.Body.String(), test.want) {
					t.Errorf("%s: got %d %s", test.body, w.Code, w.Body)
				}
			}
		})
		t.Run("responses have them, and exports do not", func(t *testing.T) {
			const row = `{"id":1,"name":"Salix","height":4`
			s.check(t, "GET", "/shrubs/1", "", 200, row+","+wet)
			s.check(t, "GET", "/shrubs?state=wet", "", 200, "["+row+","+wet)
			s.check(t, "GET", "/shrubs?state=dry", "", 200, "[]")
			s.check(t, "GET", "/shrubs/export", "", 200, row+"}")
			s.check(t, "GET", "/shrubs/export", "", 200, "id,name,height\n1,Salix,4", "Accept: text/csv")
		})
	})
}

// settableContent is a content with a column of the server that clients could not leave out.
type settableContent struct {
	Name      *string    `json:"name" binding:"required"`
	Height    *int64     `json:"height,omitzero"`
	State     *string    `json:"state" binding:"required"`
	WateredAt *Timestamp `json:"watered_at,omitzero"`
}

// forgottenContent lacks a column.
type forgottenContent struct {
	Name   *string `json:"name" binding:"required"`
	Height *int64  `json:"height,omitzero"`
	State  *string `json:"state,omitzero"`
}

// TestRequiredReference: the server makes an id that is missing, but no reference.
func TestRequiredReference(t *testing.T) {
	fields := jsonFields(reflect.TypeFor[struct {
		ID      *models.ID `json:"id" binding:"required"`
		CrateID *models.ID `json:"crate_id" binding:"required"`
	}]())
	if fields[0].required || !fields[1].required {
		t.Errorf("got %+v, want that only crate_id is required", fields)
	}
}

// labelled has a column that PostgreSQL neither compares nor sorts.
type labelled struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Labels    models.JSON
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (labelled) Rules() models.Rules { return models.Rules{"labels": models.Object(100)} }

type labelledContent struct {
	Labels *models.JSON `json:"labels" binding:"required"`
}

// tagged and fern have a column whose name is taken.
type (
	tagged struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		Etag      int64
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	taggedContent struct {
		Etag *int64 `json:"etag" binding:"required"`
	}
	fern struct {
		ID        int64 `gorm:"primaryKey;autoIncrement:false"`
		Fern      int64
		CreatedAt time.Time
		UpdatedAt time.Time
	}
	fernContent struct {
		Fern *int64 `json:"fern" binding:"required"`
	}
)

func (tagged) Rules() models.Rules { return nil }

func (fern) Rules() models.Rules { return nil }

func (fern) Feed() string { return "fern_feed" }

func TestDeclarationPanics(t *testing.T) {
	for name, test := range map[string]struct {
		declare func()
		want    string
	}{
		"if a column of the server is required":     {func() { NewResource[shrub, int64, settableContent](nil, Lists{}) }, "controllers.settableContent.State must have omitzero and no binding"},
		"if a parameter has two meanings":           {func() { Query("after", "count*", "count") }, "the parameter count occurs twice"},
		"if rows are selected by JSON":              {func() { NewResource[labelled, int64, labelledContent](nil, Lists{Equal: []string{"labels"}}) }, "labelleds cannot have the parameter labels"},
		"if rows are sorted by JSON":                {func() { NewResource[labelled, int64, labelledContent](nil, Lists{Sort: []string{"labels"}}) }, "labelleds cannot be sorted by labels"},
		"if a column is named as the version":       {func() { NewResource[tagged, int64, taggedContent](nil, Lists{}) }, "controllers.taggedContent.Etag: the name etag is taken"},
		"if a column is named as a row of the feed": {func() { NewResource[fern, int64, fernContent](nil, Lists{}) }, "controllers.fernContent.Fern: the name fern is taken"},
		"if the model does not fit":                 {func() { NewResource[fern, models.ID, fernContent](nil, Lists{}) }, "the key of controllers.fern is of type int64"},
		"if the content lacks a column":             {func() { NewResource[shrub, int64, forgottenContent](nil, Lists{}) }, "controllers.forgottenContent needs the field WateredAt"},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if cause, _ := recover().(string); !strings.HasPrefix(cause, test.want) {
					t.Errorf("got %q, want %q", cause, test.want)
				}
			}()
			test.declare()
		})
	}
}
