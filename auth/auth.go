// Package auth identifies the sender of a request by its bearer token: static tokens, tokens
// that the service has issued, and JSON Web Tokens of an identity provider.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"strconv"

	"plantstore/models"
)

var (
	// ErrNoToken means that the request has no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken means that a token is unknown, revoked, expired or malformed.
	// Clients are not told which.
	ErrInvalidToken = errors.New("the token is not valid")
	// ErrEnded means that a token stopped being valid while its request wrote, which may have
	// succeeded.
	ErrEnded = errors.New("the token is no longer valid")
	// ErrCannotVerify means that the service cannot tell whether a token is valid.
	ErrCannotVerify = errors.New("tokens cannot be verified at the moment")
)

// ScopeError means that a token lacks the scope that a route needs.
type ScopeError struct{ Scope models.Scope }

func (e *ScopeError) Error() string { return fmt.Sprintf("the token lacks the scope %s", e.Scope) }

// Identity is the sender of a request.
type Identity struct {
	// Name identifies the sender in logs and limits: it is unique, and not secret.
	Name   string
	Scopes models.Scopes
}

// Verifier returns the identity that a bearer token stands for. It fails with
// ErrInvalidToken, or with an error that wraps ErrCannotVerify.
type Verifier func(ctx context.Context, token string) (*Identity, error)

type againKey struct{}

// Again returns a context in which a [Verifier] rejects an unknown token at once, without a read of
// new tokens: the token was accepted before.
func Again(ctx context.Context) context.Context { return context.WithValue(ctx, againKey{}, true) }

func isAgain(ctx context.Context) bool { return ctx.Value(againKey{}) != nil }

// IsRejection reports whether err is an error of a [Verifier].
func IsRejection(err error) bool {
	return errors.Is(err, ErrInvalidToken) || errors.Is(err, ErrCannotVerify)
}

// AnyOf returns the verifier of the tokens that any of verifiers accepts.
func AnyOf(verifiers ...Verifier) Verifier {
	return func(ctx context.Context, token string) (*Identity, error) {
		for _, verify := range verifiers {
			if identity, err := verify(ctx, token); !errors.Is(err, ErrInvalidToken) {
				return identity, err
			}
		}
		return nil, ErrInvalidToken
	}
}

// StaticTokens returns the verifier of tokens that are known at startup, each with
// every scope. It keeps only their SHA-256. Its duration does not depend on how much of
// a token is right, or on which token.
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
