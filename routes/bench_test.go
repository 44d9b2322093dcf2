package routes

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
	"plantstore/database/dbtest"
	"plantstore/models"
)

// benchOptions returns options with an access log in JSON, as in production.
func benchOptions(b *testing.B, url string) Options {
	gin.SetMode(gin.ReleaseMode)
	o, _ := optionsOn(b, url)
	sender := &auth.Identity{Name: "test", Scopes: models.AllScopes()}
	o.Verify = func(context.Context, string) (*auth.Identity, error) { return sender, nil }
	o.Limits.FailuresPerMinute = 600
	o.Log = zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.AddSync(io.Discard), zap.InfoLevel))
	return o
}

// exchange is a request and its response, which a benchmark uses again and again.
type exchange struct {
	template, request http.Request
	body              bytes.Reader
	header            http.Header
	status            int
}

func newExchange(method, path string) *exchange {
	r := httptest.NewRequest(method, path, nil)
	r.RemoteAddr = "192.0.2.1:1234"
	r.Header = http.Header{"Authorization": {"Bearer test"}, "Content-Type": {"application/json"}, "User-Agent": {"bench"}}
	return &exchange{template: *r}
}

// Close closes the body of the request.
func (e *exchange) Close() error { return nil }

// Read reads the body of the request.
func (e *exchange) Read(p []byte) (int, error) { return e.body.Read(p) }

func (e *exchange) Header() http.Header         { return e.header }
func (e *exchange) WriteHeader(status int)      { e.status = status }
func (e *exchange) Write(p []byte) (int, error) { return len(p), nil }
func (e *exchange) Flush()                      {}

// serve has api serve the request with body. Like net/http, it gives each response a new header.
func (e *exchange) serve(b *testing.B, api http.Handler, path string, body []byte, status int) {
	e.body.Reset(body)
	e.request = e.template
	e.request.URL.Path, e.request.Body, e.request.ContentLength = path, e, int64(len(body))
	e.header, e.status = make(http.Header), http.StatusOK
	api.ServeHTTP(e, &e.request)
	if e.status != status {
		b.Errorf("got %d, want %d", e.status, status)
	}
}

// plantsOf has api store n plants.
func plantsOf(b *testing.B, api http.Handler, n int64) {
	e := newExchange("POST", "/plants")
	for id := range n {
		e.serve(b, api, "/plants", fmt.Appendf(nil, `{"id":%d,"name":"Monstera deliciosa","tag":"houseplant"}`, id), http.StatusOK)
	}
}

// BenchmarkOperations measures each operation on both databases, without net/http. With -benchmem, it
// shows how many objects and bytes a request allocates.
func BenchmarkOperations(b *testing.B) {
	const content = `{"name":"Monstera deliciosa","tag":"houseplant"}`
	for _, test := range []struct {
		method, path, body string // a path that ends with a slash lacks the id
		status             int
	}{
		{"POST", "/plants", `,"name":"Monstera deliciosa","tag":"houseplant"}`, 200},
		{"GET", "/plants/", "", 200},
		{"GET", "/plants", "", 200},
		{"PUT", "/plants/", content, 200},
		{"PATCH", "/plants/", `{"tag":"houseplant"}`, 200},
		{"DELETE", "/plants/", "", 204},
	} {
		for _, database := range []struct {
			name string
			url  func(testing.TB) string
		}{{"SQLite", dbtest.SQLite}, {"PostgreSQL", dbtest.Postgres}} {
			for _, clients := range []int{1, 64} {
				b.Run(fmt.Sprintf("%s/%s %s/%d", database.name, test.method, test.path, clients), func(b *testing.B) {
					api := New(benchOptions(b, database.url(b)))
					stored := int64(50)
					if test.method == "DELETE" {
						stored = max(stored, int64(b.N))
					}
					plantsOf(b, api, stored)
					var ids atomic.Int64
					b.ReportAllocs()
					b.ResetTimer()
					share(b, clients, func(next func() bool) {
						e := newExchange(test.method, test.path)
						body, path := []byte(test.body), test.path
						for next() {
							switch id := ids.Add(1); {
							case test.method == "POST":
								body = append(strconv.AppendInt(append(body[:0], `{"id":`...), stored+id, 10), test.body...)
							case strings.HasSuffix(test.path, "/"):
								path = test.path + strconv.FormatInt(id%stored, 10)
							}
							e.serve(b, api, path, body, test.status)
						}
					})
				})
			}
		}
	}
}

// share has clients run at the same time, until they have sent b.N requests.
func share(b *testing.B, clients int, run func(next func() bool)) {
	var group sync.WaitGroup
	var sent atomic.Int64
	for range clients {
		group.Go(func() { run(func() bool { return sent.Add(1) <= int64(b.N) }) })
	}
	group.Wait()
}

// BenchmarkHandlers measures what all requests share: POST /plants and GET /plants/1 with
// controllers that do nothing.
func BenchmarkHandlers(b *testing.B) {
	for _, operation := range []struct{ method, route, path string }{{"POST", "/plants", "/plants"}, {"GET", "/plants/:id", "/plants/1"}} {
		b.Run(operation.method, func(b *testing.B) {
			o := benchOptions(b, dbtest.SQLite(b))
			table := Table(o)
			i := slices.IndexFunc(table, func(r Route) bool { return r.Method == operation.method && r.Path == operation.route })
			table[i].Handler = func(*gin.Context) error { return nil }
			api := NewWith(o, table)
			e := newExchange(operation.method, operation.path)
			body := []byte(`{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`)
			if operation.method == "GET" {
				body = nil
			}
			b.ReportAllocs()
			for b.Loop() {
				e.serve(b, api, operation.path, body, http.StatusOK)
			}
		})
	}
}
