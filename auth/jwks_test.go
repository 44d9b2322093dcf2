package auth_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"encoding/base64"
	"encoding/json"
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

	"plantstore/auth"
)

// provider is an identity provider with the key k1.
type provider struct {
	key     *ecdsa.PrivateKey
	fetches atomic.Int64
	mu      sync.Mutex
	keys    map[string]*ecdsa.PublicKey
	respond http.HandlerFunc // instead of with the keys, if not nil
	delay   time.Duration    // of a response
	url     string
}

func newProvider(t testing.TB) *provider {
	t.Helper()
	p := &provider{key: ecKey(t, elliptic.P256())}
	p.keys = map[string]*ecdsa.PublicKey{"k1": &p.key.PublicKey}
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.fetches.Add(1)
		p.mu.Lock()
		defer p.mu.Unlock()
		<-time.After(p.delay)
		if p.respond != nil {
			p.respond(w, r)
			return
		}
		var set []map[string]string
		for kid, key := range p.keys {
			point, _ := key.Bytes() // 4, x, y; it fails only if the key is not on its curve
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

// options returns options that trust p.
func (p *provider) options() auth.JWTOptions {
	return auth.JWTOptions{
		Issuer: issuer, Audience: audience, Algorithms: []string{"RS256", "ES256", "EdDSA"}, Leeway: 30 * time.Second,
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
	begin, token := time.Now(), sign(t, jwt.SigningMethodES256, k2, map[string]any{"kid": "k2"}, claims(nil))
	for ; ; <-tick.C {
		_, err := verify(t.Context(), token)
		if err == nil {
			break
		}
		if time.Since(begin) > 30*time.Second {
			t.Fatalf("a new key is still unknown after 30 s: %v", err)
		}
	}
	t.Logf("a new key is known after %s", time.Since(begin))
}

// TestJWKSThatCannotBeFetched: a token that cannot be verified is not invalid.
func TestJWKSThatCannotBeFetched(t *testing.T) {
	other := newProvider(t)
	for name, respond := range map[string]http.HandlerFunc{
		"an error":   func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusInternalServerError) },
		"no JSON":    func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("<html>")) },
		"a redirect": func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, other.url, http.StatusFound) },
		"too much JSON": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"x":"` + strings.Repeat("x", 2<<20) + `"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProvider(t)
			p.respond = respond
			verify := verifierOf(t, p.options())
			for _, header := range []map[string]any{k1, nil} {
				if _, err := verify(t.Context(), sign(t, jwt.SigningMethodES256, p.key, header, claims(nil))); !errors.Is(err, auth.ErrCannotVerify) {
					t.Errorf("a token with the key %v: got %v, want ErrCannotVerify", header["kid"], err)
				}
			}
		})
	}
	if other.fetches.Load() != 0 {
		t.Error("a redirect was followed")
	}
}
