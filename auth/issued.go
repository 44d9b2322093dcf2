package auth

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"fmt"
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

// AuditLog is the name of the logger of changes, whose lines are written at every log.level.
const AuditLog = "audit"

const (
	refreshPeriod = 2 * time.Second          // between two polls for changes to the tokens, if the first succeeds
	retryPeriod   = refreshPeriod / 4        // before the next poll after a failure
	trustPeriod   = EndsWithin - CheckPeriod // how long the copy is trusted if polls fail
	refreshFloor  = 100 * time.Millisecond   // between two polls, however many unknown tokens are tried
	readBatch     = 10_000                   // new tokens that a statement reads
	usePeriod     = time.Minute              // how often the last use of tokens is stored
	useBatch      = 1000                     // tokens in a statement that stores their last use
)

// IssuedTokens verifies the tokens in a store from a copy of all active ones in memory,
// some 400 bytes each: neither a valid nor an invalid token costs a query. It is safe
// for concurrent use.
type IssuedTokens struct {
	store *models.TokenStore
	log   *zap.Logger
	known atomic.Pointer[knownTokens]
	used  sync.Map // the *models.Token that were used, until that is stored

	mu      sync.Mutex // a Refresh uses the fields below
	began   time.Time  // when the last poll began
	next    time.Time  // when the next poll may begin
	failure error      // of the last poll, or nil

	ctx     context.Context //nolint:containedctx // the service's, not a request's
	stop    context.CancelFunc
	running sync.WaitGroup
}

// knownTokens are the tokens that were active at some moment.
type knownTokens struct {
	asOf time.Time // when the poll began
	byID map[string]*models.Token
}

// NewIssuedTokens returns a verifier that polls store until it is closed. It fails if
// the database cannot be reached.
func NewIssuedTokens(ctx context.Context, store *models.TokenStore, log *zap.Logger) (*IssuedTokens, error) {
	v := &IssuedTokens{store: store, log: log}
	v.known.Store(&knownTokens{})
	if err := v.read(ctx); err != nil {
		return nil, err
	}
	v.ctx, v.stop = context.WithCancel(context.WithoutCancel(ctx))
	v.running.Go(func() {
		background.Every(v.ctx, retryPeriod, func() {
			if time.Since(v.known.Load().asOf) >= refreshPeriod {
				_ = v.Refresh() // which logs it
			}
		})
	})
	v.running.Go(func() { // apart from polls: a write may wait, and a poll must not
		background.Every(v.ctx, usePeriod, func() {
			if err := v.storeUses(v.ctx); err != nil && v.ctx.Err() == nil { // retried in a minute
				v.log.Warn("cannot store the last use of tokens", zap.Error(err))
			}
		})
	})
	return v, nil
}

// Close stops the verifier and stores the last uses.
func (v *IssuedTokens) Close() error {
	v.stop()
	v.running.Wait()
	return v.storeUses(context.Background())
}

// Len returns the number of tokens that were active at the last poll.
func (v *IssuedTokens) Len() int { return len(v.known.Load().byID) }

// Verify is a [Verifier]. It fails with ErrCannotVerify if the database has been
// unreachable for too long to tell.
func (v *IssuedTokens) Verify(_ context.Context, secret string) (*Identity, error) {
	hash, ok := models.HashToken(secret)
	if !ok {
		return nil, ErrInvalidToken
	}
	now, known := time.Now(), v.known.Load()
	token := known.find(secret, hash, now)
	if token == nil { // another process may just have created it
		if err := v.Refresh(); err != nil {
			return nil, err
		}
		known = v.known.Load()
		if token = known.find(secret, hash, now); token == nil {
			return nil, ErrInvalidToken
		}
	}
	if age := now.Sub(known.asOf); age > trustPeriod {
		return nil, fmt.Errorf("%w: tokens have not been read for %s", ErrCannotVerify, age.Round(time.Second))
	}
	v.used.LoadOrStore(token, nil)
	return &Identity{Name: token.ID, Scopes: token.Scopes}, nil
}

// find returns the token with secret and hash, or nil if it is unknown or has expired. It looks up
// only the id, which is no secret.
func (k *knownTokens) find(secret string, hash [sha256.Size]byte, now time.Time) *models.Token {
	token := k.byID[secret[:models.TokenIDLength]]
	if token == nil || token.Expired(now) || subtle.ConstantTimeCompare(token.Hash, hash[:]) == 0 {
		return nil
	}
	return token
}

// Refresh returns when the tokens have been read since its call: a change before it is in force.
// Calls at the same time share a poll. It fails with ErrCannotVerify.
func (v *IssuedTokens) Refresh() error {
	called := time.Now()
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.began.Before(called) {
		if !background.Sleep(v.ctx, time.Until(v.next)) {
			return fmt.Errorf("%w: stopping", ErrCannotVerify)
		}
		v.began = time.Now()
		err := v.read(v.ctx)
		pause := refreshFloor
		if err == nil { // with many tokens, unknown tokens must not keep the database busy for over a tenth of the time
			pause = min(max(pause, 9*time.Since(v.began)), refreshPeriod)
		}
		switch {
		case err != nil && v.failure == nil && v.ctx.Err() == nil:
			v.log.Error("cannot read tokens; requests with issued tokens will soon get 503", zap.Error(err))
		case err == nil && v.failure != nil:
			v.log.Info("tokens can be read again")
		}
		v.next, v.failure = time.Now().Add(pause), err
	}
	if v.failure != nil { // not wrapped, as it tells of no request's own operation
		return fmt.Errorf("%w: tokens cannot be read: %s", ErrCannotVerify, v.failure.Error())
	}
	return nil
}

// read reads new tokens and forgets inactive tokens.
func (v *IssuedTokens) read(ctx context.Context) error {
	old, now := v.known.Load().byID, time.Now()
	ids, err := v.store.ActiveIDs(ctx)
	if err != nil {
		return err
	}
	byID := make(map[string]*models.Token, len(ids))
	var missing []string
	for _, id := range ids {
		if token := old[id]; token != nil {
			byID[id] = token
		} else {
			missing = append(missing, id)
		}
	}
	for batch := range slices.Chunk(missing, readBatch) {
		tokens, err := v.store.Find(ctx, batch)
		if err != nil {
			return err
		}
		for _, token := range tokens {
			byID[token.ID] = &token
		}
	}
	v.known.Store(&knownTokens{now, byID})
	return nil
}

// storeUses stores the uses of tokens. It keeps the uses that it cannot store.
func (v *IssuedTokens) storeUses(ctx context.Context) error {
	var used []*models.Token
	for token := range v.used.Range {
		used = append(used, token.(*models.Token))
	}
	for batch := range slices.Chunk(used, useBatch) {
		ids := make([]string, 0, useBatch)
		for _, token := range batch {
			ids = append(ids, token.ID)
		}
		if err := v.store.Touch(ctx, ids); err != nil {
			return err
		}
		for _, token := range batch {
			v.used.Delete(token)
		}
	}
	return nil
}
