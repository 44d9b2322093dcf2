package controllers

import (
	"context"
	"net/http/httptest"
	"reflect"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/auth"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/middleware"
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

// TestFailuresOfTokens: a line tells which tokens have failed since the line before it.
func TestFailuresOfTokens(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, logs := observer.New(zap.InfoLevel)
		verify := func(_ context.Context, token string) (*auth.Identity, error) {
			return &auth.Identity{Name: token}, nil
		}
		e := gin.New()
		e.Use(NewFailures(zap.New(core)).Respond, middleware.Handle(middleware.Bearer(verify, 0)))
		e.POST("/plants", middleware.Handle(failWith(limit.ErrBusy)))
		fail := func(token string, times int) {
			for range times {
				r := httptest.NewRequestWithContext(t.Context(), "POST", "/plants", nil)
				r.Header.Set("Authorization", "Bearer "+token)
				e.ServeHTTP(httptest.NewRecorder(), r)
			}
		}
		fail("a", 10)
		fail("b", 3)
		time.Sleep(time.Second)
		fail("b", 1)
		time.Sleep(2 * time.Second)
		fail("c", 2)
		time.Sleep(time.Second)
		for i := range 2 * maxCounted {
			fail(strconv.Itoa(i), 1)
		}
		time.Sleep(time.Second)
		fail("0", 1)
		var got []map[string]int
		for _, line := range logs.FilterMessage("requests fail with error 50301").All() {
			got = append(got, line.ContextMap()["failed"].(map[string]int))
		}
		want := []map[string]int{{"a": 1}, {"a": 9, "b": 4}, {"c": 1}, {"c": 1, "0": 1}}
		if len(got) != 5 || !reflect.DeepEqual(got[:4], want) {
			t.Fatalf("got %v, want %v and another line", got, want)
		}
		if last := got[4]; len(last) != maxCounted || last["1"] != 1 {
			t.Errorf("got %v, want %d tokens", last, maxCounted)
		}
	})
}
