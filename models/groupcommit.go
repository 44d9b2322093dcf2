package models

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
)

// errClosed is what a write gets that comes after the store was closed.
var errClosed = fmt.Errorf("%w: the store is closed", ErrUnavailable)

// groupCommit writes items in batches: what arrives while a batch is being
// written is the next batch, so that all of them share one commit. There is no
// timer: an item that comes alone is written at once.
type groupCommit[T any] struct {
	// write stores a batch and returns the outcome of each of its items, before
	// its context ends.
	write    func(ctx context.Context, batch []T) []error
	timeout  time.Duration // from an item's arrival to its outcome
	maxBatch int
	queue    chan *pending[T]
	flushers sync.WaitGroup
	done     sync.Pool // of *pending[T], to be used again

	mu     sync.RWMutex // guards closed, and the closing of queue
	closed bool

	batches, items atomic.Int64
	writing        atomic.Int64 // nanoseconds
}

// pending is an item that waits for its outcome.
type pending[T any] struct {
	ctx     context.Context //nolint:containedctx // that of the one who waits, for as long as it waits
	item    T
	due     time.Time
	outcome chan error // holds one: a flusher waits for nobody
}

// WriteStats counts what a store has written.
type WriteStats struct {
	Batches int64         // transactions
	Rows    int64         // rows in them, whatever became of each
	Writing time.Duration // spent in them, of all flushers together
	Queued  int           // rows that wait now
}

// newGroupCommit starts flushers goroutines, each of which writes a batch of at
// most maxBatch items at a time. Up to queue items may wait, each for at most
// timeout.
func newGroupCommit[T any](
	flushers, maxBatch, queue int, timeout time.Duration, write func(context.Context, []T) []error,
) *groupCommit[T] {
	g := &groupCommit[T]{write: write, timeout: timeout, maxBatch: maxBatch, queue: make(chan *pending[T], queue)}
	for range flushers {
		g.flushers.Go(g.run)
	}
	return g
}

// do has item written and returns its outcome. Where the queue is full, it fails
// with ErrOverloaded at once. An item that still waits when ctx ends is left out,
// and fails with the cause. The queue is in order of arrival and a batch ends
// when the first of its items is due, so that do needs no timer of its own.
func (g *groupCommit[T]) do(ctx context.Context, item T) error {
	p, ok := g.done.Get().(*pending[T])
	if !ok {
		p = &pending[T]{outcome: make(chan error, 1)}
	}
	p.ctx, p.item, p.due = ctx, item, time.Now().Add(g.timeout)
	err := g.enqueue(p)
	if err == nil {
		err = <-p.outcome
	}
	*p = pending[T]{outcome: p.outcome} // holds on to nothing
	g.done.Put(p)
	return err
}

func (g *groupCommit[T]) enqueue(p *pending[T]) error {
	g.mu.RLock()
	defer g.mu.RUnlock()
	if g.closed {
		return errClosed
	}
	select {
	case g.queue <- p:
		return nil
	default:
		return ErrOverloaded
	}
}

// close writes what waits and ends the flushers. Later items fail.
func (g *groupCommit[T]) close() {
	g.mu.Lock()
	if !g.closed {
		g.closed = true
		close(g.queue)
	}
	g.mu.Unlock()
	g.flushers.Wait()
}

func (g *groupCommit[T]) stats() WriteStats {
	return WriteStats{
		Batches: g.batches.Load(), Rows: g.items.Load(),
		Writing: time.Duration(g.writing.Load()), Queued: len(g.queue),
	}
}

// run is a flusher: it takes what waits, up to a batch, and writes it.
func (g *groupCommit[T]) run() {
	batch := make([]*pending[T], 0, g.maxBatch)
	for first := range g.queue {
		g.letOthersQueue()
		batch = append(batch[:0], first)
		for len(batch) < g.maxBatch {
			next, ok := g.tryNext()
			if !ok {
				break
			}
			batch = append(batch, next)
		}
		g.flush(batch)
		clear(batch) // what was written can be freed
	}
}

// letOthersQueue yields the processor for as long as that fills the queue: those
// whose requests are in memory already share the batch. It waits for nobody, and
// takes no time when an item has come alone.
func (g *groupCommit[T]) letOthersQueue() {
	for before := -1; before < len(g.queue) && len(g.queue) < g.maxBatch; {
		before = len(g.queue)
		runtime.Gosched()
	}
}

func (g *groupCommit[T]) tryNext() (*pending[T], bool) {
	select {
	case p, ok := <-g.queue:
		return p, ok
	default:
		return nil, false
	}
}

// flush writes those of batch who still wait, and tells each its outcome.
func (g *groupCommit[T]) flush(batch []*pending[T]) {
	begin := time.Now()
	waiting, items := batch[:0], make([]T, 0, len(batch))
	for _, p := range batch {
		switch {
		case p.ctx.Err() != nil:
			p.outcome <- fmt.Errorf("wait for the write: %w", context.Cause(p.ctx))
		case p.due.Sub(begin) < g.timeout/6: // it would leave the others no time
			p.outcome <- fmt.Errorf("wait for the write: %w", context.DeadlineExceeded)
		default:
			waiting, items = append(waiting, p), append(items, p.item)
		}
	}
	if len(waiting) == 0 {
		return
	}
	ctx, cancel := context.WithDeadline(context.Background(), waiting[0].due)
	defer cancel()
	outcomes := g.writeSafely(ctx, items)
	g.writing.Add(int64(time.Since(begin)))
	g.batches.Add(1)
	g.items.Add(int64(len(items)))
	for i, p := range waiting {
		p.outcome <- outcomes[i]
	}
}

// writeSafely turns a panic into the outcome of every item: those who wait get
// an answer, and the flusher lives.
func (g *groupCommit[T]) writeSafely(ctx context.Context, items []T) (outcomes []error) {
	defer func() {
		if cause := recover(); cause != nil {
			outcomes = make([]error, len(items))
			for i := range outcomes {
				outcomes[i] = fmt.Errorf("panic in a batch of %d: %v", len(items), cause)
			}
		}
	}()
	return g.write(ctx, items)
}
