package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"plantstore/auth"
)

const (
	issuer   = "https://id.example.org/"
	audience = "plants"
)

func verifierOf(t testing.TB, o auth.JWTOptions) auth.Verifier {
	t.Helper()
	verify, err := auth.JWT(t.Context(), o, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	return verify
}

// claims returns the claims of a valid token with changes; nil removes one.
func claims(changes jwt.MapClaims) jwt.MapClaims {
	all := jwt.MapClaims{
		"iss": issuer, "aud": audience, "sub": "alice", "exp": time.Now().Add(time.Hour).Unix(), "scope": "openid plants:read plants:write",
	}
	for name, value := range changes {
		if all[name] = value; value == nil {
			delete(all, name)
		}
	}
	return all
}

// sign returns a token with additions to its header.
func sign(t testing.TB, method jwt.SigningMethod, key any, header map[string]any, all jwt.Claims) string {
	t.Helper()
	token := jwt.NewWithClaims(method, all)
	for name, value := range header {
		token.Header[name] = value
	}
	text, err := token.SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

var k1 = map[string]any{"kid": "k1"}

func ecKey(t testing.TB, curve elliptic.Curve) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(curve, rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

func TestValidJWTs(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	now := time.Now()
	for _, test := range []struct {
		name   string
		claims jwt.MapClaims
		scopes string
	}{
		{"scopes in a text", nil, "plants:read plants:write"},
		{"scopes in an array", jwt.MapClaims{"scope": []string{"plants:write", "x"}}, "plants:write"},
		{"scopes in scp, a text", jwt.MapClaims{"scope": nil, "scp": "admin"}, "admin"},
		{"scopes in scp, an array", jwt.MapClaims{"scope": nil, "scp": []string{"plants:read", "admin"}}, "plants:read admin"},
		{"scopes in both", jwt.MapClaims{"scope": "plants:read", "scp": "plants:write"}, "plants:read plants:write"},
		{"no scopes", jwt.MapClaims{"scope": nil}, ""},
		{"only unknown scopes", jwt.MapClaims{"scope": "plants:* Admin plants:readwrite"}, ""},
		{"several audiences", jwt.MapClaims{"aud": []string{"other", audience}}, "plants:read plants:write"},
		{"expired within the leeway", jwt.MapClaims{"exp": now.Add(-20 * time.Second).Unix()}, "plants:read plants:write"},
		{"not valid before a time within the leeway", jwt.MapClaims{"nbf": now.Add(20 * time.Second).Unix()}, "plants:read plants:write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(test.claims)))
			if err != nil || got.Name != "jwt:alice" || got.Scopes.String() != test.scopes {
				t.Errorf("got %+v, %v, want the scopes %s", got, err, test.scopes)
			}
		})
	}
	if got := p.fetches.Load(); got != 1 {
		t.Errorf("got %d fetches of keys, want 1", got)
	}
}

func TestInvalidJWTs(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	now := time.Now()
	valid := sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))
	if _, err := verify(t.Context(), valid); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(valid, ".")
	other := sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"sub": "bob"}))
	es := func(changes jwt.MapClaims) string { return sign(t, jwt.SigningMethodES256, p.key, k1, claims(changes)) }
	for name, token := range map[string]string{
		"nothing":                          "",
		"only dots":                        "..",
		"no signature":                     parts[0] + "." + parts[1] + ".",
		"the signature of another":         parts[0] + "." + parts[1] + other[strings.LastIndexByte(other, '.'):],
		"the claims of another":            parts[0] + "." + strings.Split(other, ".")[1] + "." + parts[2],
		"a fourth part":                    valid + ".x",
		"alg none":                         sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, k1, claims(nil)),
		"alg None, without a key":          base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".",
		"the public key as a secret":       sign(t, jwt.SigningMethodHS256, []byte(publicPEM(t, &p.key.PublicKey)), k1, claims(nil)),
		"an algorithm that is not allowed": sign(t, jwt.SigningMethodES384, ecKey(t, elliptic.P384()), k1, claims(nil)),
		"the key of another":               sign(t, jwt.SigningMethodES256, ecKey(t, elliptic.P256()), k1, claims(nil)),
		"another issuer":                   es(jwt.MapClaims{"iss": "https://id.example.org"}),
		"no issuer":                        es(jwt.MapClaims{"iss": nil}),
		"another audience":                 es(jwt.MapClaims{"aud": "plant"}),
		"no audience":                      es(jwt.MapClaims{"aud": nil}),
		"expired":                          es(jwt.MapClaims{"exp": now.Add(-40 * time.Second).Unix()}),
		"no exp":                           es(jwt.MapClaims{"exp": nil}),
		"an exp that is a text":            es(jwt.MapClaims{"exp": "2099-01-01T00:00:00Z"}),
		"not valid yet":                    es(jwt.MapClaims{"nbf": now.Add(40 * time.Second).Unix()}),
		"no sub":                           es(jwt.MapClaims{"sub": nil}),
		"a long sub":                       es(jwt.MapClaims{"sub": strings.Repeat("x", 256)}),
		"scopes that are a number":         es(jwt.MapClaims{"scope": 5}),
		"a critical extension":             sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": "k1", "crit": []string{"x"}, "x": 1}, claims(nil)),
		"a kid that is a number":           sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": 1}, claims(nil)),
		"a key in its own header (jwk)":    sign(t, jwt.SigningMethodES256, ecKey(t, elliptic.P256()), map[string]any{"kid": "k1", "jwk": map[string]string{"kty": "EC"}}, claims(nil)),
	} {
		t.Run(name, func(t *testing.T) {
			if got, err := verify(t.Context(), token); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
			}
		})
	}
}

func BenchmarkJWT(b *testing.B) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		b.Fatal(err)
	}
	_, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		b.Fatal(err)
	}
	for _, key := range []struct {
		method jwt.SigningMethod
		key    crypto.Signer
	}{{jwt.SigningMethodRS256, rsaKey}, {jwt.SigningMethodES256, ecKey(b, elliptic.P256())}, {jwt.SigningMethodEdDSA, edKey}} {
		b.Run(key.method.Alg(), func(b *testing.B) {
			options := (&provider{}).options()
			options.PublicKey = publicPEM(b, key.key.Public())
			verify, token := verifierOf(b, options), sign(b, key.method, key.key, nil, claims(nil))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := verify(context.Background(), token); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
