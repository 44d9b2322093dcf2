package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strconv"

	"plantstore/models"
)

// StaticTokens returns the verifier of tokens that are known at startup, each with
// every scope. It keeps only their SHA-256. Its duration does not depend on how much of
// a token is right, or on which one is.
func StaticTokens(tokens []string) Verifier {
	hashes := make([][sha256.Size]byte, len(tokens))
	identities := make([]*Identity, len(tokens))
	for i, token := range tokens {
		hashes[i] = sha256.Sum256([]byte(token))
		identities[i] = &Identity{Name: "static:" + strconv.Itoa(i+1), Scopes: models.AllScopes()}
	}
	return func(_ context.Context, token string) (*Identity, error) {
		hash, found := sha256.Sum256([]byte(token)), -1
		for i := range hashes {
			found = subtle.ConstantTimeSelect(subtle.ConstantTimeCompare(hash[:], hashes[i][:]), i, found)
		}
		if found < 0 {
			return nil, ErrInvalidToken
		}
		return identities[found], nil
	}
}
