package middleware

import (
	"fmt"
	"hash/maphash"
	"math"
	"net/netip"
	"time"

	"github.com/gin-gonic/gin"
	lru "github.com/hashicorp/golang-lru/v2"
	"golang.org/x/time/rate"
)

// LimitError says that somebody sends too much.
type LimitError struct {
	What       string // there is too much of, such as "requests of this token"
	RetryAfter time.Duration
}

func (e *LimitError) Error() string { return "too many " + e.What }

// buckets are token buckets, one for each key. It has room for maxBuckets of them,
// some 300 bytes each; the one that was not used for the longest time makes room.
type buckets struct {
	rate  rate.Limit
	burst int
	byKey *lru.Cache[string, *rate.Limiter]
}

const maxBuckets = 1 << 14

func newBuckets(limit rate.Limit, burst int) *buckets {
	byKey, _ := lru.New[string, *rate.Limiter](maxBuckets) // fails for no size
	return &buckets{limit, burst, byKey}
}

func (b *buckets) of(key string) *rate.Limiter {
	if bucket, ok := b.byKey.Get(key); ok {
		return bucket
	}
	bucket := rate.NewLimiter(b.rate, b.burst)
	if earlier, ok, _ := b.byKey.PeekOrAdd(key, bucket); ok {
		return earlier
	}
	return bucket
}

// take takes one from the bucket of key, and returns how many are left, and how long
// it takes until there is one where there was none.
func (b *buckets) take(key string) (left float64, wait time.Duration) {
	bucket, now := b.of(key), time.Now()
	reservation := bucket.ReserveN(now, 1)
	if wait = reservation.DelayFrom(now); wait > 0 {
		reservation.CancelAt(now)
	}
	return max(bucket.TokensAt(now), 0), wait
}

// wait returns how long it takes until the bucket of key has one, or 0 where it has.
func (b *buckets) wait(key string) time.Duration {
	bucket, ok := b.byKey.Peek(key)
	if !ok {
		return 0
	}
	return time.Duration(max(1-bucket.Tokens(), 0) / float64(b.rate) * float64(time.Second))
}

// addressOf returns the address that a request's limits count: an IPv4 address, or
// the network of 64 bits that one subscriber of IPv6 has.
func addressOf(c *gin.Context) string {
	address, err := netip.ParseAddr(c.ClientIP())
	if err != nil || address.Unmap().Is4() {
		return address.Unmap().String()
	}
	network, _ := address.WithZone("").Prefix(64)
	return network.String()
}

// RateLimit lets each token and each address make perSecond requests in the long
// run, and burst at once. It tells them what is left by the headers RateLimit and
// RateLimit-Policy (draft-ietf-httpapi-ratelimit-headers-10).
func RateLimit(perSecond, burst int) gin.HandlerFunc {
	limit := rate.Limit(perSecond)
	tokens, addresses := newBuckets(limit, burst), newBuckets(limit, burst)
	window := math.Ceil(float64(burst) / float64(perSecond))
	policy := fmt.Sprintf(`"token";q=%d;w=%.0f, "address";q=%[1]d;w=%.0[2]f`, burst, window)
	untilFull := func(left float64) float64 { return math.Ceil((float64(burst) - left) / float64(perSecond)) }
	return func(c *gin.Context) {
		ofToken, waitToken := tokens.take(IdentityOf(c).Name)
		ofAddress, waitAddress := addresses.take(addressOf(c))
		c.Header("RateLimit-Policy", policy)
		c.Header("RateLimit", fmt.Sprintf(`"token";r=%d;t=%.0f, "address";r=%d;t=%.0f`,
			int(ofToken), untilFull(ofToken), int(ofAddress), untilFull(ofAddress)))
		switch {
		case waitToken > 0:
			Fail(c, &LimitError{"requests of this token", waitToken})
		case waitAddress > 0:
			Fail(c, &LimitError{"requests of this address", waitAddress})
		}
	}
}

// Failures limits how often an address may send a wrong token: beyond that, its
// tokens are refused without a look at them, but for those that were right not long
// ago, so that nobody can lock out others behind the same address. It needs no more
// than some megabytes, whatever is sent. A nil one limits nothing.
type Failures struct {
	wrongs *buckets
	seed   maphash.Seed
	rights *lru.Cache[uint64, struct{}]
}

// maxRights is how many tokens are remembered that were right.
const maxRights = 1 << 14

// NewFailures returns the limit of perMinute wrong tokens for each address.
func NewFailures(perMinute int) *Failures {
	rights, _ := lru.New[uint64, struct{}](maxRights) // fails for no size
	return &Failures{newBuckets(rate.Limit(float64(perMinute)/60), perMinute), maphash.MakeSeed(), rights}
}

// check returns a *LimitError where the address has sent too many wrong tokens, and
// token was not right before.
func (f *Failures) check(c *gin.Context, token string) error {
	if f == nil {
		return nil
	}
	if _, ok := f.rights.Get(maphash.String(f.seed, token)); ok {
		return nil
	}
	if wait := f.wrongs.wait(addressOf(c)); wait > 0 {
		return &LimitError{"wrong tokens of this address", wait}
	}
	return nil
}

// wrong counts a wrong token.
func (f *Failures) wrong(c *gin.Context, token string) {
	if f != nil {
		f.rights.Remove(maphash.String(f.seed, token))
		f.wrongs.take(addressOf(c))
	}
}

// right remembers a right one.
func (f *Failures) right(token string) {
	if f != nil {
		f.rights.ContainsOrAdd(maphash.String(f.seed, token), struct{}{})
	}
}
