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

func TestShares(t *testing.T) {
	for _, test := range []struct {
		name    string
		running []string // clients
		client  string
		wantErr error
	}{
		{"alone", nil, "a", nil},
		{"a client's second", []string{"a"}, "a", nil},
		{"a client's third", []string{"a", "a"}, "a", ErrOverloaded},
		{"another client beside a client with its share", []string{"a", "a"}, "b", nil},
		{"one more than there may be in all", []string{"a", "a", "b"}, "c", ErrOverloaded},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, end := newShares(3, 2), make(chan struct{})
				for _, client := range test.running {
					go func() {
						if err := s.run(client, func() error { <-end; return nil }); err != nil {
							t.Error(err)
						}
					}()
				}
				synctest.Wait()
				begin, ran := time.Now(), false
				err := s.run(test.client, func() error { ran = true; return nil })
				if !errors.Is(err, test.wantErr) || ran != (test.wantErr == nil) || time.Since(begin) > 0 {
					t.Errorf("got %v after %s, ran: %t; want %v at once", err, time.Since(begin), ran, test.wantErr)
				}
				close(end)
				synctest.Wait()
				if err := s.run(test.client, func() error { return nil }); err != nil || len(s.of) > 0 || s.running > 0 {
					t.Errorf("after the others: got %v, %d running, shares %v", err, s.running, s.of)
				}
			})
		})
	}
}

// TestBudgetSpendsEveryConnection: an operation with a slot never waits for a connection,
// and no connection is idle for want of a slot.
func TestBudgetSpendsEveryConnection(t *testing.T) {
	for flushers := 1; flushers < 20; flushers++ {
		for connections := MinConnections(flushers); connections < 100; connections++ {
			b := newBudget(flushers, connections)
			got := cap(b.batches) + cap(b.lookups) + cap(b.reads) + cap(b.writes) + cap(b.locked) + b.bulk.all + background
			if got != connections || cap(b.batches) != flushers || min(cap(b.reads), cap(b.writes), cap(b.locked)) == 0 {
				t.Errorf("%d flushers and %d connections: got %d slots, %+v", flushers, connections, got, b)
			}
		}
	}
}

func TestBudgetOfSQLite(t *testing.T) {
	b := newFileBudget(readers)
	for name, writes := range map[string]slots{"batches": b.batches, "single writes": b.writes, "writes that wait for a lock": b.locked} {
		t.Run(name+" share the writer", func(t *testing.T) {
			if writes != b.writer || cap(writes) != 1 {
				t.Errorf("got %d slots of their own", cap(writes))
			}
		})
	}
	t.Run("reads have the other connections", func(t *testing.T) {
		if got := cap(b.lookups) + cap(b.reads) + b.bulk.all + background; got != readers {
			t.Errorf("got %d slots, want %d", got, readers)
		}
	})
}

func TestNoShareIsAll(t *testing.T) {
	b := newBudget(1, 16)
	for name, s := range map[string]*shares{"imports and exports": b.bulk, "uploads": b.uploads} {
		t.Run(name, func(t *testing.T) {
			if s.each >= s.all {
				t.Errorf("one client may run %d of %d", s.each, s.all)
			}
		})
	}
}
