package auth_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/auth"
	"plantstore/models"
)

func TestStaticTokens(t *testing.T) {
	verify := auth.StaticTokens([]string{"first", "second"})
	for token, want := range map[string]string{"first": "static:1", "second": "static:2"} {
		t.Run(token+" is "+want, func(t *testing.T) {
			got, err := verify(t.Context(), token)
			if err != nil || got.Name != want || !got.Scopes.Allow(models.ScopeAdmin) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
	for name, token := range map[string]string{
		"nothing": "", "a part": "firs", "an extension": "firstx", "another case": "First", "two tokens": "firstsecond",
	} {
		t.Run(name+" is invalid", func(t *testing.T) {
			if got, err := verify(t.Context(), token); got != nil || !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
			}
		})
	}
	t.Run("an empty token is invalid if there are no tokens", func(t *testing.T) {
		if got, err := auth.StaticTokens(nil)(t.Context(), ""); got != nil || !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
		}
	})
}

// TestStaticTokensAreComparedInConstantTime tries 10,000 tokens each with a wrong first
// and with a wrong last character, by turns.
func TestStaticTokensAreComparedInConstantTime(t *testing.T) {
	token := strings.Repeat("0123456789abcdef", 4)
	verify := auth.StaticTokens([]string{token})
	sameTime(t, 10_000, func(n int, prefix bool) {
		try := []byte(token)
		if !prefix {
			try[0] = 'x'
		}
		try[len(try)-1] = byte('g' + n%16)
		if _, err := verify(t.Context(), string(try)); err == nil {
			t.Fatal("a wrong token is valid")
		}
	})
}

// sameTime calls try by turns with true and with false, tries times each, and fails the
// test if the medians of the durations differ by more than they do within one kind: three
// times in a row, as other programs can make one kind slower for a while.
func sameTime(t *testing.T, tries int, try func(n int, prefix bool)) {
	t.Helper()
	for range 3 {
		if takeSameTime(t, tries, try) {
			return
		}
	}
	t.Error("the duration tells whether the prefix is right")
}

// takeSameTime reports whether both kinds take the same time: see sameTime.
func takeSameTime(t *testing.T, tries int, try func(n int, prefix bool)) bool {
	t.Helper()
	median := func(times []time.Duration) time.Duration { slices.Sort(times); return times[len(times)/2] }
	var medians [2][]time.Duration
	const rounds = 20
	for range rounds {
		var times [2][]time.Duration
		for n := range tries / rounds {
			for second := range 2 {
				kind := (n + second) % 2 // the second finds a warm cache
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
	return difference <= noise
}

func BenchmarkStaticToken(b *testing.B) {
	verify := auth.StaticTokens([]string{strings.Repeat("a", 64), strings.Repeat("b", 64), strings.Repeat("c", 64)})
	token := strings.Repeat("c", 64)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verify(context.Background(), token); err != nil {
			b.Fatal(err)
		}
	}
}
