package database

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// Transfer calls do, which is a whole import or export. It fails with ErrShare at once if
// there are too many of them, or too many of ctx's client, and later with
// ErrTemporary.
func (db *DB) Transfer(ctx context.Context, do func() error) error {
	err := db.budget.transfers.run(clientOf(ctx), do)
	if isDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return err
}

// ReadBulk calls do, which reads many rows, when it is its turn, without a time limit. It fails
// with ErrShare if its turn does not come soon.
func (db *DB) ReadBulk(ctx context.Context, operation string, do func() error) error {
	return db.bulk(ctx, operation, db.options.Timeout/WaitShare, func() error { return db.unlessFault(do) })
}

// WriteBulk is ReadBulk for what stores many rows. It waits for its turn until ctx ends: the
// client has sent the rows, and would have to send them again.
func (db *DB) WriteBulk(ctx context.Context, operation string, do func() error) error {
	free, err := db.budget.imports.take(ctx, clientOf(ctx), untilDone)
	if err != nil {
		return noTurn(ctx, err)
	}
	defer free()
	return db.bulk(ctx, operation, untilDone, func() error { return db.checked(do) })
}

func (db *DB) bulk(ctx context.Context, operation string, wait time.Duration, do func() error) error {
	free, err := db.budget.bulk.take(ctx, clientOf(ctx), wait)
	if err != nil {
		return noTurn(ctx, err)
	}
	defer free()
	if err = do(); err != nil && ctx.Err() != nil { // drivers report it in many ways
		err = fmt.Errorf("%w: %w", context.Cause(ctx), err)
	}
	return Failed(operation, err)
}

// noTurn returns the error of an operation that got no turn: err if it was canceled, and ErrShare
// if it took too long.
func noTurn(ctx context.Context, err error) error {
	if errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	return fmt.Errorf("%w: its turn did not come", ErrShare)
}

// TakeDisk takes a number of bytes for temporary files of ctx's client, which GiveDisk gives
// back. It fails with ErrNoRoom.
func (db *DB) TakeDisk(ctx context.Context, bytes int64) error {
	if err := db.budget.disk.Take(clientOf(ctx), bytes); err != nil {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	return nil
}

// GiveDisk returns what TakeDisk took.
func (db *DB) GiveDisk(ctx context.Context, bytes int64) { db.budget.disk.Give(clientOf(ctx), bytes) }
