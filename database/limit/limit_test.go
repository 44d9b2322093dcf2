package limit

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// withTurns runs test in a bubble, with two turns that are both taken until release is
// called for each.
func withTurns(t *testing.T, test func(t *testing.T, all *Turns, release func())) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		all, end := NewTurns(2, 0), make(chan struct{})
		for range all.Len() {
			go func() {
				if err := all.Do(t.Context(), time.Hour, func() error { <-end; return nil }); err != nil {
					t.Error(err)
				}
			}()
		}
		synctest.Wait()
		defer close(end)
		test(t, all, func() { end <- struct{}{}; synctest.Wait() })
	})
}

// never is an operation that must not run.
func never(t *testing.T) func() error {
	return func() error {
		t.Error("the operation ran without its turn")
		return nil
	}
}

func TestTurns(t *testing.T) {
	t.Run("an operation waits for a sixth of its time limit", func(t *testing.T) {
		if got := Wait(6 * time.Second); got != time.Second {
			t.Errorf("got %s, want 1s", got)
		}
	})
	t.Run("an operation is rejected if its turn does not come in time", func(t *testing.T) {
		withTurns(t, func(t *testing.T, all *Turns, _ func()) {
			begin := time.Now()
			err := all.Do(t.Context(), time.Second, never(t))
			if waited := time.Since(begin); !errors.Is(err, ErrBusy) || waited != time.Second {
				t.Errorf("got %v after %s, want ErrBusy after 1s", err, waited)
			}
		})
	})
	t.Run("an operation that comes too late says no negative time", func(t *testing.T) {
		withTurns(t, func(t *testing.T, all *Turns, _ func()) {
			want := ErrBusy.Error() + ": no turn within 0s"
			if _, err := all.Take(t.Context(), -time.Millisecond); err == nil || err.Error() != want {
				t.Errorf("got %v, want %s", err, want)
			}
		})
	})
	t.Run("an operation is rejected if its deadline comes first", func(t *testing.T) {
		withTurns(t, func(t *testing.T, all *Turns, _ func()) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
			defer cancel()
			if err := all.Do(ctx, time.Second, never(t)); !errors.Is(err, ErrBusy) {
				t.Errorf("got %v, want ErrBusy", err)
			}
		})
	})
	t.Run("an operation ends with its context", func(t *testing.T) {
		withTurns(t, func(t *testing.T, all *Turns, _ func()) {
			ctx, cancel := context.WithCancelCause(t.Context())
			cause := errors.New("the client has gone")
			time.AfterFunc(time.Millisecond, func() { cancel(cause) })
			if err := all.Do(ctx, time.Second, never(t)); !errors.Is(err, cause) || errors.Is(err, ErrBusy) {
				t.Errorf("got %v, want %v", err, cause)
			}
		})
	})
	t.Run("operations run in order of arrival", func(t *testing.T) {
		withTurns(t, func(t *testing.T, all *Turns, release func()) {
			order := make(chan int, 3)
			for i := range cap(order) {
				go func() {
					if err := all.Do(t.Context(), time.Hour, func() error { order <- i; return nil }); err != nil {
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
	t.Run("a turn is free again after an error", func(t *testing.T) {
		all, failed := NewTurns(1, 0), errors.New("failed")
		for range 2 {
			if err := all.Do(t.Context(), time.Hour, func() error { return failed }); !errors.Is(err, failed) {
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
			if !errors.Is(err, test.wantErr) || (err != nil) != (test.wantErr != nil) {
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
				if s.of[client] > 0 {
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
		if err := s.Do(WithClient(t.Context(), "a"), func() error { return failed }); !errors.Is(err, failed) {
			t.Errorf("got %v", err)
		}
		func() {
			defer func() { _ = recover() }()
			_ = s.Do(WithClient(t.Context(), "a"), func() error { panic("a fault") })
		}()
		if s.of["a"] != 0 {
			t.Error("it is not")
		}
	})
}

func TestTurnsOfClients(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := NewTurns(2, 1)
		end, running := make(chan struct{}), 0
		for range 5 {
			go func() {
				err := all.Do(WithClient(t.Context(), "a"), time.Hour, func() error {
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
		if err := all.Do(WithClient(t.Context(), "b"), time.Second, func() error { ran = true; return nil }); err != nil || !ran {
			t.Errorf("another client: got %v, %v, want its turn at once", err, ran)
		}
		hold := make(chan struct{})
		go func() { _ = all.Do(WithClient(t.Context(), "b"), time.Hour, func() error { <-hold; return nil }) }()
		synctest.Wait()
		if err := all.Do(WithClient(t.Context(), "c"), time.Second, func() error { t.Error("ran beside as many as may"); return nil }); !errors.Is(err, ErrBusy) {
			t.Errorf("a third client: got %v, want ErrBusy", err)
		}
		close(hold)
		begin := time.Now()
		err := all.Do(WithClient(t.Context(), "a"), time.Second, func() error { t.Error("ran beside another one"); return nil })
		if waited := time.Since(begin); !errors.Is(err, ErrBusy) || waited != time.Second {
			t.Errorf("the same client: got %v after %s, want ErrBusy after 1s", err, waited)
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
		all := NewTurns(1, 1)
		free, err := all.Take(WithClient(t.Context(), "a"), 0)
		if err != nil {
			t.Fatal(err)
		}
		outcomes := make(chan error, 2)
		for _, wait := range []time.Duration{time.Second, time.Hour} {
			go func() { outcomes <- all.Do(WithClient(t.Context(), "b"), wait, func() error { return nil }) }()
			synctest.Wait() // in this order
		}
		if err := <-outcomes; !errors.Is(err, ErrBusy) {
			t.Errorf("the first one: got %v, want ErrBusy", err)
		}
		free()
		if err := <-outcomes; err != nil {
			t.Errorf("the next one: got %v, want its turn", err)
		}
	})
}

func TestTurnsRest(t *testing.T) {
	const ran = 2 * time.Millisecond
	for _, test := range []struct {
		name         string
		busy         bool
		operation    func(ctx context.Context, all *Turns)
		other, again time.Duration // until the turn of another client, and of the same client
	}{
		{"an operation while others are busy", true, func(ctx context.Context, all *Turns) {
			_ = all.Do(ctx, time.Hour, func() error { time.Sleep(ran); return nil })
		}, restAll * ran, restEach * ran},
		{"a long operation while others are busy", true, func(ctx context.Context, all *Turns) {
			_ = all.Do(ctx, 14*time.Second, func() error { time.Sleep(time.Minute); return nil })
		}, 3 * time.Second, 7 * time.Second},
		{"an operation alone", false, func(ctx context.Context, all *Turns) {
			_ = all.Do(ctx, time.Hour, func() error { time.Sleep(ran); return nil })
		}, 0, 0},
		{"an operation that pauses", true, func(ctx context.Context, all *Turns) {
			turn := all.NewTurn(ctx)
			turn.Take()
			time.Sleep(ran)
			turn.Give()
			time.Sleep(restEach * ran)
			turn.Give() // does nothing
		}, 0, 0},
		{"what has run without a turn while others are busy", true, func(ctx context.Context, all *Turns) { all.Charge(ctx, ran) }, restAll * ran, restEach * ran},
		{"what has run without a turn alone", false, func(ctx context.Context, all *Turns) { all.Charge(ctx, ran) }, 0, 0},
		{"what has waited without a turn", true, func(ctx context.Context, all *Turns) { all.Charge(ctx, time.Hour) }, restAll * maxCharge, restEach * maxCharge},
		{"what a client has left without a turn", true, func(ctx context.Context, all *Turns) {
			ctx, leave := context.WithCancel(ctx)
			leave()
			all.Charge(ctx, ran)
		}, restAll * ran, restEach * ran},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				all := NewTurns(1, 1)
				all.RestWhile(func() bool { return false })
				all.RestWhile(func() bool { return test.busy })
				test.operation(WithClient(t.Context(), "a"), all)
				begin := time.Now()
				waits := func(client string) (waited time.Duration) {
					_ = all.Do(WithClient(t.Context(), client), time.Hour, func() error { waited = time.Since(begin); return nil })
					return waited
				}
				if other, again := waits("b"), waits("a"); other != test.other || again != test.again {
					t.Errorf("another client waits for %s, the same client for %s, want %s, %s", other, again, test.other, test.again)
				}
			})
		})
	}
}
