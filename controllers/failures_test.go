package controllers

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database/limit"
)

// TestFailuresOfOneSlowClient: a request that waits for a lock fails every three seconds. That is one
// series, which ends after the last one.
func TestFailuresOfOneSlowClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f := NewFailures(zap.New(core))
		for range 4 {
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequestWithContext(t.Context(), "POST", "/plants", nil)
			f.logFault(c, codeOverloaded, limit.ErrBusy)
			time.Sleep(3 * time.Second)
		}
		time.Sleep(quietTime)
		begins, ends := logs.FilterMessage("requests begin to fail").Len(), logs.FilterMessage("requests no longer fail").All()
		if begins != 1 || len(ends) != 1 {
			t.Fatalf("got %d lines of a beginning and %d of an end, want one each", begins, len(ends))
		}
		if got := ends[0].ContextMap(); got["requests"] != int64(4) || got["duration"] != 9*time.Second {
			t.Errorf("got %v, want 4 requests in 9 seconds", got)
		}
	})
}
