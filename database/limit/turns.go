package limit

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"time"
)

// ErrBusy means that the turn of an operation did not come in time. The operation has not begun.
var ErrBusy = errors.New("too many operations are waiting")

// UntilDone lets [Turns.Take] wait until its context ends.
const UntilDone = time.Duration(math.MaxInt64)

// Turns limits how many operations run at a time, in order of arrival. Operations that waited
// for a connection of the pool instead would get it late to use it: under overload, all of
// them would fail. It is safe for concurrent use.
type Turns struct {
	all  chan struct{}
	each int           // operations of a client; 0: no limit
	rest []func() bool // see RestWhile

	mu sync.Mutex
	of map[string]*queue // by client that has operations, if each is not 0
}

// queue is what the operations of a client wait for.
type queue struct {
	turns chan struct{}
	users int // operations that run or wait
}

// NewTurns returns Turns for all operations at a time, and each of a client: then a client's
// operations do not queue before another client's. If each is 0, clients are not told apart.
func NewTurns(all, each int) *Turns {
	return &Turns{all: make(chan struct{}, all), each: each, of: make(map[string]*queue)}
}

// After an operation that has run for t while others were busy, its turn is taken for restAll·t, and that of its
// client for restEach·t, but at most for half of the time for which the operation would have waited for a turn.
const (
	restAll  = 3
	restEach = 7
)

// RestWhile lets turns rest while busy, or a function of an earlier call, returns true: operations of t, which
// take long, then leave most of what they need, such as a processor, to other operations. t tells clients apart.
func (t *Turns) RestWhile(busy func() bool) { t.rest = append(t.rest, busy) }

// Busy reports whether turns rest.
func (t *Turns) Busy() bool {
	return slices.ContainsFunc(t.rest, func(busy func() bool) bool { return busy() })
}

// Len returns how many operations may run at a time.
func (t *Turns) Len() int { return cap(t.all) }

// Try takes a turn if a turn is free, which the caller gives back with Free. It is for Turns that do
// not tell clients apart.
func (t *Turns) Try() bool {
	select {
	case t.all <- struct{}{}:
		return true
	default:
		return false
	}
}

// Free gives back a turn that Try took.
func (t *Turns) Free() { <-t.all }

// Take waits for a turn of ctx's client, which free gives back. It fails with ErrBusy if the turn
// does not come within wait or before the deadline of ctx, and with ctx's cause if ctx is canceled.
// If t is nil, taking a turn does nothing.
func (t *Turns) Take(ctx context.Context, wait time.Duration) (free func(), err error) {
	switch {
	case t == nil:
		return func() {}, nil
	case t.each == 0:
		return t.Free, take(ctx, t.all, wait)
	}
	return t.take(ctx, wait, 0)
}

// take is Take for an operation that has already run for ran.
func (t *Turns) take(ctx context.Context, wait, ran time.Duration) (free func(), err error) {
	begin, client := time.Now(), Client(ctx)
	t.mu.Lock()
	own := t.of[client]
	if own == nil {
		own = &queue{turns: make(chan struct{}, t.each)}
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
	if err := take(ctx, own.turns, wait); err != nil {
		leave()
		return nil, err
	}
	if err := take(ctx, t.all, wait-time.Since(begin)); err != nil {
		<-own.turns
		leave()
		return nil, err
	}
	begin = time.Now().Add(-ran)
	return func() {
		var rest time.Duration
		if t.Busy() {
			rest = min(time.Since(begin), wait/(2*restEach)) // or the client's next operation might wait in vain
		}
		later(restAll*rest, func() { <-t.all })
		later(restEach*rest, func() {
			<-own.turns
			leave()
		})
	}, nil
}

// later calls do after d, or now if d is 0.
func later(d time.Duration, do func()) {
	if d == 0 {
		do()
		return
	}
	time.AfterFunc(d, do)
}

// maxCharge limits a charge, whose operation may have waited, for a database for example.
const maxCharge = 10 * time.Millisecond

// Charge waits for a turn of ctx's client, and lets it rest as if an operation that has run without a turn had run in
// it, for maxCharge at most, even if ctx has ended. While others are not busy, it does nothing.
func (t *Turns) Charge(ctx context.Context, ran time.Duration) {
	if t.Busy() {
		if free, err := t.take(context.WithoutCancel(ctx), time.Second, min(ran, maxCharge)); err == nil {
			free()
		}
	}
}

// Turn is a turn of an operation that gives it back while it waits.
type Turn struct {
	turns *Turns
	ctx   context.Context //nolint:containedctx // of the operation
	free  func()          // or nil
}

// NewTurn returns a turn that is not taken.
func (t *Turns) NewTurn(ctx context.Context) *Turn { return &Turn{turns: t, ctx: ctx} }

// Take waits for the turn. After the end of the context, it does nothing: the operation is about to fail.
func (t *Turn) Take() { _ = t.TakeWithin(UntilDone) }

// TakeWithin waits for the turn, and fails like [Turns.Take].
func (t *Turn) TakeWithin(wait time.Duration) (err error) {
	t.free, err = t.turns.Take(t.ctx, wait)
	return err
}

// Give gives the turn back, if it is taken. t may be nil.
func (t *Turn) Give() {
	if t != nil && t.free != nil {
		t.free()
		t.free = nil
	}
}

// Do calls do in a turn. It fails like Take.
func (t *Turns) Do(ctx context.Context, wait time.Duration, do func() error) error {
	free, err := t.Take(ctx, wait)
	if err != nil {
		return err
	}
	defer free()
	return do()
}

func take(ctx context.Context, turns chan struct{}, wait time.Duration) error {
	select { // the common case needs no timer
	case turns <- struct{}{}:
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case turns <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: no turn within %s", ErrBusy, max(wait, 0).Round(time.Millisecond))
	case <-ctx.Done():
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: no turn before the deadline", ErrBusy)
	}
	return fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
}
