package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"plantstore/database/background"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// Cost is how much a read computes.
type Cost int8

// The costs of reads. A client runs one read with the cost Scan at a time, and one with the cost Many on SQLite, which
// computes in this process.
const (
	Few    Cost = iota // a few rows, which an index finds
	Many               // as Few, but enough rows to take about a millisecond
	Scan               // perhaps all rows of a table
	AtOnce             // as Few, without a turn, for the reader that must work under any load: authentication
)

// Read calls do with the handle for reads, within the time limit of an operation and in its turn
// among reads: ctx's client may use half of the turns. With the cost Scan or Many, it may wait as long
// again for its turn. operation names it in errors: "get plant", for example.
// Besides do's own errors, it fails with limit.ErrBusy if its turn does not come, and with an error that
// wraps fault.ErrUnavailable if the database cannot be reached in time.
func (db *DB) Read(ctx context.Context, operation string, cost Cost, do func(tx *gorm.DB) error) error {
	timeout, reads := db.options.Timeout, db.Limits.reads
	var turns *limit.Turns
	switch {
	case cost == AtOnce:
		reads = nil
	case cost == Scan:
		turns = db.Limits.scans
	case cost == Many && db.Limits.writer != nil:
		turns = db.Limits.Work
	}
	free, err := turns.Take(ctx, timeout)
	if err != nil {
		return fault.In(operation, err)
	}
	defer free()
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	return db.in(ctx, operation, reads.Do(ctx, limit.Wait(timeout), func() error {
		return db.retry(ctx, true, func() error { return do(db.Reads(ctx)) })
	}))
}

// in is fault.In for statements that a person has written: a table or column that does not exist is an error of
// the statement if the database has those of the models.
func (db *DB) in(ctx context.Context, operation string, err error) error {
	if lasting := fault.NotWritable(err); lasting != nil && lasting.Reason == fault.WrongSchema && db.health.check(ctx) == nil {
		err = errors.New(err.Error())
	}
	return fault.In(operation, err)
}

// Write calls do in a transaction, in its turn among single writes and within the time limit of an
// operation, and calls it again, in another transaction, while another transaction holds a lock that it needs,
// and when [DB.Retry] does. When it returns nil, the changes of do are on disk, the reads of ctx's client see
// them, and the position is that of [DB.Wrote]. After fault.ErrUnavailable, the outcome is unknown.
func (db *DB) Write(ctx context.Context, operation string, do func(tx *DB) error) (Position, error) {
	begin := time.Now()
	limited, cancel := context.WithTimeout(ctx, db.options.Timeout)
	defer cancel()
	err := db.Limits.writes.Do(limited, limit.Wait(db.options.Timeout), func() error {
		return db.inLockTurn(limited, do)
	})
	err = db.in(ctx, operation, db.WaitForLock(ctx, begin, err, do))
	return db.Wrote(ctx, err), err
}

// endWrite ends a write that may have succeeded. It fails if a restart would not find what was written.
func (db *DB) endWrite(succeeded bool) error {
	if succeeded && db.health.locked.Load() > 0 {
		db.health.locked.Store(0) // no lock keeps out all writes
	}
	for _, f := range db.feeds {
		select {
		case f.Written <- struct{}{}:
		default:
		}
	}
	return db.Dialect.Check()
}

// Transaction calls do in a transaction, which is committed if do returns nil and
// rolled back otherwise. It waits for locks until ctx ends. do may be called again, in
// another transaction: see [DB.Retry]. On SQLite, which has one writer, Transaction then leaves the writer to waiting
// writes before the next call: as long as it has had it, and after a short call, four times as long.
func (db *DB) Transaction(ctx context.Context, do func(tx *DB) error) error {
	if db.Limits.writer == nil {
		return db.transaction(ctx, 0, do)
	}
	for next := &db.Limits.next; ; {
		if !background.Sleep(ctx, time.Until(time.Unix(0, next.Load()))) {
			return fmt.Errorf("%w: other writes have their turn: %w", limit.ErrBusy, context.Cause(ctx))
		}
		free, err := db.Limits.writer.Take(ctx, limit.UntilDone)
		if err != nil {
			return err
		}
		if begin := time.Now(); begin.UnixNano() >= next.Load() { // no other call was faster
			defer free()
			err := db.transaction(ctx, 0, do)
			if took := time.Since(begin); db.Limits.Work.Busy() {
				next.Store(time.Now().Add(max(took, min(4*took, 5*time.Second))).UnixNano())
			}
			return err
		}
		free()
	}
}

// transaction is Transaction, but waits no longer than wait for a lock, unless it is 0.
func (db *DB) transaction(ctx context.Context, wait time.Duration, do func(tx *DB) error) error {
	return db.Retry(ctx, func() error {
		return db.WithContext(ctx).Transaction(func(handle *gorm.DB) error {
			tx := *db
			tx.DB = handle
			if set := db.Dialect.SetLockTimeout(wait); set != "" {
				if err := handle.Exec(set).Error; err != nil {
					return err
				}
			}
			return do(&tx)
		})
	})
}

// lockTurn is how long a write waits for its lock before the next waiter's turn: the locks of
// other writes may be free long before its own.
const lockTurn = 20 * time.Millisecond

// WaitForLock returns err, which ended an operation that began at begin, unless fault.IsLocked
// holds for it. Then it calls do, in a transaction, until it gets the locks that it needs or most of the
// operation's time limit is over. At the limit of waiting writes, in all or of ctx's client, it fails with
// limit.ErrShare at once.
func (db *DB) WaitForLock(ctx context.Context, begin time.Time, err error, do func(tx *DB) error) error {
	if !fault.IsLocked(err) {
		return err
	}
	ctx, cancel := context.WithDeadline(ctx, begin.Add(db.options.Timeout))
	defer cancel()
	due := begin.Add(db.options.Timeout - limit.Wait(db.options.Timeout))
	return db.Limits.waiters.Do(ctx, func() error {
		for fault.IsLocked(err) && time.Now().Before(due) {
			next := db.Limits.locked.Do(ctx, time.Until(due), func() error {
				return db.inLockTurn(ctx, do)
			})
			if errors.Is(next, limit.ErrBusy) { // other writes wait for the row as well
				break
			}
			err = next
		}
		return err
	})
}

// inLockTurn calls do in a transaction that waits for locks for lockTurn, and ends the write.
func (db *DB) inLockTurn(ctx context.Context, do func(tx *DB) error) error {
	err := db.transaction(ctx, lockTurn, func(tx *DB) error {
		err := do(tx)
		if fault.IsTableLocked(err) {
			err = fault.RowLocked(err) // so that it is not tried again before the next waiter's turn
		}
		return err
	})
	return cmp.Or(db.endWrite(err == nil), err)
}

// ReadBulk calls do, which reads many rows, when it is its turn, without a time limit. It fails
// with limit.ErrBusy if its turn does not come soon.
func (db *DB) ReadBulk(ctx context.Context, operation string, do func() error) error {
	return db.bulk(ctx, operation, limit.Wait(db.options.Timeout), do)
}

// WriteBulk is ReadBulk for what stores many rows. It waits for its turn until ctx ends: the
// client has sent the rows, and would have to send them again.
func (db *DB) WriteBulk(ctx context.Context, operation string, do func() error) error {
	return db.Limits.imports.Do(ctx, limit.UntilDone, func() error {
		return db.bulk(ctx, operation, limit.UntilDone, func() error {
			err := do()
			return cmp.Or(db.endWrite(err == nil), err)
		})
	})
}

// Pace lets operations on single rows precede the rest of an import that has stored rows since begin. It returns
// the time. In a transaction on SQLite, it does nothing, as they wait for the end of the transaction.
func (db *DB) Pace(ctx context.Context, begin time.Time) time.Time {
	if db.Limits.writer != nil && db.inTransaction() {
		return begin
	}
	db.Limits.Work.Charge(ctx, time.Since(begin))
	return time.Now()
}

func (db *DB) bulk(ctx context.Context, operation string, wait time.Duration, do func() error) error {
	return db.Limits.bulk.Do(ctx, wait, func() error {
		err := do()
		if err != nil && ctx.Err() != nil { // drivers report it in many ways
			err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
		}
		return fault.In(operation, err)
	})
}

// Run runs changes of a table in a single transaction, at the time of now, or fails as a whole. It sets
// their Stored and Err. Changes of the same row have different times, so that each version is new. If db
// is a transaction, Run fails with the first error of a change. It runs changes in the order of their keys: in another
// order, two transactions could wait for each other.
func (db *DB) Run(ctx context.Context, changes []*table.Change, now time.Time) (err error) {
	if len(changes) == 0 {
		return nil
	}
	begin, ordered := time.Now(), slices.Clone(changes)
	slices.SortStableFunc(ordered, table.CompareKeys)
	groups := table.Groups(ordered)
	for i, g := range groups {
		for _, c := range g.Changes {
			g.Table.Stamp(c.Row, now.Add(time.Duration(i)*time.Microsecond))
		}
	}
	err = db.Retry(ctx, func() error {
		for _, c := range changes {
			c.Stored, c.Err = reflect.Value{}, nil
		}
		return db.Dialect.Run(ctx, db.Statement.ConnPool, groups)
	})
	if db.inTransaction() {
		for _, c := range changes {
			err = cmp.Or(err, c.Err)
		}
	}
	db.metrics.trace(ctx, begin, groups[0].Write, len(changes), err)
	return err
}

// Get returns the rows of T, whose table is t, with the given keys. In a transaction, it locks them until
// the end if lock is set. Outcomes are the errors of keys whose rows cannot be read, or nil.
func Get[T, K any](ctx context.Context, db *DB, t *table.Table, keys []K, lock bool) (found []*T, outcomes []error, err error) {
	begin, conn := time.Now(), db.Statement.ConnPool
	if !db.inTransaction() {
		conn = db.reads
	}
	err = db.Retry(ctx, func() (err error) {
		found = nil
		outcomes, err = db.Dialect.Get(ctx, conn, t, keys, lock, func() reflect.Value {
			row := new(T)
			found = append(found, row)
			return reflect.ValueOf(row).Elem()
		})
		return err
	})
	db.metrics.trace(ctx, begin, t.Select, len(found), err)
	return found, outcomes, err
}

// Find runs the query that tx has built, on t. next returns the struct that takes the
// next row. It scans rows in half of GORM's time. If scan is set, SQLite finds all rows before it returns the first: it
// ends at the end of the context only until then.
func (db *DB) Find(tx *gorm.DB, t *table.Table, scan bool, next func() reflect.Value) error {
	begin, rows := time.Now(), 0
	built := tx.Session(&gorm.Session{DryRun: true, Logger: logger.Discard}).
		Table(t.Name).Select(table.Names(t.Columns)).Find(&[]map[string]any{})
	if built.Error != nil {
		return built.Error
	}
	ctx, text := built.Statement.Context, built.Statement.SQL.String()
	if scan && db.Limits.writer != nil {
		text = "WITH found AS MATERIALIZED (" + text + ") SELECT * FROM found"
	}
	err := db.Dialect.Query(ctx, db.reads, text, built.Statement.Vars, func(found table.Rows) error {
		return table.Scan(found, t.Columns, func() reflect.Value {
			rows++
			return next()
		})
	})
	db.metrics.trace(ctx, begin, text, rows, err)
	return err
}

// tableLockPause is the least pause between two attempts to lock a table.
const tableLockPause = 50 * time.Millisecond

// Retry calls do, which runs a single transaction, and calls it again after an error that left
// nothing behind and is likely to pass: see attemptsFor. While another transaction, perhaps a
// migration, has locked a table, it does so for most of the time that ctx, or else the time limit of an
// operation, leaves. In a transaction it does not: the whole transaction is retried.
func (db *DB) Retry(ctx context.Context, do func() error) error { return db.retry(ctx, false, do) }

// retry is Retry. It first fails if a restart would open another database. mayBeSlow means that do may need long: if
// its time runs out, writes may still succeed.
func (db *DB) retry(ctx context.Context, mayBeSlow bool, do func() error) error {
	if err := db.Dialect.Check(); err != nil {
		return err
	}
	due, limited := ctx.Deadline()
	if !limited {
		due = time.Now().Add(db.options.Timeout)
	}
	due = due.Add(-limit.Wait(db.options.Timeout)) // when to give up waiting for the lock of a table
	for made := 1; ; {
		begin := time.Now()
		err := do()
		if err == nil || db.inTransaction() {
			return err
		}
		db.health.note(err, !mayBeSlow)
		// The transaction that won has probably no more left to do than this transaction had done, unless that was an import.
		pause := min(time.Since(begin), time.Second) + time.Millisecond
		locked := fault.IsTableLocked(err)
		if locked {
			pause = tableLockPause
		} else if made++; made > attemptsFor(err) {
			return err
		}
		pause += rand.N(pause) // for transactions that would collide again
		if locked && time.Now().Add(pause).After(due) || !background.Sleep(ctx, pause) {
			return err
		}
	}
}

// inTransaction reports whether db is a transaction.
func (db *DB) inTransaction() bool {
	_, own := db.Statement.ConnPool.(*sql.DB)
	return !own
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
