package models

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/table"
)

// TokenStore keeps issued tokens. It is safe for concurrent use. Its methods share
// the errors of a [Store].
type TokenStore struct{ db *database.DB }

// NewTokenStore returns the store of the tokens in db, which must be migrated. The service is ready
// only if it can write them: otherwise, it can neither verify nor revoke issued tokens.
func NewTokenStore(db *database.DB) *TokenStore {
	db.Require(table.Of[Token]())
	return &TokenStore{db: db}
}

// Create stores a new token with t's Name, Scopes and ExpiresAt, sets the rest of t,
// and returns the token itself, which cannot be read again. It fails with an
// *InvalidError if t breaks a rule.
func (s *TokenStore) Create(ctx context.Context, t *Token) (secret string, err error) {
	now := s.db.NowFunc()
	if err := t.Validate(now); err != nil {
		return "", err
	}
	secret = newSecret()
	hash, _ := HashToken(secret)
	t.ID, t.Hash, t.CreatedAt = secret[:TokenIDLength], hash[:], now
	t.Scopes = KnownScopes(t.Scopes.Names())
	if t.ExpiresAt != nil {
		t.ExpiresAt = new(t.ExpiresAt.UTC().Truncate(time.Microsecond))
	}
	_, err = s.db.Write(ctx, "create token", func(tx *database.DB) error { return tx.Create(t).Error })
	return secret, err
}

// List returns at most limit tokens by ascending id, those with a greater id than
// after. A negative limit is no limit.
func (s *TokenStore) List(ctx context.Context, after string, limit int) ([]Token, error) {
	tokens := make([]Token, 0)
	err := s.db.Read(ctx, "list tokens", database.Few, func(tx *gorm.DB) error {
		return tx.Where("id > ?", after).Order("id").Limit(limit).Find(&tokens).Error
	})
	return tokens, err
}

// Revoke ends the token id for good. It fails with a *NotFoundError if there is no such
// token, or if it is already revoked.
func (s *TokenStore) Revoke(ctx context.Context, id string) error {
	_, err := s.db.Write(ctx, "revoke token", func(tx *database.DB) error {
		revoked := tx.Model(&Token{}).Where("id = ? AND revoked_at IS NULL", id).Update("revoked_at", tx.NowFunc())
		if revoked.Error == nil && revoked.RowsAffected == 0 {
			return &NotFoundError{table.NounOf(Token{}), ", or it is already revoked"}
		}
		return revoked.Error
	})
	return err
}

// ActiveIDs returns the ids of the tokens that are neither revoked nor expired. It does not
// wait for other reads, so that authentication works under load.
func (s *TokenStore) ActiveIDs(ctx context.Context) (ids []string, err error) {
	err = s.db.Read(ctx, "read the ids of tokens", database.AtOnce, func(tx *gorm.DB) error {
		return tx.Model(&Token{}).Where("revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)", tx.NowFunc()).Select("id").Scan(&ids).Error
	})
	return ids, err
}

// Find returns the tokens ids that exist. Like ActiveIDs, it does not wait for other reads.
func (s *TokenStore) Find(ctx context.Context, ids []string) (tokens []Token, err error) {
	err = s.db.Read(ctx, "read tokens", database.AtOnce, func(tx *gorm.DB) error {
		return tx.Where(inIDs, keysOf(ids)).Find(&tokens).Error
	})
	return tokens, err
}

// inIDs is the condition that a token has an id that keysOf returned. It has a single
// argument, so that the statement is the same for any number of ids.
const inIDs = "id IN (SELECT key FROM json_each(?))"

// keysOf returns ids as the keys of a JSON object, whose keys json_each returns on
// PostgreSQL and on SQLite.
func keysOf(ids []string) string {
	object := make(map[string]bool, len(ids))
	for _, id := range ids {
		object[id] = true
	}
	keys, _ := json.Marshal(object) // cannot fail
	return string(keys)
}

// Touch stores that the tokens ids were used up to now, or up to their end if that is earlier.
func (s *TokenStore) Touch(ctx context.Context, ids []string) error {
	_, err := s.db.Write(ctx, "store the last use of tokens", func(tx *database.DB) error {
		now := tx.NowFunc()
		return tx.Model(&Token{}).Where(inIDs+" AND (last_used_at IS NULL OR last_used_at < ?)", keysOf(ids), now).
			Update("last_used_at", gorm.Expr("CASE WHEN revoked_at < ? THEN revoked_at WHEN expires_at < ? THEN expires_at ELSE ? END", now, now, now)).Error
	})
	return err
}
