// Package batch runs operations that wait at the same time together.
package batch

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"

	"plantstore/database/background"
	"plantstore/database/fault"
	"plantstore/database/limit"
)

// Options are the limits of a [Batcher], and what it calls.
type Options struct {
	Max     int           // items in a batch
	Queue   int           // items that wait for the next batch; each client may take half of them
	Timeout time.Duration // from an item's arrival to its outcome
	Turns   *limit.Turns  // of batches; batchers may share them
	Waits   Observer      // of the seconds that each item has waited for its batch; or nil
}

// Observer measures something, as Prometheus' histograms do.
type Observer interface{ Observe(value float64) }

// errClosed is the outcome of an item that arrives after Close.
var errClosed = fmt.Errorf("%w: the database is closed", fault.ErrUnavailable)

// ErrDeferred is the outcome of an item that a batch has not tried: it joins another batch.
var ErrDeferred = errors.New("deferred to another batch")

// Batcher runs operations, its items, in batches: items that arrive while a batch is in
// flight form the next batch. A lone item runs at once, and waits for no other goroutine. It is safe for
// concurrent use.
type Batcher[T any] struct {
	Options
	run      func(ctx context.Context, items []T) []error
	queue    chan *pending[T]
	waiting  *limit.Shares // of the queue
	flushers sync.WaitGroup
	free     sync.Pool    // of *pending[T]
	calls    atomic.Int64 // of Do that are in progress
	lone     atomic.Bool  // no other item came while the last item ran alone
	needs    atomic.Int64 // nanoseconds that a batch is expected to need; see expect

	// runAlone switches to a coroutine, which runs loner. On the stacks of its callers, a batch would take memory for as
	// long as their connections are open.
	loner   [1]*pending[T]
	runLone func() (struct{}, bool)
	endLone func()

	mu     sync.RWMutex // guards closed, and the closing of queue
	closed bool
}

// pending is an item that waits for its outcome.
type pending[T any] struct {
	ctx     context.Context //nolint:containedctx // the caller's, for as long as it waits
	item    T
	due     time.Time
	span    trace.Span // the caller's
	outcome chan error // has room for an outcome, so that a flusher never blocks
	items   []T        // of the batch that it begins
}

// New returns a batcher that calls run with the items of each batch. run returns their outcomes
// before the deadline of its context, which nothing else ends. Its Done returns nil, so that a driver
// does not watch it: what waits for Done needs [Attach].
func New[T any](o Options, run func(ctx context.Context, items []T) []error) *Batcher[T] {
	b := &Batcher[T]{Options: o, run: run, queue: make(chan *pending[T], o.Queue)}
	b.waiting = limit.NewShares(int64(o.Queue), max(int64(o.Queue)/2, 1))
	b.needs.Store(int64(limit.Wait(o.Timeout)))
	for range o.Turns.Len() {
		b.flushers.Go(b.flush)
	}
	b.runLone, b.endLone = iter.Pull(func(yield func(struct{}) bool) {
		for goesOn := true; goesOn; goesOn = yield(struct{}{}) {
			b.runBatch(b.loner[:])
		}
	})
	return b
}

// Len returns how many items wait for a batch.
func (b *Batcher[T]) Len() int { return len(b.queue) }

// Busy reports whether calls of Do are in progress.
func (b *Batcher[T]) Busy() bool { return b.calls.Load() > 0 }

// Do runs item and returns its outcome. It fails at once with limit.ErrShare if the queue is full,
// or if items of ctx's client take half of it; later with limit.ErrBusy if it was not the
// item's turn in time. An item still in the queue when ctx ends is dropped; it fails with
// ctx's cause.
func (b *Batcher[T]) Do(ctx context.Context, item T) (err error) {
	alone := b.calls.Add(1) == 1
	defer b.calls.Add(-1)
	p, ok := b.free.Get().(*pending[T])
	if !ok {
		p = &pending[T]{outcome: make(chan error, 1)}
	}
	p.ctx, p.item, p.due, p.span = ctx, item, time.Now().Add(b.Timeout), trace.SpanFromContext(ctx)
	for err = ErrDeferred; errors.Is(err, ErrDeferred); {
		if alone && b.runAlone(p) {
			err = <-p.outcome
		} else if err = b.enqueue(p); err == nil {
			err = <-p.outcome
		}
	}
	*p = pending[T]{outcome: p.outcome, items: p.items} // retains no item
	b.free.Put(p)
	return err
}

// runAlone runs p at once, unless there are other items to share a batch with. After an item that
// ran alone, it does not look for them: yielding the processor can take as long as a read.
func (b *Batcher[T]) runAlone(p *pending[T]) bool {
	b.mu.RLock() // for as long as Close must wait
	defer b.mu.RUnlock()
	if b.closed || p.ctx.Err() != nil || !b.Turns.Try() {
		return false
	}
	defer b.Turns.Free()
	if !b.lone.Load() {
		runtime.Gosched() // see letQueueFill
	}
	if b.calls.Load() > 1 {
		return false
	}
	b.loner[0] = p
	_, ran := b.runLone() // false if an earlier run has ended the coroutine
	b.loner[0] = nil
	b.lone.Store(b.calls.Load() == 1)
	return ran
}

func (b *Batcher[T]) enqueue(p *pending[T]) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return errClosed
	}
	if err := b.waiting.Take(limit.Client(p.ctx), 1); err != nil {
		return err
	}
	b.queue <- p // has room: waiting counts at least the items in it
	return nil
}

// Close runs the queued items and stops the flushers. Later items fail.
func (b *Batcher[T]) Close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.queue)
		b.endLone()
	}
	b.mu.Unlock()
	b.flushers.Wait()
}

// flush runs the queued items, a batch at a time.
func (b *Batcher[T]) flush() {
	batch := make([]*pending[T], 0, b.Max)
	for first := range b.queue {
		b.waiting.Give(limit.Client(first.ctx), 1)
		free, err := b.Turns.Take(first.ctx, time.Until(first.due)-time.Duration(b.needs.Load()))
		if err != nil {
			first.outcome <- err
			continue
		}
		b.letQueueFill()
		now := time.Now()
		batch = b.gather(batch[:0], first, now)
		for len(batch) < b.Max {
			next := b.next()
			if next == nil {
				break
			}
			batch = b.gather(batch, next, now)
		}
		if len(batch) > 0 {
			b.runBatch(batch)
		}
		free()
		clear(batch) // for the garbage collector
	}
}

// next returns the next item of the queue, or nil if the queue is empty.
func (b *Batcher[T]) next() *pending[T] {
	select {
	case p, open := <-b.queue:
		if open {
			b.waiting.Give(limit.Client(p.ctx), 1)
		}
		return p
	default:
		return nil
	}
}

// letQueueFill yields the processor for as long as that fills the queue, so that
// requests already in memory share the batch.
func (b *Batcher[T]) letQueueFill() {
	for before := -1; before < len(b.queue) && len(b.queue) < b.Max; {
		before = len(b.queue)
		runtime.Gosched()
	}
}

// gather appends p to batch, which begins now. It rejects p instead if p is no longer
// awaited, or has less time left than the batch is expected to need: the batch is due with its first item.
func (b *Batcher[T]) gather(batch []*pending[T], p *pending[T], now time.Time) []*pending[T] {
	needs := time.Duration(b.needs.Load())
	switch {
	case p.ctx.Err() != nil:
		p.outcome <- fmt.Errorf("wait for a batch: %w", context.Cause(p.ctx))
	case p.due.Sub(now) < needs:
		p.outcome <- fmt.Errorf("%w: no batch within %s", limit.ErrBusy, b.Timeout-needs)
	default:
		batch = append(batch, p)
	}
	return batch
}

// runBatch runs the items of batch, and tells each its outcome. A panic is the outcome of every item,
// so that no caller waits forever and the flusher survives.
func (b *Batcher[T]) runBatch(batch []*pending[T]) {
	begin, items, due := time.Now(), batch[0].items[:0], batch[0].due
	var requests []trace.Span
	for _, p := range batch {
		items = append(items, p.item)
		if p.due.Before(due) { // it was deferred
			due = p.due
		}
		if b.Waits != nil {
			b.Waits.Observe(begin.Sub(p.due.Add(-b.Timeout)).Seconds())
		}
		if p.span.IsRecording() {
			requests = append(requests, p.span)
		}
	}
	ctx, span := startBatch(len(batch), requests)
	var outcomes []error
	var panicked error
	defer func() {
		span.End()
		b.expect(time.Since(begin), !time.Now().Before(due))
		if panicked != nil {
			outcomes = slices.Repeat([]error{panicked}, len(batch))
		}
		clear(items)
		batch[0].items = items
		for i, err := range outcomes {
			batch[i].outcome <- err
		}
	}()
	defer background.Recover("a batch", &panicked)
	outcomes = b.run(deadline{ctx, due}, items)
}

// expect sets the time that the next batch is expected to need to what the last batch took
// and a quarter more. Without it, items that have waited for long would fill batch after
// batch under overload, and no batch would end in time. The time at most doubles with each batch, since a
// single slow batch says little, and a sixth of an item's time is left to wait in.
func (b *Batcher[T]) expect(took time.Duration, exceeded bool) {
	if exceeded {
		took = b.Timeout
	}
	share := limit.Wait(b.Timeout)
	needs := min(took+took/4, 2*time.Duration(b.needs.Load()), b.Timeout-share)
	b.needs.Store(int64(max(needs, share)))
}

// deadline is the context of a batch.
type deadline struct {
	context.Context //nolint:containedctx // it is a context
	due             time.Time
}

func (d deadline) Deadline() (time.Time, bool) { return d.due, true }

func (d deadline) Err() error {
	if time.Now().Before(d.due) {
		return nil
	}
	return context.DeadlineExceeded
}

// Detached reports whether ctx is of a batch, which a driver should not watch: it has a deadline,
// and is never canceled.
func Detached(ctx context.Context) (due time.Time, ok bool) {
	due, ok = ctx.Deadline()
	return due, ok && ctx.Done() == nil
}

// Attach returns ctx, or for a batch a context that ends at its deadline: for what has no other way to
// end in time. The caller calls cancel.
func Attach(ctx context.Context) (attached context.Context, cancel context.CancelFunc) {
	if due, ok := Detached(ctx); ok {
		return context.WithDeadline(context.Background(), due)
	}
	return ctx, func() {}
}
