package models

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// gate is a write that says what it was given and waits until it may go on.
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

// start has item written in the background and returns where its outcome comes.
func start(ctx context.Context, g *groupCommit[int], item int) <-chan error {
	outcome := make(chan error, 1)
	go func() { outcome <- g.do(ctx, item) }()
	return outcome
}

// awaitQueued waits until n items wait.
func awaitQueued(g *groupCommit[int], n int) {
	for g.stats().Queued != n {
		runtime.Gosched() // the items come from goroutines of their own
	}
}

func TestGroupCommitGathersWhatWaits(t *testing.T) {
	w := newGate()
	g := newGroupCommit(1, 3, 100, time.Minute, w.write)
	first := start(t.Context(), g, 0)
	if batch := <-w.batches; !slices.Equal(batch, []int{0}) {
		t.Errorf("an item that comes alone is in the batch %v", batch)
	}
	// While it is being written, five more come.
	var others []<-chan error
	for i := 1; i <= 5; i++ {
		others = append(others, start(t.Context(), g, i))
		awaitQueued(g, i)
	}
	for _, want := range [][]int{{1, 2, 3}, {4, 5}} {
		w.open <- struct{}{}
		if batch := <-w.batches; !slices.Equal(batch, want) {
			t.Errorf("the next batch is %v, want %v", batch, want)
		}
	}
	w.open <- struct{}{}
	for _, outcome := range append(others, first) {
		if err := <-outcome; err != nil {
			t.Error(err)
		}
	}
	g.close()
	if stats := g.stats(); stats.Batches != 3 || stats.Rows != 6 || stats.Queued != 0 || stats.Writing <= 0 {
		t.Errorf("counted %+v", stats)
	}
}

func TestGroupCommitRefusesWhenFull(t *testing.T) {
	w := newGate()
	g := newGroupCommit(1, 10, 1, time.Minute, w.write)
	written := start(t.Context(), g, 0)
	<-w.batches
	waiting := start(t.Context(), g, 1)
	awaitQueued(g, 1)
	if err := g.do(t.Context(), 2); !errors.Is(err, ErrOverloaded) {
		t.Errorf("got %v, want ErrOverloaded", err)
	}
	w.open <- struct{}{}
	<-w.batches
	w.open <- struct{}{}
	if err := errors.Join(<-written, <-waiting); err != nil {
		t.Error(err)
	}
	g.close()
}

func TestGroupCommitLeavesOutWhoLeft(t *testing.T) {
	w := newGate()
	g := newGroupCommit(1, 10, 10, time.Minute, w.write)
	first := start(t.Context(), g, 0)
	<-w.batches
	ctx, leave := context.WithCancelCause(t.Context())
	left := start(ctx, g, 1)
	awaitQueued(g, 1)
	stays := start(t.Context(), g, 2)
	awaitQueued(g, 2)
	gone := errors.New("gone")
	leave(gone)
	w.open <- struct{}{}
	if err := <-left; !errors.Is(err, gone) {
		t.Errorf("who left got %v", err)
	}
	if batch := <-w.batches; !slices.Equal(batch, []int{2}) {
		t.Errorf("the next batch is %v, want that of who stays", batch)
	}
	w.open <- struct{}{}
	if err := errors.Join(<-first, <-stays); err != nil {
		t.Error(err)
	}
	g.close()
}

// TestGroupCommitEndsWhenTheFirstIsDue: the write is told when to give up, and an
// item that is due before its turn is not written.
func TestGroupCommitEndsWhenTheFirstIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var written [][]int
		g := newGroupCommit(1, 10, 10, time.Second, func(ctx context.Context, batch []int) []error {
			written = append(written, slices.Clone(batch))
			<-ctx.Done()
			return slices.Repeat([]error{ctx.Err()}, len(batch))
		})
		begin := time.Now()
		var group sync.WaitGroup
		for item := range 3 {
			group.Go(func() {
				time.Sleep(time.Duration(item) * 600 * time.Millisecond)
				if err := g.do(t.Context(), item); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("item %d got %v", item, err)
				}
				if waited := time.Since(begin) - time.Duration(item)*600*time.Millisecond; waited > time.Second {
					t.Errorf("item %d waited %v", item, waited)
				}
			})
		}
		group.Wait()
		g.close()
		if !slices.EqualFunc(written, [][]int{{0}, {1}, {2}}, slices.Equal) {
			t.Errorf("written: %v", written)
		}
	})
}

func TestGroupCommitSurvivesAPanic(t *testing.T) {
	panics := true
	g := newGroupCommit(1, 10, 10, time.Minute, func(_ context.Context, batch []int) []error {
		if panics {
			panic("a fault")
		}
		return make([]error, len(batch))
	})
	if err := g.do(t.Context(), 1); err == nil || !strings.Contains(err.Error(), "a fault") {
		t.Errorf("got %v, want the panic", err)
	}
	panics = false // the flusher waits for the next item
	if err := g.do(t.Context(), 2); err != nil {
		t.Error(err)
	}
	g.close()
}

func TestGroupCommitCloseWritesWhatWaits(t *testing.T) {
	w := newGate()
	g := newGroupCommit(1, 10, 10, time.Minute, w.write)
	first := start(t.Context(), g, 0)
	<-w.batches
	second := start(t.Context(), g, 1)
	awaitQueued(g, 1)
	var closed sync.WaitGroup
	closed.Go(g.close)
	closed.Go(g.close) // twice does no harm
	w.open <- struct{}{}
	<-w.batches
	w.open <- struct{}{}
	closed.Wait()
	if err := errors.Join(<-first, <-second); err != nil {
		t.Error(err)
	}
	if err := g.do(t.Context(), 2); !errors.Is(err, ErrUnavailable) {
		t.Errorf("after the end: got %v, want ErrUnavailable", err)
	}
}

func TestGroupCommitGivesEachItsOwnOutcome(t *testing.T) {
	odd := errors.New("odd")
	g := newGroupCommit(3, 7, 1000, time.Minute, func(_ context.Context, batch []int) []error {
		outcomes := make([]error, len(batch))
		for i, item := range batch {
			if item%2 == 1 {
				outcomes[i] = odd
			}
		}
		return outcomes
	})
	var group sync.WaitGroup
	for item := range 500 {
		group.Go(func() {
			if err := g.do(t.Context(), item); errors.Is(err, odd) != (item%2 == 1) {
				t.Errorf("item %d got %v", item, err)
			}
		})
	}
	group.Wait()
	g.close()
}
