// Package auth tells who sent a request by its bearer token: static tokens, tokens
// that the service has issued, and JSON Web Tokens of an identity provider.
package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"plantstore/models"
)

var (
	// ErrNoToken means that the request has no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken means that a token is unknown, revoked, expired or malformed.
	// Clients are not told which.
	ErrInvalidToken = errors.New("the token is not valid")
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

// jwtPart matches a JWT anywhere in a text, or its start: the Base64 of {" and more.
var jwtPart = regexp.MustCompile(`eyJ[A-Za-z0-9_.-]+`)

// Redact returns text with each issued token cut to its id, and without JWTs, for logs
// and error messages: a client may have put a token anywhere.
func Redact(text string) string {
	// To look costs less than to replace nothing, and each line of the log comes here.
	if models.SecretPart.MatchString(text) {
		text = models.SecretPart.ReplaceAllStringFunc(text, func(token string) string { return token[:models.TokenIDLength] + "…" })
	}
	if jwtPart.MatchString(text) {
		text = jwtPart.ReplaceAllString(text, "eyJ…")
	}
	return text
}

// tokenPart is how many characters count as a part of a token: fewer tell little, and
// occur by chance.
const tokenPart = 8

// HasToken reports whether text has an issued token, a JWT, or a part of one of tokens.
func HasToken(text string, tokens ...string) bool {
	for _, token := range tokens {
		size := min(tokenPart, max(len(token), 1))
		for i := range len(text) - size + 1 {
			if strings.Contains(token, text[i:i+size]) {
				return true
			}
		}
	}
	return Redact(text) != text
}

// HasHexPart is HasToken for a hexadecimal text that every request may have, such as a trace
// id: it takes a tenth of the time, but misses some parts of less than twice tokenPart.
func HasHexPart(text string, tokens ...string) bool {
	const fast = 64 // the most that strings.Contains searches with vector instructions
	for _, token := range tokens {
		if !hasHexRun(token) {
			continue
		}
		for ; len(token) >= tokenPart; token = token[min(fast-tokenPart+1, len(token)):] {
			for i := 0; i+tokenPart <= len(text); i += tokenPart {
				if strings.Contains(token[:min(fast, len(token))], text[i:i+tokenPart]) {
					return true
				}
			}
		}
	}
	return false
}

// hasHexRun reports whether token has tokenPart lower-case hexadecimal digits in a row. Most
// tokens have none, and looking at every tokenPart-th character rules out most of them.
func hasHexRun(token string) bool {
	for last := tokenPart - 1; last < len(token); last += tokenPart {
		first := last
		for first >= 0 && last-first < tokenPart && isHex(token[first]) {
			first--
		}
		if last-first == tokenPart {
			return true
		}
		// What precedes the run is not hexadecimal: another run ends tokenPart after that.
		last = first
	}
	return false
}

// isHex reports whether c is a lower-case hexadecimal digit.
func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }

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
