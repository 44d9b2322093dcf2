package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"plantstore/models"
)

// The ways in which authentication fails, besides models.ErrInvalidToken.
var (
	// ErrNoToken says that the request carries no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrCannotVerify says that it cannot be told at the moment whether a token is
	// right. The request was not looked at any further.
	ErrCannotVerify = errors.New("tokens cannot be verified at the moment")
)

// ScopeError says that a token lacks the scope that a route needs.
type ScopeError struct{ Scope models.Scope }

func (e *ScopeError) Error() string { return fmt.Sprintf("the token lacks the scope %s", e.Scope) }

// The challenges of RFC 6750, section 3.
const (
	challenge        = `Bearer realm="plantstore"`
	challengeInvalid = challenge + `, error="invalid_token"`
	challengeScope   = `Bearer error="insufficient_scope", scope="%s"`
)

// Identity is who a request comes from.
type Identity struct {
	// Name is what logs say, and what limits count: it is unique among those who
	// come in, and no secret.
	Name   string
	Scopes models.Scopes
}

// Verifier tells whom a bearer token stands for. It fails with
// models.ErrInvalidToken, of which clients are told no more, or with an error that
// says why it cannot tell.
type Verifier func(ctx context.Context, token string) (*Identity, error)

// AnyOf returns the verifier of the tokens that any of verifiers accepts.
func AnyOf(verifiers ...Verifier) Verifier {
	return func(ctx context.Context, token string) (*Identity, error) {
		for _, verify := range verifiers {
			if who, err := verify(ctx, token); !errors.Is(err, models.ErrInvalidToken) {
				return who, err
			}
		}
		return nil, models.ErrInvalidToken
	}
}

// identityKey is under which a request's context keeps its Identity.
type identityKey struct{}

// Bearer lets a request pass whose bearer token (RFC 6750) verify accepts. An address
// that sends more than failuresPerMinute wrong ones is told to wait, and its right ones
// pass all the same: nobody can lock out others behind the same address, and tokens
// are too long to be guessed at any rate. 0 is any number.
func Bearer(verify Verifier, failuresPerMinute int) gin.HandlerFunc {
	var failures *buckets
	if failuresPerMinute > 0 {
		failures = newBuckets(rate.Limit(float64(failuresPerMinute)/60), failuresPerMinute)
	}
	return func(c *gin.Context) {
		token, err := bearerToken(c.Request.Header["Authorization"])
		var who *Identity
		if err == nil {
			who, err = verify(c.Request.Context(), token)
		}
		if failures != nil && errors.Is(err, models.ErrInvalidToken) {
			if _, wait := failures.take(addressOf(c)); wait > 0 {
				err = &LimitError{"wrong tokens of this address", wait}
			}
		}
		switch {
		case err == nil:
			c.Set(identityKey{}, who)
			return
		case errors.Is(err, ErrNoToken):
			c.Header("WWW-Authenticate", challenge)
		case errors.Is(err, models.ErrInvalidToken):
			c.Header("WWW-Authenticate", challengeInvalid)
		}
		Fail(c, err)
	}
}

// IdentityOf returns who the request that c answers comes from, or nil where Bearer
// has let nobody pass.
func IdentityOf(c *gin.Context) *Identity {
	value, _ := c.Get(identityKey{})
	who, _ := value.(*Identity)
	return who
}

// RequireScope lets a request pass whose token has scope.
func RequireScope(scope models.Scope) gin.HandlerFunc {
	return func(c *gin.Context) {
		if who := IdentityOf(c); who == nil || !who.Scopes.Allow(scope) {
			c.Header("WWW-Authenticate", fmt.Sprintf(challengeScope, scope))
			Fail(c, &ScopeError{scope})
		}
	}
}

// bearerToken takes the token out of the Authorization headers of a request.
func bearerToken(headers []string) (string, error) {
	switch len(headers) {
	case 0:
		return "", ErrNoToken
	case 1:
	default:
		return "", models.ErrInvalidToken // two identities are none
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
