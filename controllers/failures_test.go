package controllers

import (
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/database/fault"
	"plantstore/database/limit"
)

// TestFailuresPerSecond: of the requests that fail with a code in a second, the log has only the first.
func TestFailuresPerSecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		f := NewFailures(zap.New(core))
		for range 3 {
			for range 10 {
				for code, cause := range map[int32]error{codeOverloaded: limit.ErrBusy, codeUnavailable: fault.ErrUnavailable} {
					c, _ := gin.CreateTestContext(httptest.NewRecorder())
					c.Request = httptest.NewRequestWithContext(t.Context(), "POST", "/plants", nil)
					f.logFault(c, code, cause)
				}
			}
			time.Sleep(time.Second)
		}
		for _, message := range []string{"requests fail with error 50301", "requests fail with error 50302"} {
			if n := logs.FilterMessage(message).Len(); n != 3 {
				t.Errorf("got %d lines %q, want one per second", n, message)
			}
		}
	})
}
