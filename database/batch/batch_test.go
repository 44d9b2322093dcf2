package batch

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/database/limit"
)

// gate is a write that reports its batch and then waits to be opened.
type gate struct {
	batches chan []int
	open    chan struct{}
}

func newGate() *gate { return &gate{batches: make(chan []int), open: make(chan struct{})} }

func (g *gate) write(_ context.Context, batch []int) []error {
	g.batches <- slices.Clone(batch)
	<-g.open
	return make([]error, len(batch))
}

// expect fails the test unless the next batch is want, and lets it end.
func (g *gate) expect(t *testing.T, want ...int) {
	t.Helper()
	if got := <-g.batches; !slices.Equal(got, want) {
		t.Errorf("got the batch %v, want %v", got, want)
	}
	g.open <- struct{}{}
}

// ok is a write of batches that all succeed.
func ok(_ context.Context, batch []int) []error { return make([]error, len(batch)) }

// newBatcher returns a batcher with one flusher.
func newBatcher(o Options, run func(context.Context, []int) []error) *Batcher[int] {
	o.Turns = limit.NewTurns(1, 0)
	return New(o, run)
}

// untilDue waits for took, or until ctx is due, and returns the outcome of a batch that needs took.
func untilDue(ctx context.Context, took time.Duration) error {
	due, _ := ctx.Deadline()
	time.Sleep(min(took, time.Until(due)))
	return ctx.Err()
}

// testBatcher runs test in a bubble, with a batcher of one flusher that writes with write
// and closes when test returns.
func testBatcher(t *testing.T, o Options, write func(context.Context, []int) []error, test func(*testing.T, *Batcher[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		b := newBatcher(o, write)
		defer b.Close()
		test(t, b)
	})
}

// testGated is testBatcher with the write of a gate.
func testGated(t *testing.T, o Options, test func(*testing.T, *gate, *Batcher[int])) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		g := newGate() // its channels belong to the bubble
		b := newBatcher(o, g.write)
		defer b.Close()
		test(t, g, b)
	})
}

// start calls b.Do in the background, and returns its outcome when item is queued or
// written.
func start(ctx context.Context, b *Batcher[int], item int) <-chan error {
	outcome := make(chan error, 1)
	go func() { outcome <- b.Do(ctx, item) }()
	synctest.Wait()
	return outcome
}

func TestBatcherGathersWaitingItems(t *testing.T) {
	testGated(t, Options{Max: 3, Queue: 100, Timeout: time.Minute}, func(t *testing.T, g *gate, b *Batcher[int]) {
		var outcomes []<-chan error
		for item := range 6 { // the first is written at once; the others arrive meanwhile
			outcomes = append(outcomes, start(t.Context(), b, item))
		}
		g.expect(t, 0)
		g.expect(t, 1, 2, 3)
		g.expect(t, 4, 5)
		for item, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("item %d: %v", item, err)
			}
		}
	})
}

func TestBatcherRejectsItemsIfTheQueueIsFull(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 1, Timeout: time.Minute}, func(t *testing.T, g *gate, b *Batcher[int]) {
		// The first is written, the next one is the flusher's, and one is queued.
		written, next, queued := start(t.Context(), b, 0), start(t.Context(), b, 1), start(t.Context(), b, 2)
		if err := b.Do(t.Context(), 3); !errors.Is(err, limit.ErrShare) {
			t.Errorf("got %v, want ErrShare", err)
		}
		g.expect(t, 0)
		g.expect(t, 1, 2)
		if err := errors.Join(<-written, <-next, <-queued); err != nil {
			t.Error(err)
		}
	})
}

// TestBatcherSharesTheQueue: a client that fills half of it leaves the rest to others.
func TestBatcherSharesTheQueue(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 4, Timeout: time.Minute}, func(t *testing.T, g *gate, b *Batcher[int]) {
		greedy, other := limit.WithClient(t.Context(), "greedy"), limit.WithClient(t.Context(), "other")
		// The first is written, the next one is the flusher's, and two are queued.
		var outcomes []<-chan error
		for item := range 4 {
			outcomes = append(outcomes, start(greedy, b, item))
		}
		if err := b.Do(greedy, 4); !errors.Is(err, limit.ErrShare) {
			t.Errorf("more than half of the queue: got %v, want ErrShare", err)
		}
		outcomes = append(outcomes, start(other, b, 5))
		g.expect(t, 0)
		synctest.Wait()
		outcomes = append(outcomes, start(greedy, b, 6)) // the queue is empty again
		g.expect(t, 1, 2, 3, 5)
		g.expect(t, 6)
		for i, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("item %d: %v", i, err)
			}
		}
	})
}

func TestBatcherDropsCanceledItems(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 10, Timeout: time.Minute}, func(t *testing.T, g *gate, b *Batcher[int]) {
		ctx, cancel := context.WithCancelCause(t.Context())
		first, canceled, last := start(t.Context(), b, 0), start(ctx, b, 1), start(t.Context(), b, 2)
		cause := errors.New("the client has gone")
		cancel(cause)
		g.expect(t, 0)
		g.expect(t, 2)
		if err := <-canceled; !errors.Is(err, cause) {
			t.Errorf("the canceled item: got %v, want %v", err, cause)
		}
		if err := errors.Join(<-first, <-last); err != nil {
			t.Error(err)
		}
	})
}

func TestBatcherGivesABatchTheTimeOfItsFirstItem(t *testing.T) {
	var written [][]int
	write := func(ctx context.Context, batch []int) []error {
		written = append(written, slices.Clone(batch))
		return slices.Repeat([]error{untilDue(ctx, time.Hour)}, len(batch))
	}
	testBatcher(t, Options{Max: 10, Queue: 10, Timeout: time.Second}, write, func(t *testing.T, b *Batcher[int]) {
		var group sync.WaitGroup
		for item := range 3 {
			group.Go(func() {
				time.Sleep(time.Duration(item) * 900 * time.Millisecond)
				begin := time.Now()
				if err := b.Do(t.Context(), item); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("item %d: got %v, want DeadlineExceeded", item, err)
				}
				if waited := time.Since(begin); waited > time.Second {
					t.Errorf("item %d waited %v, want at most 1s", item, waited)
				}
			})
		}
		group.Wait()
		if want := [][]int{{0}, {1}, {2}}; !slices.EqualFunc(written, want, slices.Equal) {
			t.Errorf("got the batches %v, want %v", written, want)
		}
	})
}

// TestBatcherDropsItemsThatAreDueSoon: a write that had no time left would fail, and take
// the rest of its batch with it.
func TestBatcherDropsItemsThatAreDueSoon(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 10, Timeout: 6 * time.Second}, func(t *testing.T, g *gate, b *Batcher[int]) {
		first := start(t.Context(), b, 0)
		time.Sleep(time.Second - 2*time.Nanosecond)
		late := start(t.Context(), b, 1)
		time.Sleep(2 * time.Nanosecond)
		inTime := start(t.Context(), b, 2)
		time.Sleep((6-2)*time.Second - time.Nanosecond)
		// Item 2 has two sixths of its time left, what a batch may need after a slow one.
		g.expect(t, 0)
		g.expect(t, 2)
		if err := <-late; !errors.Is(err, limit.ErrBusy) {
			t.Errorf("the item that is due soon: got %v, want ErrBusy", err)
		}
		if err := errors.Join(<-first, <-inTime); err != nil {
			t.Error(err)
		}
	})
}

// TestBatcherUnderOverload sends five times as many items as can be written. A batch takes
// half of an item's time: if it began with the items that waited longest, none would end.
func TestBatcherUnderOverload(t *testing.T) {
	const (
		timeout = time.Second
		took    = timeout / 2
		inBatch = 10
		span    = time.Minute
	)
	write := func(ctx context.Context, batch []int) []error {
		return slices.Repeat([]error{untilDue(ctx, took)}, len(batch))
	}
	testBatcher(t, Options{Max: inBatch, Queue: 1000, Timeout: timeout}, write, func(t *testing.T, b *Batcher[int]) {
		var all sync.WaitGroup
		var written, late atomic.Int64
		for item := range int(5 * inBatch * span / took) {
			all.Go(func() {
				switch err := b.Do(t.Context(), item); {
				case err == nil:
					written.Add(1)
				case errors.Is(err, context.DeadlineExceeded):
					late.Add(1)
				case !errors.Is(err, limit.ErrBusy):
					t.Error(err)
				}
			})
			time.Sleep(took / inBatch / 5)
		}
		all.Wait()
		if want := int64(inBatch * span / took * 9 / 10); written.Load() < want {
			t.Errorf("%d items were written, want at least %d", written.Load(), want)
		}
		if late.Load() > 5*inBatch {
			t.Errorf("the batches of %d items did not end in time, want at most the first five", late.Load())
		}
	})
}

// TestSlowBatchIsAnException: requests that wait for a disk that stops for a moment
// succeed.
func TestSlowBatchIsAnException(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 10, Timeout: 6 * time.Second}, func(t *testing.T, g *gate, b *Batcher[int]) {
		first, second := start(t.Context(), b, 0), start(t.Context(), b, 1)
		time.Sleep((6 - 2) * time.Second)
		g.expect(t, 0)
		g.expect(t, 1)
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
	})
}

func TestBatcherSurvivesAPanic(t *testing.T) {
	panics := true
	write := func(ctx context.Context, batch []int) []error {
		if panics {
			panic("a fault")
		}
		return ok(ctx, batch)
	}
	testBatcher(t, Options{Max: 10, Queue: 10, Timeout: time.Minute}, write, func(t *testing.T, b *Batcher[int]) {
		if err := b.Do(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "a fault") || !strings.Contains(err.Error(), "batch_test.go") {
			t.Errorf("got %v, want the panic with its stack", err)
		}
		panics = false
		if err := b.Do(t.Context(), 2); err != nil {
			t.Error(err)
		}
	})
}

// TestBatcherSurvivesTheEndOfAGoroutine: runtime.Goexit, as t.FailNow calls it, also ends the coroutine of lone items.
func TestBatcherSurvivesTheEndOfAGoroutine(t *testing.T) {
	run := func(_ context.Context, batch []int) []error {
		if batch[0] == 0 {
			runtime.Goexit()
		}
		return make([]error, len(batch))
	}
	testBatcher(t, Options{Max: 10, Queue: 10, Timeout: time.Second}, run, func(t *testing.T, b *Batcher[int]) {
		var ended sync.WaitGroup
		ended.Go(func() { _ = b.Do(t.Context(), 0) })
		ended.Wait()
		if err := b.Do(t.Context(), 1); err != nil {
			t.Errorf("the next item: got %v", err)
		}
	})
}

// TestFlusherSurvivesAPanic: other items are in the queue.
func TestFlusherSurvivesAPanic(t *testing.T) {
	g := func(ctx context.Context, batch []int) []error {
		time.Sleep(time.Second)
		if slices.Contains(batch, 1) {
			panic("a fault")
		}
		return ok(ctx, batch)
	}
	testBatcher(t, Options{Max: 1, Queue: 10, Timeout: time.Minute}, g, func(t *testing.T, b *Batcher[int]) {
		first, faulty, last := start(t.Context(), b, 0), start(t.Context(), b, 1), start(t.Context(), b, 2)
		if err := <-faulty; err == nil || !strings.Contains(err.Error(), "a fault") {
			t.Errorf("got %v, want the panic", err)
		}
		if err := errors.Join(<-first, <-last); err != nil {
			t.Error(err)
		}
	})
}

func TestCloseWritesQueuedItems(t *testing.T) {
	testGated(t, Options{Max: 10, Queue: 10, Timeout: time.Minute}, func(t *testing.T, g *gate, b *Batcher[int]) {
		first, second := start(t.Context(), b, 0), start(t.Context(), b, 1)
		var closed sync.WaitGroup
		closed.Go(b.Close)
		closed.Go(b.Close) // twice is harmless
		g.expect(t, 0)
		g.expect(t, 1)
		closed.Wait()
		if err := errors.Join(<-first, <-second); err != nil {
			t.Error(err)
		}
		if err := b.Do(t.Context(), 2); !errors.Is(err, errClosed) {
			t.Errorf("after Close: got %v, want %v", err, errClosed)
		}
	})
}

func TestEachItemGetsItsOwnOutcome(t *testing.T) {
	odd := errors.New("odd")
	b := New(Options{Max: 7, Queue: 1000, Timeout: time.Minute, Turns: limit.NewTurns(3, 0)}, func(_ context.Context, batch []int) []error {
		outcomes := make([]error, len(batch))
		for i, item := range batch {
			if item%2 == 1 {
				outcomes[i] = odd
			}
		}
		return outcomes
	})
	defer b.Close()
	var group sync.WaitGroup
	for item := range 500 {
		group.Go(func() {
			if err := b.Do(t.Context(), item); errors.Is(err, odd) != (item%2 == 1) {
				t.Errorf("item %d: got %v", item, err)
			}
		})
	}
	group.Wait()
}

func TestBatchersShareTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := newGate()
		o := Options{Max: 10, Queue: 10, Timeout: time.Minute, Turns: limit.NewTurns(1, 0)}
		plants, suppliers := New(o, g.write), New(o, ok)
		defer plants.Close()
		defer suppliers.Close()
		plant, supplier := start(t.Context(), plants, 1), start(t.Context(), suppliers, 2)
		if got := <-g.batches; !slices.Equal(got, []int{1}) {
			t.Errorf("got the batch %v, want [1]", got)
		}
		select {
		case err := <-supplier:
			t.Error("two batches were written in one turn", err)
		default:
		}
		g.open <- struct{}{}
		if err := errors.Join(<-plant, <-supplier); err != nil {
			t.Error(err)
		}
	})
}

// TestDeferred: an item that a batch defers joins another one, in the time that it has left.
func TestDeferred(t *testing.T) {
	for _, test := range []struct {
		name   string
		times  int // that it is deferred
		wantIn time.Duration
		want   error
	}{
		{"twice", 2, 300 * time.Millisecond, nil},
		{"always", 100, time.Second, context.DeadlineExceeded},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				left := test.times
				b := newBatcher(Options{Max: 10, Queue: 10, Timeout: time.Second}, func(ctx context.Context, _ []int) []error {
					if err := untilDue(ctx, 100*time.Millisecond); err != nil {
						return []error{err}
					}
					if left--; left >= 0 {
						return []error{ErrDeferred}
					}
					return []error{nil}
				})
				defer b.Close()
				begin := time.Now()
				err := b.Do(t.Context(), 1)
				if took := time.Since(begin); !errors.Is(err, test.want) || took != test.wantIn {
					t.Errorf("got %v after %s, want %v after %s", err, took, test.want, test.wantIn)
				}
			})
		})
	}
}
