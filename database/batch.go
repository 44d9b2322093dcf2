package database

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
)

// errClosed rejects an item that arrives after the batcher was closed.
var errClosed = fmt.Errorf("%w: the database is closed", ErrUnavailable)

// BatchOptions limits batches; see [Batcher].
type BatchOptions struct {
	Flushers int // batches that are written at the same time; SQLite writes one
	MaxBatch int // items in a batch
	Queue    int // items of a kind that wait for the next batch
}

// Batcher runs operations, its items, in batches: items that arrive while a batch is in
// flight form the next one, and share its statement and its commit. There is no timer: a
// lone item runs at once, on its caller's goroutine. It is safe for concurrent use.
type Batcher[T any] struct {
	// flush runs a batch and returns the outcome of each item, before its context ends.
	flush    func(ctx context.Context, batch []T) []error
	timeout  time.Duration // from an item's arrival to its outcome
	maxBatch int
	slots    slots // shared by all batchers of a database
	queue    chan *pending[T]
	waiting  *Shares // of the queue
	flushers sync.WaitGroup
	free     sync.Pool    // of *pending[T]
	calls    atomic.Int64 // of Do that are in progress
	quiet    atomic.Bool  // no other item came while the last one ran alone: see runAlone
	metrics  *metrics     // of writes; or nil
	needs    atomic.Int64 // nanoseconds that a batch is expected to need; see expect

	mu     sync.RWMutex // guards closed, and the closing of queue
	closed bool
}

// pending is an item that waits for its outcome.
type pending[T any] struct {
	ctx     context.Context //nolint:containedctx // the caller's, for as long as it waits
	item    T
	due     time.Time
	span    trace.Span        // the caller's, if it is recorded
	begin   time.Time         // of its batch
	batch   trace.SpanContext // its batch's
	outcome chan error        // has room for one, so that a flusher never blocks
}

// Writer writes items in batches. Clients with writes that wait for a lock have batches of
// their own, since each locked row holds up its batch.
type Writer[T any] struct {
	calm, suspect *Batcher[T]
	waiters       *Shares
}

// NewWriter returns a writer of items with flush, within the limits of db's options. It is
// closed with db.
func NewWriter[T any](db *DB, flush func(context.Context, []T) []error) *Writer[T] {
	add := func(slots slots) *Batcher[T] {
		b := addBatcher(db, slots, db.checkedInTime, flush)
		b.metrics = db.metrics
		db.queues = append(db.queues, func() int { return len(b.queue) })
		return b
	}
	w := &Writer[T]{calm: add(db.budget.batches), waiters: db.budget.waiters}
	w.suspect = w.calm
	if db.budget.suspects != nil {
		w.suspect = add(db.budget.suspects)
	}
	return w
}

// errDeferred is the outcome of an item that was not tried, because too many others in its
// batch are locked: it joins another one.
var errDeferred = errors.New("deferred to another batch")

// Do is [Batcher.Do], with a batcher for those clients that have writes which wait for a lock. An
// item that was deferred joins another one, until it is due.
func (w *Writer[T]) Do(ctx context.Context, item T) error {
	for due := time.Now().Add(w.calm.timeout); ; {
		b := w.calm
		if w.waiters.has(clientOf(ctx)) {
			b = w.suspect
		}
		if err := b.do(ctx, item, due); !errors.Is(err, errDeferred) {
			return err
		}
	}
}

// NewReader returns a batcher of reads, with the limits of NewWriter.
func NewReader[T any](db *DB, flush func(context.Context, []T) []error) *Batcher[T] {
	return addBatcher(db, db.budget.lookups, db.unlessFault, flush)
}

// addBatcher returns a batcher whose batches are run by guard: if that fails, all their
// items do.
func addBatcher[T any](db *DB, slots slots, guard func(func() error) error, flush func(context.Context, []T) []error) *Batcher[T] {
	b := newBatcher(db.batches, db.options.Timeout, slots, func(ctx context.Context, batch []T) (outcomes []error) {
		fault := guard(func() error {
			outcomes = flush(ctx, batch)
			return nil
		})
		if fault != nil {
			outcomes = slices.Repeat([]error{fault}, len(batch))
		}
		return outcomes
	})
	db.closers = append(db.closers, b.close)
	return b
}

func newBatcher[T any](o BatchOptions, timeout time.Duration, slots slots, flush func(context.Context, []T) []error) *Batcher[T] {
	b := &Batcher[T]{flush: flush, timeout: timeout, maxBatch: o.MaxBatch, slots: slots, queue: make(chan *pending[T], o.Queue)}
	b.waiting = NewShares(int64(o.Queue), max(int64(o.Queue)/2, 1))
	b.needs.Store(int64(timeout / WaitShare))
	for range cap(slots) {
		b.flushers.Go(b.run)
	}
	return b
}

// Do runs item and returns its outcome. It fails at once with ErrShare if the queue is full,
// or if items of ctx's client take half of it; later with ErrOverloaded if it was not the
// item's turn in time. An item still in the queue when ctx ends is dropped; it fails with
// ctx's cause. The queue is in order of arrival and a batch is due with its first item, so Do
// has no timer of its own. Only while the disk of a SQLite file hangs does it wait for longer.
func (b *Batcher[T]) Do(ctx context.Context, item T) error {
	return b.do(ctx, item, time.Now().Add(b.timeout))
}

// do is Do with the time at which the outcome is due.
func (b *Batcher[T]) do(ctx context.Context, item T, due time.Time) error {
	alone := b.calls.Add(1) == 1
	defer b.calls.Add(-1)
	p, ok := b.free.Get().(*pending[T])
	if !ok {
		p = &pending[T]{outcome: make(chan error, 1)}
	}
	p.ctx, p.item, p.due, p.span = ctx, item, due, recorded(ctx)
	var err error
	if !alone || ctx.Err() != nil || !b.runAlone(p) {
		err = b.enqueue(p)
	}
	if err == nil {
		err = <-p.outcome
		traceWait(p.span, p.due.Add(-b.timeout), p.begin, p.batch)
	}
	*p = pending[T]{outcome: p.outcome} // retains nothing
	b.free.Put(p)
	return err
}

// runAlone runs p at once, unless there are others to share a batch with. After an item that
// ran without company, it does not look for others: yielding the processor can take as long as
// a read.
func (b *Batcher[T]) runAlone(p *pending[T]) bool {
	b.mu.RLock() // for as long as close must wait
	defer b.mu.RUnlock()
	if b.closed || !b.slots.try() {
		return false
	}
	defer b.slots.free()
	if !b.quiet.Load() {
		runtime.Gosched() // see letOthersQueue
	}
	if b.calls.Load() > 1 {
		return false
	}
	b.runBatch([]*pending[T]{p})
	b.quiet.Store(b.calls.Load() == 1)
	return true
}

func (b *Batcher[T]) enqueue(p *pending[T]) error {
	b.mu.RLock()
	defer b.mu.RUnlock()
	if b.closed {
		return errClosed
	}
	if err := b.waiting.Take(clientOf(p.ctx), 1); err != nil {
		return err
	}
	b.queue <- p // has room: waiting counts at least those in it
	return nil
}

// close runs the queued items and stops the flushers. Later items fail.
func (b *Batcher[T]) close() {
	b.mu.Lock()
	if !b.closed {
		b.closed = true
		close(b.queue)
	}
	b.mu.Unlock()
	b.flushers.Wait()
}

// run is a flusher: it runs the queued items, a batch at a time.
func (b *Batcher[T]) run() {
	batch := make([]*pending[T], 0, b.maxBatch)
	for first := range b.queue {
		b.waiting.Give(clientOf(first.ctx), 1)
		if err := b.slots.take(first.ctx, time.Until(first.due)-time.Duration(b.needs.Load())); err != nil {
			first.outcome <- err
			continue
		}
		b.letOthersQueue()
		now := time.Now()
		batch = b.gather(batch[:0], first, now)
		for len(batch) < b.maxBatch {
			next := b.next()
			if next == nil {
				break
			}
			batch = b.gather(batch, next, now)
		}
		if len(batch) > 0 {
			b.runBatch(batch)
		}
		b.slots.free()
		clear(batch) // for the garbage collector
	}
}

// next returns the next item of the queue, or nil if there is none now.
func (b *Batcher[T]) next() *pending[T] {
	select {
	case p, open := <-b.queue:
		if open {
			b.waiting.Give(clientOf(p.ctx), 1)
		}
		return p
	default:
		return nil
	}
}

// letOthersQueue yields the processor for as long as that fills the queue, so that
// requests already in memory share the batch. If there are no such requests, it takes no time.
func (b *Batcher[T]) letOthersQueue() {
	for before := -1; before < len(b.queue) && len(b.queue) < b.maxBatch; {
		before = len(b.queue)
		runtime.Gosched()
	}
}

// gather appends p to batch, which begins now. It rejects p instead if p is no longer
// awaited, or has less time left than the batch is expected to need: the batch would end
// too early for the others as well.
func (b *Batcher[T]) gather(batch []*pending[T], p *pending[T], now time.Time) []*pending[T] {
	needs := time.Duration(b.needs.Load())
	switch {
	case p.ctx.Err() != nil:
		p.outcome <- fmt.Errorf("wait for a batch: %w", context.Cause(p.ctx))
	case p.due.Sub(now) < needs:
		p.outcome <- fmt.Errorf("%w: no batch within %s", ErrOverloaded, b.timeout-needs)
	default:
		batch = append(batch, p)
	}
	return batch
}

// runBatch runs the items of batch, and tells each its outcome.
func (b *Batcher[T]) runBatch(batch []*pending[T]) {
	begin, items, due := time.Now(), make([]T, len(batch)), batch[0].due
	if b.metrics != nil {
		b.metrics.batchRows.Observe(float64(len(batch)))
	}
	var requests []trace.Span
	for i, p := range batch {
		items[i] = p.item
		if p.due.Before(due) { // it was deferred
			due = p.due
		}
		if b.metrics != nil {
			b.metrics.wait.Observe(begin.Sub(p.due.Add(-b.timeout)).Seconds())
		}
		if p.span != nil {
			requests = append(requests, p.span)
		}
	}
	ctx, cancel := context.WithDeadline(context.Background(), due)
	defer cancel()
	ctx, span := startBatch(ctx, len(batch), requests...)
	outcomes := b.flushSafely(batchContext{ctx}, items)
	span.End()
	for i, err := range outcomes {
		if batch[i].span != nil {
			batch[i].begin, batch[i].batch = begin, span.SpanContext()
		}
		batch[i].outcome <- err
	}
}

// expect sets the time that the next batch is expected to need to what the last one took
// and a quarter more. Without it, items that have waited too long would fill batch after
// batch under overload, and none would end in time. A batch that exceeded its limit would
// have taken longer. The time at most doubles with each batch, since a single slow one says
// little, and a sixth of an item's time is left to wait in.
func (b *Batcher[T]) expect(took time.Duration, exceeded bool) {
	if exceeded {
		took = b.timeout
	}
	share := b.timeout / WaitShare
	needs := min(took+took/4, 2*time.Duration(b.needs.Load()), b.timeout-share)
	b.needs.Store(int64(max(needs, share)))
}

// batchContext is the context of a batch, which nothing but its deadline ends.
type batchContext struct{ context.Context } //nolint:containedctx // it is one

// flushSafely turns a panic into the outcome of every item, so that no caller waits
// forever and the flusher survives.
func (b *Batcher[T]) flushSafely(ctx context.Context, items []T) (outcomes []error) {
	begin := time.Now()
	var panicked error
	defer func() {
		b.expect(time.Since(begin), ctx.Err() != nil)
		if panicked != nil {
			outcomes = slices.Repeat([]error{panicked}, len(items))
		}
	}()
	defer Recover("a batch", &panicked)
	return b.flush(ctx, items)
}
