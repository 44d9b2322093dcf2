package auth

import (
	"cmp"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"strconv"
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

// maxSubject limits the subject of a token, in bytes (OpenID Connect Core 1.0, section 2).
const maxSubject = 255

var (
	errNoKeys     = fmt.Errorf("%w: the keys of JWTs could not be fetched", ErrCannotVerify)
	errUnknownKey = errors.New("unknown key")
	errHeader     = errors.New("the header has a duplicate name, crit or the typ of another kind of token")
	errClaims     = errors.New("the claims have a duplicate name, a wrong type, cnf or no valid sub")
)

// JWT returns the verifier of the JSON Web Tokens that o describes. They need an exp, a
// sub, and scopes in scope or scp. Names match exactly (RFC 7519, section 4). Tokens that
// are bound to a key (cnf: RFC 7800) are rejected: they are not for any bearer. JWT fetches
// keys until ctx ends; if a fetch fails, it logs that and retries. It fails if PublicKey is
// not a usable public key.
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
		if err == nil {
			err = cmp.Or(checkHeader(parsed), claims.check())
		}
		if errors.Is(err, errNoKeys) {
			return nil, err
		}
		if err != nil {
			log.Debug("rejected a JWT", zap.String("reason", reasonOf(err)))
			return nil, ErrInvalidToken
		}
		return &Identity{Name: "jwt:" + claims.Subject, Scopes: models.KnownScopes(append(claims.Scope, claims.SCP...))}, nil
	}, nil
}

// reasonOf returns why a JWT was rejected, without the parts of it that err repeats.
func reasonOf(err error) string {
	for _, reason := range []error{
		jwt.ErrTokenExpired, jwt.ErrTokenNotValidYet, jwt.ErrTokenInvalidIssuer, jwt.ErrTokenInvalidAudience,
		jwt.ErrTokenRequiredClaimMissing, jwt.ErrTokenSignatureInvalid, jwt.ErrTokenUnverifiable, errHeader, errClaims,
		jwt.ErrTokenMalformed,
	} {
		if errors.Is(err, reason) {
			return reason.Error()
		}
	}
	return "it is not valid"
}

// checkHeader rejects what golang-jwt, which decodes with encoding/json, accepts.
func checkHeader(token *jwt.Token) error {
	encoded, _, _ := strings.Cut(token.Raw, ".")
	header, err := base64.RawURLEncoding.DecodeString(encoded)
	if err != nil || !jsontext.Value(header).IsValid() { // duplicate names are not valid
		return errHeader
	}
	if _, ok := token.Header["crit"]; ok { // an extension that must be understood: RFC 7515, section 4.1.11
		return errHeader
	}
	if typ, ok := token.Header["typ"]; ok {
		text, _ := typ.(string)
		text = strings.TrimPrefix(strings.ToLower(text), "application/") // RFC 7515, section 4.1.9
		if text != "jwt" && text != "at+jwt" {                           // an access token: RFC 9068
			return errHeader
		}
	}
	return nil
}

type jwtClaims struct {
	jwt.RegisteredClaims
	Scope        scopeClaim     `json:"scope"` // RFC 8693, section 4.2
	SCP          scopeClaim     `json:"scp"`   // the name that some providers use
	Confirmation jsontext.Value `json:"cnf"`
}

// UnmarshalJSON reads claims strictly: golang-jwt calls it by encoding/json, which would
// take Scope for scope, and the last value of duplicates.
func (c *jwtClaims) UnmarshalJSON(text []byte) error {
	type plain jwtClaims // without this method
	if err := json.Unmarshal(text, (*plain)(c), json.WithUnmarshalers(json.UnmarshalFunc(readDate))); err != nil {
		return errors.Join(errClaims, err)
	}
	return nil
}

// readDate reads a NumericDate (RFC 7519, section 2), which must be a finite number.
// Times beyond the years of time.Time are cut to 285 million years from now.
func readDate(text []byte, date **jwt.NumericDate) error {
	seconds, err := strconv.ParseFloat(string(text), 64)
	const most = 1 << 53
	*date = jwt.NewNumericDate(time.Unix(int64(max(-most, min(seconds, most))), 0))
	return err
}

// check rejects the claims of a valid token that is not for this service.
func (c *jwtClaims) check() error {
	if c.Confirmation != nil || c.Subject == "" || len(c.Subject) > maxSubject {
		return errClaims
	}
	return nil
}

// scopeClaim is a list of scopes: a text that separates them by U+0020 (RFC 6749, section
// 3.3), or an array.
type scopeClaim []string

// UnmarshalJSON reads either form.
func (s *scopeClaim) UnmarshalJSON(text []byte) error {
	var list jwt.ClaimStrings
	if err := list.UnmarshalJSON(text); err != nil {
		return err
	}
	*s = strings.Split(strings.Join(list, " "), " ")
	return nil
}

// jwtKeys returns the function that finds the keys that may have signed a token.
func jwtKeys(ctx context.Context, o JWTOptions, log *zap.Logger) (jwt.Keyfunc, error) {
	if o.PublicKey == "" {
		return newJWKS(ctx, o, log).find, nil
	}
	key, err := parsePublicKey(o.PublicKey, o.Algorithms)
	return func(*jwt.Token) (any, error) { return key, nil }, err
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
	return key, checkKey(key, algorithms)
}

// checkKey fails if no algorithm in algorithms can verify with key.
func checkKey(key any, algorithms []string) error {
	var fitting []string
	switch key := key.(type) {
	case *rsa.PublicKey:
		if key.N.BitLen() < minRSABits {
			return fmt.Errorf("an RSA key of %d bits, less than %d", key.N.BitLen(), minRSABits)
		}
		fitting = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512"}
	case *ecdsa.PublicKey:
		fitting = []string{map[string]string{"P-256": "ES256", "P-384": "ES384", "P-521": "ES512"}[key.Params().Name]}
	case ed25519.PublicKey:
		fitting = []string{"EdDSA"}
	}
	if !slices.ContainsFunc(fitting, func(algorithm string) bool { return slices.Contains(algorithms, algorithm) }) {
		return fmt.Errorf("none of auth.jwt.algorithms can verify with this key, a %T", key)
	}
	return nil
}
