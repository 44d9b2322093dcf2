package middleware_test

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

func TestStaticTokens(t *testing.T) {
	verify := middleware.StaticTokens([]string{"first", "second"})
	for token, want := range map[string]string{"first": "static:1", "second": "static:2"} {
		who, err := verify(t.Context(), token)
		if err != nil || who.Name != want || !who.Scopes.Allow(models.ScopeAdmin) {
			t.Errorf("%q: %+v, %v", token, who, err)
		}
	}
	for _, token := range []string{"", "firs", "firstx", "First", "firstsecond"} {
		if who, err := verify(t.Context(), token); who != nil || !errors.Is(err, models.ErrInvalidToken) {
			t.Errorf("%q: %+v, %v", token, who, err)
		}
	}
	if _, err := middleware.StaticTokens(nil)(t.Context(), ""); !errors.Is(err, models.ErrInvalidToken) {
		t.Errorf("without tokens, the empty one: %v", err)
	}
}

// bear sends a request with a token from address through handlers.
func bear(token, address string, handlers ...gin.HandlerFunc) *gin.Context {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodGet, "/", nil)
	c.Request.RemoteAddr = address
	c.Request.Header.Set("Authorization", "Bearer "+token)
	for _, handler := range handlers {
		if !c.IsAborted() {
			handler(c)
		}
	}
	return c
}

// refusal returns the error that a request was refused with.
func refusal(c *gin.Context) error {
	if !c.IsAborted() || len(c.Errors) == 0 {
		return nil
	}
	return c.Errors.Last().Err
}

// TestBearerPassesOnWhatTheVerifierSays: a verifier that cannot tell is not one
// that says no.
func TestBearerPassesOnWhatTheVerifierSays(t *testing.T) {
	down := errors.New("the store of tokens is down")
	fail := func(context.Context, string) (*middleware.Identity, error) { return nil, down }
	verify := middleware.AnyOf(middleware.StaticTokens([]string{"right"}), fail, middleware.StaticTokens([]string{"late"}))
	c := bear("x", "192.0.2.1:1", middleware.Bearer(verify, 0))
	if !errors.Is(refusal(c), down) || c.Writer.Header().Get("WWW-Authenticate") != "" {
		t.Errorf("%v, header %v", refusal(c), c.Writer.Header())
	}
	if c := bear("right", "192.0.2.1:1", middleware.Bearer(verify, 0)); c.IsAborted() || middleware.IdentityOf(c).Name != "static:1" {
		t.Errorf("%v", refusal(c))
	}
}

func TestRequireScope(t *testing.T) {
	for _, test := range []struct {
		has   models.Scopes
		needs models.Scope
		pass  bool
	}{
		{models.Scopes{models.ScopeRead}, models.ScopeRead, true},
		{models.Scopes{models.ScopeRead}, models.ScopeWrite, false},
		{models.Scopes{models.ScopeRead}, models.ScopeAdmin, false},
		{models.Scopes{models.ScopeWrite}, models.ScopeRead, false},
		{models.Scopes{models.ScopeWrite}, models.ScopeWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeRead, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeWrite, true},
		{models.Scopes{models.ScopeAdmin}, models.ScopeAdmin, true},
		{nil, models.ScopeRead, false},
	} {
		verify := func(context.Context, string) (*middleware.Identity, error) {
			return &middleware.Identity{Scopes: test.has}, nil
		}
		c := bear("x", "192.0.2.1:1", middleware.Bearer(verify, 0), middleware.RequireScope(test.needs))
		if c.IsAborted() == test.pass {
			t.Errorf("%v for %s: %v", test.has, test.needs, refusal(c))
		}
		want := `Bearer error="insufficient_scope", scope="` + string(test.needs) + `"`
		if got := c.Writer.Header().Get("WWW-Authenticate"); !test.pass && got != want {
			t.Errorf("%v for %s: %s", test.has, test.needs, got)
		}
	}
	if c := bear("x", "192.0.2.1:1", middleware.RequireScope(models.ScopeRead)); !c.IsAborted() {
		t.Error("without Bearer before it, everybody may pass")
	}
}

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

// TestStaticTokensTellNothingByTime tries 10,000 tokens each that are wrong from the
// first character on, and wrong in the last alone, by turns.
func TestStaticTokensTellNothingByTime(t *testing.T) {
	token := strings.Repeat("0123456789abcdef", 4)
	verify := middleware.StaticTokens([]string{token})
	sameTime(t, 10_000, func(n int, prefix bool) {
		try := []byte("x" + token[1:])
		if prefix {
			copy(try, token)
		}
		try[len(try)-1] = byte('g' + n%16)
		if _, err := verify(t.Context(), string(try)); err == nil {
			t.Fatal("a wrong token is right")
		}
	})
}

// sameTime calls try by turns with true and with false, tries times each, and
// reports where the medians of the times differ by more than they do within the
// same kind.
func sameTime(t *testing.T, tries int, try func(n int, prefix bool)) {
	t.Helper()
	median := func(times []time.Duration) time.Duration { slices.Sort(times); return times[len(times)/2] }
	var medians [2][]time.Duration
	const rounds = 20
	for range rounds {
		var times [2][]time.Duration
		for n := range tries / rounds {
			for second := range 2 {
				kind := (n + second) % 2 // who comes second finds its way prepared
				begin := time.Now()
				try(n, kind == 1)
				times[kind] = append(times[kind], time.Since(begin))
			}
		}
		for kind := range 2 {
			medians[kind] = append(medians[kind], median(times[kind]))
		}
	}
	difference := (median(medians[1]) - median(medians[0])).Abs()
	noise := max(slices.Max(medians[0])-slices.Min(medians[0]), slices.Max(medians[1])-slices.Min(medians[1]), 20*time.Nanosecond)
	t.Logf("wrong %s, right prefix %s, noise %s", median(medians[0]), median(medians[1]), noise)
	if difference > noise {
		t.Errorf("a right prefix takes %s, a wrong one %s; noise is %s", median(medians[1]), median(medians[0]), noise)
	}
}

func BenchmarkStaticToken(b *testing.B) {
	verify := middleware.StaticTokens([]string{strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)})
	token := strings.Repeat("c", 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(context.Background(), token); err != nil {
			b.Fatal(err)
		}
	}
}
