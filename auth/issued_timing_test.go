package auth

import (
	"context"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"plantstore/database/dbtest"
)

// TestLookupTellsNothingByTime looks for 10,000 tokens each that begin as one in
// force does, and that do not, by turns.
func TestLookupTellsNothingByTime(t *testing.T) {
	verifier, secret := verifierOf(t, 1000)
	const tries = 10_000
	var secrets [2][tries]string
	for i := range tries {
		secrets[0][i] = newSecret()
		similar := secret[:checksumOffset/2] + newSecret()[checksumOffset/2:checksumOffset]
		secrets[1][i] = similar + checksum(similar)
	}
	var times [2][]time.Duration
	for i := range tries {
		for n := range 2 {
			kind := (i + n) % 2 // who comes second finds its way prepared
			begin := time.Now()
			token, _ := verifier.lookup(hashOf(secrets[kind][i]))
			times[kind] = append(times[kind], time.Since(begin))
			if token != nil {
				t.Fatal("a wrong token is right")
			}
		}
	}
	// The median of one kind must be among the middle half of the other, but for what
	// a clock can tell.
	const resolution = 20 * time.Nanosecond
	for _, kind := range times {
		slices.Sort(kind)
	}
	low, median, high := times[0][tries/4], times[1][tries/2], times[0][3*tries/4]
	t.Logf("wrong %s (%s to %s), right prefix %s", times[0][tries/2], low, high, median)
	if median < low-resolution || median > high+resolution {
		t.Error("the times tell whether the prefix was right")
	}
}

// verifierOf returns a verifier of n tokens, one of which is secret.
func verifierOf(tb testing.TB, n int) (verifier *TokenVerifier, secret string) {
	tb.Helper()
	store := NewTokenStore(dbtest.Migrated(tb, dbtest.SQLite(tb)), 30*time.Second)
	tokens := make([]Token, n)
	for i := range tokens {
		secret = newSecret()
		hash := hashOf(secret)
		tokens[i] = Token{ID: secret[:tokenIDLength], Name: "x", Hash: hash[:], Scopes: AllScopes(), CreatedAt: time.Now()}
	}
	if err := store.db.CreateInBatches(tokens, 1000).Error; err != nil {
		tb.Fatal(err)
	}
	verifier, err := NewTokenVerifier(tb.Context(), store, zaptest.NewLogger(tb))
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := verifier.Close(); err != nil {
			tb.Error(err)
		}
	})
	return verifier, secret
}

func BenchmarkIssuedToken(b *testing.B) {
	verifier, secret := verifierOf(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verifier.Verify(context.Background(), secret); err != nil {
			b.Fatal(err)
		}
	}
}
