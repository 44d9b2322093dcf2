package middleware

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"strings"

	"github.com/gin-gonic/gin"
)

// The ways in which authentication fails, besides errors of the verifier's own.
var (
	// ErrNoToken says that the request carries no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken says that the token is not one that is accepted. Clients
	// are not told why.
	ErrInvalidToken = errors.New("invalid bearer token")
)

// The challenges of RFC 6750, section 3.
const (
	challenge        = `Bearer realm="plantstore"`
	challengeInvalid = challenge + `, error="invalid_token"`
)

// Bearer lets a request pass whose bearer token (RFC 6750) verify accepts.
// verify returns nil, ErrInvalidToken, or an error that says why it cannot tell.
func Bearer(verify func(ctx context.Context, token string) error) gin.HandlerFunc {
	return func(c *gin.Context) {
		token, err := bearerToken(c.Request.Header["Authorization"])
		if err == nil {
			err = verify(c.Request.Context(), token)
		}
		switch {
		case err == nil:
			return
		case errors.Is(err, ErrNoToken):
			c.Header("WWW-Authenticate", challenge)
		case errors.Is(err, ErrInvalidToken):
			c.Header("WWW-Authenticate", challengeInvalid)
		}
		Fail(c, err)
	}
}

// bearerToken takes the token out of the Authorization headers of a request.
func bearerToken(headers []string) (string, error) {
	switch len(headers) {
	case 0:
		return "", ErrNoToken
	case 1:
	default:
		return "", ErrInvalidToken // two identities are none
	}
	scheme, token, _ := strings.Cut(headers[0], " ")
	if !strings.EqualFold(scheme, "Bearer") {
		return "", ErrNoToken
	}
	token = strings.TrimLeft(token, " ")
	if token == "" {
		return "", ErrNoToken
	}
	return token, nil
}

// StaticTokens are tokens that are known when the program starts. It keeps their
// SHA-256 alone.
type StaticTokens struct{ hashes [][sha256.Size]byte }

// NewStaticTokens returns the verifier of tokens.
func NewStaticTokens(tokens []string) *StaticTokens {
	s := &StaticTokens{hashes: make([][sha256.Size]byte, len(tokens))}
	for i, token := range tokens {
		s.hashes[i] = sha256.Sum256([]byte(token))
	}
	return s
}

// Verify returns nil for one of the tokens and ErrInvalidToken for any other.
// How long it takes tells nothing of how much of a token was right, nor of
// which one was.
func (s *StaticTokens) Verify(_ context.Context, token string) error {
	hash := sha256.Sum256([]byte(token))
	found := 0
	for i := range s.hashes {
		found |= subtle.ConstantTimeCompare(hash[:], s.hashes[i][:])
	}
	if found == 0 {
		return ErrInvalidToken
	}
	return nil
}
