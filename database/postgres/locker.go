package postgres

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"

	"plantstore/database/fault"
	"plantstore/database/limit"
)

// A migration that gets no lock tries again after LockPause, until MaxLockWait is over.
const (
	LockPause   = time.Second
	MaxLockWait = 10 * time.Minute
)

// locker is goose's lock on a PostgreSQL database: a row of a table. Unlike an
// advisory lock, it works behind pgbouncer and on databases that only resemble PostgreSQL.
// While it is held, the connection waits for the lock of a table no longer than the
// operations that queue behind it can wait. See MaxLockWait.
type locker struct {
	lock.Locker
	*Dialect
}

// Locker returns the lock under which processes migrate the database.
func (d *Dialect) Locker(log *zap.Logger) (lock.SessionLocker, error) {
	var once sync.Once
	table, err := lock.NewPostgresTableLocker(
		lock.WithTableLockTimeout(LockPause, uint64(MaxLockWait/LockPause)),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
		lock.WithTableRetryPolicy(func(err error) bool {
			if fault.IsUnavailable(err) {
				return false
			}
			once.Do(func() { log.Info("waiting for another process that migrates the database") })
			return true
		}))
	return locker{table, d}, err
}

// SessionLock takes the lock, and sets the lock_timeout of conn.
func (l locker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := setLockTimeout(ctx, conn, limit.Wait(l.Timeout)/2); err != nil {
		return err
	}
	return l.Lock(ctx, l.pool)
}

// SessionUnlock is the end of SessionLock.
func (l locker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return errors.Join(setLockTimeout(ctx, conn, LockWait), l.Unlock(ctx, l.pool))
}

func setLockTimeout(ctx context.Context, conn *sql.Conn, wait time.Duration) error {
	_, err := conn.ExecContext(ctx, "SET lock_timeout = "+milliseconds(wait))
	return err
}
