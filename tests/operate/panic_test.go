package operate

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	metrics "github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/controllers"
	"plantstore/middleware"
	"plantstore/tests/service"
)

// TestPanicTellsNoSecret panics in a handler, with values such as the request.
func TestPanicTellsNoSecret(t *testing.T) {
	t.Parallel()
	issued := service.IssueElsewhere(t)
	for _, test := range []struct {
		name  string
		panic func(r *http.Request)
		// logged must be in the log.
		logged string
	}{
		{"an error of the runtime", func(r *http.Request) { _ = r.Header["Cookie"][7] }, "index out of range [7] with length 1"},
		{"a division by zero", func(r *http.Request) { _ = 1 / len(r.Header["None"]) }, "integer divide by zero"},
		{"another type", func(r *http.Request) { var v any = r.Header; _ = v.(string) }, "interface conversion"},
		{"a text", func(*http.Request) { panic("never here") }, "never here"},
		{"an error", func(*http.Request) { panic(errors.New("never here")) }, "never here"},
		{"the request", func(r *http.Request) { panic(r) }, "*http.Request"},
		{"the header", func(r *http.Request) { panic(r.Header) }, "http.Header"},
		{"a text with an issued token", func(r *http.Request) { panic("no " + r.URL.Query().Get("token")) }, "no pst_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			h := new(canaries)
			log := service.NewLines()
			core := zapcore.NewCore(zapcore.NewJSONEncoder(zap.NewProductionEncoderConfig()), zapcore.Lock(zapcore.AddSync(log)), zap.DebugLevel)
			logger := zap.New(core)
			gin.SetMode(gin.ReleaseMode)
			e := gin.New()
			e.Use(middleware.Observe(middleware.ObserverOptions{Log: logger, Metrics: metrics.NewRegistry()}), controllers.NewFailures(logger).Respond, middleware.Recovery(logger))
			e.POST("/*path", func(c *gin.Context) { test.panic(c.Request) })

			h.add("an issued token", issued)
			request := httptest.NewRequest(http.MethodPost, "/"+issued+"?token="+issued, strings.NewReader(h.plant("the body")))
			request.Header.Set("Authorization", "Bearer "+h.plant("the token"))
			request.Header.Set("Cookie", h.plant("a cookie"))
			recorder := httptest.NewRecorder()
			e.ServeHTTP(recorder, request)
			if recorder.Code != 500 || !strings.Contains(log.String(), `"msg":"panic"`) || !strings.Contains(log.String(), test.logged) {
				t.Errorf("got %d, want 500 and %q in the log:\n%s", recorder.Code, test.logged, log)
			}
			h.check(t, "the log", log.String(), true)
			h.check(t, "the response", fmt.Sprint(recorder.Header(), recorder.Body), true)
		})
	}
}
