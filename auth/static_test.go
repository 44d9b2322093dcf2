package auth_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

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
