package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/middleware"
)

// TestRequestID: the response has the client's id whether or not a token has a part of it,
// since a client could find out tokens otherwise. The log has no part of a token.
func TestRequestID(t *testing.T) {
	const static, bearer = "0123456789abcdef", "fedcba9876543210"
	issued := "pst_" + strings.Repeat("a", 60)
	seen := make(map[string]bool)
	for _, test := range []struct {
		name, id       string
		echoed, logged bool
	}{
		{"valid", "Order-17_b.2", true, true},
		{"one character", "a", true, true},
		{"as long as it may be", strings.Repeat("x", 64), true, true},
		{"too long", strings.Repeat("x", 65), false, false},
		{"empty", "", false, false},
		{"a space", "a b", false, false},
		{"a tab", "a\tb", false, false},
		{"a slash", "a/b", false, false},
		{"no ASCII", "é", false, false},
		{"a static token", static, true, false},
		{"a part of a static token", "id-" + static[3:11], true, false},
		{"a part of the request's token", bearer[:8], true, false},
		{"less than a part", static[:7], true, true},
		{"an issued token", issued, true, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			engine, w := gin.New(), httptest.NewRecorder()
			engine.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.New(core), Tokens: []string{static}, Metrics: prometheus.NewRegistry()}))
			r := httptest.NewRequest(http.MethodGet, "/", nil)
			r.Header.Set("Authorization", "Bearer "+bearer)
			r.Header.Set(middleware.RequestIDHeader, test.id)
			engine.ServeHTTP(w, r)
			got := map[string][]string(w.Header())[middleware.RequestIDHeader][0]
			if (got == test.id) != test.echoed || !test.echoed && len(got) < 7 || seen[got] {
				t.Errorf("got %q, want the client's: %v", got, test.echoed)
			}
			seen[got] = true
			logged := logs.All()[0].ContextMap()["request_id"]
			if want := map[bool]any{true: got, false: "…"}[test.logged || !test.echoed]; logged != want {
				t.Errorf("got %q in the log, want %q", logged, want)
			}
		})
	}
}
