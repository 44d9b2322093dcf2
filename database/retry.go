package database

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"

	"plantstore/database/background"
	"plantstore/database/fault"
	"plantstore/database/limit"
)

// tableLockPause is the least pause between two attempts to lock a table.
const tableLockPause = 50 * time.Millisecond

// Retry calls do, which runs a single transaction, and calls it again after an error that left
// nothing behind and is likely to pass: see attemptsFor. While another transaction, perhaps a
// migration, has locked a table, it does so for most of the time that ctx, or else the time limit of an
// operation, leaves. In a transaction it does not: the whole transaction is retried.
func (db *DB) Retry(ctx context.Context, do func() error) (err error) {
	for a := db.attempts(ctx); a.next(&err); {
		err = do()
	}
	return err
}

// attempts tracks the calls that Retry makes.
type attempts struct {
	db        *DB
	ctx       context.Context //nolint:containedctx // for as long as Retry runs
	begin     time.Time       // of an attempt
	due       time.Time       // when to give up waiting for the lock of a table
	made      int             // besides those that waited for a lock
	mayBeSlow bool            // what takes too long does not show that writes would fail
}

func (db *DB) attempts(ctx context.Context) attempts {
	begin := time.Now()
	due, limited := ctx.Deadline()
	if !limited {
		due = begin.Add(db.options.Timeout)
	}
	return attempts{db: db, ctx: ctx, begin: begin, due: due.Add(-limit.Wait(db.options.Timeout))}
}

// inTransaction reports whether db is a transaction.
func (db *DB) inTransaction() bool {
	_, own := db.conn.(*sql.DB)
	return !own
}

// next reports whether to make another attempt, after a pause. err is the outcome of the last attempt, if any.
func (a *attempts) next(err *error) bool {
	if a.made == 0 {
		a.made++
		return true
	}
	if *err == nil || a.db.inTransaction() {
		return false
	}
	a.db.health.note(*err, !a.mayBeSlow)
	// The transaction that won has probably no more left to do than this transaction had done, unless that was an import.
	pause := min(time.Since(a.begin), time.Second) + time.Millisecond
	locked := fault.IsTableLocked(*err)
	if locked {
		pause = tableLockPause
	} else if a.made++; a.made > attemptsFor(*err) {
		return false
	}
	pause += rand.N(pause) // for transactions that would collide again
	if locked && time.Now().Add(pause).After(a.due) || !background.Sleep(a.ctx, pause) {
		return false
	}
	a.begin = time.Now()
	return true
}

// attemptsFor returns how often to try a transaction that failed with err. It did
// nothing in these cases.
func attemptsFor(err error) int {
	switch state := fault.SQLState(err); {
	case fault.IsRolledBack(err), state == fault.IdleSessionTimeout: // it ended before the statement arrived
		return 3
	case state == fault.FeatureNotSupported: // an obsolete plan
		return 5 // the next migration may follow at once
	}
	return 1
}
