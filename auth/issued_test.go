package auth_test

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
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

func issue(t testing.TB, store *models.TokenStore, token *models.Token) (secret string) {
	t.Helper()
	secret, err := store.Create(t.Context(), token)
	if err != nil {
		t.Fatal(err)
	}
	return secret
}

func issuedTokens(t testing.TB, store *models.TokenStore) *auth.IssuedTokens {
	t.Helper()
	verifier, err := auth.NewIssuedTokens(t.Context(), store, zaptest.NewLogger(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = verifier.Close() }) // some tests close the database first
	return verifier
}

func BenchmarkIssuedToken(b *testing.B) {
	store := models.NewTokenStore(dbtest.Migrated(b, dbtest.SQLite(b)))
	secret := issue(b, store, &models.Token{Name: "x", Scopes: models.AllScopes()})
	verifier := issuedTokens(b, store)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := verifier.Verify(context.Background(), secret); err != nil {
			b.Fatal(err)
		}
	}
}

// countReads has queries count the reads of db, each of which takes time longer.
func countReads(t *testing.T, db *database.DB, longer time.Duration) (queries *atomic.Int64) {
	t.Helper()
	queries = new(atomic.Int64)
	err := db.Reads(t.Context()).Callback().Row().After("gorm:row").Register("count", func(*gorm.DB) {
		queries.Add(1)
		time.Sleep(longer)
	})
	if err != nil {
		t.Fatal(err)
	}
	return queries
}

// TestUnknownTokensCostFewQueries: however many tokens are tried, there are at most ten
// queries a second, and with many tokens they take a tenth of the time.
func TestUnknownTokensCostFewQueries(t *testing.T) {
	elsewhere := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)))
	for _, test := range []struct {
		name          string
		tokens        int
		takes, period time.Duration // a query, and from one to the next
	}{
		{"few tokens", 20, 0, 100 * time.Millisecond},
		{"many tokens", 5, 50 * time.Millisecond, 500 * time.Millisecond},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			db := dbtest.Migrated(t, dbtest.SQLite(t))
			queries := countReads(t, db, test.takes)
			verifier := issuedTokens(t, models.NewTokenStore(db))
			begin, before := time.Now(), queries.Load()
			for range test.tokens {
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
			got, most := queries.Load()-before, int64(time.Since(begin)/test.period)+1
			if got < int64(test.tokens) || got > most {
				t.Errorf("%d unknown tokens, 100 times each: got %d queries within %s, want %[1]d to %[4]d", test.tokens, got, time.Since(begin), most)
			}
		})
	}
}

// TestMistypedTokensCostNoQuery: their checksum is wrong.
func TestMistypedTokensCostNoQuery(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	queries := countReads(t, db, 0)
	verifier := issuedTokens(t, models.NewTokenStore(db))
	before := queries.Load()
	for range 10_000 {
		if _, err := verifier.Verify(t.Context(), "pst_"+strings.Repeat("a", 47)); !errors.Is(err, auth.ErrInvalidToken) {
			t.Fatalf("got %v, want ErrInvalidToken", err)
		}
	}
	if got := queries.Load() - before; got > 5 { // refreshes go on
		t.Errorf("got %d queries", got)
	}
}

// TestExpiredTokensLookUnknown: one costs a query, as one that never existed does, and so takes as
// long.
func TestExpiredTokensLookUnknown(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	store := models.NewTokenStore(db)
	end := time.Now().Add(time.Second)
	expired := issue(t, store, &models.Token{Name: "x", Scopes: models.AllScopes(), ExpiresAt: &end})
	queries := countReads(t, db, 0)
	verifier := issuedTokens(t, store)
	if _, err := verifier.Verify(t.Context(), expired); err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Until(end))
	before := queries.Load()
	if _, err := verifier.Verify(t.Context(), expired); !errors.Is(err, auth.ErrInvalidToken) || queries.Load() == before {
		t.Errorf("got %v and %d queries, want ErrInvalidToken after a query", err, queries.Load()-before)
	}
}

// TestRefreshReadsNewTokensOnly: with many tokens, reading all of them takes seconds.
func TestRefreshReadsNewTokensOnly(t *testing.T) {
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	store := models.NewTokenStore(db)
	var read atomic.Int64
	err := db.Reads(t.Context()).Callback().Query().After("gorm:query").Register("count", func(tx *gorm.DB) {
		if tokens, ok := tx.Statement.Dest.(*[]models.Token); ok {
			read.Add(int64(len(*tokens)))
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	const old = 25_000 // of which one statement reads 10,000
	all := make([]models.Token, old)
	for i := range all {
		id := fmt.Sprintf("pst_%08d", i)
		hash := sha256.Sum256([]byte(id))
		all[i] = models.Token{ID: id, Name: "x", Hash: hash[:], Scopes: models.AllScopes(), CreatedAt: time.Now()}
	}
	if err := db.WithContext(t.Context()).CreateInBatches(all, 1000).Error; err != nil {
		t.Fatal(err)
	}
	verifier := issuedTokens(t, store)
	if got := read.Load(); got != old || verifier.Len() != old {
		t.Errorf("read %d tokens and know %d, want %d", got, verifier.Len(), old)
	}
	secret := issue(t, store, &models.Token{Name: "new", Scopes: models.AllScopes()})
	if _, err := verifier.Verify(t.Context(), secret); err != nil {
		t.Error(err)
	}
	if got := read.Load(); got != old+1 {
		t.Errorf("read %d tokens after one was created, want 1", got-old)
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
		time.Sleep(10 * time.Millisecond)
	}
}

// TestUseOfATokenIsNotLost: what cannot be stored is stored later.
func TestUseOfATokenIsNotLost(t *testing.T) {
	t.Parallel()
	db := dbtest.Migrated(t, dbtest.SQLite(t))
	store := models.NewTokenStore(db)
	verifier := issuedTokens(t, store)
	secret := issue(t, store, &models.Token{Name: "x", Scopes: models.AllScopes()})
	if _, err := verifier.Verify(t.Context(), secret); err != nil {
		t.Fatal(err)
	}
	exec := func(statement string) {
		t.Helper()
		if err := db.WithContext(t.Context()).Exec(statement).Error; err != nil {
			t.Fatal(err)
		}
	}
	exec("CREATE TRIGGER rejects BEFORE UPDATE ON tokens BEGIN SELECT RAISE(ABORT, 'rejected'); END")
	if err := verifier.Close(); err == nil {
		t.Error("got no error of a use that was rejected")
	}
	exec("DROP TRIGGER rejects")
	if err := verifier.Close(); err != nil {
		t.Fatal(err)
	}
	if tokens, err := store.List(t.Context(), "", 1); err != nil || len(tokens) != 1 || tokens[0].LastUsedAt == nil {
		t.Errorf("got %+v, %v, want a token that was used", tokens, err)
	}
}

// TestSwappedRow: SQL that turns a token into another in one statement, so that their number is the same, ends it
// like a revocation.
func TestSwappedRow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		db := dbtest.Migrated(t, url)
		store := models.NewTokenStore(db)
		token := models.Token{Name: "x", Scopes: models.AllScopes()}
		secret := issue(t, store, &token)
		verifier := issuedTokens(t, store)
		if _, err := verifier.Verify(t.Context(), secret); err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte("another"))
		begin := time.Now()
		if err := db.WithContext(t.Context()).Exec("UPDATE tokens SET id = ?, hash = ? WHERE id = ?", "pst_aaaaaaaa", hash[:], token.ID).Error; err != nil {
			t.Fatal(err)
		}
		for {
			_, err := verifier.Verify(t.Context(), secret)
			if errors.Is(err, auth.ErrInvalidToken) {
				break
			}
			if took := time.Since(begin); err != nil || took > auth.EndsWithin {
				t.Fatalf("got %v after %v, want ErrInvalidToken within %v", err, took, auth.EndsWithin)
			}
			time.Sleep(10 * time.Millisecond)
		}
	})
}
