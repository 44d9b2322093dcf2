package models_test

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

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
		test(t, models.NewTokenStore(db), db)
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

func TestTokensAreStoredAsHashes(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, db *database.DB) {
		expires := time.Now().Add(time.Hour)
		token := models.Token{Name: "a name", Scopes: models.Scopes{models.WriteScope("plants"), models.ReadScope("plants"), models.WriteScope("plants")}, ExpiresAt: &expires}
		secret := issue(t, store, &token)
		var got models.Token
		if err := db.WithContext(t.Context()).Where("id = ?", token.ID).Take(&got).Error; err != nil {
			t.Fatal(err)
		}
		hash := sha256.Sum256([]byte(secret))
		if !bytes.Equal(got.Hash, hash[:]) || !strings.HasPrefix(secret, got.ID) || got.Name != "a name" ||
			got.Scopes.String() != "plants:read plants:write" || !got.ExpiresAt.Equal(*token.ExpiresAt) || got.RevokedAt != nil || got.LastUsedAt != nil {
			t.Errorf("got %+v", got)
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

// TestTouch: it stores the use of the given tokens only, no later than their end, with one
// statement for any number.
func TestTouch(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, db *database.DB) {
		var ids []string
		for range 4 {
			token := models.Token{Name: "x", Scopes: models.AllScopes()}
			issue(t, store, &token)
			ids = append(ids, token.ID)
		}
		if err := store.Revoke(t.Context(), ids[1]); err != nil {
			t.Fatal(err)
		}
		texts := make(map[string]bool)
		err := db.Callback().Update().After("gorm:update").Register("note", func(tx *gorm.DB) { texts[tx.Statement.SQL.String()] = true })
		if err != nil {
			t.Fatal(err)
		}
		for _, some := range [][]string{{}, ids[:1], ids[1:3]} {
			if err := store.Touch(t.Context(), some); err != nil {
				t.Fatal(err)
			}
		}
		if len(texts) != 1 {
			t.Errorf("got %d statements, want one", len(texts))
		}
		tokens, err := store.List(t.Context(), "", 10)
		if err != nil {
			t.Fatal(err)
		}
		for _, token := range tokens {
			if used := token.LastUsedAt != nil; used != slices.Contains(ids[:3], token.ID) {
				t.Errorf("the token %d: got the last use %v", slices.Index(ids, token.ID)+1, token.LastUsedAt)
			}
			if end := token.RevokedAt; end != nil && !end.Equal(*token.LastUsedAt) {
				t.Errorf("got the last use %v, after the end %v", token.LastUsedAt, end)
			}
		}
	})
}

// TestReadyDependsOnTheTokens: a service that cannot read its tokens rejects all requests.
func TestReadyDependsOnTheTokens(t *testing.T) {
	t.Parallel()
	owner := dbtest.Postgres(t)
	dbtest.Migrated(t, owner)
	role, as := dbtest.AsRole(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO NAME")
	dbtest.Exec(t, owner, "REVOKE ALL ON tokens FROM "+role)
	db := dbtest.Open(t, dbtest.Options(as))
	models.NewTokenStore(db)
	if err := db.Ready(t.Context()); err == nil || !strings.Contains(err.Error(), "its role lacks a right") {
		t.Errorf("got %v, want a right that is missing", err)
	}
}
