package auth

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/MicahParks/keyfunc/v3"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"plantstore/models"
)

// JWTOptions says which JSON Web Tokens (RFC 7519) are accepted.
type JWTOptions struct {
	Issuer, Audience string
	JWKSURL          string        // of the issuer's keys (RFC 7517)
	PublicKey        string        // the issuer's one key in PEM, if there is no JWKSURL
	Algorithms       []string      // of signatures (RFC 7518, RFC 8037), with public keys only
	Leeway           time.Duration // between the issuer's clock and ours
}

const (
	// jwksPeriod is the time between two scheduled fetches of the keys at a JWKS URL.
	jwksPeriod = 15 * time.Minute
	// jwksFloor is the least time between two fetches that tokens with unknown keys
	// cause.
	jwksFloor = 10 * time.Second
	// jwksTimeout limits such a fetch, and the wait for it.
	jwksTimeout = 5 * time.Second
	jwksSize    = 1 << 20 // bytes of a response
	// maxSubject limits the subject of a token, in bytes (OpenID Connect Core 1.0,
	// section 2).
	maxSubject = 255
)

var (
	errNoKeys     = fmt.Errorf("%w: the keys of JWTs could not be fetched", ErrCannotVerify)
	errUnknownKey = errors.New("unknown key")
)

// JWT returns the verifier of the JSON Web Tokens that o describes. They need an exp, a
// sub, and scopes in scope or scp. JWT fetches keys until ctx ends; if a fetch fails, it
// logs that and retries. It fails if PublicKey is not a usable public key.
func JWT(ctx context.Context, o JWTOptions, log *zap.Logger) (Verifier, error) {
	keys, err := jwtKeys(ctx, o, log)
	if err != nil {
		return nil, err
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(o.Algorithms),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(o.Leeway),
	)
	return func(_ context.Context, token string) (*Identity, error) {
		if strings.Count(token, ".") != 2 {
			return nil, ErrInvalidToken
		}
		claims := new(jwtClaims)
		parsed, err := parser.ParseWithClaims(token, claims, keys)
		switch {
		case errors.Is(err, errNoKeys):
			return nil, err
		case err != nil:
			log.Debug("rejected a JWT", zap.String("reason", reasonOf(err)))
			return nil, ErrInvalidToken
		case parsed.Header["crit"] != nil: // an extension that must be understood: RFC 7515, section 4.1.11
			return nil, ErrInvalidToken
		case claims.Subject == "" || len(claims.Subject) > maxSubject:
			return nil, ErrInvalidToken
		}
		return &Identity{Name: "jwt:" + claims.Subject, Scopes: models.KnownScopes(append(claims.Scope, claims.SCP...))}, nil
	}, nil
}

// reasonOf returns why a JWT was rejected, without the parts of it that err repeats.
func reasonOf(err error) string {
	for _, reason := range []error{
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenUnverifiable, jwt.ErrTokenMalformed,
	} {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	return "a claim has the wrong type"
}

type jwtClaims struct {
	jwt.RegisteredClaims
	Scope scopeClaim `json:"scope"` // RFC 8693, section 4.2
	SCP   scopeClaim `json:"scp"`   // the name that some providers use
}

// scopeClaim is a list of scopes: a text that separates them by spaces, or an array.
type scopeClaim []string

// UnmarshalJSON reads either form.
func (s *scopeClaim) UnmarshalJSON(text []byte) error {
	var list jwt.ClaimStrings
	if err := list.UnmarshalJSON(text); err != nil {
		return err
	}
	*s = strings.Fields(strings.Join(list, " "))
	return nil
}

// jwtKeys returns the function that finds the key of a token's signature.
func jwtKeys(ctx context.Context, o JWTOptions, log *zap.Logger) (jwt.Keyfunc, error) {
	if o.PublicKey != "" {
		key, err := parsePublicKey(o.PublicKey, o.Algorithms)
		return func(*jwt.Token) (any, error) { return key, nil }, err
	}
	fetched, err := keyfunc.NewDefaultOverrideCtx(ctx, []string{o.JWKSURL}, keyfunc.Override{
		Client: &http.Client{
			Transport: jwksTransport{ctx},
			// Keys come from the configured URL only.
			CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
		},
		HTTPTimeout:       jwksTimeout,
		RateLimitWaitMax:  jwksTimeout,
		RefreshInterval:   jwksPeriod,
		RefreshUnknownKID: rate.NewLimiter(rate.Every(jwksFloor), 1),
		RefreshErrorHandlerFunc: func(string) func(context.Context, error) {
			return func(_ context.Context, err error) {
				if failed, ok := errors.AsType[*url.Error](err); ok {
					err = failed.Err // without the URL, which may contain a secret
				}
				log.Error("fetch the keys of JWTs", zap.Error(err))
			}
		},
	})
	if err != nil {
		return nil, err
	}
	// Not the request's context: a client that leaves must not end a fetch that others
	// wait for and that is not repeated at once.
	find := fetched.KeyfuncCtx(ctx)
	return func(token *jwt.Token) (any, error) {
		key, err := find(token)
		all, isSet := key.(jwt.VerificationKeySet) // for a token without a kid
		switch {
		case err == nil && !isSet:
			return usableKey(key, o.Algorithms)
		case err == nil && len(all.Keys) > 0:
			all.Keys = slices.DeleteFunc(all.Keys, func(key jwt.VerificationKey) bool {
				_, err := usableKey(key, o.Algorithms)
				return err != nil
			})
			return all, nil
		}
		if known, failed := fetched.Storage().KeyReadAll(ctx); failed == nil && len(known) == 0 {
			return nil, errNoKeys
		}
		return nil, errors.Join(err, errUnknownKey)
	}, nil
}

// jwksTransport limits a fetch of keys: to jwksSize, to jwksTimeout without the wait
// for it, which the library counts, too, and to the life of ctx.
type jwksTransport struct{ ctx context.Context } //nolint:containedctx // the service's, not a request's

func (t jwksTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	ctx, cancel := context.WithTimeout(t.ctx, jwksTimeout)
	defer cancel()
	response, err := http.DefaultTransport.RoundTrip(r.WithContext(ctx))
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	keys, err := io.ReadAll(io.LimitReader(response.Body, jwksSize))
	if err != nil {
		return nil, err
	}
	response.Body = io.NopCloser(bytes.NewReader(keys))
	return response, nil
}

// minRSABits is the smallest RSA key that RFC 7518, section 3.3, allows.
const minRSABits = 2048

// parsePublicKey reads a public key, or that of a certificate, in PEM (RFC 7468).
func parsePublicKey(text string, algorithms []string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil {
		return nil, errors.New("not PEM: -----BEGIN PUBLIC KEY----- is missing")
	}
	var key any
	var err error
	switch block.Type {
	case "PUBLIC KEY":
		key, err = x509.ParsePKIXPublicKey(block.Bytes)
	case "CERTIFICATE":
		var certificate *x509.Certificate
		if certificate, err = x509.ParseCertificate(block.Bytes); err == nil {
			key = certificate.PublicKey
		}
	default:
		return nil, fmt.Errorf("a %s instead of a PUBLIC KEY: openssl pkey -pubout writes one", block.Type)
	}
	if err != nil {
		return nil, err
	}
	return usableKey(key, algorithms)
}

// usableKey returns key if one of algorithms can verify with it.
func usableKey(key any, algorithms []string) (any, error) {
	var fitting []string
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return nil, fmt.Errorf("an RSA key of %d bits, less than %d", key.N.BitLen(), minRSABits)
		}
		fitting = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		fitting = []string{map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[key.Params().Name]}
	case ed25519.PublicKey:
		fitting = []string{"EdDSA"}
	}
	if !slices.ContainsFunc(fitting, func(algorithm string) bool { return slices.Contains(algorithms, algorithm) }) {
		return nil, fmt.Errorf("none of auth.jwt.algorithms can verify with this key, a %T", key)
	}
	return key, nil
}
