package middleware_test

import (
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/middleware"
)

// TestLineDoesNotWaitForABody announces a body, which never comes, to a handler that reads none.
func TestLineDoesNotWaitForABody(t *testing.T) {
	lines := make(chan zapcore.Entry, 1)
	log := zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), zapcore.AddSync(io.Discard), zap.InfoLevel),
		zap.Hooks(func(line zapcore.Entry) error { lines <- line; return nil }))
	e := gin.New()
	e.Use(middleware.Observe(middleware.ObserverOptions{Log: log, Metrics: prometheus.NewRegistry()}), middleware.DiscardBody)
	e.DELETE("/", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	server := httptest.NewServer(e)
	defer server.CloseClientConnections() // else Close would wait for the body
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "DELETE / HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	select {
	case <-lines:
	case <-time.After(10 * time.Second):
		t.Error("got no line in 10 s")
	}
}

// TestPathsInTheLog: a client may have put a token in place of an id.
func TestPathsInTheLog(t *testing.T) {
	const id, static, bearer = "0b6cb3e9-1c7a-4f0e-9d57-8d1f0a2b3c4d", "7f0c1f6e-52a3-4f0b-8a44-1b2c3d4e5f60", "c56a4180-65aa-42ec-a945-5fd21dec0538"
	core, logs := observer.New(zap.InfoLevel)
	e := gin.New()
	e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.New(core), Tokens: []string{static}, Metrics: prometheus.NewRegistry()}))
	e.DELETE("/crates/:id", func(c *gin.Context) { c.Status(http.StatusNoContent) })
	for name, test := range map[string]struct{ path, want string }{
		"a number":                {"/crates/17", "/crates/17"},
		"a UUID":                  {"/crates/" + id, "/crates/" + id},
		"a static token":          {"/crates/" + static, "/crates/:id"},
		"the token of the sender": {"/crates/" + bearer, "/crates/:id"},
		"another text":            {"/crates/secret", "/crates/:id"},
		"no route":                {"/secret", "/…"},
	} {
		t.Run(name, func(t *testing.T) {
			r := httptest.NewRequest(http.MethodDelete, test.path, nil)
			r.Header.Set("Authorization", "Bearer "+bearer)
			e.ServeHTTP(httptest.NewRecorder(), r)
			if got := logs.TakeAll()[0].ContextMap()["path"]; got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
