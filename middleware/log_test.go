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

// slowLog writes no line before ready is closed.
type slowLog struct{ ready chan struct{} }

func (l slowLog) Write(p []byte) (int, error) {
	<-l.ready
	return len(p), nil
}

func (slowLog) Sync() error { return nil }

// TestResponseDoesNotWaitForItsLine reads responses while the log takes no lines.
func TestResponseDoesNotWaitForItsLine(t *testing.T) {
	for name, respond := range map[string]gin.HandlerFunc{
		"a body":  func(c *gin.Context) { c.Header("Content-Length", "2"); c.String(http.StatusOK, "ok") },
		"no body": func(c *gin.Context) { c.Status(http.StatusNoContent) },
	} {
		t.Run(name, func(t *testing.T) {
			log := slowLog{make(chan struct{})}
			e := gin.New()
			e.Use(middleware.Observe(middleware.ObserverOptions{Log: zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), log, zap.InfoLevel)), Metrics: prometheus.NewRegistry()}))
			e.GET("/", respond)
			server := httptest.NewServer(e)
			defer server.Close()
			defer close(log.ready)
			client := http.Client{Timeout: 10 * time.Second}
			r, err := client.Get(server.URL)
			if err != nil {
				t.Fatal(err)
			}
			if err := r.Body.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

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
