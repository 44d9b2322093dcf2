package database

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"time"
)

// Retry calls do, which runs one transaction, and calls it again if PostgreSQL has rolled
// that back for a reason that may be gone soon. In a transaction it does not: the whole
// transaction is retried.
func (db *DB) Retry(ctx context.Context, do func() error) error {
	for attempt := 1; ; attempt++ {
		begin := time.Now()
		err := do()
		if _, own := db.conn.(*sql.DB); !own {
			return err
		}
		db.readiness.note(err)
		if attempt >= attemptsFor(err) {
			return err
		}
		// The transaction that won has probably no more left to do than this one had done.
		// The random part is for those that would collide again.
		took := time.Since(begin) + time.Millisecond
		select {
		case <-ctx.Done():
			return err
		case <-time.After(took + rand.N(took)):
		}
	}
}

// RetryRead is Retry for a read, which needs no lock but a table's. While a migration has
// that, it calls do again for most of the time limit of an operation.
func (db *DB) RetryRead(ctx context.Context, do func() error) error {
	for begin := time.Now(); ; {
		err := db.Retry(ctx, do)
		if !isTableLocked(err) || time.Since(begin) > db.options.Timeout*(waitShare-1)/waitShare {
			return err
		}
	}
}

// attemptsFor returns how often to try a transaction that failed with err. It did
// nothing in these cases.
func attemptsFor(err error) int {
	switch state := sqlState(err); {
	case isRolledBack(err), state == "57P05": // idle_session_timeout: it ended before the statement arrived
		return 3
	case state == "0A000": // "cached plan must not change result type": see postgresDialect.watch
		return 2
	}
	return 1
}
