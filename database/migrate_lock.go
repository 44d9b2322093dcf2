package database

import (
	"context"
	"database/sql"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
)

// A process that dies while it migrates holds up the others for as long as lockLease.
const (
	lockLease     = 30 * time.Second
	lockHeartbeat = 5 * time.Second // renews the lease
)

// postgresLocker is goose's lock on a PostgreSQL database: a row of a table. Unlike an
// advisory lock, it works behind pgbouncer and on databases that only resemble PostgreSQL.
// While it is held, the connection waits for the lock of a table no longer than the
// operations that queue behind it can wait. See [DB.retryWhileLocked].
type postgresLocker struct {
	wait time.Duration
	pool *sql.DB
	lock lock.Locker
}

func (d *postgresDialect) newLocker(pool *sql.DB, log *zap.Logger) (*postgresLocker, error) {
	var once sync.Once
	table, err := lock.NewPostgresTableLocker(
		lock.WithTableLeaseDuration(lockLease),
		lock.WithTableHeartbeatInterval(lockHeartbeat),
		lock.WithTableLockTimeout(lockPause, uint64(maxLockWait/lockPause)),
		lock.WithTableLogger(slog.New(slog.DiscardHandler)),
		lock.WithTableRetryPolicy(func(err error) bool {
			if IsUnavailable(err) {
				return false
			}
			once.Do(func() { log.Info("waiting for another process that migrates the database") })
			return true
		}))
	return &postgresLocker{d.share / 2, pool, table}, err
}

// SessionLock takes the lock, and sets the lock_timeout of conn.
func (l *postgresLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	if err := l.lock.Lock(ctx, l.pool); err != nil {
		return err
	}
	if err := setLockTimeout(ctx, conn, l.wait); err != nil {
		return errors.Join(err, l.lock.Unlock(context.WithoutCancel(ctx), l.pool))
	}
	return nil
}

// SessionUnlock is the end of SessionLock.
func (l *postgresLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	return errors.Join(setLockTimeout(ctx, conn, lockWait), l.lock.Unlock(ctx, l.pool))
}

func setLockTimeout(ctx context.Context, conn *sql.Conn, wait time.Duration) error {
	_, err := conn.ExecContext(ctx, "SET lock_timeout = "+milliseconds(wait))
	return err
}
