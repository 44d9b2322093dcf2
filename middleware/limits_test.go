package middleware_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/middleware"
)

// limitOf returns the limit that rejected c, or an empty text.
func limitOf(t *testing.T, c *gin.Context) string {
	t.Helper()
	limit, ok := errors.AsType[*middleware.LimitError](rejection(c))
	if !ok {
		return ""
	}
	if limit.RetryAfter <= 0 || limit.RetryAfter > time.Second {
		t.Errorf("got a retry after %s, want at most 1s", limit.RetryAfter)
	}
	return limit.What
}

func TestLimitOfInvalidTokens(t *testing.T) {
	const failures = 60
	const limited = "invalid tokens from this address"
	for _, test := range []struct{ name, token, address, want string }{
		{"the same address is limited", "wrong", "192.0.2.1:3", limited},
		{"a valid token from it is accepted", "right", "192.0.2.1:4", ""},
		{"another address is not limited", "wrong", "192.0.2.2:1", ""},
		{"an IPv6 network of 64 bits is one address", "wrong", "[2001:db8::ffff:1]:1", limited},
		{"another IPv6 network is not limited", "wrong", "[2001:db8:0:1::1]:1", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bearer := middleware.Bearer(auth.StaticTokens([]string{"right"}), failures)
				for range failures {
					for _, address := range []string{"192.0.2.1:2", "[2001:db8::1]:1"} {
						if got := limitOf(t, send("wrong", address, bearer)); got != "" {
							t.Fatalf("%s is limited too early: got %s", address, got)
						}
					}
				}
				c := send(test.token, test.address, bearer)
				if got := limitOf(t, c); got != test.want || c.IsAborted() != (test.token == "wrong") {
					t.Errorf("got %q, want %q", got, test.want)
				}
				header := headerOf(c, "RateLimit")
				if want := map[bool]string{true: `"invalid-tokens";r=0;t=60`}[test.want != ""]; header != want {
					t.Errorf("got RateLimit %q, want %q", header, want)
				}
				time.Sleep(time.Second) // of synctest's clock
				if got := limitOf(t, send(test.token, test.address, bearer)); got != "" {
					t.Errorf("got %q a second later, want no limit", got)
				}
			})
		})
	}
}

// TestNetworksOfIPv6 sends requests from many networks of a /56, and of a /48.
func TestNetworksOfIPv6(t *testing.T) {
	const each = 3
	for _, test := range []struct {
		name, format string
		networks     int
		want         int // requests that are not limited
	}{
		{"the addresses of a /64", "[2001:db8::%x]:1", 100, each},
		{"the /64 networks of a /56", "[2001:db8:0:%02x::1]:1", 100, 4 * each},
		{"the /64 networks of a /48", "[2001:db8:0:%02x00::1]:1", 100, 16 * each},
		{"networks of /48", "[2001:db8:%x::1]:1", 100, 100},
		{"addresses of IPv4", "192.0.2.%d:1", 100, 100},
	} {
		for what, handlers := range map[string][]middleware.Handler{
			"wrong tokens": {middleware.Bearer(auth.StaticTokens(nil), each)},
			"requests": {middleware.Bearer(func(_ context.Context, token string) (*auth.Identity, error) {
				return &auth.Identity{Name: token}, nil
			}, 0), middleware.RateLimit(1, each)},
		} {
			t.Run(what+" from "+test.name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					served := 0
					for n := range test.networks {
						c := send(strconv.Itoa(n), fmt.Sprintf(test.format, n), handlers...)
						if _, limited := errors.AsType[*middleware.LimitError](rejection(c)); !limited {
							served++
						}
					}
					if served != test.want {
						t.Errorf("got %d of %d, want %d", served, test.networks, test.want)
					}
				})
			})
		}
	}
}

// TestOutageIsNoInvalidToken: tokens that cannot be verified do not count.
func TestOutageIsNoInvalidToken(t *testing.T) {
	bearer := middleware.Bearer(func(context.Context, string) (*auth.Identity, error) { return nil, auth.ErrCannotVerify }, 1)
	for range 3 {
		if c := send("x", "192.0.2.1:1", bearer); !errors.Is(rejection(c), auth.ErrCannotVerify) {
			t.Errorf("got %v, want ErrCannotVerify", rejection(c))
		}
	}
}

// TestRejectedRequestsTakeNothing: a client that sends too much, at the same time, has as many
// requests again as soon as one that waits.
func TestRejectedRequestsTakeNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		limit := middleware.RateLimit(1, 1)
		verify := middleware.Bearer(auth.StaticTokens([]string{"a"}), 0)
		var group sync.WaitGroup
		for range 8 {
			group.Go(func() {
				for range 5000 {
					send("a", "192.0.2.1:1", verify, limit)
				}
			})
		}
		group.Wait()
		rejected, ok := errors.AsType[*middleware.LimitError](rejection(send("a", "192.0.2.1:1", verify, limit)))
		if !ok || rejected.RetryAfter != time.Second { // the time stands still here
			t.Errorf("got %v, want a retry after 1s", rejected)
		}
	})
}

func TestRateLimit(t *testing.T) {
	const ofToken, ofAddress = "requests with this token", "requests from this address"
	for _, test := range []struct{ name, token, address, want string }{
		{"the token is limited from another address", "a", "192.0.2.9:1", ofToken},
		{"the address is limited with another token", "b", "192.0.2.1:2", ofAddress},
		{"another token there is not limited: a limited one takes nothing from its address", "b", "192.0.2.9:1", ""},
		{"another token and address are not limited", "c", "192.0.2.3:2", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				bearer := middleware.Bearer(auth.StaticTokens([]string{"a", "b", "c"}), 0)
				limit := middleware.RateLimit(1, 3)
				for range 3 {
					if c := send("a", "192.0.2.1:1", bearer, limit); c.IsAborted() {
						t.Fatal(rejection(c))
					}
				}
				for range 10 { // more than its address has
					send("a", "192.0.2.9:1", bearer, limit)
				}
				c := send(test.token, test.address, bearer, limit)
				if got := limitOf(t, c); got != test.want {
					t.Errorf("got %q, want %q", got, test.want)
				}
				if test.token != "c" {
					return
				}
				for name, want := range map[string]string{
					"RateLimit-Policy": `"token";q=3;w=3, "address";q=3;w=3`,
					"RateLimit":        `"token";r=2;t=1, "address";r=2;t=1`,
				} {
					if got := c.Writer.Header()[name]; !slices.Equal(got, []string{want}) {
						t.Errorf("%s: got %s, want %s", name, got, want)
					}
				}
			})
		})
	}
}

// TestLimitsForgetAddresses sends a wrong token from more addresses than are remembered:
// the first one then has its full limit again.
func TestLimitsForgetAddresses(t *testing.T) {
	const remembered = 1 << 14
	bearer := middleware.Bearer(auth.StaticTokens([]string{"right"}), 1)
	limited := func(n int) bool {
		_, limited := errors.AsType[*middleware.LimitError](rejection(send("wrong", fmt.Sprintf("10.%d.%d.%d:1", n>>16, n>>8&0xff, n&0xff), bearer)))
		return limited
	}
	for n := range remembered {
		if limited(n) {
			t.Fatalf("address %d is limited at its first request", n)
		}
	}
	if !limited(remembered - 1) {
		t.Error("the last address is forgotten")
	}
	limited(remembered) // takes the place of the first
	if limited(0) {
		t.Errorf("the first of %d addresses is remembered", remembered+1)
	}
}

// TestRowsCountTowardTheRate: 50 rows of a page count as a request.
func TestRowsCountTowardTheRate(t *testing.T) {
	for _, test := range []struct{ rows, want int }{{0, 9}, {49, 9}, {50, 8}, {249, 5}, {1000, 0}} {
		t.Run(strconv.Itoa(test.rows), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				limit := middleware.RateLimit(1, 10)
				verify := middleware.Bearer(auth.StaticTokens([]string{"a"}), 0)
				send("a", "192.0.2.1:1", verify, limit, func(c *gin.Context) error {
					middleware.CountRows(c, test.rows)
					return nil
				})
				left := 0
				for rejection(send("a", "192.0.2.1:1", verify, limit)) == nil {
					left++
				}
				if left != test.want {
					t.Errorf("%d requests are left, want %d", left, test.want)
				}
			})
		})
	}
}
