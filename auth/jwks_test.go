package auth_test

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"plantstore/auth"
)

// provider is an identity provider with the key k1.
type provider struct {
	key     *ecdsa.PrivateKey
	fetches atomic.Int64
	mu      sync.Mutex
	keys    map[string]*ecdsa.PublicKey
	purpose map[string]any   // other members of each key
	before  []any            // other keys, before these
	respond http.HandlerFunc // instead of with the keys, if not nil
	delay   time.Duration    // of a response
	url     string
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{key: ecKey(t, elliptic.P256())}
	p.keys = map[string]*ecdsa.PublicKey{"k1": &p.key.PublicKey}
	p.purpose = map[string]any{"use": "sig"}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		<-time.After(p.delay)
		if p.respond != nil {
			p.respond(w, r)
			return
		}
		set := p.before
		for kid, key := range p.keys {
			point, _ := key.Bytes() // 4, x, y; it fails only if the key is not on its curve
			encode := base64.RawURLEncoding.EncodeToString
			jwk := map[string]any{"kty": "EC", "crv": "P-256", "kid": kid, "alg": "ES256", "x": encode(point[1:33]), "y": encode(point[33:])}
			maps.Copy(jwk, p.purpose)
			set = append(set, jwk)
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": set})
	}))
	t.Cleanup(server.Close)
	p.url = server.URL
	return p
}

// options returns options that trust p.
func (p *provider) options() auth.JWTOptions {
	return auth.JWTOptions{
		Issuer: issuer, Audience: audience, AudienceClaim: "aud", ScopeClaims: []string{"scope", "scp"}, Algorithms: []string{"RS256", "ES256", "EdDSA"}, Leeway: 30 * time.Second,
		JWKSURL: p.url,
	}
}

// TestUnknownKeysCannotCauseManyFetches: a token with an unknown key causes a fetch, so
// that a new key is valid at once. Many such tokens do not cause many fetches.
func TestUnknownKeysCannotCauseManyFetches(t *testing.T) {
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	k2 := ecKey(t, elliptic.P256())
	p.mu.Lock()
	p.keys["k2"] = &k2.PublicKey
	p.mu.Unlock()
	// A client that has gone must not end the fetch: others wait for it, too.
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := verify(gone, sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))); err != nil {
		t.Errorf("a new key: got %v", err)
	}
	begin := time.Now()
	var group sync.WaitGroup
	for i := range 500 {
		group.Go(func() {
			token := sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": fmt.Sprintf("unknown-%d", i)}, claims(nil))
			if _, err := verify(t.Context(), token); !errors.Is(err, auth.ErrInvalidToken) {
				t.Error(err)
			}
		})
	}
	group.Wait()
	// One after the other, as those above share a fetch.
	for n := 0; time.Since(begin) < 3*time.Second; n++ {
		token := sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": fmt.Sprintf("later-%d", n)}, claims(nil))
		if _, err := verify(t.Context(), token); !errors.Is(err, auth.ErrInvalidToken) {
			t.Fatal(err)
		}
	}
	if most := 3 + int64(time.Since(begin)/(10*time.Second)); p.fetches.Load() > most {
		t.Errorf("got %d fetches within %s, want at most %d", p.fetches.Load(), time.Since(begin), most)
	}
	if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
		t.Errorf("a known key afterwards: got %v", err)
	}
}

// TestNewKeyDuringAFlood: endless tokens with made-up keys do not keep a new key from
// being fetched, although the issuer is slow.
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
	for p.fetches.Load() < 2 { // the first fetch that the flood causes
		<-tick.C
	}
	k2 := ecKey(t, elliptic.P256())
	p.mu.Lock()
	p.keys["k2"] = &k2.PublicKey
	p.mu.Unlock()
	awaitKey(t, verify, sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil)))
}

// awaitKey verifies token until its key is known.
func awaitKey(t *testing.T, verify auth.Verifier, token string) {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for begin := time.Now(); ; <-tick.C {
		_, err := verify(t.Context(), token)
		if err == nil {
			t.Logf("the key is known after %s", time.Since(begin))
			return
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("the key is still unknown after 30 s: %v", err)
		}
	}
}

// TestJWKSThatCannotBeFetched: a token that cannot be verified is not invalid. The log has the
// reason, and the keys of an earlier fetch still verify.
func TestJWKSThatCannotBeFetched(t *testing.T) {
	other := newProvider(t)
	text := func(body string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(body)) }
	}
	for name, respond := range map[string]http.HandlerFunc{
		"an error":                   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON":                    text("<html>"),
		"a redirect":                 func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.url, http.StatusFound) },
		"two sets of keys":           text(`{"keys":[],"keys":[]}`),
		"a document of another kind": text(`{"issuer":"https://id.example.org/","jwks_uri":"https://id.example.org/keys"}`),
		"no key":                     text(`{"keys":[]}`),
		"no key for signatures":      text(`{"keys":[{"kty":"EC","kid":"k1","use":"enc"}]}`),
		"only a malformed key":       text(`{"keys":[{"kty":"EC","kid":"k1"}]}`),
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			earlier := verifierOf(t, p.options())
			p.mu.Lock()
			p.respond = respond
			p.mu.Unlock()
			core, lines := observer.New(zap.ErrorLevel)
			verify, err := auth.JWT(t.Context(), p.options(), zap.New(core), zap.NewNop())
			if err != nil {
				t.Fatal(err)
			}
			if lines.FilterMessageSnippet("fetch the keys of JWTs").Len() == 0 {
				t.Error("the log has no line about it")
			}
			for _, header := range []map[string]any{k1, nil} {
				if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, header, claims(nil))); !errors.Is(err, auth.ErrCannotVerify) {
					t.Errorf("a token with the key %v: got %v, want ErrCannotVerify", header["kid"], err)
				}
			}
			unknown := sign(t, jwt.SigningMethodES256, p.key, map[string]any{"kid": "k2"}, claims(nil))
			if _, err := earlier(t.Context(), unknown); !errors.Is(err, auth.ErrCannotVerify) { // after another fetch
				t.Errorf("a token with an unknown key: got %v, want ErrCannotVerify", err)
			}
			if _, err := earlier(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
				t.Errorf("a token with a key of an earlier fetch: got %v", err)
			}
		})
	}
	if other.fetches.Load() != 0 {
		t.Error("a redirect was followed")
	}
}

// TestKeysOfAProviderThatStartsLate: they are fetched soon, although no token names its key.
func TestKeysOfAProviderThatStartsLate(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	p.respond = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	verify := verifierOf(t, p.options())
	token := sign(t, jwt.SigningMethodES256, p.key, nil, claims(nil))
	if _, err := verify(t.Context(), token); !errors.Is(err, auth.ErrCannotVerify) {
		t.Errorf("before: got %v, want ErrCannotVerify", err)
	}
	p.mu.Lock()
	p.respond = nil
	p.mu.Unlock()
	awaitKey(t, verify, token)
}

// TestPurposesOfKeys: only keys for signatures verify (RFC 7517, sections 4.2 and 4.3),
// whether or not a token names its key.
func TestPurposesOfKeys(t *testing.T) {
	for _, test := range []struct {
		name    string
		purpose map[string]any
		valid   bool
	}{
		{"no purpose", nil, true},
		{"use sig", map[string]any{"use": "sig"}, true},
		{"key_ops verify", map[string]any{"key_ops": []string{"sign", "verify"}}, true},
		{"key_ops verify and an unknown one", map[string]any{"key_ops": []string{"x", "verify"}}, true},
		{"use enc", map[string]any{"use": "enc"}, false},
		{"use of another kind", map[string]any{"use": "tls"}, false},
		{"key_ops without verify", map[string]any{"key_ops": []string{"deriveKey"}}, false},
		{"no key_ops at all", map[string]any{"key_ops": []string{}}, false},
		{"use sig, key_ops without verify", map[string]any{"use": "sig", "key_ops": []string{"sign"}}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			p, other := newProvider(t), ecKey(t, elliptic.P256())
			p.purpose = test.purpose
			verify := verifierOf(t, p.options())
			for _, header := range []map[string]any{k1, nil} {
				_, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, header, claims(nil)))
				if (err == nil) != test.valid {
					t.Errorf("a token with the key %v: got %v, want it valid: %t", header["kid"], err, test.valid)
				}
				if _, err = verify(t.Context(), sign(t, jwt.SigningMethodES256, other, header, claims(nil))); err == nil {
					t.Error("the key of another: got no error")
				}
			}
		})
	}
}

// TestAnEncryptionKeyHidesNoOther: two keys may have one kid if their purposes differ.
func TestAnEncryptionKeyHidesNoOther(t *testing.T) {
	p := newProvider(t)
	p.before = []any{map[string]any{"kty": "EC", "kid": "k1", "use": "enc"}}
	if _, err := verifierOf(t, p.options())(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
		t.Error(err)
	}
}

// TestMalformedKeys: keys that are malformed, or of an unknown kind, are left out, and others of the
// set are used (RFC 7517, section 5), at the start and later.
func TestMalformedKeys(t *testing.T) {
	for name, key := range map[string]any{
		"no key":                "x",
		"null":                  nil,
		"an unknown kty":        map[string]any{"kty": "X", "kid": "x"},
		"no kty":                map[string]any{"kid": "x"},
		"RSA without e":         map[string]any{"kty": "RSA", "kid": "x", "n": "AQAB"},
		"n in padded base64":    map[string]any{"kty": "RSA", "kid": "x", "n": "+/+/+A==", "e": "AQAB"},
		"a point off its curve": map[string]any{"kty": "EC", "crv": "P-256", "kid": "x", "x": "AQAB", "y": "AQAB"},
		"an unknown curve":      map[string]any{"kty": "EC", "crv": "secp256k1", "kid": "x", "x": "AQAB", "y": "AQAB"},
		"alg is a number":       map[string]any{"kty": "EC", "kid": "x", "alg": 1},
		"kid is a number":       map[string]any{"kty": "EC", "kid": 1},
		"x5c is no certificate": map[string]any{"kty": "RSA", "kid": "x", "n": "AQAB", "e": "AQAB", "x5c": []string{"AQAB"}},
		"a symmetric key":       map[string]any{"kty": "oct", "kid": "k2", "k": "AQAB"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := newProvider(t)
			p.before = []any{key}
			verify := verifierOf(t, p.options())
			if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
				t.Errorf("a key of the first fetch: got %v", err)
			}
			k2 := ecKey(t, elliptic.P256())
			p.mu.Lock()
			p.keys["k2"] = &k2.PublicKey
			p.mu.Unlock()
			if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))); err != nil {
				t.Errorf("a new key: got %v", err)
			}
		})
	}
}

// TestUnusedMembersOfKeys: a key whose certificate, or another member that verifies nothing, is malformed is
// used, as other services use it.
func TestUnusedMembersOfKeys(t *testing.T) {
	for name, members := range map[string]map[string]any{
		"x5t of hexadecimal text": {"x5t": "ODQ2OTc3NDg2RkQwMUE5ODQ1RTY2RjhBQTlDODg2MTM1NTk1RjFEQg"},
		"x5c in PEM":              {"x5c": []string{"-----BEGIN CERTIFICATE-----\nAQAB\n-----END CERTIFICATE-----"}},
		"x5c that is a text":      {"x5c": "AQAB"},
		"x5u over http":           {"x5u": "http://id.example.org/cert.pem"},
		"x5t#S256 of null":        {"x5t#S256": nil},
		"unknown members":         {"exp": "never", "issuer": 1},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			p.purpose = members
			if _, err := verifierOf(t, p.options())(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnknownAlgorithmsOfKeys: the log has the keys with an unknown alg.
func TestUnknownAlgorithmsOfKeys(t *testing.T) {
	p := newProvider(t)
	p.before = []any{map[string]any{"kty": "AKP", "alg": "ML-DSA-44", "kid": "a"}, map[string]any{"kty": "RSA", "alg": "RSA-OAEP", "kid": "b"}}
	core, logs := observer.New(zap.InfoLevel)
	verify, err := auth.JWT(t.Context(), p.options(), zap.New(core), zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); err != nil {
		t.Error(err)
	}
	if all := logs.All(); len(all) != 2 || all[0].ContextMap()["kid"] != "a" || all[1].ContextMap()["kid"] != "b" {
		t.Errorf("got the log %v, want a line for each of the 2 keys", all)
	}
}

// TestEd25519 verifies tokens and keys with both names of the algorithm: EdDSA (RFC 8037) and Ed25519
// (RFC 9864), in the setting, too.
func TestEd25519(t *testing.T) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	for _, algorithm := range []string{"EdDSA", "Ed25519"} {
		for _, ofKey := range []string{"EdDSA", "Ed25519"} {
			for _, ofToken := range []string{"EdDSA", "Ed25519"} {
				t.Run(algorithm+", a key for "+ofKey+", a token with "+ofToken, func(t *testing.T) {
					p := newProvider(t)
					x := base64.RawURLEncoding.EncodeToString(public)
					p.before = []any{map[string]any{"kty": "OKP", "crv": "Ed25519", "alg": ofKey, "kid": "ed", "x": x}}
					o := p.options()
					o.Algorithms = []string{algorithm}
					token := sign(t, jwt.SigningMethodEdDSA, private, map[string]any{"kid": "ed", "alg": ofToken}, claims(nil))
					if _, err := verifierOf(t, o)(t.Context(), token); err != nil {
						t.Error(err)
					}
				})
			}
		}
	}
}

// TestKeysWithOneKid: keys of several types may share a kid (RFC 7517, section 4.5).
func TestKeysWithOneKid(t *testing.T) {
	p := newProvider(t)
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatal(err)
	}
	p.before = []any{rsaJWK("k1", key)}
	verify := verifierOf(t, p.options())
	for method, key := range map[jwt.SigningMethod]any{jwt.SigningMethodES256: p.key, jwt.SigningMethodRS256: key} {
		t.Run(method.Alg(), func(t *testing.T) {
			for _, header := range []map[string]any{k1, nil} {
				if _, err := verify(t.Context(), sign(t, method, key, header, claims(nil))); err != nil {
					t.Errorf("a token with the key %v: got %v", header["kid"], err)
				}
			}
		})
	}
}

// rsaJWK returns key as a JWK.
func rsaJWK(kid string, key *rsa.PrivateKey) map[string]any {
	n := base64.RawURLEncoding.EncodeToString(key.N.Bytes())
	return map[string]any{"kty": "RSA", "kid": kid, "alg": "RS256", "use": "sig", "n": n, "e": "AQAB"}
}

// TestWeakKeysOfJWKS: a short RSA key verifies nothing, whether or not a token names it.
func TestWeakKeysOfJWKS(t *testing.T) {
	for bits, valid := range map[int]bool{2048: true, 1024: false} {
		t.Run(strconv.Itoa(bits), func(t *testing.T) {
			p := newProvider(t)
			key, err := rsa.GenerateKey(rand.Reader, bits)
			if err != nil {
				t.Fatal(err)
			}
			p.before = []any{rsaJWK("r", key)}
			verify := verifierOf(t, p.options())
			for _, header := range []map[string]any{{"kid": "r"}, nil} {
				_, err := verify(t.Context(), sign(t, jwt.SigningMethodRS256, key, header, claims(nil)))
				if valid != (err == nil) || !valid && !errors.Is(err, auth.ErrInvalidToken) {
					t.Errorf("a token with the key %v: got %v, want it valid: %t", header["kid"], err, valid)
				}
			}
		})
	}
}

// TestSizeOfJWKS: a set of 1 MiB is read, and one byte more is not.
func TestSizeOfJWKS(t *testing.T) {
	for name, test := range map[string]struct {
		size int
		want error
	}{"1 MiB": {1 << 20, nil}, "a byte more": {1<<20 + 1, auth.ErrCannotVerify}} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			verify := p.sized(t, test.size)
			if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); !errors.Is(err, test.want) {
				t.Errorf("got %v, want %v", err, test.want)
			}
		})
	}
}

// TestNumberOfKeys: a set of 100 keys is read, and a larger set is not.
func TestNumberOfKeys(t *testing.T) {
	for others, want := range map[int]error{99: nil, 100: auth.ErrCannotVerify} {
		t.Run(fmt.Sprintf("%d keys", others+1), func(t *testing.T) {
			p := newProvider(t)
			for range others {
				p.before = append(p.before, map[string]any{"kty": "EC", "use": "enc"})
			}
			if _, err := verifierOf(t, p.options())(t.Context(), sign(t, jwt.SigningMethodES256, p.key, k1, claims(nil))); !errors.Is(err, want) {
				t.Errorf("got %v, want %v", err, want)
			}
		})
	}
}

// sized returns a verifier of p's tokens with p's set of keys, followed by white space up
// to size bytes.
func (p *provider) sized(t *testing.T, size int) auth.Verifier {
	t.Helper()
	response, err := http.Get(p.url)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	set, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	set = append(set, bytes.Repeat([]byte(" "), size-len(set))...)
	p.respond = func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(set) }
	return verifierOf(t, p.options())
}

// TestManyTokensOfANewKey: they wait for the one fetch that the first of them causes.
func TestManyTokensOfANewKey(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	k2 := ecKey(t, elliptic.P256())
	token := sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))
	p.mu.Lock()
	p.keys["k2"] = &k2.PublicKey
	p.delay = 100 * time.Millisecond
	p.mu.Unlock()
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			if _, err := verify(t.Context(), token); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	if n := p.fetches.Load(); n != 2 {
		t.Errorf("got %d fetches, want one at the start and one for the new key", n)
	}
}

// TestNewKeyCannotBeFetched: it may be valid, so the client is to try again.
func TestNewKeyCannotBeFetched(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	p.mu.Lock()
	p.respond = func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }
	p.mu.Unlock()
	token := sign(t, jwt.SigningMethodES256, ecKey(t, elliptic.P256()), map[string]any{"kid": "k2"}, claims(nil))
	for range 2 { // the second one causes no fetch
		if _, err := verify(t.Context(), token); !errors.Is(err, auth.ErrCannotVerify) {
			t.Errorf("got %v, want ErrCannotVerify", err)
		}
	}
}

// TestIssuerHangs: tokens wait for the one fetch that the first of them causes, not each for one
// of its own.
func TestIssuerHangs(t *testing.T) {
	t.Parallel()
	p := newProvider(t)
	verify := verifierOf(t, p.options())
	p.mu.Lock()
	p.respond = func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }
	p.mu.Unlock()
	begin := time.Now()
	var group sync.WaitGroup
	for i := range 20 {
		group.Go(func() {
			kid := map[string]any{"kid": fmt.Sprintf("unknown-%d", i)}
			if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, kid, claims(nil))); !errors.Is(err, auth.ErrCannotVerify) {
				t.Errorf("got %v, want ErrCannotVerify", err)
			}
		})
	}
	group.Wait()
	if took := time.Since(begin); took > 15*time.Second {
		t.Errorf("20 tokens took %v", took)
	}
}
