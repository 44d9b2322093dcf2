package middleware_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
)

// TestFailures: an address that sends too many wrong tokens is told to wait, and locks
// out nobody who has a right one.
func TestFailures(t *testing.T) {
	bearer := middleware.Bearer(middleware.StaticTokens([]string{"right"}), 60)
	limited := func(token, address string) bool {
		limit, ok := errors.AsType[*middleware.LimitError](refusal(bear(token, address, bearer)))
		if ok && (limit.RetryAfter <= 0 || limit.RetryAfter > time.Second) {
			t.Errorf("try again in %s", limit.RetryAfter)
		}
		return ok
	}
	for range 60 {
		if limited("wrong", "192.0.2.1:2") {
			t.Fatal("refused too early")
		}
	}
	if !limited("wrong", "192.0.2.1:3") {
		t.Error("60 wrong tokens, and another, are not limited")
	}
	if c := bear("right", "192.0.2.1:4", bearer); c.IsAborted() {
		t.Errorf("a right token is refused: %v", refusal(c))
	}
	if limited("wrong", "192.0.2.2:1") {
		t.Error("another address is limited, too")
	}
	// A network of IPv6 is one address.
	for range 60 {
		limited("wrong", "[2001:db8::1]:1")
	}
	if !limited("wrong", "[2001:db8::ffff:1]:1") || limited("wrong", "[2001:db8:0:1::1]:1") {
		t.Error("IPv6 networks of 64 bits are not told apart")
	}
}

func TestRateLimit(t *testing.T) {
	bearer := middleware.Bearer(middleware.StaticTokens([]string{"a", "b", "c"}), 0)
	limit := middleware.RateLimit(1, 3)
	send := func(token, address string) *gin.Context { return bear(token, address, bearer, limit) }
	for range 3 {
		if c := send("a", "192.0.2.1:1"); c.IsAborted() {
			t.Fatal(refusal(c))
		}
	}
	for _, test := range []struct {
		what, token, address, limited string
	}{
		{"a token, from another address", "a", "192.0.2.9:1", "requests of this token"},
		{"an address, with another token", "b", "192.0.2.1:2", "requests of this address"},
		{"the token once more, which takes nothing from its address", "a", "192.0.2.9:1", "requests of this token"},
		{"another token at that address", "b", "192.0.2.9:1", ""},
		{"another token and address", "c", "192.0.2.3:2", ""},
	} {
		c := send(test.token, test.address)
		limited, ok := errors.AsType[*middleware.LimitError](refusal(c))
		if ok != (test.limited != "") || ok && limited.What != test.limited {
			t.Errorf("%s: %v", test.what, refusal(c))
		}
		if ok && (limited.RetryAfter <= 0 || limited.RetryAfter > time.Second) {
			t.Errorf("%s: try again in %s", test.what, limited.RetryAfter)
		}
	}
	header := send("c", "192.0.2.3:1").Writer.Header()
	if got := header.Get("RateLimit-Policy"); got != `"token";q=3;w=3, "address";q=3;w=3` {
		t.Errorf("RateLimit-Policy: %s", got)
	}
	if got := header.Get("RateLimit"); got != `"token";r=1;t=2, "address";r=1;t=2` {
		t.Errorf("RateLimit: %s", got)
	}
}
