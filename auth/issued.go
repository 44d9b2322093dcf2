package auth

import (
	"context"
	"crypto/sha256"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"plantstore/database/background"
	"plantstore/models"
)

// EndsWithin is the longest time for which a replica accepts a token after its revocation. Running
// requests verify theirs again every CheckPeriod.
const (
	EndsWithin  = 5 * time.Second
	CheckPeriod = time.Second / 2
)

// A replica polls for changes to the tokens every refreshPeriod. If it cannot, it trusts its copy for
// trustPeriod.
const (
	refreshPeriod = 2 * time.Second
	trustPeriod   = EndsWithin - CheckPeriod
	// refreshFloor is the least time between two polls, however many unknown tokens
	// are tried.
	refreshFloor = 100 * time.Millisecond
	// usePeriod is how often the last use of tokens is stored, useBatch how many in a statement.
	usePeriod = time.Minute
	useBatch  = 1000
	// readBatch is how many new tokens a statement reads.
	readBatch = 10_000
)

// IssuedTokens verifies the tokens in a store from a copy of all active ones in memory,
// some 400 bytes each: neither a valid nor an invalid token costs a query. It is safe
// for concurrent use.
type IssuedTokens struct {
	store *models.TokenStore
	log   *zap.Logger
	known atomic.Pointer[knownTokens]

	mu        sync.Mutex
	refreshed chan struct{}       // closed at the end of the next refresh to begin
	unstored  map[string]struct{} // ids of used tokens, for the next storeUses
	wanted    chan struct{}       // requests a refresh before its time
	failure   error               // of the last refresh, or nil

	stop    context.CancelFunc
	stopped <-chan struct{} // closed when no refresh will begin
	running sync.WaitGroup
}

// knownTokens are the tokens that were active at some moment.
type knownTokens struct {
	asOf   time.Time // when the poll began
	counts models.TokenCounts
	byHash map[[sha256.Size]byte]*knownToken
	byID   map[string]*knownToken
}

type knownToken struct {
	models.Token
	used atomic.Bool // since uses were last collected
}

// isActive reports whether t, which may be nil, exists and has not expired.
func (t *knownToken) isActive(now time.Time) bool { return t != nil && !t.Expired(now) }

// NewIssuedTokens returns a verifier that polls store until it is closed. It fails if
// the database cannot be reached.
func NewIssuedTokens(ctx context.Context, store *models.TokenStore, log *zap.Logger) (*IssuedTokens, error) {
	v := &IssuedTokens{
		store:     store,
		log:       log,
		refreshed: make(chan struct{}),
		unstored:  make(map[string]struct{}),
		wanted:    make(chan struct{}, 1),
	}
	v.known.Store(&knownTokens{})
	for range 2 { // the first time, it may take longer than its result is trusted
		if _, err := v.refresh(ctx); err != nil {
			return nil, err
		}
	}
	ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	v.stopped = ctx.Done()
	v.running.Go(func() { v.run(ctx) })
	v.running.Go(func() { // apart from run: a write may wait, and a refresh must not
		background.Every(ctx, usePeriod, func() {
			if err := v.storeUses(ctx); err != nil && ctx.Err() == nil { // retried in a minute
				v.log.Warn("cannot store the last use of tokens", zap.Error(err))
			}
		})
	})
	return v, nil
}

// The changes of tokens that [Audit] logs.
const (
	Created = "created a token"
	Revoked = "revoked a token"
)

// Audit logs a change of the token with id, and who made it.
func Audit(log *zap.Logger, change, id, by string, more ...zap.Field) {
	log.Info(change, append([]zap.Field{zap.String("id", id), zap.String("by", by)}, more...)...)
}

// Close stops the verifier and stores the last uses.
func (v *IssuedTokens) Close() error {
	v.stop()
	v.running.Wait()
	return v.storeUses(context.Background())
}

// Len returns the number of active tokens.
func (v *IssuedTokens) Len() (n int) {
	now := time.Now()
	for _, token := range v.known.Load().byHash {
		if !token.Expired(now) {
			n++
		}
	}
	return n
}

// Verify is a [Verifier]. It fails with ErrCannotVerify if the database has been
// unreachable for too long to tell.
func (v *IssuedTokens) Verify(ctx context.Context, secret string) (*Identity, error) {
	hash, ok := models.HashToken(secret)
	if !ok {
		return nil, ErrInvalidToken
	}
	token, asOf := v.lookup(hash)
	// Another process may just have created the token. Expired tokens take as long as unknown
	// tokens, so that the time does not tell them apart.
	if tried := time.Now(); !token.isActive(tried) && !isAgain(ctx) {
		if err := v.Refresh(ctx); err != nil {
			return nil, err
		}
		if token, asOf = v.lookup(hash); !token.isActive(tried) && asOf.Before(tried) {
			return nil, v.cannotVerify("tokens cannot be read")
		}
	}
	switch now := time.Now(); {
	case !token.isActive(now):
		return nil, ErrInvalidToken
	case now.Sub(asOf) > trustPeriod:
		return nil, v.cannotVerify("tokens have not been read for " + now.Sub(asOf).Round(time.Second).String())
	}
	if !token.used.Load() { // a needless write would cost other processors their cache line
		token.used.Store(true)
	}
	return &Identity{Name: token.ID, Scopes: token.Scopes}, nil
}

// cannotVerify returns an ErrCannotVerify with its reason and the error of the last read of the
// tokens. It does not wrap that, which tells of no request's own operation.
func (v *IssuedTokens) cannotVerify(reason string) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.failure != nil {
		reason += ": " + v.failure.Error()
	}
	return fmt.Errorf("%w: %s", ErrCannotVerify, reason)
}

// lookup returns the token with hash, or nil, and the time of the poll that read it. Its
// duration does not depend on how much of a token is right, as the hash of a similar
// token is not similar.
func (v *IssuedTokens) lookup(hash [sha256.Size]byte) (*knownToken, time.Time) {
	known := v.known.Load()
	return known.byHash[hash], known.asOf
}

// Refresh waits for the end of a read of the tokens that began after the call: a change before it
// is in force, unless the database cannot be reached. It fails with ErrCannotVerify if ctx ends
// first, or the verifier is closed.
func (v *IssuedTokens) Refresh(ctx context.Context) error {
	v.mu.Lock()
	refreshed := v.refreshed
	v.mu.Unlock()
	select {
	case v.wanted <- struct{}{}:
	default: // already requested
	}
	select {
	case <-refreshed:
		return nil
	case <-v.stopped:
		return fmt.Errorf("%w: stopping", ErrCannotVerify)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrCannotVerify, ctx.Err())
	}
}

// run refreshes every refreshPeriod, on request, and soon after a failure, until ctx ends.
func (v *IssuedTokens) run(ctx context.Context) {
	failing, pause := false, refreshFloor
	for background.Sleep(ctx, pause) { // since the last refresh
		period := refreshPeriod - pause
		if failing {
			period = refreshPeriod / 4
		}
		select {
		case <-ctx.Done():
			return
		case <-v.wanted:
		case <-time.After(period):
		}
		v.mu.Lock()
		waiting := v.refreshed
		v.refreshed = make(chan struct{})
		v.mu.Unlock()
		polled, err := v.refresh(ctx)
		pause = refreshFloor
		if err == nil { // with many tokens, unknown ones must not keep the database busy for over a tenth of the time
			pause = min(max(pause, 9*polled), refreshPeriod)
		}
		v.mu.Lock()
		v.failure = err
		v.mu.Unlock()
		switch {
		case err != nil && !failing && ctx.Err() == nil:
			v.log.Error("cannot read tokens; requests with issued tokens will soon get 503", zap.Error(err))
		case err == nil && failing:
			v.log.Info("tokens can be read again")
		}
		failing = err != nil
		close(waiting)
	}
}

// refresh reads new tokens and forgets inactive tokens, if any have changed. It returns how long it took to find out whether they have.
func (v *IssuedTokens) refresh(ctx context.Context) (polled time.Duration, err error) {
	old, now := v.known.Load(), time.Now()
	// Counted first: the next refresh sees a change between the queries.
	counts, err := v.store.Counts(ctx)
	polled = time.Since(now)
	if err != nil {
		return polled, err
	}
	setBack := now.Round(0).Before(old.asOf.Round(0)) // the clock was ahead, and tokens seemed to have expired
	if counts == old.counts && old.byHash != nil && !setBack {
		v.known.Store(&knownTokens{asOf: now, counts: counts, byHash: old.byHash, byID: old.byID})
		return polled, nil
	}
	ids, err := v.store.ActiveIDs(ctx)
	if err != nil {
		return polled, err
	}
	known := &knownTokens{
		asOf: now, counts: counts,
		byHash: make(map[[sha256.Size]byte]*knownToken, len(ids)), byID: make(map[string]*knownToken, len(ids)),
	}
	add := func(t *knownToken) { known.byHash[[sha256.Size]byte(t.Hash)], known.byID[t.ID] = t, t }
	var missing []string
	for _, id := range ids {
		if t := old.byID[id]; t != nil {
			add(t)
		} else {
			missing = append(missing, id)
		}
	}
	for ids := range slices.Chunk(missing, readBatch) {
		tokens, err := v.store.Find(ctx, ids)
		if err != nil {
			return polled, err
		}
		for _, t := range tokens {
			if len(t.Hash) != sha256.Size {
				return polled, fmt.Errorf("the hash of the token %s is damaged", t.ID)
			}
			add(&knownToken{Token: t})
		}
	}
	v.known.Store(known)
	v.collectUses(old) // also of tokens that are no longer active
	return polled, nil
}

// collectUses adds the tokens that were used since the last call to unstored.
func (v *IssuedTokens) collectUses(known *knownTokens) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, token := range known.byHash {
		if token.used.Swap(false) {
			v.unstored[token.ID] = struct{}{}
		}
	}
}

// storeUses stores the collected uses. It keeps the uses that it cannot store.
func (v *IssuedTokens) storeUses(ctx context.Context) error {
	v.collectUses(v.known.Load())
	v.mu.Lock()
	all := slices.Collect(maps.Keys(v.unstored))
	v.mu.Unlock()
	for ids := range slices.Chunk(all, useBatch) {
		if err := v.store.Touch(ctx, ids); err != nil {
			return err
		}
		v.mu.Lock()
		for _, id := range ids {
			delete(v.unstored, id)
		}
		v.mu.Unlock()
	}
	return nil
}
