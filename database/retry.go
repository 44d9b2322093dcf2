package database

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// tableLockPause is the least pause between two attempts to lock a table.
const tableLockPause = 10 * time.Millisecond

// Retry calls do, which runs one transaction, and calls it again after an error that left
// nothing behind and is likely to pass: see attemptsFor. While another transaction has locked a
// table, such as a migration, it does so for most of the time that ctx, or else the time
// limit of an operation, leaves. In a transaction it does not: the whole transaction is retried.
func (db *DB) Retry(ctx context.Context, do func() error) error {
	return db.retry(ctx, do, db.readiness.note)
}

// retry is Retry; note is called with the error of each attempt.
func (db *DB) retry(ctx context.Context, do func() error, note func(error)) error {
	due, limited := ctx.Deadline()
	if !limited {
		due = time.Now().Add(db.options.Timeout)
	}
	due = due.Add(-db.options.Timeout / WaitShare)
	attempts := 0
	for wait := tableLockPause; ; {
		begin := time.Now()
		err := do()
		if _, own := db.conn.(*sql.DB); !own {
			return err
		}
		if db.nodes != nil {
			err = asNodeError(err)
		}
		db.readiness.noteDamage(err)
		note(err)
		// The transaction that won has probably no more left to do than this one had done, unless that was an import.
		pause := min(time.Since(begin), time.Second) + time.Millisecond
		if isTableLocked(err) {
			pause, wait = wait, min(2*wait, 10*tableLockPause)
		} else if attempts++; attempts >= attemptsFor(err) {
			return err
		}
		pause += rand.N(pause) // for those that would collide again
		if isTableLocked(err) && time.Now().Add(pause).After(due) {
			return err
		}
		if !Sleep(ctx, pause) {
			return err
		}
	}
}

// attemptsFor returns how often to try a transaction that failed with err. It did
// nothing in these cases.
func attemptsFor(err error) int {
	switch state := sqlState(err); {
	case isRolledBack(err), state == idleSessionTimeout: // it ended before the statement arrived
		return 3
	case state == featureNotSupported: // an obsolete plan
		return 5 // the next migration may follow at once
	}
	return 1
}
