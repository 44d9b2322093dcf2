package database

import (
	"context"
	"fmt"
	"time"
)

// waitShare is the fraction of an operation's time limit, 1/waitShare, that it may
// spend waiting: for a slot, in the queue of a batch, or for a row lock. The rest is
// for the operation itself and, in a batch, for the rows beside it.
const waitShare = 6

// slots limits how many operations run on the database at a time, in order of
// arrival. Operations that waited for a connection of the pool instead would get one
// too late to use it: under overload, all of them would fail.
type slots chan struct{}

// run calls do in a slot, within timeout, the wait for the slot included. It fails with
// ErrOverloaded if that wait takes too large a share, and with ctx's cause if ctx ends.
func (s slots) run(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	select {
	case s <- struct{}{}: // the common case needs no timer
	default:
		timer := time.NewTimer(timeout / waitShare)
		defer timer.Stop()
		select {
		case s <- struct{}{}:
		case <-timer.C:
			return fmt.Errorf("%w: no slot within %s", ErrOverloaded, timeout/waitShare)
		case <-ctx.Done():
			return fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
		}
	}
	defer func() { <-s }()
	return do(ctx)
}

// maxBulk is how many imports and exports may run at the same time: each occupies a
// connection for as long as its client takes.
const maxBulk = 2

// background is how many connections are left to work that takes no slot: the
// refresh of tokens.
const background = 1

// MinConnections is the fewest connections to PostgreSQL that suffice for flushers
// batches at a time: one is left for reads and single writes.
func MinConnections(flushers int) int { return flushers + maxBulk + background + 1 }

// budget shares out the connections between batches, bulk operations, and slots for
// reads and single writes.
type budget struct{ reads, writes, batches, bulk slots }

func newBudget(flushers, writers, readers int) budget {
	flushers = min(flushers, writers)
	b := budget{
		writes:  make(slots, max(writers-flushers-maxBulk-background, 1)),
		batches: make(slots, flushers),
		bulk:    make(slots, maxBulk),
	}
	b.reads = b.writes
	if readers > 0 {
		b.reads = make(slots, max(readers-maxBulk-background, 1))
	}
	return b
}

// Bulk calls do in one of the slots for imports and exports, without a time limit. It
// fails with ErrOverloaded at once if no slot is free: the wait could take minutes.
func (db *DB) Bulk(ctx context.Context, operation string, do func(context.Context) error) error {
	select {
	case db.budget.bulk <- struct{}{}:
		defer func() { <-db.budget.bulk }()
		return Failed(operation, db.checked(func() error { return do(ctx) }))
	default:
		return fmt.Errorf("%s: %w: %d imports and exports are running", operation, ErrOverloaded, maxBulk)
	}
}
