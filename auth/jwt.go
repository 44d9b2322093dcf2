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
	AudienceClaim    string        // the claim that must have Audience: aud, or another claim of a provider
	ScopeClaims      []string      // the claims with scopes
	ScopePrefix      string        // of each scope; scopes without it do not count
	JWKSURL          string        // of the issuer's keys (RFC 7517)
	PublicKey        string        // the issuer's only key in PEM, if there is no JWKSURL
	Algorithms       []string      // of signatures (RFC 7518, RFC 8037, RFC 9864), with public keys only
	Leeway           time.Duration // between the issuer's clock and ours
	RequireAccess    bool          // the typ must be at+jwt (RFC 9068)
}

var (
	errNoKeys = fmt.Errorf("%w: the keys of JWTs could not be fetched", ErrCannotVerify)
	errNoKey  = errors.New("no key of the issuer has the kid and the alg of the token")
	errHeader = errors.New("the header has crit or the typ of another kind of token")
	errClaims = errors.New("the claims have a duplicate name, a wrong type, cnf, or no valid sub")
)

// causes are why a JWT is rejected, the first that applies. The error itself may have a part of the token.
var causes = []error{
	jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience, jwt.ErrTokenRequiredClaimMissing,
	errHeader, errClaims, errNoKey, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenUnverifiable, jwt.ErrTokenMalformed, jwt.ErrTokenInvalidClaims,
}

// JWT returns the verifier of the JSON Web Tokens that o describes. They need an exp, a
// sub, and scopes. Names match exactly (RFC 7519, section 4). JWT fetches
// keys until ctx ends; if a fetch fails, it logs that and retries. It fails if PublicKey is
// not a usable public key. The verifier logs to rejections why it rejects a token.
func JWT(ctx context.Context, o JWTOptions, log, rejections *zap.Logger) (Verifier, error) {
	jwt.RegisterSigningMethod("Ed25519", func() jwt.SigningMethod { return jwt.SigningMethodEdDSA }) // its name in RFC 9864
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
	algorithms := make([]string, len(o.Algorithms))
	for i, name := range o.Algorithms {
		algorithms[i] = jwt.GetSigningMethod(name).Alg()
	}
	parser := jwt.NewParser(
		jwt.WithValidMethods(algorithms),
		jwt.WithIssuer(o.Issuer),
		jwt.WithAudience(o.Audience),
		jwt.WithExpirationRequired(),
		jwt.WithLeeway(o.Leeway),
		jwt.WithStrictDecoding(), // otherwise, several texts would be the same token
	)
	return func(_ context.Context, token string) (*Identity, error) {
		claims := &jwtClaims{options: &o}
		parsed, err := parser.ParseWithClaims(token, claims, keys)
		switch {
		case errors.Is(err, errNoKeys):
			return nil, err
		case err != nil:
		case !isAccessToken(parsed.Header, o.RequireAccess):
			err = errHeader
		case claims.Confirmation != nil || claims.Subject == "" || len(claims.Subject) > 255: // OpenID Connect Core 1.0, section 2
			err = errClaims
		}
		if err != nil {
			for _, cause := range causes {
				if errors.Is(err, cause) {
					rejections.Info("rejected a JWT: " + cause.Error())
					break
				}
			}
			return nil, ErrInvalidToken
		}
		return &Identity{Name: "jwt:" + claims.Subject, Scopes: models.KnownScopes(claims.scopes)}, nil
	}, nil
}

// isAccessToken reports whether header may be that of an access token (RFC 9068), or if required must
// be, and has no extension that must be understood (RFC 7515, section 4.1.11).
func isAccessToken(header map[string]any, required bool) bool {
	_, critical := header["crit"]
	typ, typed := header["typ"]
	text, _ := typ.(string)
	text = strings.TrimPrefix(strings.ToLower(text), "application/") // RFC 7515, section 4.1.9
	return !critical && (text == "at+jwt" || !required && (!typed || text == "jwt"))
}

type jwtClaims struct {
	jwt.RegisteredClaims
	Confirmation jsontext.Value `json:"cnf"` // the token is bound to a key (RFC 7800), so not for any bearer

	options *JWTOptions
	scopes  []string
}

// UnmarshalJSON reads claims strictly: golang-jwt calls it by encoding/json, which would
// take Scope for scope, and the last value of duplicates. Its error repeats no claim.
func (c *jwtClaims) UnmarshalJSON(text []byte) error {
	type plain jwtClaims // without this method
	var all map[string]jsontext.Value
	if json.Unmarshal(text, (*plain)(c)) != nil || json.Unmarshal(text, &all) != nil {
		return errClaims
	}
	list := func(name string) (texts jwt.ClaimStrings, err error) {
		if value := all[name]; value != nil {
			err = json.Unmarshal(value, &texts)
		}
		return texts, err
	}
	var err error
	if c.Audience, err = list(c.options.AudienceClaim); err != nil {
		return errClaims
	}
	for _, name := range c.options.ScopeClaims {
		texts, err := list(name)
		if err != nil {
			return errClaims
		}
		// A claim separates scopes by U+0020 (RFC 6749, section 3.3), or is an array.
		for scope := range strings.SplitSeq(strings.Join(texts, " "), " ") {
			if scope, ok := strings.CutPrefix(scope, c.options.ScopePrefix); ok {
				c.scopes = append(c.scopes, scope)
			}
		}
	}
	return nil
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
