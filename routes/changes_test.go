package routes

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
)

// gardenBed is a model with a feed of its own.
type gardenBed struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (gardenBed) Rules() models.Rules { return models.Rules{"name": models.Text{Min: 1, Max: 100}} }

func (gardenBed) Feed() string { return "garden_bed_feed" }

type gardenBedContent struct {
	Name *string `json:"name" binding:"required"`
}

// TestChangesOfEachResource: a resource whose model has a feed has the operation that plants have.
func TestChangesOfEachResource(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		before, columns := dbtest.Migrated(t, url), "id bigint PRIMARY KEY NOT NULL, name text NOT NULL, created_at timestamptz NOT NULL, updated_at timestamptz NOT NULL"
		if before.Dialect.Facts().System == "sqlite" {
			columns = strings.NewReplacer("bigint", "INTEGER", "timestamptz", "TIMESTAMP").Replace(columns)
		}
		if err := before.Exec("CREATE TABLE garden_beds (" + columns + ")").Error; err != nil {
			t.Fatal(err)
		}
		dbtest.AddFeed(t, before, table.Of[gardenBed]())
		db, err := database.Open(t.Context(), dbtest.Options(url), dbtest.Batches, append(models.Tables(), table.Of[gardenBed]()), zap.NewNop())
		if err == nil {
			err = db.Schema.Prepare(t.Context())
		}
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()

		o, _ := optionsOf(t)
		o.Verify = anyToken
		beds := controllers.NewResource[gardenBed, int64, gardenBedContent](db, controllers.Lists{})
		server := httptest.NewServer(NewWith(o, []Route{
			{"POST", "/garden_beds", models.ScopeAdmin, nil, nil, beds.Create},
			{"DELETE", "/garden_beds/:id", models.ScopeAdmin, nil, nil, beds.Delete},
			{"GET", "/garden_beds/changes", models.ScopeAdmin, []string{"after", "limit", "wait"}, []middleware.Handler{middleware.Stream(o.Verify)}, beds.Changes(o.Health)},
		}))
		defer server.Close()
		open := func(method, path, body, accept string) (*http.Response, error) {
			r, err := http.NewRequestWithContext(t.Context(), method, server.URL+path, strings.NewReader(body))
			if err != nil {
				return nil, err
			}
			r.Header.Set("Authorization", "Bearer x")
			r.Header.Set("Accept", accept)
			return http.DefaultClient.Do(r)
		}
		send := func(method, path, body string) string {
			t.Helper()
			response, err := open(method, path, body, "")
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			text, err := io.ReadAll(response.Body)
			if err != nil || response.StatusCode/100 != 2 {
				t.Fatalf("%s %s: got %s, %v: %s", method, path, response.Status, err, text)
			}
			return string(text)
		}
		// changes returns the changes after a cursor and the next cursor.
		changes := func(after string) (list, next string) {
			t.Helper()
			text := send("GET", "/garden_beds/changes?wait=30s&after="+after, "")
			list, next, ok := strings.Cut(strings.TrimPrefix(text, `{"changes":`), `,"cursor":"`)
			if !ok {
				t.Fatalf("got %s", text)
			}
			return list, strings.TrimSuffix(next, `"}`)
		}
		first, second := send("POST", "/garden_beds", `{"id":1,"name":"one"}`), send("POST", "/garden_beds", `{"id":2,"name":"two"}`)
		list, cursor := changes("0")
		if want := fmt.Sprintf(`[{"id":1,"garden_bed":%s},{"id":2,"garden_bed":%s}]`, first, second); list != want {
			t.Errorf("from the beginning: got %s, want %s", list, want)
		}
		send("DELETE", "/garden_beds/1", "")
		list, next := changes(cursor)
		if want := `[{"id":1,"garden_bed":null}]`; list != want {
			t.Errorf("a deletion: got %s, want %s", list, want)
		}
		events, err := open("GET", "/garden_beds/changes?after="+cursor, "", controllers.TypeEvents)
		if err != nil {
			t.Fatal(err)
		}
		defer events.Body.Close() // or the server would not close
		stream := bufio.NewReader(events.Body)
		for _, want := range []string{"retry: 1000", "id: " + next, `data: {"changes":[{"id":1,"garden_bed":null}],"cursor":"` + next + `"}`, ""} {
			if line, err := stream.ReadString('\n'); err != nil || line != want+"\n" {
				t.Errorf("an event: got %q, %v, want %q", line, err, want)
			}
		}
	})
}

// noFeed is a model without a feed.
type noFeed struct {
	ID        int64 `gorm:"primaryKey;autoIncrement:false"`
	Name      string
	CreatedAt time.Time
	UpdatedAt time.Time
}

func (noFeed) Rules() models.Rules { return gardenBed{}.Rules() }

func TestAResourceWithoutAFeed(t *testing.T) {
	if controllers.NewResource[noFeed, int64, gardenBedContent](nil, controllers.Lists{}).Changes(nil) != nil {
		t.Error("got a handler, want none")
	}
}
