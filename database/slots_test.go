package database

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// inSlots runs test in a bubble, with two slots that are both taken until release is
// called for each.
func inSlots(t *testing.T, test func(t *testing.T, s slots, release func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		s := make(slots, 2)
		end := make(chan struct{})
		for range cap(s) {
			go func() {
				if err := s.run(t.Context(), time.Hour, func(context.Context) error { <-end; return nil }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		defer close(end)
		test(t, s, func() { end <- struct{}{}; synctest.Wait() })
	})
}

// never is an operation that must not run.
func never(t *testing.T) func(context.Context) error {
	return func(context.Context) error {
		t.Error("the operation ran without a slot")
		return nil
	}
}

func TestSlots(t *testing.T) {
	t.Run("an operation is rejected after a sixth of its time limit", func(t *testing.T) {
		inSlots(t, func(t *testing.T, s slots, _ func()) {
			begin := time.Now()
			err := s.run(t.Context(), 6*time.Second, never(t))
			if waited := time.Since(begin); !errors.Is(err, ErrOverloaded) || waited != time.Second {
				t.Errorf("got %v after %s, want ErrOverloaded after 1s", err, waited)
			}
		})
	})
	t.Run("an operation ends with its context", func(t *testing.T) {
		inSlots(t, func(t *testing.T, s slots, _ func()) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := s.run(ctx, 6*time.Second, never(t)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOverloaded) {
				t.Errorf("got %v, want DeadlineExceeded", err)
			}
		})
	})
	t.Run("the time limit includes the wait", func(t *testing.T) {
		inSlots(t, func(t *testing.T, s slots, release func()) {
			begin := time.Now()
			time.AfterFunc(900*time.Millisecond, release)
			err := s.run(t.Context(), 6*time.Second, func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
			if took := time.Since(begin); !errors.Is(err, context.DeadlineExceeded) || took != 6*time.Second {
				t.Errorf("got %v after %s, want DeadlineExceeded after 6s", err, took)
			}
		})
	})
	t.Run("operations run in order of arrival", func(t *testing.T) {
		inSlots(t, func(t *testing.T, s slots, release func()) {
			order := make(chan int, 3)
			for i := range cap(order) {
				go func() {
					if err := s.run(t.Context(), time.Hour, func(context.Context) error { order <- i; return nil }); err != nil {
						t.Error(err)
					}
				}()
				synctest.Wait()
			}
			release()
			for want := range cap(order) {
				if got := <-order; got != want {
					t.Errorf("got operation %d, want %d", got, want)
				}
			}
		})
	})
	t.Run("a slot is free again after an error", func(t *testing.T) {
		s, failed := make(slots, 1), errors.New("failed")
		for range 2 {
			if err := s.run(t.Context(), time.Hour, func(context.Context) error { return failed }); !errors.Is(err, failed) {
				t.Errorf("got %v, want %v", err, failed)
			}
		}
	})
}

func TestBulkIsRejectedAtOnceIfTooManyRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		db, end := &DB{budget: newBudget(1, 10, 0), dialect: &postgresDialect{}}, make(chan struct{})
		for range maxBulk {
			go func() {
				if err := db.Bulk(t.Context(), "import", func(context.Context) error { <-end; return nil }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		begin := time.Now()
		if err := db.Bulk(t.Context(), "import", never(t)); !errors.Is(err, ErrOverloaded) || time.Since(begin) > 0 {
			t.Errorf("got %v after %s, want ErrOverloaded at once", err, time.Since(begin))
		}
		close(end)
		synctest.Wait()
		if err := db.Bulk(t.Context(), "import", func(context.Context) error { return nil }); err != nil {
			t.Errorf("after the others: %v", err)
		}
	})
}

// TestBudgetSpendsEveryConnection: an operation with a slot never waits for a connection,
// and no connection is idle for want of a slot.
func TestBudgetSpendsEveryConnection(t *testing.T) {
	for flushers := 1; flushers < 20; flushers++ {
		for connections := MinConnections(flushers); connections < 100; connections++ {
			b := newBudget(flushers, connections, 0)
			if got := cap(b.batches) + cap(b.writes) + cap(b.bulk) + background; got != connections || cap(b.batches) != flushers {
				t.Errorf("%d flushers and %d connections: got %d slots, %d of them for batches", flushers, connections, got, cap(b.batches))
			}
			if b.reads != b.writes {
				t.Error("reads and writes have slots of their own on one pool")
			}
		}
	}
	if b := newBudget(2, MinConnections(2), 0); cap(b.writes) != 1 {
		t.Errorf("with MinConnections: got %d slots for reads and writes, want 1", cap(b.writes))
	}
}

func TestBudgetOfSQLite(t *testing.T) {
	b := newBudget(4, 1, readers)
	for name, test := range map[string]struct {
		slots slots
		want  int
	}{
		"one batch at a time":            {b.batches, 1},
		"one write at a time":            {b.writes, 1},
		"two imports and exports":        {b.bulk, 2},
		"reads on the other connections": {b.reads, readers - maxBulk - background},
	} {
		t.Run(name, func(t *testing.T) {
			if got := cap(test.slots); got != test.want {
				t.Errorf("got %d slots, want %d", got, test.want)
			}
		})
	}
}
