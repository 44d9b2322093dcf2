package controllers

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/middleware"
	"plantstore/models"
)

// serveError answers a request whose handler is given.
func serveError(ctx context.Context, t *testing.T, handler gin.HandlerFunc) (*httptest.ResponseRecorder, *observer.ObservedLogs) {
	t.Helper()
	core, logs := observer.New(zap.DebugLevel)
	log := zap.New(core)
	e := gin.New()
	e.Use(middleware.RequestID(), Errors(log), middleware.Recovery(log))
	e.GET("/", handler)
	w := httptest.NewRecorder()
	e.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodGet, "/", nil))
	return w, logs
}

func TestErrorsHidesFaults(t *testing.T) {
	const secret = `relation "plants" of host 10.0.0.1`
	for what, handler := range map[string]gin.HandlerFunc{
		"an unknown error":  func(c *gin.Context) { middleware.Fail(c, errors.New(secret)) },
		"a panic":           func(*gin.Context) { panic(secret) },
		"a runtime error":   func(*gin.Context) { _ = []int{}[len(secret)] },
		"a wrapped error":   func(c *gin.Context) { middleware.Fail(c, fmt.Errorf("x: %w", errors.New(secret))) },
		"an encoding error": func(c *gin.Context) { answer(c, 200, func() {}) },
	} {
		w, logs := serveError(t.Context(), t, handler)
		id := w.Header().Get("X-Request-ID")
		want := fmt.Sprintf(`{"error":50001,"message":"internal error, request id %s"}`, id)
		if w.Code != 500 || w.Body.String() != want {
			t.Errorf("%s: got %d %s, want 500 %s", what, w.Code, w.Body, want)
		}
		failed := logs.FilterMessage("request failed").All()
		if len(failed) != 1 || failed[0].ContextMap()["request_id"] != id || failed[0].ContextMap()["error"] == nil {
			t.Errorf("%s: logged %v", what, logs.All())
		}
	}
}

func TestErrorsUnavailable(t *testing.T) {
	w, _ := serveError(t.Context(), t, func(c *gin.Context) {
		middleware.Fail(c, fmt.Errorf("insert: %w: %w", models.ErrUnavailable, errors.New("secret")))
	})
	if w.Code != 503 || !strings.HasPrefix(w.Body.String(), `{"error":50302,`) || strings.Contains(w.Body.String(), "secret") {
		t.Errorf("got %d %s", w.Code, w.Body)
	}
	if w.Header().Get("Retry-After") != "1" {
		t.Errorf("Retry-After %q", w.Header().Get("Retry-After"))
	}
}

func TestErrorsClientGone(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	w, logs := serveError(ctx, t, func(c *gin.Context) {
		cancel()
		middleware.Fail(c, fmt.Errorf("insert: %w: %w", models.ErrUnavailable, context.Canceled))
	})
	if w.Code != statusClientGone || logs.Len() != 0 {
		t.Errorf("got %d, logged %v", w.Code, logs.All())
	}
}

// TestPanicAfterTheAnswerBegan: the client must not take a part for the whole.
func TestPanicAfterTheAnswerBegan(t *testing.T) {
	defer func() {
		if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // the value itself is thrown
			t.Errorf("the connection is not broken off: %v", cause)
		}
	}()
	serveError(t.Context(), t, func(c *gin.Context) {
		c.String(200, "a part")
		panic("then a fault")
	})
}

// TestErrorAfterTheAnswerBegan: it is broken off, and logged, though the handler's
// own context has ended with it; but not for a client that has gone.
func TestErrorAfterTheAnswerBegan(t *testing.T) {
	gone, leave := context.WithCancel(t.Context())
	leave()
	for what, test := range map[string]struct {
		ctx    context.Context //nolint:containedctx // of the client
		logged int
	}{"a client that waits": {t.Context(), 1}, "a client that has gone": {gone, 0}} {
		core, logs := observer.New(zap.DebugLevel)
		e := gin.New()
		e.Use(Errors(zap.New(core)), middleware.Recovery(zap.New(core)), func(c *gin.Context) {
			ctx, cancel := context.WithCancel(c.Request.Context())
			defer cancel()
			c.Request = c.Request.WithContext(ctx)
			c.Next()
		})
		e.GET("/", func(c *gin.Context) {
			c.String(200, "a part")
			middleware.Fail(c, errors.New("the database ended"))
		})
		func() {
			defer func() {
				if cause := recover(); cause != http.ErrAbortHandler { //nolint:errorlint // the value itself is thrown
					t.Errorf("%s: the connection is not broken off: %v", what, cause)
				}
			}()
			e.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(test.ctx, http.MethodGet, "/", nil))
		}()
		if logs.FilterMessage("answer broken off").Len() != test.logged {
			t.Errorf("%s: logged %v", what, logs.All())
		}
	}
}

func TestStatusOfEveryCode(t *testing.T) {
	for code, want := range map[int32]int{
		codeMalformed: 400, codeUnknownField: 400, codeDuplicateField: 400, codeMissingOrType: 400, codeNotInt64: 400, codeTextLimits: 400,
		codeParameter: 400, codeBodyTooLarge: 400, codeContentType: 400, codeNoToken: 401, codeInvalidToken: 401, codeScope: 403,
		codeNoPlant: 404, codeNoPath: 404, codeNoIssuedToken: 404, codeMethod: 405, codeIDTaken: 409, codeIDTakenSame: 409,
		codeCondition: 412, codeLimit: 429, codeInternal: 500, codeOverloaded: 503, codeDatabaseTimeout: 503,
	} {
		if got := status(code); got != want {
			t.Errorf("error %d is sent with %d, want %d", code, got, want)
		}
	}
}
