package auth

import (
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"plantstore/models"
)

// JWTOptions says which JSON Web Tokens (RFC 7519) are accepted.
type JWTOptions struct {
	Issuer, Audience string
	JWKSURL          string        // of the issuer's keys (RFC 7517)
	PublicKey        string        // the issuer's only key in PEM, if there is no JWKSURL
	Algorithms       []string      // of signatures (RFC 7518, RFC 8037), with public keys only
	Leeway           time.Duration // between the issuer's clock and ours
}

var (
	errNoKeys = fmt.Errorf("%w: the keys of JWTs could not be fetched", ErrCannotVerify)
	errHeader = errors.New("the header has crit or the typ of another kind of token")
	errClaims = errors.New("the claims have a duplicate name, a wrong type, cnf or no valid sub")
)

// JWT returns the verifier of the JSON Web Tokens that o describes. They need an exp, a
// sub, and scopes in scope or scp. Names match exactly (RFC 7519, section 4). JWT fetches
// keys until ctx ends; if a fetch fails, it logs that and retries. It fails if PublicKey is
// not a usable public key.
func JWT(ctx context.Context, o JWTOptions, log *zap.Logger) (Verifier, error) {
	var keys jwt.Keyfunc
	if o.PublicKey == "" {
		keys = newJWKS(ctx, o.JWKSURL, log).find
	} else {
		key, err := parsePublicKey(o.PublicKey)
		if err != nil {
			return nil, err
		}
		keys = func(*jwt.Token) (any, error) { return key, nil }
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(o.Algorithms),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(o.Leeway),
	)
	return func(_ context.Context, token string) (*Identity, error) {
		claims := new(jwtClaims)
		parsed, err := parser.ParseWithClaims(token, claims, keys)
		switch {
		case errors.Is(err, errNoKeys):
			return nil, err
		case err != nil:
		case !isAccessToken(parsed.Header):
			err = errHeader
		case claims.Confirmation != nil || claims.Subject == "" || len(claims.Subject) > 255: // OpenID Connect Core 1.0, section 2
			err = errClaims
		}
		if err != nil {
			log.Debug("rejected a JWT", zap.Error(err))
			return nil, ErrInvalidToken
		}
		return &Identity{Name: "jwt:" + claims.Subject, Scopes: claims.scopes()}, nil
	}, nil
}

// isAccessToken reports whether header may be that of an access token (RFC 9068), and has no
// extension that must be understood (RFC 7515, section 4.1.11).
func isAccessToken(header map[string]any) bool {
	_, critical := header["crit"]
	typ, typed := header["typ"]
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/") // RFC 7515, section 4.1.9
	return !critical && (!typed || text == "jwt" || text == "at+jwt")
}

type jwtClaims struct {
	jwt.RegisteredClaims
	Scope        jwt.ClaimStrings `json:"scope"` // RFC 8693, section 4.2
	SCP          jwt.ClaimStrings `json:"scp"`   // the name that some providers use
	Confirmation jsontext.Value   `json:"cnf"`   // the token is bound to a key (RFC 7800), so not for any bearer
}

// UnmarshalJSON reads claims strictly: golang-jwt calls it by encoding/json, which would
// take Scope for scope, and the last value of duplicates. Its error repeats no claim.
func (c *jwtClaims) UnmarshalJSON(text []byte) error {
	type plain jwtClaims // without this method
	if json.Unmarshal(text, (*plain)(c)) != nil {
		return errClaims
	}
	return nil
}

// scopes returns the known scopes. A claim separates them by U+0020 (RFC 6749, section 3.3), or
// is an array.
func (c *jwtClaims) scopes() models.Scopes {
	return models.KnownScopes(strings.Split(strings.Join(append(c.Scope, c.SCP...), " "), " "))
}

// parsePublicKey reads a public key in PEM (RFC 7468).
func parsePublicKey(text string) (any, error) {
	block, _ := pem.Decode([]byte(text))
	if block == nil || block.Type != "PUBLIC KEY" {
		return nil, errors.New("not PEM of a public key: -----BEGIN PUBLIC KEY----- is missing; openssl pkey -pubout writes it")
	}
	key, err := x509.ParsePKIXPublicKey(block.Bytes)
	if err != nil {
		return nil, err
	}
	return key, checkKey(key)
}

// minRSABits is the smallest RSA key that RFC 7518, section 3.3, allows.
const minRSABits = 2048

// checkKey fails if key cannot verify signatures, or is a weak key.
func checkKey(key any) error {
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return fmt.Errorf("an RSA key of %d bits, less than %d", key.N.BitLen(), minRSABits)
		}
	case *ecdsa.PublicKey, ed25519.PublicKey:
	default:
		return fmt.Errorf("a %T, which is no public key for signatures", key)
	}
	return nil
}
