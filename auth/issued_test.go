package auth_test

import (
	"context"
	"errors"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"
	"gorm.io/gorm"

	"plantstore/auth"
	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/models"
)

func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }

// eachTokenStore runs test with a new store on each kind of database.
func eachTokenStore(t *testing.T, test func(t *testing.T, store *models.TokenStore)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		test(t, models.NewTokenStore(dbtest.Migrated(t, url)))
	})
}

func issue(t *testing.T, store *models.TokenStore, token *models.Token) (secret string) {
	t.Helper()
	secret, err := store.Create(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func issuedTokens(t *testing.T, store *models.TokenStore) *auth.IssuedTokens {
	t.Helper()
	verifier, err := auth.NewIssuedTokens(t.Context(), store, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = verifier.Close() }) // some tests close the database first
	return verifier
}

// TestIssuedTokens follows tokens from their creation, by another process, to their end.
func TestIssuedTokens(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore) {
		verifier := issuedTokens(t, store)
		lasting := models.Token{Name: "lasting", Scopes: models.Scopes{models.ScopePlantsWrite}}
		secret := issue(t, store, &lasting)
		// It is valid at once, although the verifier has read the tokens before.
		got, err := verifier.Verify(t.Context(), secret)
		if err != nil || got.Name != lasting.ID || got.Scopes.String() != "plants:write" {
			t.Fatalf("a new token: got %+v, %v", got, err)
		}
		ends := time.Now().Add(2 * time.Second)
		short := issue(t, store, &models.Token{Name: "short", Scopes: models.AllScopes(), ExpiresAt: &ends})
		if _, err := verifier.Verify(t.Context(), short); err != nil {
			t.Errorf("before it expires: got %v", err)
		}
		<-time.After(time.Until(ends))
		if _, err := verifier.Verify(t.Context(), short); !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("after it has expired: got %v, want ErrInvalidToken", err)
		}

		if err := store.Revoke(t.Context(), lasting.ID); err != nil {
			t.Fatal(err)
		}
		revoked := time.Now()
		for err = nil; err == nil; _, err = verifier.Verify(t.Context(), secret) {
			if time.Since(revoked) > 5*time.Second {
				t.Fatal("a token is valid 5 s after it was revoked")
			}
		}
		if !errors.Is(err, auth.ErrInvalidToken) {
			t.Errorf("a revoked token: got %v, want ErrInvalidToken", err)
		}
		t.Logf("a revocation took effect after %s", time.Since(revoked))
	})
}

// TestUnknownTokensCostNoQueries: however many tokens are tried, there are at most ten
// queries a second.
func TestUnknownTokensCostNoQueries(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	var queries atomic.Int64
	err := db.Reads(t.Context()).Callback().Row().After("gorm:row").Register("count", func(*gorm.DB) { queries.Add(1) })
	if err != nil {
		t.Fatal(err)
	}
	elsewhere := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)))
	verifier := issuedTokens(t, models.NewTokenStore(db))
	begin, before := time.Now(), queries.Load()
	for range 20 {
		unknown := issue(t, elsewhere, &models.Token{Name: "x", Scopes: models.AllScopes()})
		outcomes := make(chan error)
		for range 100 {
			go func() {
				_, err := verifier.Verify(context.WithoutCancel(t.Context()), unknown)
				outcomes <- err
			}()
		}
		for range 100 {
			if err := <-outcomes; !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("got %v, want ErrInvalidToken", err)
			}
		}
	}
	got, most := queries.Load()-before, int64(time.Since(begin)/(100*time.Millisecond))+1
	if got < 20 || got > most {
		t.Errorf("2,000 attempts with 20 unknown tokens: got %d queries within %s, want 20 to %d", got, time.Since(begin), most)
	}
	// Mistyped tokens are rejected without a query.
	before = queries.Load()
	for range 10_000 {
		if _, err := verifier.Verify(t.Context(), "pst_"+strings.Repeat("a", 47)); !errors.Is(err, auth.ErrInvalidToken) {
			t.Fatalf("a mistyped token: got %v, want ErrInvalidToken", err)
		}
	}
	if got := queries.Load() - before; got > 5 { // refreshes go on
		t.Errorf("10,000 mistyped tokens: got %d queries", got)
	}
}

// TestRevocationDuringARefresh revokes a token right after a refresh has read it.
func TestRevocationDuringARefresh(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	store := models.NewTokenStore(db)
	verifier := issuedTokens(t, store)
	token := models.Token{Name: "x", Scopes: models.AllScopes()}
	secret := issue(t, store, &token)
	revoked := make(chan error, 1)
	var once sync.Once
	err := db.Reads(t.Context()).Callback().Query().After("gorm:query").Register("revoke", func(tx *gorm.DB) {
		if _, ok := tx.Statement.Dest.(*[]models.Token); ok {
			once.Do(func() { revoked <- store.Revoke(context.WithoutCancel(t.Context()), token.ID) })
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	_, _ = verifier.Verify(t.Context(), secret) // it is unknown, so it causes a refresh
	if err := <-revoked; err != nil {
		t.Fatal(err)
	}
	for begin, err := time.Now(), error(nil); !errors.Is(err, auth.ErrInvalidToken); _, err = verifier.Verify(t.Context(), secret) {
		if time.Since(begin) > 5*time.Second {
			t.Fatal("a token is valid 5 s after it was revoked")
		}
	}
}

// TestIssuedTokensWithoutDatabase: a token that cannot be verified is not invalid.
func TestIssuedTokensWithoutDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	dbtest.Migrated(t, url)
	o := dbtest.Options(url)
	o.Timeout = time.Second
	db, err := database.Open(t.Context(), o, dbtest.Batches, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	store := models.NewTokenStore(db)
	verifier := issuedTokens(t, store)
	known := issue(t, store, &models.Token{Name: "x", Scopes: models.AllScopes()})
	if _, err := verifier.Verify(t.Context(), known); err != nil {
		t.Fatal(err)
	}
	unknown := issue(t, models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t))), &models.Token{Name: "x", Scopes: models.AllScopes()})
	if err := db.Close(); err != nil {
		t.Fatal(err)
	}
	closed := time.Now()
	if _, err := verifier.Verify(t.Context(), unknown); !errors.Is(err, auth.ErrCannotVerify) {
		t.Errorf("an unknown token: got %v, want ErrCannotVerify", err)
	}
	if _, err := verifier.Verify(t.Context(), known); err != nil {
		t.Errorf("a known token, at once: got %v", err)
	}
	for err = nil; err == nil; {
		begin := time.Now()
		if _, err = verifier.Verify(t.Context(), known); err == nil && begin.Sub(closed) > 5*time.Second {
			t.Fatal("a token is valid 5 s after the database was closed")
		}
	}
	if !errors.Is(err, auth.ErrCannotVerify) {
		t.Errorf("a known token, later: got %v, want ErrCannotVerify", err)
	}
}

func TestLastUse(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore) {
		token := func(name string) models.Token { return models.Token{Name: name, Scopes: models.AllScopes()} }
		used, idle, revoked := token("used"), token("idle"), token("used and revoked")
		secrets := []string{issue(t, store, &used), issue(t, store, &revoked)}
		issue(t, store, &idle)
		verifier, err := auth.NewIssuedTokens(t.Context(), store, zaptest.NewLogger(t))
		if err != nil {
			t.Fatal(err)
		}
		begin := time.Now().Truncate(time.Microsecond)
		for _, secret := range secrets {
			if _, err := verifier.Verify(t.Context(), secret); err != nil {
				t.Fatal(err)
			}
		}
		if err := store.Revoke(t.Context(), revoked.ID); err != nil {
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
				t.Errorf("the last use of the token %q: got %v", token.Name, token.LastUsedAt)
			}
		}
	})
}
