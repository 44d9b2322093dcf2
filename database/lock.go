package database

import (
	"context"
	"errors"
	"time"
)

// lockTurn is how long a write that waits for a lock does so before it lets the next one
// try: the lock that a write needs may be free long before that of another.
const lockTurn = 20 * time.Millisecond

// WaitForLock returns err, which ended an operation that began at begin, unless IsLocked
// holds for it. Then it calls do, in a transaction and apart from the operations that need
// no locked row, until it gets the locks that it needs or most of the operation's
// time limit is over. If too many writes wait, or too many of ctx's client, it fails with
// ErrShare at once.
func (db *DB) WaitForLock(ctx context.Context, begin time.Time, err error, do func(ctx context.Context, tx *DB) error) error {
	if !IsLocked(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, begin.Add(db.options.Timeout))
	defer cancel()
	due := begin.Add(db.options.Timeout * (WaitShare - 1) / WaitShare)
	return db.budget.waiters.run(clientOf(ctx), func() error {
		for IsLocked(err) && time.Now().Before(due) {
			next := db.waitTurn(ctx, time.Until(due), do)
			if errors.Is(next, ErrOverloaded) && !IsLocked(next) { // others wait for the row as well
				break
			}
			err = next
		}
		return err
	})
}

// waitTurn calls do in a transaction that waits for locks for lockTurn, in one of the slots for
// that.
func (db *DB) waitTurn(ctx context.Context, wait time.Duration, do func(ctx context.Context, tx *DB) error) error {
	if err := db.budget.locked.take(ctx, wait); err != nil {
		return err
	}
	defer db.budget.locked.free()
	return db.checked(func() error {
		return db.transaction(ctx, lockTurn, func(tx *DB) error {
			err := do(ctx, tx)
			if isTableLocked(err) {
				err = &rowLockedError{err} // so that it is not tried again before the turn of the next one
			}
			return err
		})
	})
}
