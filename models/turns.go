package models

import (
	"context"
	"fmt"
	"time"
)

// turns lets so many operations on the database run at a time, as it can carry
// out; others wait for their turn, in order of arrival, and give up early. Waiting for
// a connection of the pool instead would leave those that get one so late no time
// to use it: under a load that is too large, all would fail.
type turns struct {
	free    chan struct{} // holds one for each operation that runs
	timeout time.Duration // of an operation, the wait for its turn included
}

func newTurns(n int, timeout time.Duration) turns {
	return turns{free: make(chan struct{}, n), timeout: timeout}
}

// begin waits for a turn, and returns the context of the operation, and what ends
// both. It fails with ErrOverloaded where the wait takes a sixth of the time limit, as
// most of it is for the operation itself, and with the cause when ctx ends before.
func (t turns) begin(ctx context.Context) (_ context.Context, end func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, t.timeout)
	end = func() {
		<-t.free
		cancel()
	}
	select {
	case t.free <- struct{}{}: // the usual case needs no other timer
		return ctx, end, nil
	default:
	}
	wait := t.timeout / 6
	patience := time.NewTimer(wait)
	defer patience.Stop()
	select {
	case t.free <- struct{}{}:
		return ctx, end, nil
	case <-patience.C:
		err = fmt.Errorf("%w: no turn within %s", ErrOverloaded, wait)
	case <-ctx.Done():
		err = fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
	}
	cancel()
	return nil, nil, err
}
