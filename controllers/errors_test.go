package controllers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/auth"
	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/middleware"
	"plantstore/models"
)

// serveError serves a GET with handler and returns the response and the log.
func serveError(ctx context.Context, t *testing.T, handler middleware.Handler) (*httptest.ResponseRecorder, *observer.ObservedLogs) {
	t.Helper()
	return serveErrorOf(ctx, t, http.MethodGet, handler)
}

func serveErrorOf(ctx context.Context, t *testing.T, method string, handler middleware.Handler) (*httptest.ResponseRecorder, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	e := gin.New()
	e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}), NewFailures(log).Respond, middleware.Recovery(log))
	e.POST("/", middleware.Handle(handler))
	e.Match([]string{"GET", "HEAD", "PUT", "PATCH", "DELETE"}, "/*id", middleware.Handle(handler))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(ctx, method, "/", nil))
	return w, logs
}

// failWith returns a handler that fails with err.
func failWith(err error) middleware.Handler { return func(*gin.Context) error { return err } }

func TestErrorsHidesFaults(t *testing.T) {
	const secret = `relation "plants" of host 10.0.0.1`
	for name, handler := range map[string]middleware.Handler{
		"an unknown error":  failWith(errors.New(secret)),
		"a panic":           func(*gin.Context) error { panic(secret) },
		"a runtime error":   func(*gin.Context) error { _ = []int{}[len(secret)]; return nil },
		"a wrapped error":   failWith(fmt.Errorf("x: %w", errors.New(secret))),
		"an encoding error": func(c *gin.Context) error { return respond(c, 200, func() {}) },
	} {
		t.Run(name, func(t *testing.T) {
			w, logs := serveError(t.Context(), t, handler)
			id := map[string][]string(w.Header())["X-Request-ID"][0]
			want := fmt.Sprintf(`{"error":50001,"message":"internal error: the operator of the service finds its cause in the log by the request id %s"}`, id)
			if w.Code != 500 || w.Body.String() != want {
				t.Errorf("got %d %s, want 500 %s", w.Code, w.Body, want)
			}
			failed := logs.FilterMessage("request failed").All()
			if len(failed) != 1 || failed[0].ContextMap()["request_id"] != id || failed[0].ContextMap()["error"] == nil {
				t.Errorf("got the log %v", logs.All())
			}
		})
	}
}

func TestErrorsUnavailable(t *testing.T) {
	const (
		unknown = ". The outcome of the write is unknown: "
		again   = unknown + "retry; error 404 after DELETE, or 412 after If-Match or If-None-Match, may mean that the first attempt succeeded"
		sameID  = unknown + "retry with the same id; error 40902, or a row that an import counts as unchanged, means that the first attempt succeeded"
	)
	for _, test := range []struct {
		name  string
		cause error
		want  string
	}{
		{"unreachable", &net.OpError{Op: "dial", Err: errors.New("secret")}, "cannot be reached"},
		{"too late", fmt.Errorf("secret: %w", context.DeadlineExceeded), "did not respond in time"},
		{"canceled by the server", &pgconn.PgError{Code: "57014", Message: "secret"}, "did not respond in time"},
		{"no connection in time", connectError(t), "did not respond in time"},
		{"read-only", &pgconn.PgError{Code: "25006", Message: "secret"}, "is not writable: it is read-only"},
		{"unreachable, for tokens as well", errors.Join(auth.ErrCannotVerify, &net.OpError{Op: "dial", Err: errors.New("secret")}), "cannot be reached"},
		{"a full disk", &pgconn.PgError{Code: "53100", Message: "secret"}, "is not writable: its disk is full"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for method, then := range map[string]string{
				"GET": ": retry later", "HEAD": ": retry later",
				"POST": sameID, "PUT": again, "PATCH": again, "DELETE": again,
			} {
				w, _ := serveErrorOf(t.Context(), t, method, failWith(fault.In("insert", test.cause)))
				if want := fmt.Sprintf(`{"error":50302,"message":"the database %s%s"}`, test.want, then); w.Code != 503 || w.Body.String() != want {
					t.Errorf("%s: got %d %s, want %s", method, w.Code, w.Body, want)
				}
				if got := w.Header().Get("Retry-After"); got != "1" {
					t.Errorf("%s: got Retry-After %q, want 1", method, got)
				}
			}
		})
	}
}

// TestAdvice: a repeated operation on a row could change it twice, and a repeated write to selected rows cannot.
func TestAdvice(t *testing.T) {
	for _, test := range []struct{ method, path, id, want string }{
		{"POST", "/plants/1/water", "1", "read the row to see whether it was changed"},
		{"PATCH", "/plants?tag=x", "", "leaves rows alone that it has changed or deleted"},
		{"DELETE", "/plants?tag=x", "", "leaves rows alone that it has changed or deleted"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequestWithContext(t.Context(), test.method, test.path, nil)
			c.AddParam("id", test.id)
			if got := adviceOf(c); !strings.Contains(got, test.want) {
				t.Errorf("got %q", got)
			}
		})
	}
}

func TestErrorsOverloaded(t *testing.T) {
	for cause, want := range map[error]string{
		models.ErrNoRoom:               "no room is left for the temporary files of imports and exports, in all or with this token, and nothing was stored: retry later, or split an import that is rejected even if it runs alone",
		limit.ErrShare:                 "too many such operations are running, or too many with this token, and nothing was stored: retry when one has ended",
		limit.ErrBusy:                  "too many operations are waiting, or a long one, such as an import, holds them up, and nothing was stored: retry later",
		&pgconn.PgError{Code: "55P03"}: "another operation has locked the row or the table, and nothing was stored: retry later",
	} {
		w, _ := serveErrorOf(t.Context(), t, "POST", failWith(cause))
		if want := fmt.Sprintf(`{"error":50301,"message":"%s"}`, want); w.Code != 503 || w.Body.String() != want {
			t.Errorf("got %d %s, want %s", w.Code, w.Body, want)
		}
	}
}

// TestUnknownToken: after an unknown outcome, there may be a token whose secret nobody has.
func TestUnknownToken(t *testing.T) {
	e := gin.New()
	e.Use(NewFailures(zap.NewNop()).Respond)
	e.POST("/tokens", middleware.Handle(failWith(fault.ErrUnavailable)))
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/tokens", nil))
	if want := "revoke it, and create another"; !strings.Contains(w.Body.String(), want) || strings.Contains(w.Body.String(), "same id") {
		t.Errorf("got %s, want %q", w.Body, want)
	}
}

// connectError returns the error of an attempt to connect to a host that never responds.
func connectError(t *testing.T) error {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	_, err = pgconn.Connect(ctx, "postgres://x@"+listener.Addr().String()+"/x?sslmode=disable")
	return err
}

func TestErrorsRateLimit(t *testing.T) {
	w, logs := serveError(t.Context(), t, failWith(&middleware.LimitError{What: "requests with this token", RetryAfter: 1100 * time.Millisecond}))
	if got, want := w.Body.String(), `{"error":42901,"message":"too many requests with this token: retry in 2 s"}`; w.Code != 429 || got != want {
		t.Errorf("got %d %s, want 429 %s", w.Code, got, want)
	}
	if got := w.Header().Get("Retry-After"); got != "2" || logs.Len() != 0 {
		t.Errorf("got Retry-After %q, want 2; got the log %v", got, logs.All())
	}
}

// TestErrorsNoFeed: a request for what the service does not have is no outage.
func TestErrorsNoFeed(t *testing.T) {
	if w, logs := serveError(t.Context(), t, failWith(database.ErrNoFeed)); w.Code != 501 || logs.Len() != 0 {
		t.Errorf("got %d and the log %v, want 501 and no log", w.Code, logs.All())
	}
}

// TestErrorsSendLimit: the limit of responses does not reject the error that reports it.
func TestErrorsSendLimit(t *testing.T) {
	verify := func(context.Context, string) (*auth.Identity, error) { return new(auth.Identity), nil }
	e := gin.New()
	e.Use(NewFailures(zap.NewNop()).Respond, middleware.Handle(middleware.Bearer(verify, 0)), middleware.Handle(middleware.SendLimit(limit.NewShares(10, 5))))
	e.GET("/", middleware.Handle(func(c *gin.Context) error {
		_, err := c.Writer.Write(make([]byte, middleware.Small+1))
		return err
	}))
	r := httptest.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
	r.Header.Set("Authorization", "Bearer x")
	w := httptest.NewRecorder()
	e.ServeHTTP(w, r)
	if w.Code != 503 || !strings.Contains(w.Body.String(), `{"error":50301,`) {
		t.Errorf("got %d %s, want 50301", w.Code, w.Body)
	}
}

func TestErrorsClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	core, logs := observer.New(zap.DebugLevel)
	e := gin.New()
	status := 0
	e.Use(func(c *gin.Context) {
		defer func() { status = c.Writer.Status() }()
		c.Next()
	}, NewFailures(zap.New(core)).Respond)
	e.GET("/", middleware.Handle(func(*gin.Context) error {
		cancel()
		return fmt.Errorf("insert: %w: %w", fault.ErrUnavailable, context.Canceled)
	}))
	w := httptest.NewRecorder()
	wantAbort(t, func() { e.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil)) })
	if status != middleware.StatusClientGone || logs.Len() != 0 || w.Body.Len() > 0 {
		t.Errorf("got %d and the log %v, want %d and no log", status, logs.All(), middleware.StatusClientGone)
	}
}

// TestErrorBeforeTheResponse fails after the headers of a response were set, as an export that
// cannot send its first byte does: an Error has none of them.
func TestErrorBeforeTheResponse(t *testing.T) {
	w, _ := serveError(t.Context(), t, func(c *gin.Context) error {
		c.Header("Content-Type", TypeCSV)
		c.Header("Content-Disposition", "attachment")
		c.Header("Content-Encoding", "gzip")
		c.Header("Link", "</plants?after=1>; rel=next")
		c.Header("X-Total-Count", "7")
		if _, err := setVersion(c, `W/"1"`); err != nil {
			return err
		}
		return auth.ErrInvalidToken
	})
	for name, want := range map[string]string{
		"Content-Type": "application/json", "Content-Disposition": "", "Content-Encoding": "", "Link": "",
		"ETag": "", "X-Total-Count": "", "Cache-Control": "no-store",
	} {
		t.Run(name, func(t *testing.T) {
			if got := strings.Join(w.Header()[name], ", "); w.Code != 401 || got != want {
				t.Errorf("got %d with %q, want 401 with %q", w.Code, got, want)
			}
		})
	}
}

// wantAbort fails the test unless serve aborts the connection: the client must not
// mistake a part of the response for the whole.
func wantAbort(t *testing.T, serve func()) {
	t.Helper()
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // the panic has the value itself
			t.Errorf("got the panic %v, want ErrAbortHandler", cause)
		}
	}()
	serve()
}

func TestPanicDuringTheResponse(t *testing.T) {
	wantAbort(t, func() {
		serveError(t.Context(), t, func(c *gin.Context) error {
			c.String(200, "a part")
			panic("a fault")
		})
	})
}

// TestErrorDuringTheResponse: it is logged, even if the handler's own context has ended,
// unless the client has gone. It is no error of the service if the client does not read.
func TestErrorDuringTheResponse(t *testing.T) {
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	for name, test := range map[string]struct {
		ctx    context.Context //nolint:containedctx // of the client
		err    error
		logged string // its level
		code   string // that is counted
	}{
		"the client waits":               {t.Context(), fault.ErrUnavailable, "error", "50302"},
		"the client has gone":            {gone, fault.ErrUnavailable, "", ""},
		"the client waits, a fault":      {t.Context(), errors.New("x"), "error", ""},
		"the client leaves over HTTP/2":  {t.Context(), errors.New("client disconnected"), "", ""},
		"the limit for exports":          {gone, fmt.Errorf("%w: %w", middleware.ErrTooLong, os.ErrDeadlineExceeded), "warn", "50302"},
		"the client does not read":       {t.Context(), os.ErrDeadlineExceeded, "info", ""},
		"the client does not read, gone": {gone, os.ErrDeadlineExceeded, "info", ""},
	} {
		t.Run(name, func(t *testing.T) {
			core, logs := observer.New(zap.DebugLevel)
			registry := prometheus.NewRegistry()
			e := gin.New()
			e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.NewNop(), Metrics: registry}), NewFailures(zap.New(core)).Respond, middleware.Recovery(zap.New(core)), func(c *gin.Context) {
				ctx, cancel := context.WithCancel(c.Request.Context())
				defer cancel()
				c.Request = c.Request.WithContext(ctx)
				c.Next()
			})
			e.GET("/", middleware.Handle(func(c *gin.Context) error {
				c.String(200, "a part")
				return fmt.Errorf("the response ended: %w", test.err)
			}))
			wantAbort(t, func() {
				e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(test.ctx, http.MethodGet, "/", nil))
			})
			var levels []string
			for _, line := range logs.FilterMessage("response aborted").All() {
				levels = append(levels, line.Level.String())
			}
			if got := strings.Join(levels, " "); got != test.logged {
				t.Errorf("got the levels %q, want %q: %v", got, test.logged, logs.All())
			}
			if code := countedErrors(t, registry); code != test.code {
				t.Errorf("got the error code %s, want %s", code, test.code)
			}
		})
	}
}

// countedErrors returns the error codes that registry has counted.
func countedErrors(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var codes []string
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "plantstore_refused_total" {
				codes = append(codes, metric.GetLabel()[0].GetValue())
			}
		}
	}
	return strings.Join(codes, " ")
}

// TestErrorTable: each code is in the table once. Its status is its first three digits,
// but 400 for faults in the content of a request.
func TestErrorTable(t *testing.T) {
	last := int32(0)
	for _, row := range ErrorTable() {
		if row.Code <= last {
			t.Errorf("got error %d after %d, want each once and in ascending order", row.Code, last)
		}
		last = row.Code
		want := int(row.Code / 100)
		if row.Code == codeBodyTooLarge || row.Code == codeContentType {
			want = 400
		}
		if row.Status != want {
			t.Errorf("error %d: got the status %d, want %d", row.Code, row.Status, want)
		}
		if row.When == "" {
			t.Errorf("error %d has no description", row.Code)
		}
	}
	if last == 0 {
		t.Error("the table is empty")
	}
}

// TestErrorsOnThePage: the messages on the page are those of the table, maybe with the line of an
// import.
func TestErrorsOnThePage(t *testing.T) {
	page, err := os.ReadFile("../docs/api.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := make(map[string]string)
	for _, row := range ErrorTable() {
		examples[strconv.Itoa(int(row.Code))] = row.Example
	}
	shown := regexp.MustCompile(`"error":(\d+),"message":"(?:line \d+: )?(.*?)(?:; nothing was stored)?"[,}]`).FindAllStringSubmatch(string(page), -1)
	if len(shown) != strings.Count(string(page), `"error":`) || len(shown) == 0 {
		t.Fatalf("got %d messages, want one of each error", len(shown))
	}
	for _, e := range shown {
		if e[2] != examples[e[1]] {
			t.Errorf("error %s: got %q, want %q", e[1], e[2], examples[e[1]])
		}
	}
}

// TestErrorOfEachDomain: exactly one row of the table stands for each error of the other
// packages, however it is wrapped.
func TestErrorOfEachDomain(t *testing.T) {
	for _, test := range []struct {
		name    string
		err     error
		code    int32
		message string // a part
	}{
		{"an invalid value", &models.InvalidError{Field: "name", Reason: "must not be empty"}, codeInvalidValue, "name must not be empty"},
		{"a broken CHECK", &fault.CheckError{Constraint: "suppliers_rating"}, codeInvalidValue, "the row breaks the rule suppliers_rating"},
		{"a large body", &http.MaxBytesError{Limit: 7}, codeBodyTooLarge, "larger than 7 bytes"},
		{"no token", auth.ErrNoToken, 40101, "Authorization: Bearer"},
		{"an invalid token", auth.ErrInvalidToken, 40102, "not valid"},
		{"a missing scope", &auth.ScopeError{Scope: models.WriteScope("plants")}, 40301, "plants:write"},
		{"a missing plant", &models.NotFoundError{Noun: "plant"}, 40401, "no such plant"},
		{"a missing token", &models.NotFoundError{Noun: "token"}, 40401, "no such token"},
		{"a key that is taken", &models.ExistsError{Noun: "supplier", Key: "a-1"}, 40901, "supplier a-1 exists with different content"},
		{"a key that is taken by the same", &models.ExistsError{Noun: "plant", Key: int64(7), Same: true}, codeExistsSame, "plant 7 exists with the same content"},
		{"a precondition", models.ErrCondition, codePrecondition, "If-Match"},
		{"a rate limit", &middleware.LimitError{What: "requests", RetryAfter: time.Second}, 42901, "too many requests: retry in 1 s"},
		{"an id that another row of an import has", &models.RepeatedError{}, 40901, "first valid row"},
		{"an old cursor", database.ErrCursor, 41001, "get a new cursor"},
		{"a database without a feed", database.ErrNoFeed, 50101, "export instead"},
		{"an overload", limit.ErrBusy, codeOverloaded, "nothing was stored"},
		{"a client with its share", limit.ErrShare, codeOverloaded, "with this token"},
		{"a database that is not writable", &fault.NotWritableError{Reason: "its disk is full"}, codeUnavailable, "its disk is full"},
		{"a database that does not respond", fault.ErrTimeout, codeUnavailable, "did not respond in time"},
		{"a database that is unavailable", fault.ErrUnavailable, codeUnavailable, "outcome is unknown"},
		{"tokens that cannot be verified", auth.ErrCannotVerify, codeUnavailable, "tokens cannot be verified"},
		{"a service that is stopping", errStopping, codeUnavailable, "stopping"},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, err := range []error{test.err, fmt.Errorf("get plant: %w", test.err), errors.Join(errors.New("x"), test.err)} {
				if got := describe(nil, err); got.Code != test.code || !strings.Contains(got.Message, test.message) {
					t.Errorf("%v: got %+v, want %d, %s", err, got, test.code, test.message)
				}
			}
			for _, row := range errorTable {
				if text := row.messageOf(test.err); text != "" && row.Code != test.code {
					t.Errorf("also of %d: %s", row.Code, text)
				}
			}
		})
	}
	t.Run("a problem brings its own code and message", func(t *testing.T) {
		want := Error{Code: codeParameter, Message: "limit is 7"}
		if got := describe(nil, fmt.Errorf("list plants: %w", problemf(codeParameter, "limit is %d", 7))); !reflect.DeepEqual(got, want) {
			t.Errorf("got %+v, want %+v", got, want)
		}
	})
}

// TestErrorsLogTheTraceID finds the cause of a fault by the trace id that the client sent.
func TestErrorsLogTheTraceID(t *testing.T) {
	core, logs := observer.New(zap.InfoLevel)
	log := zap.New(core)
	gin.SetMode(gin.ReleaseMode)
	for name, handler := range map[string]middleware.Handler{
		"request failed":                 failWith(errors.New("x")),
		"requests fail with error 50302": failWith(fault.ErrUnavailable),
		"panic":                          func(*gin.Context) error { panic("x") },
		"response aborted":               func(c *gin.Context) error { c.String(200, "x"); return errors.New("x") },
	} {
		t.Run(name, func(t *testing.T) {
			e := gin.New()
			e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.NewNop(), Metrics: prometheus.NewRegistry()}), NewFailures(log).Respond, middleware.Recovery(log))
			e.GET("/", middleware.Handle(handler))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("traceparent", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01")
			func() {
				defer func() { _ = recover() }()
				e.ServeHTTP(httptest.NewRecorder(), r)
			}()
			lines := logs.FilterMessage(name).All()
			if len(lines) != 1 || lines[0].ContextMap()["trace_id"] != "4bf92f3577b34da6a3ce929d0e0e4736" {
				t.Errorf("got the log %v", logs.All())
			}
			logs.TakeAll()
		})
	}
}
