package middleware_test

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gin-gonic/gin"
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
			e.Use(middleware.AccessLog(zap.New(zapcore.NewCore(zapcore.NewJSONEncoder(zapcore.EncoderConfig{}), log, zap.InfoLevel))))
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
