package middleware

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// The ways in which authentication fails, besides errors of the verifier's own.
var (
	// ErrNoToken says that the request carries no bearer token.
	ErrNoToken = errors.New("no bearer token")
	// ErrInvalidToken says that the token is not one that is accepted. Clients
	// are not told why.
	ErrInvalidToken = errors.New("invalid bearer token")
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

// Verifier tells whom a bearer token stands for. It fails with ErrInvalidToken, or
// with an error that says why it cannot tell.
type Verifier func(ctx context.Context, token string) (*Identity, error)

// AnyOf returns the verifier of the tokens that any of verifiers accepts.
func AnyOf(verifiers ...Verifier) Verifier {
	return func(ctx context.Context, token string) (*Identity, error) {
		for _, verify := range verifiers {
			if who, err := verify(ctx, token); !errors.Is(err, ErrInvalidToken) {
				return who, err
			}
		}
		return nil, ErrInvalidToken
	}
}

// identityKey is under which a request's context keeps its Identity.
type identityKey struct{}

// Bearer lets a request pass whose bearer token (RFC 6750) verify accepts. failures
// limits wrong tokens; where it is nil, nothing does.
func Bearer(verify Verifier, failures *Failures) gin.HandlerFunc {
	return func(c *gin.Context) {
		token, err := bearerToken(c.Request.Header["Authorization"])
		if err == nil {
			err = failures.check(c, token)
		}
		var who *Identity
		if err == nil {
			who, err = verify(c.Request.Context(), token)
		}
		switch {
		case err == nil:
			failures.right(token)
			c.Set(identityKey{}, who)
			return
		case errors.Is(err, ErrNoToken):
			c.Header("WWW-Authenticate", challenge)
		case errors.Is(err, ErrInvalidToken):
			failures.wrong(c, token)
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
