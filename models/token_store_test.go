package models_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

// eachTokenStore runs test with a new store on each kind of database.
func eachTokenStore(t *testing.T, test func(t *testing.T, store *models.TokenStore, db *database.DB)) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		test(t, models.NewTokenStore(db, 5*time.Second), db)
	})
}

func issue(t *testing.T, store *models.TokenStore, token *models.Token) string {
	t.Helper()
	secret, err := store.Create(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func verifierOf(t *testing.T, store *models.TokenStore) *models.TokenVerifier {
	t.Helper()
	verifier, err := models.NewTokenVerifier(t.Context(), store, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = verifier.Close() }) // some tests close the database first
	return verifier
}

func TestTokensAreStoredAsHashes(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, db *database.DB) {
		expires := time.Now().Add(time.Hour)
		token := models.Token{Name: "a name", Scopes: models.Scopes{models.ScopeWrite, models.ScopeRead, models.ScopeWrite}, ExpiresAt: &expires}
		secret := issue(t, store, &token)
		var got models.Token
		if err := db.WithContext(t.Context()).Where("id = ?", token.ID).Take(&got).Error; err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte(secret))
		if !bytes.Equal(got.Hash, hash[:]) || !strings.HasPrefix(secret, got.ID) || got.Name != "a name" ||
			got.Scopes.String() != "plants:read plants:write" || !got.ExpiresAt.Equal(*token.ExpiresAt) || got.RevokedAt != nil || got.LastUsedAt != nil {
			t.Errorf("stored %+v", got)
		}
		var rows []map[string]any
		if err := db.WithContext(t.Context()).Table("tokens").Find(&rows).Error; err != nil {
			t.Fatal(err)
		}
		if strings.Contains(fmt.Sprint(rows), secret[len(got.ID):]) {
			t.Error("the secret part of the token is in the database")
		}
	})
}

func TestTokensThatAreRefused(t *testing.T) {
	store := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)), 5*time.Second)
	read := models.Scopes{models.ScopeRead}
	past, far := time.Now().Add(-time.Second), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		what  string
		token models.Token
		field string
	}{
		{"no name", models.Token{Scopes: read}, "name"},
		{"a blank name", models.Token{Name: "\u00a0 ", Scopes: read}, "name"},
		{"a long name", models.Token{Name: strings.Repeat("ä", 101), Scopes: read}, "name"},
		{"a control character in the name", models.Token{Name: "a\nb", Scopes: read}, "name"},
		{"no scopes", models.Token{Name: "x"}, "scopes"},
		{"an unknown scope", models.Token{Name: "x", Scopes: models.Scopes{"plants:eat"}}, "scopes"},
		{"an end in the past", models.Token{Name: "x", Scopes: read, ExpiresAt: &past}, "expires_at"},
		{"an end that no database knows", models.Token{Name: "x", Scopes: read, ExpiresAt: &far}, "expires_at"},
	} {
		_, err := store.Create(t.Context(), &test.token)
		if invalid, ok := errors.AsType[*models.InvalidError](err); !ok || invalid.Field != test.field {
			t.Errorf("%s: %v", test.what, err)
		}
	}
	if tokens, err := store.List(t.Context(), "", 10); err != nil || len(tokens) != 0 {
		t.Errorf("%v, %v", tokens, err)
	}
	if _, err := store.Create(t.Context(), &models.Token{Name: strings.Repeat("ä", 100), Scopes: read}); err != nil {
		t.Error(err)
	}
}

func TestListTokens(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, _ *database.DB) {
		for range 5 {
			issue(t, store, &models.Token{Name: "x", Scopes: models.AllScopes()})
		}
		var ids []string
		for after := ""; ; {
			page, err := store.List(t.Context(), after, 2)
			if err != nil {
				t.Fatal(err)
			}
			if len(page) == 0 {
				break
			}
			for _, token := range page {
				if token.ID <= after {
					t.Errorf("%s after %s", token.ID, after)
				}
				after = token.ID
				ids = append(ids, token.ID)
			}
		}
		if len(ids) != 5 {
			t.Errorf("listed %v", ids)
		}
	})
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
