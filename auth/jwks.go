package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"golang.org/x/sync/singleflight"
	"golang.org/x/time/rate"

	"plantstore/database/background"
)

const (
	// jwksPeriod is the time between two scheduled fetches of the keys at a JWKS URL.
	jwksPeriod = 15 * time.Minute
	// jwksFloor is the least time between two fetches that tokens with unknown keys cause,
	// and between two while there is no key.
	jwksFloor = 10 * time.Second
	// jwksTimeout limits a fetch, and before it the wait for jwksFloor.
	jwksTimeout = 5 * time.Second
	jwksSize    = 1 << 20 // bytes of a response
)

// jwks is an issuer's set of keys (RFC 7517), fetched from a URL.
type jwks struct {
	ctx        context.Context //nolint:containedctx // the service's, not a request's
	url        string
	algorithms []string
	log        *zap.Logger
	client     http.Client
	fetches    singleflight.Group // that tokens cause
	limiter    *rate.Limiter      // of fetches
	keys       atomic.Pointer[[]publicKey]
	failed     atomic.Bool // the last fetch
}

// publicKey is a key that verifies signatures.
type publicKey struct {
	id, algorithm string // "" if the issuer does not say
	key           any
}

// newJWKS fetches the keys at o.JWKSURL, and again until ctx ends.
func newJWKS(ctx context.Context, o JWTOptions, log *zap.Logger) *jwks {
	s := &jwks{ctx: ctx, url: o.JWKSURL, algorithms: o.Algorithms, log: log, limiter: rate.NewLimiter(rate.Every(jwksFloor), 1)}
	// Keys come from the configured URL only.
	s.client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	s.keys.Store(new([]publicKey))
	s.refresh()
	go background.Every(ctx, jwksPeriod, s.refresh)
	// A token that does not name its key causes no fetch.
	go background.Every(ctx, jwksFloor, func() {
		if len(*s.keys.Load()) == 0 {
			s.refresh()
		}
	})
	return s
}

// find returns the keys that may have signed token: all keys with its algorithm and, if it has a
// kid, with its kid. Keys of several types may share a kid (RFC 7517, section 4.5). It fetches the
// keys if the kid is unknown.
func (s *jwks) find(token *jwt.Token) (any, error) {
	found := s.known(token)
	if _, ok := token.Header["kid"]; ok && len(found) == 0 {
		found = s.fetchFor(token)
	}
	switch {
	case len(found) > 0:
		return jwt.VerificationKeySet{Keys: found}, nil
	case s.failed.Load() || len(*s.keys.Load()) == 0:
		return nil, errNoKeys
	}
	return nil, errUnknownKey
}

func (s *jwks) known(token *jwt.Token) (found []jwt.VerificationKey) {
	id, named := token.Header["kid"]
	for _, k := range *s.keys.Load() {
		if (!named || id == k.id) && (k.algorithm == "" || k.algorithm == token.Method.Alg()) {
			found = append(found, k.key)
		}
	}
	return found
}

// fetchFor returns the keys that may have signed token after a fetch, if the limiter
// allows a fetch within jwksTimeout. Tokens share the fetch, so a token waits for at most twice
// jwksTimeout, even if the issuer hangs. A client that leaves does not end the fetch.
func (s *jwks) fetchFor(token *jwt.Token) []jwt.VerificationKey {
	_, _, _ = s.fetches.Do("", func() (any, error) {
		ctx, cancel := context.WithTimeout(s.ctx, jwksTimeout)
		defer cancel()
		if s.limiter.Wait(ctx) == nil {
			s.refresh()
		}
		return nil, nil
	})
	return s.known(token)
}

// refresh fetches the keys. If the fetch fails, the keys of the last fetch stay.
func (s *jwks) refresh() {
	keys, err := s.fetch()
	s.failed.Store(err != nil)
	if err != nil {
		if failed, ok := errors.AsType[*url.Error](err); ok {
			err = failed.Err // without the URL, which may contain a secret
		}
		s.log.Error("cannot fetch the keys of JWTs (auth.jwt.jwks_url)", zap.Error(err))
		return
	}
	s.keys.Store(&keys)
}

func (s *jwks) fetch() ([]publicKey, error) {
	ctx, cancel := context.WithTimeout(s.ctx, jwksTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url, nil)
	if err != nil {
		return nil, err
	}
	response, err := s.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("the response is %s", response.Status)
	}
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	if err := json.UnmarshalRead(http.MaxBytesReader(nil, response.Body, jwksSize), &set); err != nil {
		return nil, err
	}
	keys := s.parse(set.Keys)
	if len(keys) == 0 { // such as from the URL of another document
		return nil, errors.New("the response has no usable key")
	}
	return keys, nil
}

// parse returns the keys that verify signatures. It skips other keys, as RFC 7517, section 5,
// asks, and logs how many keys for signatures it cannot use.
func (s *jwks) parse(set []jsontext.Value) []publicKey {
	keys := make([]publicKey, 0, len(set))
	var faults []error
	for _, text := range set {
		var k jwkset.JWKMarshal
		err := json.Unmarshal(text, &k)
		if err == nil && (k.USE != "" && k.USE != jwkset.UseSig || k.KEYOPS != nil && !slices.Contains(k.KEYOPS, jwkset.KeyOpsVerify)) {
			continue // RFC 7517, sections 4.2 and 4.3; other values may stand beside verify
		}
		var parsed jwkset.JWK
		if err == nil {
			parsed, err = jwkset.NewJWKFromMarshal(k, jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{SkipKeyOps: true})
		}
		if err == nil {
			err = checkKey(parsed.Key(), s.algorithms)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("key %q: %w", k.KID, err))
			continue
		}
		keys = append(keys, publicKey{k.KID, k.ALG.String(), parsed.Key()})
	}
	if len(faults) > 0 {
		s.log.Warn("ignored keys of JWTs that cannot be used", zap.Int("keys", len(faults)), zap.NamedError("first", faults[0]))
	}
	return keys
}
