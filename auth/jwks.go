package auth

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/MicahParks/jwkset"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/golang-jwt/jwt/v5"
	"go.uber.org/zap"
	"golang.org/x/time/rate"

	"plantstore/database/background"
)

const (
	jwksPeriod  = 15 * time.Minute // between two fetches of the keys
	jwksFloor   = 10 * time.Second // between two fetches that tokens with unknown keys cause, and while there is no key
	jwksTimeout = 5 * time.Second  // of a fetch
	jwksSize    = 1 << 20          // bytes of a response
	jwksKeys    = 100              // in a response: a token without a kid is verified with each of them
)

// jwks is an issuer's set of keys (RFC 7517), fetched from a URL.
type jwks struct {
	ctx    context.Context //nolint:containedctx // the service's, not a request's
	url    string
	log    *zap.Logger
	keys   atomic.Pointer[[]publicKey]
	failed atomic.Bool    // the last fetch
	asked  rate.Sometimes // by tokens, which share a fetch: a client that leaves does not end it
}

// publicKey is a key that verifies signatures.
type publicKey struct {
	id, algorithm string // "" if the issuer does not say
	key           any
}

// newJWKS fetches the keys at url, and again until ctx ends.
func newJWKS(ctx context.Context, url string, log *zap.Logger) *jwks {
	s := &jwks{ctx: ctx, url: url, log: log, asked: rate.Sometimes{Interval: jwksFloor}}
	s.keys.Store(new([]publicKey))
	s.refresh()
	go background.Every(ctx, jwksPeriod, s.refresh)
	go background.Every(ctx, jwksFloor, func() {
		if len(*s.keys.Load()) == 0 { // a token that does not name its key causes no fetch
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
	if _, named := token.Header["kid"]; named && len(found) == 0 {
		s.asked.Do(s.refresh)
		found = s.known(token)
	}
	if len(found) == 0 && (s.failed.Load() || len(*s.keys.Load()) == 0) {
		return nil, errNoKeys
	}
	if len(found) == 0 {
		return nil, errNoKey
	}
	return jwt.VerificationKeySet{Keys: found}, nil
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

// refresh fetches the keys. If the fetch fails, the keys of the last fetch stay.
func (s *jwks) refresh() {
	var set struct {
		Keys []jsontext.Value `json:"keys"`
	}
	var keys []publicKey
	err := fetchJSON(s.ctx, s.url, &set)
	switch {
	case err != nil:
	case len(set.Keys) > jwksKeys:
		err = fmt.Errorf("the response has %d keys, more than %d", len(set.Keys), jwksKeys)
	default:
		if keys = s.parse(set.Keys); len(keys) == 0 { // the URL may be that of another document
			err = errors.New("the response has no usable key")
		}
	}
	if s.failed.Store(err != nil); err != nil {
		s.log.Error("cannot fetch the keys of JWTs (auth.jwt.jwks_url)", zap.Error(err))
		return
	}
	s.keys.Store(&keys)
}

// fetchJSON decodes the JSON at url into v.
func fetchJSON(ctx context.Context, url string, v any) error {
	ctx, cancel := context.WithTimeout(ctx, jwksTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	// Unlike a client, a transport follows no redirects: keys come from the configured URL only.
	// Nor do its errors contain the URL, which may be a secret.
	response, err := http.DefaultTransport.RoundTrip(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the response is %s", response.Status)
	}
	return json.UnmarshalRead(http.MaxBytesReader(nil, response.Body, jwksSize), v)
}

// members are the members of a key that verify signatures (RFC 7517, section 4; RFC 7518, section 6). A
// fault of another member, for example of a certificate, means nothing.
type members struct {
	KTY    jwkset.KTY      `json:"kty"`
	USE    jwkset.USE      `json:"use"`
	KEYOPS []jwkset.KEYOPS `json:"key_ops"`
	ALG    string          `json:"alg"`
	KID    string          `json:"kid"`
	CRV    jwkset.CRV      `json:"crv"`
	X      string          `json:"x"`
	Y      string          `json:"y"`
	N      string          `json:"n"`
	E      string          `json:"e"`
}

// parse returns the keys that verify signatures. It skips other keys, as RFC 7517, section 5,
// asks, and logs why.
func (s *jwks) parse(set []jsontext.Value) (keys []publicKey) {
	for i, text := range set {
		var k members
		var parsed jwkset.JWK
		err := json.Unmarshal(text, &k)
		switch {
		case err == nil && (k.USE != "" && k.USE != jwkset.UseSig || k.KEYOPS != nil && !slices.Contains(k.KEYOPS, jwkset.KeyOpsVerify)):
			continue // RFC 7517, sections 4.2 and 4.3; other values may stand beside verify
		case err == nil && k.ALG != "" && jwt.GetSigningMethod(k.ALG) == nil:
			err = fmt.Errorf("the alg %q is unknown", k.ALG)
		case err == nil:
			parsed, err = jwkset.NewJWKFromMarshal(jwkset.JWKMarshal{KTY: k.KTY, CRV: k.CRV, X: k.X, Y: k.Y, N: k.N, E: k.E},
				jwkset.JWKMarshalOptions{}, jwkset.JWKValidateOptions{})
		}
		if err == nil {
			err = checkKey(parsed.Key())
		}
		if err != nil {
			s.log.Warn("ignored a key of JWTs that cannot be used", zap.Int("index", i), zap.String("kid", k.KID), zap.Error(err))
			continue
		}
		if k.ALG != "" {
			k.ALG = jwt.GetSigningMethod(k.ALG).Alg() // EdDSA for Ed25519
		}
		keys = append(keys, publicKey{k.KID, k.ALG, parsed.Key()})
	}
	return keys
}

// Endpoints are the URLs at which people sign in, and at which a page then gets their token.
type Endpoints struct {
	Issuer        string `json:"issuer"`
	Authorization string `json:"authorization_endpoint"`
	Token         string `json:"token_endpoint"`
}

// endpoint matches https URLs, and http URLs of this machine, that mean nothing else in a Content-Security-Policy.
var endpoint = regexp.MustCompile(`^(https://[\w.:-]+|http://(localhost|127\.0\.0\.1)(:\d+)?)(/[\w.~/%@:+-]*)?(\?[\w.~/%@:+=&-]*)?$`)

// Discover returns a function that returns the endpoints of issuer (OpenID Connect Discovery 1.0), or nil
// if they cannot be fetched, which it logs. Its first call fetches them, and later calls, at most every
// jwksFloor, until they are known.
func Discover(ctx context.Context, issuer string, log *zap.Logger) func() *Endpoints {
	fetches := rate.Sometimes{Interval: jwksFloor} // which callers share
	var known atomic.Pointer[Endpoints]
	fetch := func() {
		e := new(Endpoints)
		err := fetchJSON(ctx, strings.TrimSuffix(issuer, "/")+"/.well-known/openid-configuration", e)
		if err == nil && (e.Issuer != issuer || !endpoint.MatchString(e.Authorization) || !endpoint.MatchString(e.Token)) {
			err = errors.New("the response needs this issuer, and https URLs as authorization_endpoint and token_endpoint")
		}
		if err != nil {
			log.Error("cannot discover where to sign in (auth.jwt.issuer): Swagger UI takes only tokens", zap.Error(err))
			return
		}
		known.Store(e)
	}
	return func() *Endpoints {
		if known.Load() == nil {
			fetches.Do(fetch)
		}
		return known.Load()
	}
}
