package middleware_test

import (
	"errors"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestHandle(t *testing.T) {
	failed := errors.New("failed")
	for name, want := range map[string]error{"nil passes the request on": nil, "an error ends the request": failed} {
		t.Run(name, func(t *testing.T) {
			passed := false
			c := send("x", "192.0.2.1:1",
				func(*gin.Context) error { return want },
				func(*gin.Context) error { passed = true; return nil })
			if !errors.Is(rejection(c), want) || passed != (want == nil) || len(c.Errors) > 1 {
				t.Errorf("got %v, passed on: %v", c.Errors, passed)
			}
		})
	}
}
