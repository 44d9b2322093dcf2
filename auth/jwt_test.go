package auth_test

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/auth"
)

const (
	issuer   = "https://id.example.org/"
	audience = "plants"
)

func verifierOf(t testing.TB, o auth.JWTOptions) auth.Verifier {
	t.Helper()
	verify, err := auth.JWT(t.Context(), o, zap.NewNop(), zap.NewNop())
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
		{"the longest sub", jwt.MapClaims{"sub": strings.Repeat("x", 255)}, "plants:read plants:write"},
	} {
		t.Run(test.name, func(t *testing.T) {
			all := claims(test.claims)
			got, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, all))
			if err != nil || got.Name != "jwt:"+all["sub"].(string) || got.Scopes.String() != test.scopes {
				t.Errorf("got %+v, %v, want the scopes %s", got, err, test.scopes)
			}
		})
	}
	if got := p.fetches.Load(); got != 1 {
		t.Errorf("got %d fetches of keys, want 1", got)
	}
}

// TestProviders verifies access tokens of the shapes of well-known providers, with the settings in
// docs/tokens.md.
func TestProviders(t *testing.T) {
	const server = "https://plants.example.org/"
	for _, test := range []struct {
		name    string
		options func(*auth.JWTOptions)
		claims  jwt.MapClaims
		header  map[string]any
		scopes  string // "invalid" if the token is not
	}{
		{"Keycloak", nil, jwt.MapClaims{"aud": []string{"plants", "account"}, "azp": "web", "scope": "openid plants:read"}, map[string]any{"typ": "JWT"}, "plants:read"},
		{"Okta", nil, jwt.MapClaims{"scope": nil, "scp": []string{"plants:read"}, "cid": "web"}, nil, "plants:read"},
		{
			"Auth0", func(o *auth.JWTOptions) { o.ScopeClaims = []string{"permissions"} },
			jwt.MapClaims{"scope": "openid plants:write", "permissions": []string{"plants:read"}},
			map[string]any{"typ": "at+jwt"},
			"plants:read",
		},
		{
			"Entra, roles of an application", func(o *auth.JWTOptions) { o.ScopeClaims = []string{"scp", "roles"} },
			jwt.MapClaims{"scope": nil, "roles": []string{"plants:read", "plants:write"}, "appid": "web"},
			nil, "plants:read plants:write",
		},
		{
			"Entra, scopes of a user", func(o *auth.JWTOptions) { o.ScopeClaims = []string{"scp", "roles"} },
			jwt.MapClaims{"scope": nil, "scp": "plants:read User.Read"},
			nil, "plants:read",
		},
		{
			"Cognito", func(o *auth.JWTOptions) { o.AudienceClaim, o.ScopePrefix = "client_id", server },
			jwt.MapClaims{"aud": nil, "client_id": audience, "token_use": "access", "scope": server + "plants:read openid plants:write"},
			nil, "plants:read",
		},
		{
			"Cognito, of another client", func(o *auth.JWTOptions) { o.AudienceClaim = "client_id" },
			jwt.MapClaims{"aud": audience, "client_id": "other"},
			nil, "invalid",
		},
		{"Google, an ID token of a service account", nil, jwt.MapClaims{"scope": nil, "azp": "1", "email": "a@example.iam"}, nil, ""},
		{"an audience claim that the token lacks", func(o *auth.JWTOptions) { o.AudienceClaim = "client_id" }, nil, nil, "invalid"},
		{"a scope claim that is an object", func(o *auth.JWTOptions) { o.ScopeClaims = []string{"roles"} }, jwt.MapClaims{"roles": map[string]any{}}, nil, "invalid"},
	} {
		t.Run(test.name, func(t *testing.T) {
			p := newProvider(t)
			o, header := p.options(), map[string]any{"kid": "k1"}
			if test.options != nil {
				test.options(&o)
			}
			maps.Copy(header, test.header)
			got, err := verifierOf(t, o)(t.Context(), sign(t, jwt.SigningMethodES256, p.key, header, claims(test.claims)))
			switch {
			case test.scopes == "invalid":
				if !errors.Is(err, auth.ErrInvalidToken) {
					t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
				}
			case err != nil || got.Scopes.String() != test.scopes:
				t.Errorf("got %+v, %v, want the scopes %q", got, err, test.scopes)
			}
		})
	}
}

// TestRejectionsAreLogged: the log says why a JWT is rejected, and has no part of the token.
func TestRejectionsAreLogged(t *testing.T) {
	p := newProvider(t)
	for cause, token := range map[string]string{
		"token is expired":                                                     sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"exp": 1})),
		"token has invalid audience":                                           sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"aud": "other"})),
		"token has invalid issuer":                                             sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"iss": "other"})),
		"token signature is invalid":                                           sign(t, jwt.SigningMethodES256, ecKey(t, elliptic.P256()), k1, claims(nil)),
		"no key of the issuer has the kid and the alg of the token":            sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": "secret"}, claims(nil)),
		"the claims have a duplicate name, a wrong type, cnf, or no valid sub": sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"scope": 1})),
		"the header has crit or the typ of another kind of token":              sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": "k1", "typ": "secret"}, claims(nil)),
		"token is malformed":                                                   "secret.secret.secret",
	} {
		t.Run(cause, func(t *testing.T) {
			core, logs := observer.New(zap.InfoLevel)
			verify, err := auth.JWT(t.Context(), p.options(), zap.NewNop(), zap.New(core))
			if err != nil {
				t.Fatal(err)
			}
			if _, err := verify(t.Context(), token); !errors.Is(err, auth.ErrInvalidToken) {
				t.Errorf("got %v, want ErrInvalidToken", err)
			}
			if all := logs.All(); len(all) != 1 || all[0].Message != "rejected a JWT: "+cause || len(all[0].Context) > 0 {
				t.Errorf("got the log %v, want one line with the cause", all)
			}
		})
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
		"another text of the same bytes":   sameBytes(t, valid),
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

// sameBytes returns token with another last character, whose bits beyond the signature a lax decoder drops.
func sameBytes(t testing.TB, token string) string {
	t.Helper()
	decode, rest := base64.RawURLEncoding.DecodeString, token[strings.LastIndexByte(token, '.')+1:]
	want, _ := decode(rest)
	for _, c := range "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_" {
		other := rest[:len(rest)-1] + string(c)
		if got, err := decode(other); err == nil && other != rest && string(got) == string(want) {
			return token[:len(token)-1] + string(c)
		}
	}
	t.Fatal("there is none")
	return ""
}

// TestAccessTokensOnly: with RequireAccess, a token must say that it is an access token.
func TestAccessTokensOnly(t *testing.T) {
	p := newProvider(t)
	for _, test := range []struct {
		typ             any // or nil
		valid, required bool
	}{
		{nil, true, false},
		{"JWT", true, false},
		{"AT+JWT", true, true},
		{"application/at+jwt", true, true},
		{"dpop+jwt", false, false},
	} {
		for _, required := range []bool{false, true} {
			t.Run(fmt.Sprintf("typ %v, required: %t", test.typ, required), func(t *testing.T) {
				o, want := p.options(), test.valid
				if o.RequireAccess = required; required {
					want = test.required
				}
				token := jwt.NewWithClaims(jwt.SigningMethodES256, claims(nil))
				if token.Header["typ"] = test.typ; test.typ == nil {
					delete(token.Header, "typ")
				}
				text, err := token.SignedString(p.key)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := verifierOf(t, o)(t.Context(), text); (err == nil) != want {
					t.Errorf("got %v, want it valid: %t", err, want)
				}
			})
		}
	}
}

// TestJWTsAreReadStrictly signs headers and claims as they are, which golang-jwt, left to
// itself, would read as those of a valid token or of an administrator.
func TestJWTsAreReadStrictly(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	const head, scope = `"alg":"ES256","kid":"k1"`, `"scope":"plants:read"`
	soon := time.Now().Add(time.Hour).Unix()
	exp := fmt.Sprintf(`"exp":%d`, soon)
	const identity = `"iss":"` + issuer + `","aud":"` + audience + `","sub":"alice"`
	usual := identity + "," + exp + ","
	for _, test := range []struct {
		name, header, claims string
		scopes               string // "invalid" if the token is not
	}{
		{"the usual claims", "", usual + scope, "plants:read"},
		{"Scope after scope", "", usual + scope + `,"Scope":"admin"`, "plants:read"},
		{"Scope instead of scope", "", usual + `"Scope":"admin"`, ""},
		{"ſcope", "", usual + `"ſcope":"admin"`, ""},
		{"SCP", "", usual + `"SCP":["admin"]`, ""},
		{"ſcp", "", usual + `"ſcp":["admin"]`, ""},
		{"Iss instead of iss", "", `"Iss":"` + issuer + `","aud":"` + audience + `","sub":"alice",` + exp, "invalid"},
		{"Iss after another iss", "", `"iss":"x","Iss":"` + issuer + `","aud":"` + audience + `","sub":"alice",` + exp, "invalid"},
		{"Aud instead of aud", "", `"iss":"` + issuer + `","Aud":"` + audience + `","sub":"alice",` + exp, "invalid"},
		{"Sub instead of sub", "", `"iss":"` + issuer + `","aud":"` + audience + `","Sub":"alice",` + exp, "invalid"},
		{"Sub after sub", "", usual + `"Sub":"bob",` + scope, "plants:read"},
		{"Exp instead of exp", "", identity + fmt.Sprintf(`,"Exp":%d`, soon), "invalid"},
		{"Exp after an exp that has passed", "", identity + fmt.Sprintf(`,"exp":1,"Exp":%d`, soon), "invalid"},

		{"scope twice", "", usual + scope + `,"scope":"admin"`, "invalid"},
		{"scope twice, escaped", "", usual + scope + `,"\u0073cope":"admin"`, "invalid"},
		{"sub twice", "", usual + `"sub":"bob"`, "invalid"},
		{"a duplicate in another claim", "", usual + `"x":{"a":1,"a":2}`, "invalid"},
		{"claims of null", "", "null", "invalid"},
		{"claims of an array", "", "[]", "invalid"},
		{"claims that are not UTF-8", "", usual + `"x":"` + "\xff" + `"`, "invalid"},

		{"the typ JWT", head + `,"typ":"JWT"`, usual + scope, "plants:read"},
		{"the typ jwt", head + `,"typ":"jwt"`, usual + scope, "plants:read"},
		{"the typ at+jwt", head + `,"typ":"at+jwt"`, usual + scope, "plants:read"},
		{"the typ application/AT+JWT", head + `,"typ":"application/AT+JWT"`, usual + scope, "plants:read"},
		{"the typ application/jwt", head + `,"typ":"application/jwt"`, usual + scope, "plants:read"},
		{"the typ of a logout token", head + `,"typ":"logout+jwt"`, usual + scope, "invalid"},
		{"the typ of a proof", head + `,"typ":"dpop+jwt"`, usual + scope, "invalid"},
		{"an empty typ", head + `,"typ":""`, usual + scope, "invalid"},
		{"a typ of null", head + `,"typ":null`, usual + scope, "invalid"},
		{"a typ that is a list", head + `,"typ":["JWT"]`, usual + scope, "invalid"},
		{"Typ is not typ", head + `,"Typ":"logout+jwt"`, usual + scope, "plants:read"},

		{"a token bound to a key", "", usual + scope + `,"cnf":{"jkt":"x"}`, "invalid"},
		{"a cnf of null", "", usual + scope + `,"cnf":null`, "invalid"},

		{"an exp with a fraction", "", identity + fmt.Sprintf(`,"exp":%d.5,`, soon) + scope, "plants:read"},
		{"an exp with an exponent", "", identity + `,"exp":4e9,` + scope, "plants:read"},
		{"an exp beyond float64", "", identity + `,"exp":1e400,` + scope, "invalid"},
		{"an exp far in the past", "", identity + `,"exp":-1e308,` + scope, "invalid"},
		{"an exp of null", "", identity + `,"exp":null,` + scope, "invalid"},
		{"an exp of true", "", identity + `,"exp":true,` + scope, "invalid"},
		{"an nbf that has passed", "", usual + `"nbf":1.5,` + scope, "plants:read"},
		{"an nbf beyond float64", "", usual + `"nbf":-1e400,` + scope, "invalid"},
		{"an iat that is a text", "", usual + `"iat":"x",` + scope, "invalid"},

		{"scopes apart by a space", "", usual + `"scope":"plants:read  admin "`, "plants:read admin"},
		{"scopes apart by a no-break space", "", usual + `"scope":"plants:read\u00a0admin"`, ""},
		{"scopes apart by an em space", "", usual + `"scope":"plants:read\u2003admin plants:write"`, "plants:write"},
		{"scopes apart by a tab", "", usual + `"scope":"plants:write\tadmin"`, ""},
		{"scopes apart by a newline, in an array", "", usual + `"scope":["plants:read","x\nadmin"]`, "plants:read"},
		{"scopes apart by a comma", "", usual + `"scope":"plants:read,admin"`, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.claims[0] == '"' {
				test.claims = "{" + test.claims + "}"
			}
			encode := base64.RawURLEncoding.EncodeToString
			text := encode([]byte("{"+cmp.Or(test.header, head)+"}")) + "." + encode([]byte(test.claims))
			signature, err := jwt.SigningMethodES256.Sign(text, p.key)
			if err != nil {
				t.Fatal(err)
			}
			got, err := verify(t.Context(), text+"."+encode(signature))
			switch {
			case test.scopes == "invalid":
				if !errors.Is(err, auth.ErrInvalidToken) {
					t.Errorf("got %+v, %v, want ErrInvalidToken", got, err)
				}
			case err != nil || got.Name != "jwt:alice" || got.Scopes.String() != test.scopes:
				t.Errorf("got %+v, %v, want the scopes %q of alice", got, err, test.scopes)
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
