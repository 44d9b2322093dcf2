package auth_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

func verifierOf(t *testing.T, store *models.TokenStore) *models.TokenVerifier {
	t.Helper()
	verifier, err := models.NewTokenVerifier(t.Context(), store, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = verifier.Close() }) // some tests close the database first
	return verifier
}

// TestVerify follows tokens from their creation, by another process, to their end.
func TestVerify(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, _ *database.DB) {
		verifier := verifierOf(t, store)
		lasting := models.Token{Name: "lasting", Scopes: models.Scopes{models.ScopeWrite}}
		secret := issue(t, store, &lasting)
		// It is good at once, though the verifier has read before.
		got, err := verifier.Verify(t.Context(), secret)
		if err != nil || got.ID != lasting.ID || got.Scopes.String() != "plants:write" {
			t.Fatalf("a new token: %+v, %v", got, err)
		}
		ends := time.Now().Add(300 * time.Millisecond)
		short := issue(t, store, &models.Token{Name: "short", Scopes: models.AllScopes(), ExpiresAt: &ends})
		if _, err := verifier.Verify(t.Context(), short); err != nil {
			t.Errorf("before its end: %v", err)
		}
		<-time.After(time.Until(ends))
		if _, err := verifier.Verify(t.Context(), short); !errors.Is(err, models.ErrInvalidToken) {
			t.Errorf("after its end: %v", err)
		}

		if err := store.Revoke(t.Context(), lasting.ID); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		for err = nil; err == nil; _, err = verifier.Verify(t.Context(), secret) {
			if time.Since(revoked) > 5*time.Second {
				t.Fatal("a token is good 5 s after it was revoked")
			}
		}
		if !errors.Is(err, models.ErrInvalidToken) {
			t.Errorf("a revoked token: %v", err)
		}
		t.Logf("a revocation took effect after %s", time.Since(revoked))
		for _, id := range []string{lasting.ID, "pst_aaaaaaaa", ""} {
			if err := store.Revoke(t.Context(), id); !errors.Is(err, models.ErrTokenNotFound) || !errors.Is(err, models.ErrNotFound) {
				t.Errorf("revoke %q: %v", id, err)
			}
		}
	})
}

// TestUnknownTokensCostNoQueries: however many tokens are tried, the database is
// asked ten times a second at most.
func TestUnknownTokensCostNoQueries(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	var queries atomic.Int64
	err := db.Reads(t.Context()).Callback().Row().After("gorm:row").Register("count", func(*gorm.DB) { queries.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)), 5*time.Second)
	verifier := verifierOf(t, models.NewTokenStore(db, 5*time.Second))
	begin, before := time.Now(), queries.Load()
	for range 20 {
		unknown := issue(t, elsewhere, &models.Token{Name: "x", Scopes: models.AllScopes()})
		answers := make(chan error)
		for range 100 {
			go func() {
				_, err := verifier.Verify(context.WithoutCancel(t.Context()), unknown)
				answers <- err
			}()
		}
		for range 100 {
			if err := <-answers; !errors.Is(err, models.ErrInvalidToken) {
				t.Error(err)
			}
		}
	}
	asked, most := queries.Load()-before, int64(time.Since(begin)/(100*time.Millisecond))+1
	if asked < 20 || asked > most {
		t.Errorf("2,000 tries of 20 unknown tokens cost %d queries within %s, want 20 to %d", asked, time.Since(begin), most)
	}
	// Mistyped tokens are refused without waiting for any.
	begin = time.Now()
	for range 10_000 {
		if _, err := verifier.Verify(t.Context(), "pst_"+strings.Repeat("a", 47)); !errors.Is(err, models.ErrInvalidToken) {
			t.Fatal(err)
		}
	}
	if time.Since(begin) > 5*time.Second {
		t.Errorf("10,000 mistyped tokens took %s", time.Since(begin))
	}
}

// TestVerifierWithoutDatabase: what cannot be told is neither yes nor no.
func TestVerifierWithoutDatabase(t *testing.T) {
	t.Parallel()
	db, err := database.Open(t.Context(), dbtest.Options(t, dbtest.SQLite(t)))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	store := models.NewTokenStore(db, time.Second)
	verifier := verifierOf(t, store)
	known := issue(t, store, &models.Token{Name: "x", Scopes: models.AllScopes()})
	if _, err := verifier.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	unknown := issue(t, models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)), time.Second), &models.Token{Name: "x", Scopes: models.AllScopes()})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	if _, err := verifier.Verify(t.Context(), unknown); !errors.Is(err, models.ErrUnavailable) {
		t.Errorf("an unknown token: %v", err)
	}
	if _, err := verifier.Verify(t.Context(), known); err != nil {
		t.Errorf("a known token, just after: %v", err)
	}
	for err = nil; err == nil; _, err = verifier.Verify(t.Context(), known) {
		if time.Since(closed) > 5*time.Second {
			t.Fatal("a token is good 5 s after the database was seen last")
		}
	}
	if !errors.Is(err, models.ErrUnavailable) {
		t.Errorf("a known token, later: %v", err)
	}
}

func TestLastUse(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, _ *database.DB) {
		token := func(name string) models.Token { return models.Token{Name: name, Scopes: models.AllScopes()} }
		used, idle, ended := token("used"), token("idle"), token("used and revoked")
		secrets := []string{issue(t, store, &used), issue(t, store, &ended)}
		issue(t, store, &idle)
		verifier, err := models.NewTokenVerifier(t.Context(), store, zaptest.NewLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now().Truncate(time.Microsecond)
		for _, secret := range secrets {
			if _, err := verifier.Verify(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Revoke(t.Context(), ended.ID); err != nil {
			t.Fatal(err)
		}
		for err = nil; err == nil; {
			_, err = verifier.Verify(t.Context(), secrets[1])
		}
		if err := verifier.Close(); err != nil {
			t.Fatal(err)
		}
		tokens, err := store.List(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if wasUsed := token.LastUsedAt != nil && !token.LastUsedAt.Before(begin); wasUsed == (token.ID == idle.ID) {
				t.Errorf("%s was last used at %v", token.Name, token.LastUsedAt)
			}
		}
	})
}
