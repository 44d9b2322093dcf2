package auth_test

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"

	"plantstore/middleware"
	"plantstore/models"
)

const (
	issuer   = "https://id.example.org/"
	audience = "plants"
)

// provider is an identity provider with the key k1.
type provider struct {
	key     *ecdsa.PrivateKey
	fetches atomic.Int64
	mu      sync.Mutex
	keys    map[string]*ecdsa.PublicKey
	answer  http.HandlerFunc // instead of the keys, where it is set
	delay   time.Duration    // of an answer
	url     string
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{key: ecKey(t)}
	p.keys = map[string]*ecdsa.PublicKey{"k1": &p.key.PublicKey}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		<-time.After(p.delay)
		if p.answer != nil {
			p.answer(w, r)
			return
		}
		var set []map[string]string
		for kid, key := range p.keys {
			point, _ := key.Bytes() // 4, x, y: it is on its curve
			encode := base64.RawURLEncoding.EncodeToString
			set = append(set, map[string]string{
				"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "use": "sig", "x": encode(point[1:33]), "y": encode(point[33:]),
			})
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

func ecKey(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// options returns options that trust p.
func (p *provider) options() middleware.JWTOptions {
	return middleware.JWTOptions{
		Issuer: issuer, Audience: audience, Algorithms: []string{"RS256", "ES256", "EdDSA"}, Leeway: 30 * time.Second,
		JWKSURL: p.url, Log: zap.NewNop(),
	}
}

func verifierOf(t testing.TB, o middleware.JWTOptions) middleware.Verifier {
	t.Helper()
	verify, err := middleware.JWT(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return verify
}

// claims returns those of a good token, with changes; nil takes one away.
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

// sign returns a token with a header's additions.
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

func publicPEM(t testing.TB, key crypto.PublicKey) string {
	t.Helper()
	der, err := x509.MarshalPKIXPublicKey(key)
	if err != nil {
		t.Fatal(err)
	}
	return string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: der}))
}

func TestJWTsThatAreAccepted(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	now := time.Now()
	for _, test := range []struct {
		what   string
		claims jwt.MapClaims
		scopes string
	}{
		{"scopes in a text", nil, "plants:read plants:write"},
		{"scopes in an array", jwt.MapClaims{"scope": []string{"plants:write", "x"}}, "plants:write"},
		{"scopes in scp, a text", jwt.MapClaims{"scope": nil, "scp": "admin"}, "admin"},
		{"scopes in scp, an array", jwt.MapClaims{"scope": nil, "scp": []string{"plants:read", "admin"}}, "plants:read admin"},
		{"scopes in both", jwt.MapClaims{"scope": "plants:read", "scp": "plants:write"}, "plants:read plants:write"},
		{"no scopes", jwt.MapClaims{"scope": nil}, ""},
		{"no scope of ours", jwt.MapClaims{"scope": "plants:* Admin plants:readwrite"}, ""},
		{"several audiences", jwt.MapClaims{"aud": []string{"other", audience}}, "plants:read plants:write"},
		{"expired within the leeway", jwt.MapClaims{"exp": now.Add(-20 * time.Second).Unix()}, "plants:read plants:write"},
		{"good from within the leeway on", jwt.MapClaims{"nbf": now.Add(20 * time.Second).Unix()}, "plants:read plants:write"},
	} {
		who, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(test.claims)))
		if err != nil || who.Name != "jwt:alice" || who.Scopes.String() != test.scopes {
			t.Errorf("%s: %+v, %v", test.what, who, err)
		}
	}
	if p.fetches.Load() != 1 {
		t.Errorf("the keys were fetched %d times", p.fetches.Load())
	}
}

func TestJWTsThatAreRefused(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	now := time.Now()
	good := sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))
	if _, err := verify(t.Context(), good); err != nil {
		t.Fatal(err)
	}
	parts := strings.Split(good, ".")
	other := sign(t, jwt.SigningMethodES256, p.key, k1, claims(jwt.MapClaims{"sub": "bob"}))
	es := func(changes jwt.MapClaims) string { return sign(t, jwt.SigningMethodES256, p.key, k1, claims(changes)) }
	for what, token := range map[string]string{
		"nothing":                       "",
		"dots":                          "..",
		"no signature":                  parts[0] + "." + parts[1] + ".",
		"the signature of another":      parts[0] + "." + parts[1] + other[strings.LastIndexByte(other, '.'):],
		"the claims of another":         parts[0] + "." + strings.Split(other, ".")[1] + "." + parts[2],
		"a part more":                   good + ".x",
		"alg none":                      sign(t, jwt.SigningMethodNone, jwt.UnsafeAllowNoneSignatureType, k1, claims(nil)),
		"alg None, without a key":       base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"None"}`)) + "." + parts[1] + ".",
		"the public key as a secret":    sign(t, jwt.SigningMethodHS256, []byte(publicPEM(t, &p.key.PublicKey)), k1, claims(nil)),
		"an algorithm that is not set":  sign(t, jwt.SigningMethodES384, ecKey384(t), k1, claims(nil)),
		"another's key":                 sign(t, jwt.SigningMethodES256, ecKey(t), k1, claims(nil)),
		"another issuer":                es(jwt.MapClaims{"iss": "https://id.example.org"}),
		"no issuer":                     es(jwt.MapClaims{"iss": nil}),
		"another audience":              es(jwt.MapClaims{"aud": "plant"}),
		"no audience":                   es(jwt.MapClaims{"aud": nil}),
		"expired":                       es(jwt.MapClaims{"exp": now.Add(-40 * time.Second).Unix()}),
		"no exp":                        es(jwt.MapClaims{"exp": nil}),
		"an exp that is a text":         es(jwt.MapClaims{"exp": "2099-01-01T00:00:00Z"}),
		"not good yet":                  es(jwt.MapClaims{"nbf": now.Add(40 * time.Second).Unix()}),
		"no sub":                        es(jwt.MapClaims{"sub": nil}),
		"a long sub":                    es(jwt.MapClaims{"sub": strings.Repeat("x", 256)}),
		"scopes that are a number":      es(jwt.MapClaims{"scope": 5}),
		"something that is critical":    sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": "k1", "crit": []string{"x"}, "x": 1}, claims(nil)),
		"a kid that is a number":        sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": 1}, claims(nil)),
		"a key in its own header (jwk)": sign(t, jwt.SigningMethodES256, ecKey(t), map[string]any{"kid": "k1", "jwk": map[string]string{"kty": "EC"}}, claims(nil)),
	} {
		if who, err := verify(t.Context(), token); !errors.Is(err, models.ErrInvalidToken) {
			t.Errorf("%s: %+v, %v", what, who, err)
		}
	}
}

func ecKey384(t testing.TB) *ecdsa.PrivateKey {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P384(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestUnknownKeysCannotCauseAFlood: a token whose key is not known has the keys
// fetched again, so that a new key is good at once; many such tokens do not.
func TestUnknownKeysCannotCauseAFlood(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	k2 := ecKey(t)
	p.mu.Lock()
	p.keys["k2"] = &k2.PublicKey
	p.mu.Unlock()
	// Whoever asks first and leaves at once must not spoil it for others.
	gone, leave := context.WithCancel(t.Context())
	leave()
	if _, err := verify(gone, sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))); err != nil {
		t.Errorf("a new key: %v", err)
	}
	begin := time.Now()
	var tries sync.WaitGroup
	for i := range 500 {
		tries.Go(func() {
			token := sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": fmt.Sprintf("unknown-%d", i)}, claims(nil))
			if _, err := verify(t.Context(), token); !errors.Is(err, models.ErrInvalidToken) {
				t.Error(err)
			}
		})
	}
	tries.Wait()
	if most := 3 + int64(time.Since(begin)/(10*time.Second)); p.fetches.Load() > most {
		t.Errorf("the keys were fetched %d times within %s, want %d at most", p.fetches.Load(), time.Since(begin), most)
	}
	if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
		t.Errorf("a known key after a flood: %v", err)
	}
}

// TestNewKeyDuringAFlood: tokens with made-up keys, which never stop, do not keep a new
// key from being fetched, though the issuer takes its time.
func TestNewKeyDuringAFlood(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.mu.Lock()
	p.delay = 100 * time.Millisecond
	p.mu.Unlock()
	verify := verifierOf(t, p.options())
	stop := make(chan struct{})
	var flood sync.WaitGroup
	defer flood.Wait()
	defer close(stop)
	for i := range 8 {
		flood.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for n := 0; ; n++ {
				select {
				case <-stop:
					return
				case <-tick.C:
					kid := map[string]any{"kid": fmt.Sprintf("unknown-%d-%d", i, n)}
					_, _ = verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, kid, claims(nil)))
				}
			}
		})
	}
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for p.fetches.Load() < 2 { // the first one for the flood's sake is free
		<-tick.C
	}
	k2 := ecKey(t)
	p.mu.Lock()
	p.keys["k2"] = &k2.PublicKey
	p.mu.Unlock()
	begin, token := time.Now(), sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))
	for ; ; <-tick.C {
		_, err := verify(t.Context(), token)
		if err == nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("a new key is not known after 30 s: %v", err)
		}
	}
	t.Logf("a new key is known after %s", time.Since(begin))
}

// TestJWKSThatCannotBeFetched: without keys, nothing can be told, which is not no.
func TestJWKSThatCannotBeFetched(t *testing.T) {
	other := newProvider(t)
	for what, answer := range map[string]http.HandlerFunc{
		"an error":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.url, http.StatusFound) },
		"too much JSON": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`))
		},
	} {
		p := newProvider(t)
		p.answer = answer
		verify := verifierOf(t, p.options())
		for _, header := range []map[string]any{k1, nil} {
			if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, header, claims(nil))); !errors.Is(err, middleware.ErrCannotVerify) {
				t.Errorf("%s, key %v: %v", what, header["kid"], err)
			}
		}
	}
	if other.fetches.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

func TestPublicKeys(t *testing.T) {
	rsaKey, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	edPublic, edKey, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	ec := ecKey(t)
	options := (&provider{}).options()
	for _, test := range []struct {
		method jwt.SigningMethod
		key    any
		public crypto.PublicKey
	}{
		{jwt.SigningMethodRS256, rsaKey, &rsaKey.PublicKey},
		{jwt.SigningMethodES256, ec, &ec.PublicKey},
		{jwt.SigningMethodEdDSA, edKey, edPublic},
	} {
		options.PublicKey = publicPEM(t, test.public)
		verify := verifierOf(t, options)
		if who, err := verify(t.Context(), sign(t, test.method, test.key, nil, claims(nil))); err != nil || who.Name != "jwt:alice" {
			t.Errorf("%s: %+v, %v", test.method.Alg(), who, err)
		}
		confused := sign(t, jwt.SigningMethodHS256, []byte(options.PublicKey), nil, claims(nil))
		if _, err := verify(t.Context(), confused); !errors.Is(err, models.ErrInvalidToken) {
			t.Errorf("%s, with the public key as a secret: %v", test.method.Alg(), err)
		}
	}

	private, err := x509.MarshalPKCS8PrivateKey(ec)
	if err != nil {
		t.Fatal(err)
	}
	for what, text := range map[string]string{
		"no PEM":                       "MIIB",
		"a private key":                string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private})),
		"no key":                       string(pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: []byte("x")})),
		"a key that no algorithm fits": publicPEM(t, &ecKey384(t).PublicKey),
		"a short key": "-----BEGIN PUBLIC KEY-----\nMFwwDQYJKoZIhvcNAQEBBQADSwAwSAJBAKj34GkxFhD90vcNLYLInFEX6Ppy1tPf\n" +
			"9Cnzj4p4WGeKLs1Pt8QuKUpRKfFLfRYC9AIKjbJTWit+CqvjWYzvQwECAwEAAQ==\n-----END PUBLIC KEY-----\n",
	} {
		options.PublicKey = text
		if _, err := middleware.JWT(t.Context(), options); err == nil {
			t.Errorf("%s is accepted", what)
		} else {
			t.Logf("%s: %v", what, err)
		}
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
	}{{jwt.SigningMethodRS256, rsaKey}, {jwt.SigningMethodES256, ecKey(b)}, {jwt.SigningMethodEdDSA, edKey}} {
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
