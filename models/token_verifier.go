package models

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// ErrInvalidToken says that a token is unknown, revoked, expired or malformed.
var ErrInvalidToken = errors.New("the token is not valid")

// A change to the tokens takes effect within 5 s on every replica: each looks for
// one every refreshPeriod, and trusts what it knows no longer than trustPeriod
// where it cannot.
const (
	refreshPeriod = 2 * time.Second
	trustPeriod   = 4500 * time.Millisecond
	// refreshFloor is the least time between two looks, however many tokens are
	// tried that are not known.
	refreshFloor = 100 * time.Millisecond
	// usePeriod is how often the last use of tokens is written down.
	usePeriod = time.Minute
	// useBatch is how many of them are written with one statement.
	useBatch = 1000
)

// TokenVerifier tells whether a token is in force, from a copy of all that are,
// which it keeps in memory: a request with a token costs no query, and neither does
// one with a wrong token. A token takes some 300 bytes. It is safe for concurrent
// use.
type TokenVerifier struct {
	store *TokenStore
	log   *zap.Logger
	known atomic.Pointer[knownTokens]

	mu        sync.Mutex
	refreshed chan struct{}       // closed after the next refresh that has not begun yet
	unwritten map[string]struct{} // ids of tokens whose last use is to be written down
	wanted    chan struct{}       // asks for a refresh before its time

	stop    context.CancelFunc
	stopped <-chan struct{} // closed when no refresh will begin any more
	running sync.WaitGroup
}

// knownTokens are those in force at some moment.
type knownTokens struct {
	asOf   time.Time // when the look at the database began
	counts tokenCounts
	byHash map[[sha256.Size]byte]*knownToken
}

type knownToken struct {
	Token
	used atomic.Bool // since that was last noted
}

// NewTokenVerifier returns a verifier of the tokens in store, which it looks at until
// it is closed. It fails when the database cannot be reached.
func NewTokenVerifier(ctx context.Context, store *TokenStore, log *zap.Logger) (*TokenVerifier, error) {
	v := &TokenVerifier{
		store:     store,
		log:       log,
		refreshed: make(chan struct{}),
		unwritten: make(map[string]struct{}),
		wanted:    make(chan struct{}, 1),
	}
	v.known.Store(&knownTokens{})
	if err := v.refresh(ctx); err != nil {
		return nil, storeError("read tokens", err)
	}
	ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	v.stopped = ctx.Done()
	v.running.Go(func() { v.run(ctx) })
	v.running.Go(func() { v.runUses(ctx) })
	return v, nil
}

// Close ends the verifier and writes down what was last used.
func (v *TokenVerifier) Close() error {
	v.stop()
	v.running.Wait()
	return storeError("write the last use of tokens", v.writeUses(context.Background()))
}

// Len returns how many tokens are in force.
func (v *TokenVerifier) Len() int { return len(v.known.Load().byHash) }

// Verify returns the token that secret is. It fails with ErrInvalidToken where
// there is none in force, and with an error that wraps ErrUnavailable where that
// cannot be told because the database has been out of reach.
func (v *TokenVerifier) Verify(ctx context.Context, secret string) (*Token, error) {
	if !isWellFormed(secret) {
		return nil, ErrInvalidToken
	}
	hash := hashOf(secret)
	token, asOf := v.lookup(hash)
	if token == nil {
		// It may have been created a moment ago, by another process.
		tried := time.Now()
		if err := v.awaitRefresh(ctx); err != nil {
			return nil, err
		}
		if token, asOf = v.lookup(hash); token == nil && asOf.Before(tried) {
			return nil, fmt.Errorf("%w: tokens cannot be read", ErrUnavailable)
		}
	}
	switch now := time.Now(); {
	case token == nil, token.Expired(now):
		return nil, ErrInvalidToken
	case now.Sub(asOf) > trustPeriod:
		return nil, fmt.Errorf("%w: tokens have not been read for %s", ErrUnavailable, trustPeriod)
	}
	if !token.used.Load() { // a write would take the line from other processors' caches
		token.used.Store(true)
	}
	return &token.Token, nil
}

// lookup returns the token with that hash, if it is known, and since when that is
// so. The time that it takes tells nothing of how much of a token was right: the
// hash of another is another altogether.
func (v *TokenVerifier) lookup(hash [sha256.Size]byte) (*knownToken, time.Time) {
	known := v.known.Load()
	return known.byHash[hash], known.asOf
}

// awaitRefresh waits until a look at the database has ended that began after the
// call.
func (v *TokenVerifier) awaitRefresh(ctx context.Context) error {
	v.mu.Lock()
	refreshed := v.refreshed
	v.mu.Unlock()
	select {
	case v.wanted <- struct{}{}:
	default: // somebody else has asked already
	}
	select {
	case <-refreshed:
		return nil
	case <-v.stopped:
		return fmt.Errorf("%w: stopping", ErrUnavailable)
	case <-ctx.Done():
		return fmt.Errorf("%w: %w", ErrUnavailable, ctx.Err())
	}
}

// run refreshes what is known, every refreshPeriod and when asked to, until ctx
// ends.
func (v *TokenVerifier) run(ctx context.Context) {
	pause := time.NewTimer(refreshFloor) // NewTokenVerifier has just refreshed
	defer pause.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return
		case <-pause.C:
		}
		pause.Reset(refreshPeriod - refreshFloor)
		select {
		case <-ctx.Done():
			return
		case <-v.wanted:
		case <-pause.C:
		}
		v.mu.Lock()
		waiting := v.refreshed
		v.refreshed = make(chan struct{})
		v.mu.Unlock()
		err := v.refresh(ctx)
		switch {
		case err != nil && !failing && ctx.Err() == nil:
			v.log.Error("tokens cannot be read: those that were issued are soon answered with 503", zap.Error(err))
		case err == nil && failing:
			v.log.Info("tokens can be read again")
		}
		failing = err != nil
		close(waiting)
		pause.Reset(refreshFloor)
	}
}

// runUses writes down the last uses every usePeriod, until ctx ends: apart from run,
// for where a write has to wait, reading must not.
func (v *TokenVerifier) runUses(ctx context.Context) {
	ticker := time.NewTicker(usePeriod)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := v.writeUses(ctx); err != nil && ctx.Err() == nil { // the next minute tries again
				v.log.Warn("the last use of tokens cannot be written down", zap.Error(err))
			}
		}
	}
}

// refresh reads what has changed.
func (v *TokenVerifier) refresh(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, v.store.timeout)
	defer cancel()
	old, now := v.known.Load(), time.Now()
	// Counted first: what changes between the two statements is seen next time.
	counts, err := v.store.counts(ctx)
	if err != nil {
		return err
	}
	if counts == old.counts && old.byHash != nil {
		v.known.Store(&knownTokens{asOf: now, counts: counts, byHash: old.byHash})
		return nil
	}
	tokens, err := v.store.inForce(ctx)
	if err != nil {
		return err
	}
	known := &knownTokens{asOf: now, counts: counts, byHash: make(map[[sha256.Size]byte]*knownToken, len(tokens))}
	for _, t := range tokens {
		hash := [sha256.Size]byte(t.Hash)
		if known.byHash[hash] = old.byHash[hash]; known.byHash[hash] == nil {
			known.byHash[hash] = &knownToken{Token: t}
		}
	}
	v.known.Store(known)
	v.noteUses(old) // those of tokens that have ended, too
	return nil
}

// noteUses notes which tokens were used since it last did.
func (v *TokenVerifier) noteUses(known *knownTokens) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for _, token := range known.byHash {
		if token.used.Swap(false) {
			v.unwritten[token.ID] = struct{}{}
		}
	}
}

// writeUses writes down what was noted, and keeps what could not be written.
func (v *TokenVerifier) writeUses(ctx context.Context) error {
	v.noteUses(v.known.Load())
	v.mu.Lock()
	all := slices.Collect(maps.Keys(v.unwritten))
	v.mu.Unlock()
	for ids := range slices.Chunk(all, useBatch) {
		if err := v.store.touch(ctx, ids); err != nil {
			return err
		}
		v.mu.Lock()
		for _, id := range ids {
			delete(v.unwritten, id)
		}
		v.mu.Unlock()
	}
	return nil
}
