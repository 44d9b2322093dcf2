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
	free     chan struct{} // holds one for each operation that runs
	patience time.Duration
}

func newTurns(n int, patience time.Duration) turns {
	return turns{free: make(chan struct{}, n), patience: patience}
}

// begin waits for a turn, which end ends. It fails with ErrOverloaded where that
// takes too long, and with the cause when ctx ends before.
func (t turns) begin(ctx context.Context) (end func(), err error) {
	end = func() { <-t.free }
	select {
	case t.free <- struct{}{}: // the usual case needs no timer
		return end, nil
	default:
	}
	patience := time.NewTimer(t.patience)
	defer patience.Stop()
	select {
	case t.free <- struct{}{}:
		return end, nil
	case <-patience.C:
		return nil, fmt.Errorf("%w: no turn within %s", ErrOverloaded, t.patience)
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for a turn: %w", context.Cause(ctx))
	}
}
