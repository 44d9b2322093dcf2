package database

import (
	"context"
	"fmt"
	"sync"
	"time"
)

// waitShare is the fraction of an operation's time limit, 1/waitShare, that it may
// spend waiting for a slot. In the queue of a batch, or for a lock, it may wait until this
// fraction is left, for the operation itself and the rows beside it.
const waitShare = 6

// slots limits how many operations run on the database at a time, in order of
// arrival. Operations that waited for a connection of the pool instead would get one
// too late to use it: under overload, all of them would fail.
type slots chan struct{}

// take takes a slot, which the caller frees. It fails with ErrOverloaded if none is free
// within wait, and with ctx's cause if ctx ends.
func (s slots) take(ctx context.Context, wait time.Duration) error {
	select {
	case s <- struct{}{}: // the common case needs no timer
		return nil
	default:
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case s <- struct{}{}:
		return nil
	case <-timer.C:
		return fmt.Errorf("%w: no slot within %s", ErrOverloaded, wait)
	case <-ctx.Done():
		return fmt.Errorf("wait for a slot: %w", context.Cause(ctx))
	}
}

// free gives a slot back.
func (s slots) free() { <-s }

// run calls do in a slot, within timeout, the wait for the slot included. It fails like
// take if that wait takes too large a share.
func (s slots) run(ctx context.Context, timeout time.Duration, do func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	if err := s.take(ctx, timeout/waitShare); err != nil {
		return err
	}
	defer s.free()
	return do(ctx)
}

// shares limits how many operations run at a time, all in all and for each client.
type shares struct {
	all, each int

	mu      sync.Mutex
	running int
	of      map[string]int // by client
}

func newShares(all, each int) *shares { return &shares{all: all, each: each, of: make(map[string]int)} }

// run calls do. It fails with ErrOverloaded at once if too many operations run: the
// wait could take minutes.
func (s *shares) run(client string, do func() error) error {
	s.mu.Lock()
	of := s.of[client]
	if s.running == s.all || of == s.each {
		s.mu.Unlock()
		return fmt.Errorf("%w: %d imports and exports are running, %d of them with this token", ErrOverloaded, s.running, of)
	}
	s.running++
	s.of[client]++
	s.mu.Unlock()
	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.running--
		if s.of[client]--; s.of[client] == 0 {
			delete(s.of, client)
		}
	}()
	return do()
}

// How many imports and exports may run at the same time, and store or read rows: each
// occupies a connection for as long as that takes. An import does not before it was
// received as a whole; until then it occupies a temporary file.
const (
	maxBulk, maxBulkEach       = 3, 2 // all in all, and for each client
	maxUploads, maxUploadsEach = 16, 4
)

// background is how many connections are left to work that takes no slot: the
// refresh of tokens, and the probe of readiness.
const background = 1

// lookupBatches is how many batches of lookups by key are read at the same time.
const lookupBatches = 2

// MinConnections is the fewest connections to PostgreSQL that suffice for flushers
// batches of inserts at a time: one is left for other reads, one for single writes and one
// for writes that wait for a lock.
func MinConnections(flushers int) int { return flushers + lookupBatches + maxBulk + background + 3 }

// budget shares out the connections, so that none of these operations can starve the
// others: batches of lookups, other reads, batches of inserts, single writes, writes that
// wait for a lock, and bulk operations.
type budget struct {
	lookups, reads, batches, writes, locked slots
	writer                                  slots // the only one of SQLite, shared by all writes; or nil
	bulk, uploads                           *shares
}

// newBudget returns the budget of a PostgreSQL database.
func newBudget(flushers, connections int) budget {
	rest := max(connections-flushers-lookupBatches-maxBulk-background, 3)
	locked := max(rest/6, 1)
	reads := (rest - locked + 1) / 2
	b := commonBudget()
	b.reads, b.writes, b.locked = make(slots, reads), make(slots, rest-locked-reads), make(slots, locked)
	b.batches = make(slots, flushers)
	return b
}

// newFileBudget returns the budget of a SQLite database, which has connections for
// reading, and one that writes.
func newFileBudget(readers int) budget {
	b := commonBudget()
	b.reads, b.writer = make(slots, readers-lookupBatches-maxBulk-background), make(slots, 1)
	b.writes, b.batches, b.locked = b.writer, b.writer, b.writer
	return b
}

func commonBudget() budget {
	return budget{lookups: make(slots, lookupBatches), bulk: newShares(maxBulk, maxBulkEach), uploads: newShares(maxUploads, maxUploadsEach)}
}

// Upload calls do, which receives an import from client and then stores it. It fails with
// ErrOverloaded at once if too many clients send one, or this client too many.
func (db *DB) Upload(client string, do func() error) error {
	return db.budget.uploads.run(client, do)
}

// Bulk calls do, which reads or stores many rows for client, without a time limit. It fails
// with ErrOverloaded at once if there are too many such operations, or too many of this
// client.
func (db *DB) Bulk(client, operation string, do func() error) error {
	return Failed(operation, db.budget.bulk.run(client, func() error { return db.checked(do) }))
}

// lockTurn is how long a write that waits for a lock does so before it lets the next one
// try: the lock that a write needs may be free long before that of another.
const lockTurn = 50 * time.Millisecond

// WaitForLock returns err, which ended an operation that began at begin, unless IsLocked
// holds for it. Then it calls do, in a transaction and apart from the operations that need
// no locked row, until it gets the locks that it needs or most of the operation's
// time limit is over.
func (db *DB) WaitForLock(ctx context.Context, begin time.Time, err error, do func(ctx context.Context, tx *DB) error) error {
	ctx, cancel := context.WithDeadline(ctx, begin.Add(db.options.Timeout))
	defer cancel()
	due := begin.Add(db.options.Timeout * (waitShare - 1) / waitShare)
	for IsLocked(err) && !isRolledBack(err) && time.Now().Before(due) {
		if err := db.budget.locked.take(ctx, time.Until(due)); err != nil {
			return err
		}
		err = db.transaction(ctx, lockTurn, func(tx *DB) error { return do(ctx, tx) })
		db.budget.locked.free()
	}
	return err
}
