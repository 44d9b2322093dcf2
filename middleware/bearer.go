package middleware

import (
	"errors"
	"fmt"
	"strings"

	"github.com/gin-gonic/gin"
	"golang.org/x/time/rate"

	"plantstore/auth"
	"plantstore/models"
)

// The challenges of RFC 6750, section 3.
const (
	challengeMissing = `Bearer realm="plantstore"`
	challengeInvalid = challengeMissing + `, error="invalid_token"`
	challengeScope   = `Bearer error="insufficient_scope", scope="%s"`
)

// Bearer rejects requests without a bearer token (RFC 6750) that verify accepts. An
// address that sends more than failuresPerMinute invalid tokens gets a [LimitError]
// instead, but its valid tokens are still accepted: a client cannot lock out the other
// clients of its address, and nobody can guess a token. 0 means no limit.
func Bearer(verify auth.Verifier, failuresPerMinute int) Handler {
	failures := newBuckets(rate.Limit(float64(failuresPerMinute)/60), failuresPerMinute)
	return func(c *gin.Context) error {
		token, err := bearerToken(c.Request.Header["Authorization"])
		if err == nil {
			RequestOf(c).identity, err = verify(c.Request.Context(), token)
		}
		RequestOf(c).trace(err == nil)
		if failuresPerMinute > 0 && errors.Is(err, auth.ErrInvalidToken) {
			if _, wait := failures.takeFor(c, 1); wait > 0 {
				SetHeader(c, "RateLimit-Policy", fmt.Sprintf(`"invalid-tokens";q=%d;w=60`, failuresPerMinute))
				SetHeader(c, "RateLimit", `"invalid-tokens";r=0;t=60`)
				return &LimitError{"invalid tokens from this address", wait}
			}
		}
		challenge(c, err)
		return err
	}
}

// challenge sets the header that tells how to authenticate, if err says that a token is
// missing or invalid.
func challenge(c *gin.Context, err error) {
	switch {
	case errors.Is(err, auth.ErrNoToken):
		SetHeader(c, "WWW-Authenticate", challengeMissing)
	case errors.Is(err, auth.ErrInvalidToken):
		SetHeader(c, "WWW-Authenticate", challengeInvalid)
	}
}

// RequireScope rejects requests whose token lacks scope.
func RequireScope(scope models.Scope) Handler {
	return func(c *gin.Context) error {
		if identity := RequestOf(c).identity; identity == nil || !identity.Scopes.Allow(scope) {
			SetHeader(c, "WWW-Authenticate", fmt.Sprintf(challengeScope, scope))
			return &auth.ScopeError{Scope: scope}
		}
		return nil
	}
}

// bearerToken returns the token in the Authorization headers of a request.
func bearerToken(headers []string) (string, error) {
	if len(headers) > 1 {
		return "", auth.ErrInvalidToken // two identities are ambiguous
	}
	scheme, token, _ := strings.Cut(strings.Join(headers, ""), " ")
	token = strings.TrimLeft(token, " ")
	if !strings.EqualFold(scheme, "Bearer") || token == "" {
		return "", auth.ErrNoToken
	}
	if len(token) > len(scheme) && strings.EqualFold(token[:len(scheme)+1], "Bearer ") {
		return "", auth.ErrBearerTwice
	}
	return token, nil
}
