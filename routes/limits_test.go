package routes

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/controllers"
	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/limit"
	"plantstore/database/table"
	"plantstore/models"
)

// send has api serve a request, with its response to w.
func send(ctx context.Context, api http.Handler, w http.ResponseWriter, method, path, body string) {
	r := httptest.NewRequestWithContext(ctx, method, path, strings.NewReader(body))
	r.Header.Set("Authorization", "Bearer test")
	r.Header.Set("Content-Type", "application/json")
	api.ServeHTTP(w, r)
}

// TestBodiesShareTheirMemory sends every operation a body that is larger than a client's share of
// the memory for bodies, though not than a body may be.
func TestBodiesShareTheirMemory(t *testing.T) {
	o, _ := optionsOf(t)
	o.Verify, o.MaxBodyBytes = anyToken, ReceiveLimit
	api := New(o)
	for _, r := range Table(o) {
		id := "1"
		for _, resource := range Resources(o) {
			key := table.OfModel(resource.Model()).Key
			if strings.HasPrefix(r.Path, "/"+resource.Name()+"/") && key.FieldType == reflect.TypeFor[models.ID]() {
				id = crateIDs[1]
			}
		}
		path := strings.ReplaceAll(r.Path, ":id", id)
		if r.Method == http.MethodGet || r.Method == http.MethodDelete || strings.HasSuffix(path, "/import") { // which keeps no body in memory
			continue
		}
		t.Run(r.Method+" "+path, func(t *testing.T) {
			end := make(chan struct{})
			close(end)
			w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), writing: make(chan int, 1), end: end} // which has deadlines
			send(t.Context(), api, w, r.Method, path, `{"name":"`+strings.Repeat("x", ReceiveLimit/2))
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "50301") {
				t.Errorf("got %d, %.200s, want 503 with error 50301", w.Code, w.Body)
			}
		})
	}
}

// stuckWriter is a client that reads nothing but error 503.
type stuckWriter struct {
	*httptest.ResponseRecorder
	writing chan<- int // gets the size of the response that was to be written
	end     <-chan struct{}
	begun   bool
}

func (w *stuckWriter) Write(p []byte) (int, error) {
	if w.Code == http.StatusServiceUnavailable {
		return w.ResponseRecorder.Write(p)
	}
	if !w.begun { // in parts
		w.begun = true
		size, err := strconv.Atoi(w.Header().Get("Content-Length"))
		if err != nil {
			return 0, err
		}
		w.writing <- size
	}
	<-w.end
	return len(p), nil
}

func (*stuckWriter) SetReadDeadline(time.Time) error { return nil }

func (*stuckWriter) SetWriteDeadline(time.Time) error { return nil }

// checkShare calls serve for clients that read nothing, until one gets error 50301. It fails the test
// if the service then holds more than SendLimit.
func checkShare(t *testing.T, serve func(http.ResponseWriter)) {
	t.Helper()
	writing, end, ended := make(chan int), make(chan struct{}), make(chan *stuckWriter)
	held, requests := 0, 0
	for held <= SendLimit && requests < 10_000 {
		w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), writing: writing, end: end}
		go func() {
			serve(w)
			ended <- w
		}()
		select {
		case size := <-writing:
			requests++
			held += size
			continue
		case w := <-ended:
			if w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "50301") {
				t.Errorf("got %d, %.200s after %d bytes, want 503 with error 50301", w.Code, w.Body, held)
			}
		}
		break
	}
	if held > SendLimit || requests == 10_000 {
		t.Errorf("got %d responses of %d bytes, want error 50301 before there are %d", requests, held, SendLimit)
	}
	close(end)
	for range requests {
		<-ended
	}
}

// TestPagesShareTheirMemory: a client that reads none of its pages gets error 50301 once they fill its
// share of the memory for pages.
func TestPagesShareTheirMemory(t *testing.T) {
	o, tokens := optionsOf(t)
	o.Verify = anyToken
	api := New(o)
	const rows = 200
	long := strings.Repeat("🌵", 100)
	for id := range rows {
		w := httptest.NewRecorder()
		if send(t.Context(), api, w, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"%s","tag":"%[2]s"}`, id, long)); w.Code != http.StatusOK {
			t.Fatalf("got %d, %s, want 200", w.Code, w.Body)
		}
		if _, err := tokens.Create(t.Context(), &models.Token{Name: long, Scopes: models.AllScopes()}); err != nil {
			t.Fatal(err)
		}
	}
	for _, path := range []string{"/plants", "/tokens"} {
		t.Run(path, func(t *testing.T) {
			checkShare(t, func(w http.ResponseWriter) {
				send(t.Context(), api, w, "GET", fmt.Sprintf("%s?limit=%d", path, rows), "")
			})
		})
	}
}

// TestReportsShareTheirMemory is TestPagesShareTheirMemory for reports of imports.
func TestReportsShareTheirMemory(t *testing.T) {
	o, _ := optionsOf(t)
	o.Verify = anyToken
	api := New(o)
	send := func(w http.ResponseWriter, mode, line string) {
		r := httptest.NewRequestWithContext(t.Context(), "POST", "/plants/import?mode="+mode, strings.NewReader(strings.Repeat(line+"\n", models.MaxRejected)))
		r.Header.Set("Authorization", "Bearer test")
		r.Header.Set("Content-Type", "application/x-ndjson")
		api.ServeHTTP(w, r)
	}
	for name, line := range map[string]string{
		"names with escapes":     `{"` + strings.Repeat("\U000e0001", 64) + `":0}`,
		"names with backslashes": `{"` + strings.Repeat(`\\`, 64) + `":0}`,
		"long names":             `{"` + strings.Repeat("🌵", 200) + `":0}`,
	} {
		t.Run(name, func(t *testing.T) {
			writing, end := make(chan int, 1), make(chan struct{})
			close(end)
			w := &stuckWriter{ResponseRecorder: httptest.NewRecorder(), writing: writing, end: end}
			send(w, "all", line)
			if size := <-writing; w.Code != http.StatusBadRequest || size > controllers.MaxReport {
				t.Errorf("got %d with a report of %d bytes, want 400 and at most %d", w.Code, size, controllers.MaxReport)
			}
		})
	}
	for _, mode := range []string{"all", "partial"} {
		t.Run("mode="+mode, func(t *testing.T) {
			checkShare(t, func(w http.ResponseWriter) { send(w, mode, "x") })
		})
	}
}

// TestFewPagesAreInMemory keeps all processors busy, so that pages wait to be read or encoded.
func TestFewPagesAreInMemory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		o, _ := optionsOf(t)
		o.Verify, o.DB = anyToken, dbtest.Migrated(t, url)
		server := httptest.NewServer(New(o))
		defer server.Close()
		for id := range 2 * models.LargePage {
			err := o.DB.Exec("INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES (?, 'Fern', ?, ?, ?)", id, strconv.Itoa(id), time.Now(), time.Now()).Error
			if err != nil {
				t.Fatal(err)
			}
		}
		for _, path := range []string{"/plants?limit=1000", "/plants?q=fern&limit=1000", "/plants/tags?limit=1000", "/plants/changes?after=0&limit=1000"} {
			t.Run(path, func(t *testing.T) {
				var busy []func()
				for i := range o.DB.Limits.Work.Len() {
					free, err := o.DB.Limits.Work.Take(limit.WithClient(t.Context(), strconv.Itoa(i)), limit.UntilDone)
					if err != nil {
						t.Fatal(err)
					}
					busy = append(busy, free)
				}
				const extra = 5
				codes := make(chan int, database.MaxPagesEach+extra)
				for range cap(codes) {
					go func() {
						r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, server.URL+path, nil)
						r.Header.Set("Authorization", "Bearer test")
						response, err := http.DefaultClient.Do(r)
						if err != nil {
							codes <- 0
							return
						}
						_ = response.Body.Close()
						codes <- response.StatusCode
					}()
				}
				await := func(n, want int) {
					for range n {
						select {
						case got := <-codes:
							if got != want {
								t.Errorf("got %d, want %d", got, want)
							}
						case <-time.After(30 * time.Second):
							t.Fatalf("got no response in 30 s, want %d", want)
						}
					}
				}
				await(extra, http.StatusServiceUnavailable)
				for _, free := range busy {
					free()
				}
				await(database.MaxPagesEach, http.StatusOK)
			})
		}
	})
}
