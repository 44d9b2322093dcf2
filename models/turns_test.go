package models

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

func TestTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		all := newTurns(2, 6*time.Second)
		var ends []func()
		for range 2 {
			_, end, err := all.begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			ends = append(ends, end)
		}
		begin := time.Now()
		if _, _, err := all.begin(t.Context()); !errors.Is(err, ErrOverloaded) || time.Since(begin) != time.Second {
			t.Errorf("the third: %v after %s", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if _, _, err := all.begin(ctx); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, ErrOverloaded) {
			t.Errorf("one that is in a hurry: %v", err)
		}

		// Those who wait come in their order.
		order := make(chan int, 3)
		for i := range 3 {
			go func() {
				_, end, err := all.begin(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				order <- i
				end()
			}()
			synctest.Wait()
		}
		ends[0]()
		for want := range 3 {
			if got := <-order; got != want {
				t.Errorf("the turn of %d came before that of %d", got, want)
			}
		}
		ends[1]()
	})
}
