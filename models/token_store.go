package models

import (
	"context"
	"time"

	"plantstore/database"
)

// TokenStore keeps issued tokens in a database. It is safe for concurrent use.
type TokenStore struct {
	db      *database.DB
	timeout time.Duration
}

// NewTokenStore returns a store on db, whose schema must be migrated. timeout
// bounds each operation.
func NewTokenStore(db *database.DB, timeout time.Duration) *TokenStore {
	return &TokenStore{db: db, timeout: timeout}
}

// Create stores a new token and returns it, whole, the only time that it is seen:
// t has its Name, Scopes and ExpiresAt, and is given the rest. It fails with an
// *InvalidError when t breaks a rule, and with an error that wraps ErrUnavailable
// when the database cannot be reached in time.
func (s *TokenStore) Create(ctx context.Context, t *Token) (secret string, err error) {
	now := s.db.NowFunc()
	if err := t.Validate(now); err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	secret = newSecret()
	hash := hashOf(secret)
	t.ID, t.Hash, t.CreatedAt = secret[:tokenIDLength], hash[:], now
	t.Scopes = KnownScopes(t.Scopes.Names())
	if t.ExpiresAt != nil {
		expires := t.ExpiresAt.UTC().Truncate(time.Microsecond)
		t.ExpiresAt = &expires
	}
	if err := s.db.WithContext(ctx).Create(t).Error; err != nil {
		return "", storeError("create token", err)
	}
	return secret, nil
}

// List returns tokens by ascending id, those with a greater one than after, and at
// most limit. It fails with an error that wraps ErrUnavailable when the database
// cannot be reached in time.
func (s *TokenStore) List(ctx context.Context, after string, limit int) ([]Token, error) {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	tokens := make([]Token, 0)
	err := s.db.Reads(ctx).Where("id > ?", after).Order("id").Limit(limit).Find(&tokens).Error
	return tokens, storeError("list tokens", err)
}

// Revoke ends the token id, for good: see [TokenVerifier] for when that takes
// effect. It fails with ErrTokenNotFound, and with an error that wraps ErrUnavailable
// when the database cannot be reached in time.
func (s *TokenStore) Revoke(ctx context.Context, id string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	revoked := s.db.WithContext(ctx).Model(&Token{}).Where("id = ? AND revoked_at IS NULL", id).Update("revoked_at", s.db.NowFunc())
	if revoked.Error != nil {
		return storeError("revoke token", revoked.Error)
	}
	if revoked.RowsAffected == 0 {
		return ErrTokenNotFound
	}
	return nil
}

// inForce returns the tokens that are neither revoked nor expired.
func (s *TokenStore) inForce(ctx context.Context) ([]Token, error) {
	var tokens []Token
	err := s.db.Reads(ctx).Where("revoked_at IS NULL AND (expires_at IS NULL OR expires_at > ?)", s.db.NowFunc()).Find(&tokens).Error
	return tokens, err
}

// tokenCounts tells whether tokens have been created or revoked since another
// time: both numbers only grow. Clocks, which differ between replicas, have no part in it.
type tokenCounts struct{ Created, Revoked int64 }

func (s *TokenStore) counts(ctx context.Context) (counts tokenCounts, err error) {
	err = s.db.Reads(ctx).Model(&Token{}).Select("count(*) AS created, count(revoked_at) AS revoked").Scan(&counts).Error
	return counts, err
}

// touch writes down that the tokens ids were used.
func (s *TokenStore) touch(ctx context.Context, ids []string) error {
	ctx, cancel := context.WithTimeout(ctx, s.timeout)
	defer cancel()
	now := s.db.NowFunc()
	return s.db.WithContext(ctx).Model(&Token{}).
		Where("id IN ? AND (last_used_at IS NULL OR last_used_at < ?)", ids, now).Update("last_used_at", now).Error
}
