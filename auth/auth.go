// Package auth identifies the sender of a request by its bearer token: static tokens, tokens
// that the service has issued, and JSON Web Tokens of an identity provider.
package auth

import (
	"context"
	"crypto/sha256"
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
	// ErrBearerTwice means that the word Bearer precedes the token.
	ErrBearerTwice = fmt.Errorf("%w: it begins with Bearer", ErrInvalidToken)
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

// StaticTokens returns the verifier of tokens that are known at startup, each with every scope. It
// keeps only their SHA-256. How long it takes tells nothing of a token: the hash of a similar token
// is not similar.
func StaticTokens(tokens []string) Verifier {
	identities := make(map[[sha256.Size]byte]*Identity, len(tokens))
	for i, token := range tokens {
		identities[sha256.Sum256([]byte(token))] = &Identity{Name: "static:" + strconv.Itoa(i+1), Scopes: models.AllScopes()}
	}
	return func(_ context.Context, token string) (*Identity, error) {
		identity := identities[sha256.Sum256([]byte(token))]
		if identity == nil {
			return nil, ErrInvalidToken
		}
		return identity, nil
	}
}
