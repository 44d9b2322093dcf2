package models_test

import (
	"bytes"
	"crypto/sha256"
	"errors"
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
		token := models.Token{Name: "a name", Scopes: models.Scopes{models.ScopePlantsWrite, models.ScopePlantsRead, models.ScopePlantsWrite}, ExpiresAt: &expires}
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

func TestInvalidTokensAreNotStored(t *testing.T) {
	store := models.NewTokenStore(dbtest.Migrated(t, dbtest.SQLite(t)))
	read := models.Scopes{models.ScopePlantsRead}
	past, far := time.Now().Add(-time.Second), time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, test := range []struct {
		name  string
		token models.Token
		field string
	}{
		{"no name", models.Token{Scopes: read}, "name"},
		{"a blank name", models.Token{Name: "\u00a0 ", Scopes: read}, "name"},
		{"a long name", models.Token{Name: strings.Repeat("ä", 101), Scopes: read}, "name"},
		{"a control character in the name", models.Token{Name: "a\nb", Scopes: read}, "name"},
		{"no scopes", models.Token{Name: "x"}, "scopes"},
		{"an unknown scope", models.Token{Name: "x", Scopes: models.Scopes{"plants:eat"}}, "scopes"},
		{"an expiry in the past", models.Token{Name: "x", Scopes: read, ExpiresAt: &past}, "expires_at"},
		{"an expiry in the year 10000", models.Token{Name: "x", Scopes: read, ExpiresAt: &far}, "expires_at"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, err := store.Create(t.Context(), &test.token)
			if invalid, ok := errors.AsType[*models.InvalidError](err); !ok || invalid.Field != test.field {
				t.Errorf("got %v, want %s as invalid", err, test.field)
			}
		})
	}
	if tokens, err := store.List(t.Context(), "", 10); err != nil || len(tokens) != 0 {
		t.Errorf("got %v, %v, want no token", tokens, err)
	}
	if _, err := store.Create(t.Context(), &models.Token{Name: strings.Repeat("ä", 100), Scopes: read}); err != nil {
		t.Errorf("a name of 100 characters: %v", err)
	}
}

func TestRevoke(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, _ *database.DB) {
		token := models.Token{Name: "x", Scopes: models.AllScopes()}
		issue(t, store, &token)
		if err := store.Revoke(t.Context(), token.ID); err != nil {
			t.Fatal(err)
		}
		for name, id := range map[string]string{"a token that is revoked already": token.ID, "an unknown token": "pst_aaaaaaaa", "an empty id": ""} {
			t.Run(name, func(t *testing.T) {
				err := store.Revoke(t.Context(), id)
				if missing, ok := errors.AsType[*models.NotFoundError](err); !ok || missing.Noun != "token" {
					t.Errorf("got %v, want NotFoundError of a token", err)
				}
			})
		}
	})
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
					t.Errorf("got %s after %s", token.ID, after)
				}
				after = token.ID
				ids = append(ids, token.ID)
			}
		}
		if len(ids) != 5 {
			t.Errorf("got %v, want 5 ids", ids)
		}
	})
}

// TestTouch: it stores the use of the given tokens only, with one statement for any number.
func TestTouch(t *testing.T) {
	eachTokenStore(t, func(t *testing.T, store *models.TokenStore, db *database.DB) {
		var ids []string
		for range 4 {
			token := models.Token{Name: "x", Scopes: models.AllScopes()}
			issue(t, store, &token)
			ids = append(ids, token.ID)
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
		}
	})
}
