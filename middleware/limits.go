package middleware

import (
	"fmt"
	"iter"
	"math"
	"net/netip"
	"slices"
	"time"

	"github.com/gin-gonic/gin"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"

	"plantstore/database/limit"
)

// LimitError means that a client exceeds a limit.
type LimitError struct {
	What       string // for example "requests with this token"
	RetryAfter time.Duration
}

func (e *LimitError) Error() string { return "too many " + e.What }

// buckets are the maxBuckets most recently used token buckets, by key, of some 300
// bytes each.
type buckets struct {
	rate  rate.Limit
	burst int
	byKey *lru.Cache[string, *rate.Limiter]
}

const maxBuckets = 1 << 14

func newBuckets(limit rate.Limit, burst int) *buckets {
	byKey, _ := lru.New[string, *rate.Limiter](maxBuckets) // fails for a size of 0 only
	return &buckets{limit, burst, byKey}
}

// take takes n, 0 or 1, for c's request from the bucket of key, whose limit is factor times the usual limit. It
// returns how many are left and, if the bucket was empty, how long it takes until it has 1.
func (b *buckets) take(c *gin.Context, key string, factor, n int) (left float64, wait time.Duration) {
	bucket, known := b.byKey.Get(key)
	if !known {
		bucket = rate.NewLimiter(b.rate*rate.Limit(factor), b.burst*factor)
		if earlier, ok, _ := b.byKey.PeekOrAdd(key, bucket); ok {
			bucket = earlier
		}
	}
	r, now := RequestOf(c), time.Now()
	r.rates = append(r.rates, bucket)
	allowed := bucket.AllowN(now, n) // a reservation, even if it is canceled, can make other requests fail
	left = bucket.TokensAt(now)      // less than 0 after CountRows
	if !allowed {
		wait = max(time.Duration((1-left)/float64(bucket.Limit())*float64(time.Second)), 1)
	}
	return max(left, 0), wait
}

// AtMost lets n requests run at a time. It rejects other requests, which are for what, with a [LimitError].
func AtMost(n int, what string) Handler {
	running := limit.NewTurns(n, 0)
	return func(c *gin.Context) error {
		if !running.Try() {
			return &LimitError{what + " at a time", time.Second}
		}
		defer running.Free()
		c.Next()
		return nil
	}
}

// takeFor is take for the networks of c's client, from the smallest network on. The smaller networks pay for
// a request that a larger network rejects: that costs only a client that sends more than its own limit.
func (b *buckets) takeFor(c *gin.Context, n int) (left float64, wait time.Duration) {
	address, _ := netip.ParseAddr(clientOf(c))
	left = math.Inf(1)
	for network, factor := range NetworksOf(address) {
		ofNetwork, untilOne := b.take(c, network.String(), factor, n)
		if left = min(left, ofNetwork); untilOne > 0 {
			return left, untilOne
		}
	}
	return left, 0
}

// Proxies are the networks of proxies that the operator trusts.
type Proxies []netip.Prefix

// ParseProxies returns the proxies at addresses and in CIDR ranges.
func ParseProxies(texts []string) (p Proxies) {
	for _, text := range texts {
		network, err := netip.ParsePrefix(text)
		if err != nil { // config has checked that it is an address
			address, _ := netip.ParseAddr(text)
			network = netip.PrefixFrom(address, address.BitLen())
		}
		p = append(p, network)
	}
	return p
}

// Contain reports whether address is that of a proxy.
func (p Proxies) Contain(address netip.Addr) bool {
	return slices.ContainsFunc(p, func(n netip.Prefix) bool { return n.Contains(address.Unmap()) })
}

// NetworksOf returns the networks that limits count for a client at address, the smallest first, and the
// factor of their limit. That is an IPv4 address, or the networks that a subscriber to IPv6 may have: a /64
// counts as an address, and a /56 or /48 may have more, as it may belong to several subscribers.
func NetworksOf(address netip.Addr) iter.Seq2[netip.Prefix, int] {
	return func(yield func(netip.Prefix, int) bool) {
		if address = address.Unmap(); !address.Is6() {
			network, _ := address.Prefix(32)
			yield(network, 1)
			return
		}
		for i, bits := range [...]int{64, 56, 48} {
			if network, _ := address.Prefix(bits); !yield(network, 1<<(2*i)) {
				return
			}
		}
	}
}

// RateLimit allows each token and each address perSecond requests on average, and burst
// at once. The headers RateLimit and RateLimit-Policy tell them how many are left
// (draft-ietf-httpapi-ratelimit-headers-10).
func RateLimit(perSecond, burst int) Handler {
	limit := rate.Limit(perSecond)
	tokens, addresses := newBuckets(limit, burst), newBuckets(limit, burst)
	window := math.Ceil(float64(burst) / float64(perSecond))
	policy := fmt.Sprintf(`"token";q=%d;w=%.0f, "address";q=%[1]d;w=%.0[2]f`, burst, window)
	untilFull := func(left float64) float64 { return math.Ceil((float64(burst) - left) / float64(perSecond)) }
	return func(c *gin.Context) error {
		r := RequestOf(c)
		r.rates = make([]*rate.Limiter, 0, 4) // of the token, and of up to three networks
		ofToken, waitToken := tokens.take(c, r.Sender(), 1, 1)
		n := 1
		if waitToken > 0 { // a token over its limit takes nothing from its address
			n = 0
		}
		ofAddress, waitAddress := addresses.takeFor(c, n)
		SetHeader(c, "RateLimit-Policy", policy)
		SetHeader(c, "RateLimit", fmt.Sprintf(`"token";r=%d;t=%.0f, "address";r=%d;t=%.0f`,
			int(ofToken), untilFull(ofToken), int(ofAddress), untilFull(ofAddress)))
		switch {
		case waitToken > 0:
			return &LimitError{"requests with this token", waitToken}
		case waitAddress > 0:
			return &LimitError{"requests from this address", waitAddress}
		}
		return nil
	}
}

// rowsPerRequest is how many rows of a page count as a request.
const rowsPerRequest = 50

// CountRows counts the rows of a response toward the rates of c's token and address, besides its request. It takes no
// more than a full bucket has, which may have to be filled before the next request. The headers of the response do not
// have the rows.
func CountRows(c *gin.Context, rows int) {
	for _, bucket := range RequestOf(c).rates {
		bucket.ReserveN(time.Now(), min(rows/rowsPerRequest, bucket.Burst()))
	}
}
