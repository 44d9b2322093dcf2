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
