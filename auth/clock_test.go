package auth

import (
	"crypto/sha256"
	"testing"
	"time"

	"go.uber.org/zap"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// TestClockSetBack: a token that seemed to have expired, because the clock was an hour ahead, is read
// again, although no token has changed.
func TestClockSetBack(t *testing.T) {
	store := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)))
	secret, err := store.Create(t.Context(), &models.Token{Name: "x", Scopes: models.AllScopes(), ExpiresAt: new(time.Now().Add(time.Minute))})
	if err != nil {
		t.Fatal(err)
	}
	v, err := NewIssuedTokens(t.Context(), store, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if err := v.Close(); err != nil { // no refresh but those below
		t.Fatal(err)
	}
	v.known.Store(&knownTokens{asOf: time.Now().Add(time.Hour), counts: v.known.Load().counts, byHash: map[[sha256.Size]byte]*knownToken{}})
	if _, err := v.refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	if hash, _ := models.HashToken(secret); v.known.Load().byHash[hash] == nil {
		t.Error("the token is unknown")
	}
}
