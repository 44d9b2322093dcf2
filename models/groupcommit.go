package models

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// ErrOverloaded says that too many writes are waiting. Nothing was stored.
var ErrOverloaded = errors.New("too many writes are waiting")

// errClosed is what a write gets that comes after the store was closed.
var errClosed = fmt.Errorf("%w: the store is closed", ErrUnavailable)

// groupCommit writes items in batches: what arrives while a batch is being
// written is the next batch, so that all of them share one commit. There is no
// timer: an item that comes alone is written at once.
type groupCommit[T any] struct {
	// write stores a batch and returns the outcome of each of its items.
	write    func(batch []T) []error
	maxBatch int
	queue    chan *pending[T]
	flushers sync.WaitGroup

	mu     sync.RWMutex // guards closed, and the closing of queue
	closed bool

	batches, items atomic.Int64
	writing        atomic.Int64 // nanoseconds
}

// pending is an item that waits for its outcome.
type pending[T any] struct {
	ctx     context.Context //nolint:containedctx // that of the one who waits, for as long as it waits
	item    T
	outcome chan error // holds one, so that nobody waits for those who have left
}

// WriteStats counts what a store has written.
type WriteStats struct {
	Batches int64         // transactions
	Rows    int64         // rows in them, whatever became of each
	Writing time.Duration // spent in them, of all flushers together
	Queued  int           // rows that wait now
}

// newGroupCommit starts flushers goroutines, each of which writes a batch of at
// most maxBatch items at a time. Up to queue items may wait.
func newGroupCommit[T any](flushers, maxBatch, queue int, write func([]T) []error) *groupCommit[T] {
	g := &groupCommit[T]{write: write, maxBatch: maxBatch, queue: make(chan *pending[T], queue)}
	for range flushers {
		g.flushers.Go(g.run)
	}
	return g
}

// do has item written and returns its outcome. Where the queue is full, it fails
// with ErrOverloaded at once. When ctx ends first, it returns the cause: an item
// that still waits is then left out, of one that is being written the outcome is
// not known.
func (g *groupCommit[T]) do(ctx context.Context, item T) error {
	p := &pending[T]{ctx: ctx, item: item, outcome: make(chan error, 1)}
	if err := g.enqueue(p); err != nil {
		return err
	}
	select {
	case err := <-p.outcome:
		return err
	case <-ctx.Done():
		return fmt.Errorf("wait for the write: %w", context.Cause(ctx))
	}
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
	waiting, items := batch[:0], make([]T, 0, len(batch))
	for _, p := range batch {
		if p.ctx.Err() == nil {
			waiting, items = append(waiting, p), append(items, p.item)
		}
	}
	if len(waiting) == 0 {
		return
	}
	begin := time.Now()
	outcomes := g.writeSafely(items)
	g.writing.Add(int64(time.Since(begin)))
	g.batches.Add(1)
	g.items.Add(int64(len(items)))
	for i, p := range waiting {
		p.outcome <- outcomes[i]
	}
}

// writeSafely turns a panic into the outcome of every item: those who wait get
// an answer, and the flusher lives.
func (g *groupCommit[T]) writeSafely(items []T) (outcomes []error) {
	defer func() {
		if cause := recover(); cause != nil {
			outcomes = make([]error, len(items))
			for i := range outcomes {
				outcomes[i] = fmt.Errorf("panic in a batch of %d: %v", len(items), cause)
			}
		}
	}()
	return g.write(items)
}
