package database

import (
	"context"
	"fmt"
	"math"
	"sync"
	"time"
)

// WaitShare is the part of its time limit for which an operation may wait for a slot: 1/WaitShare.
// In the queue of a batch, or for a lock, it may wait until only that part is left, which it and
// the rest of its batch need to run. Batches that need longer leave less time to wait; see
// [Batcher.expect].
const WaitShare = 6

// slots limits how many operations run on the database at a time, in order of
// arrival. Operations that waited for a connection of the pool instead would get one
// too late to use it: under overload, all of them would fail.
type slots chan struct{}

// try takes a slot, which the caller frees, if one is free.
func (s slots) try() bool {
	select {
	case s <- struct{}{}:
		return true
	default:
		return false
	}
}

// untilDone lets take wait until its context ends.
const untilDone = time.Duration(math.MaxInt64)

// take takes a slot, which the caller frees. It fails with ErrOverloaded if none is free
// within wait, and with ctx's cause if ctx ends.
func (s slots) take(ctx context.Context, wait time.Duration) error {
	if s.try() { // the common case needs no timer
		return nil
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: no slot within %s", ErrOverloaded, max(wait, 0).Round(time.Millisecond))
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
	}
}

func (s slots) free() { <-s }

// run calls do in a slot, within timeout, the wait for the slot included. It fails like
// take if that wait takes too large a share.
func (s slots) run(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.take(ctx, timeout/WaitShare); err != nil {
		return err
	}
	defer s.free()
	return do(ctx)
}

// Shares limits how much of something may be taken: all by all clients together, and each by
// each client, but no more than it leaves. So clients that take all they can end with equal
// shares, and leave another one: two have 4 of 12 each. It is the rule of Choudhury and Hahne,
// Dynamic Queue Length Thresholds for Shared-Memory Packet Switches (1998).
type Shares struct {
	all, each int64

	mu    sync.Mutex
	taken int64
	of    map[string]int64 // by client
}

// NewShares returns Shares of which nothing is taken.
func NewShares(all, each int64) *Shares {
	return &Shares{all: all, each: each, of: make(map[string]int64)}
}

// Take takes n, which may be 0, for client. It fails with ErrShare rather than wait, which could
// take minutes.
func (s *Shares) Take(client string, n int64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	has := s.of[client]
	if left := s.all - s.taken; n > 0 && has+n > min(s.each, left) {
		return fmt.Errorf("%w: %d of %d are in use; this client has %d, and may have %d, but no more than are left", ErrShare, s.taken, s.all, has, s.each)
	}
	s.taken += n
	s.of[client] = has + n
	return nil
}

// Give gives n of client back.
func (s *Shares) Give(client string, n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken -= n
	if s.of[client] -= n; s.of[client] == 0 {
		delete(s.of, client)
	}
}

// run calls do with one taken for client.
func (s *Shares) run(client string, do func() error) error {
	if err := s.Take(client, 1); err != nil {
		return err
	}
	defer s.Give(client, 1)
	return do()
}

// inUse returns how many are taken.
func (s *Shares) inUse() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.taken
}

func (s *Shares) has(client string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of[client] > 0
}

// turns limits how many operations run at a time, in all and of each client, in order of
// arrival: those of one client do not queue before those of others.
type turns struct {
	all  slots
	each int

	mu sync.Mutex
	of map[string]*turn // by client, if it has operations
}

// turn is what the operations of a client wait for.
type turn struct {
	slots
	users int // operations that run or wait
}

func newTurns(all, each int) *turns {
	return &turns{all: make(slots, all), each: each, of: make(map[string]*turn)}
}

// take waits for a turn, among those of client and among all, which the caller frees. It fails
// like the take of slots.
func (t *turns) take(ctx context.Context, client string, wait time.Duration) (free func(), err error) {
	begin := time.Now()
	t.mu.Lock()
	own := t.of[client]
	if own == nil {
		own = &turn{slots: make(slots, t.each)}
		t.of[client] = own
	}
	own.users++
	t.mu.Unlock()
	leave := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if own.users--; own.users == 0 {
			delete(t.of, client)
		}
	}
	if err := own.take(ctx, wait); err != nil {
		leave()
		return nil, err
	}
	if err := t.all.take(ctx, wait-time.Since(begin)); err != nil {
		own.free()
		leave()
		return nil, err
	}
	return func() {
		t.all.free()
		own.free()
		leave()
	}, nil
}

// run calls do in a turn. It fails like take.
func (t *turns) run(ctx context.Context, client string, wait time.Duration, do func() error) error {
	free, err := t.take(ctx, client, wait)
	if err != nil {
		return err
	}
	defer free()
	return do()
}

// clientKey is the key of a client's name in a context.
type clientKey struct{}

// WithClient returns a context for operations of the client name, which has a share of
// what they need.
func WithClient(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, clientKey{}, name)
}

func clientOf(ctx context.Context) string {
	name, _ := ctx.Value(clientKey{}).(string)
	return name
}
