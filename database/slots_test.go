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
	t.Run("one that came too late for a slot says no negative time", func(t *testing.T) {
		inSlots(t, func(t *testing.T, s slots, _ func()) {
			want := ErrOverloaded.Error() + ": no slot within 0s"
			if err := s.take(t.Context(), -time.Millisecond); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
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
		taken   []string // clients, with one each
		client  string
		n       int64
		wantErr error
	}{
		{"alone", nil, "a", 1, nil},
		{"all that a client may take", nil, "a", 2, nil},
		{"more than a client may take", nil, "a", 3, ErrShare},
		{"a client's second", []string{"a"}, "a", 1, nil},
		{"a client's third", []string{"a", "a"}, "a", 1, ErrShare},
		{"another client beside a client with its share", []string{"a", "a"}, "b", 1, nil},
		{"more than is left", []string{"a", "b"}, "c", 2, ErrShare},
		{"more than a client leaves", []string{"a", "b"}, "b", 1, ErrShare},
		{"one more than there may be in all", []string{"a", "a", "b"}, "c", 1, ErrShare},
		{"nothing", []string{"a", "a", "b"}, "a", 0, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := NewShares(3, 2)
			for _, client := range test.taken {
				if err := s.Take(client, 1); err != nil {
					t.Fatal(err)
				}
			}
			err := s.Take(test.client, test.n)
			if !errors.Is(err, test.wantErr) || errors.Is(err, ErrOverloaded) != (err != nil) {
				t.Errorf("got %v, want %v", err, test.wantErr)
			}
			if err == nil {
				s.Give(test.client, test.n)
			}
			for _, client := range test.taken {
				s.Give(client, 1)
			}
			if s.taken != 0 || len(s.of) != 0 {
				t.Errorf("after all was given back: got %d, %v", s.taken, s.of)
			}
		})
	}
	t.Run("clients that take what they can have equal shares in the end", func(t *testing.T) {
		s := NewShares(12, 6)
		for range 100 { // each gives one back, and takes what it can
			for _, client := range []string{"a", "b"} {
				if s.has(client) {
					s.Give(client, 1)
				}
				for s.Take(client, 1) == nil {
				}
			}
		}
		if a, b := s.of["a"], s.of["b"]; a != 4 || b != 4 {
			t.Errorf("got %d and %d, want 4 each, and 4 left", a, b)
		}
	})
	t.Run("a share is free again after an error or a panic", func(t *testing.T) {
		s, failed := NewShares(1, 1), errors.New("failed")
		if err := s.run("a", func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.run("a", func() error { panic("a fault") })
		}()
		if s.has("a") {
			t.Error("it is not")
		}
	})
}

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2, 1)
		end, running := make(chan struct{}), 0
		for range 5 {
			go func() {
				err := all.run(t.Context(), "a", time.Hour, func() error {
					running++
					<-end
					running--
					return nil
				})
				if err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		ran := false
		if err := all.run(t.Context(), "b", time.Second, func() error { ran = true; return nil }); err != nil || !ran {
			t.Errorf("another client: got %v, %v, want its turn at once", err, ran)
		}
		hold := make(chan struct{})
		go func() { _ = all.run(t.Context(), "b", time.Hour, func() error { <-hold; return nil }) }()
		synctest.Wait()
		if err := all.run(t.Context(), "c", time.Second, func() error { t.Error("ran beside as many as may"); return nil }); !errors.Is(err, ErrOverloaded) {
			t.Errorf("a third client: got %v, want ErrOverloaded", err)
		}
		close(hold)
		begin := time.Now()
		err := all.run(t.Context(), "a", time.Second, func() error { t.Error("ran beside another one"); return nil })
		if waited := time.Since(begin); !errors.Is(err, ErrOverloaded) || waited != time.Second {
			t.Errorf("the same client: got %v after %s, want ErrOverloaded after 1s", err, waited)
		}
		for range 5 {
			if synctest.Wait(); running != 1 {
				t.Errorf("%d run at the same time, want 1", running)
			}
			end <- struct{}{}
		}
		if synctest.Wait(); len(all.of) != 0 {
			t.Errorf("%d clients are left", len(all.of))
		}
	})
}

// TestTurnsOfAClientThatGaveUp: once an operation has got no turn in time, the next one of its client
// waits for one.
func TestTurnsOfAClientThatGaveUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(1, 1)
		free, err := all.take(t.Context(), "a", 0)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := make(chan error, 2)
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			go func() { outcomes <- all.run(t.Context(), "b", wait, func() error { return nil }) }()
			synctest.Wait() // in this order
		}
		if err := <-outcomes; !errors.Is(err, ErrOverloaded) {
			t.Errorf("the first one: got %v, want ErrOverloaded", err)
		}
		free()
		if err := <-outcomes; err != nil {
			t.Errorf("the next one: got %v, want its turn", err)
		}
	})
}

// TestBudgetSpendsEveryConnection: an operation with a slot never waits for a connection,
// and no connection is idle for want of a slot.
func TestBudgetSpendsEveryConnection(t *testing.T) {
	for flushers := 1; flushers < 20; flushers++ {
		for connections := MinConnections(flushers); connections < 100; connections++ {
			b := newBudget(flushers, connections, 1)
			got := background
			for _, s := range []slots{b.lookups, b.reads.all, b.bulk.all, b.batches, b.suspects, b.writes, b.locked} {
				if got += cap(s); cap(s) == 0 {
					t.Errorf("%d flushers and %d connections: got no slots for one of %+v", flushers, connections, b)
				}
			}
			if got != connections || cap(b.batches) != flushers {
				t.Errorf("%d flushers and %d connections: got %d slots, %+v", flushers, connections, got, b)
			}
		}
	}
}

func TestBudgetOfSQLite(t *testing.T) {
	b := newFileBudget(readers, 1)
	for name, writes := range map[string]slots{"batches": b.batches, "single writes": b.writes, "writes that wait for a lock": b.locked} {
		t.Run(name+" share the writer", func(t *testing.T) {
			if writes != b.writer || cap(writes) != 1 {
				t.Errorf("got %d slots of their own", cap(writes))
			}
		})
	}
	t.Run("reads have the other connections", func(t *testing.T) {
		if got := cap(b.lookups) + cap(b.reads.all) + cap(b.bulk.all) + background; got != readers {
			t.Errorf("got %d slots, want %d", got, readers)
		}
	})
}

func TestNoShareIsAll(t *testing.T) {
	b := newBudget(1, 16, 1<<20)
	for name, s := range map[string]*Shares{
		"imports and exports": b.transfers, "writes that wait for a lock": b.waiters, "temporary files": b.disk,
	} {
		t.Run(name, func(t *testing.T) {
			if s.each >= s.all {
				t.Errorf("one client may take %d of %d", s.each, s.all)
			}
		})
	}
	for name, turns := range map[string]*turns{"reads": b.reads, "imports and exports that store or read": b.bulk, "imports": b.imports} {
		t.Run(name, func(t *testing.T) {
			if turns.each >= cap(turns.all) {
				t.Errorf("one client may run %d of %d", turns.each, cap(turns.all))
			}
		})
	}
}
