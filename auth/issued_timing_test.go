package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// bodyLength is the length of a token without its checksum.
const bodyLength = 44

// newToken returns a token that begins with prefix.
func newToken(prefix string) string {
	body := prefix + strings.ToLower(rand.Text()+rand.Text())
	body = body[:bodyLength]
	sum := binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body)))
	return body + strings.ToLower(base32.StdEncoding.WithPadding(base32.NoPadding).EncodeToString(sum))
}

func hashOf(tb testing.TB, token string) [sha256.Size]byte {
	tb.Helper()
	hash, ok := models.HashToken(token)
	if !ok {
		tb.Fatalf("%s does not have the form of a token", token)
	}
	return hash
}

// TestLookupTakesConstantTime looks up 10,000 tokens each that begin like a valid one,
// and that do not, by turns.
func TestLookupTakesConstantTime(t *testing.T) {
	verifier, secret := issuedTokens(t, 1000)
	const tries = 10_000
	var hashes [2][tries][sha256.Size]byte
	for i := range tries {
		hashes[0][i] = hashOf(t, newToken("pst_"))
		hashes[1][i] = hashOf(t, newToken(secret[:bodyLength/2]))
	}
	var times [2][]time.Duration
	for i := range tries {
		for n := range 2 {
			kind := (i + n) % 2 // the second finds a warm cache
			begin := time.Now()
			token, _ := verifier.lookup(hashes[kind][i])
			times[kind] = append(times[kind], time.Since(begin))
			if token != nil {
				t.Fatal("a wrong token is valid")
			}
		}
	}
	// The median of one kind must be in the middle half of the other, within the
	// resolution of the clock.
	const resolution = 20 * time.Nanosecond
	for _, kind := range times {
		slices.Sort(kind)
	}
	low, median, high := times[0][tries/4], times[1][tries/2], times[0][3*tries/4]
	t.Logf("wrong %s (%s to %s), right prefix %s", times[0][tries/2], low, high, median)
	if median < low-resolution || median > high+resolution {
		t.Error("the duration tells whether the prefix is right")
	}
}

// issuedTokens returns a verifier of n tokens, one of which is secret.
func issuedTokens(tb testing.TB, n int) (verifier *IssuedTokens, secret string) {
	tb.Helper()
	db := dbtest.Migrated(tb, dbtest.SQLite(tb))
	tokens := make([]models.Token, n)
	for i := range tokens {
		secret = newToken("pst_")
		hash := hashOf(tb, secret)
		tokens[i] = models.Token{ID: secret[:models.TokenIDLength], Name: "x", Hash: hash[:], Scopes: models.AllScopes(), CreatedAt: time.Now()}
	}
	if err := db.CreateInBatches(tokens, 1000).Error; err != nil {
		tb.Fatal(err)
	}
	verifier, err := NewIssuedTokens(tb.Context(), models.NewTokenStore(db), zaptest.NewLogger(tb))
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
	verifier, secret := issuedTokens(b, 10_000)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verifier.Verify(context.Background(), secret); err != nil {
			b.Fatal(err)
		}
	}
}
