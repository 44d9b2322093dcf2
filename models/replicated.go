package models

import (
	"context"
	"errors"

	"plantstore/database"
)

// Replicated is a Store whose plain reads, which are its own methods Get, List and Export, go
// to the standbys of its database: to one that has what ctx's client has written. All else,
// such as what a write reads, goes to the primary.
type Replicated[T Model, K Key] struct {
	*Store[T, K]
	copies []*reader[T, K] // of the standbys
}

// NewReplicated returns the store of the rows of T in db and its standbys. It panics like
// NewStore.
func NewReplicated[T Model, K Key](db *database.DB) *Replicated[T, K] {
	r := &Replicated[T, K]{Store: NewStore[T, K](db)}
	for _, standby := range db.Standbys() {
		r.copies = append(r.copies, newReader[T, K](standby))
	}
	return r
}

// Wrote is [database.DB.Wrote]: whoever calls a method that writes must call it afterwards.
func (r *Replicated[T, K]) Wrote(ctx context.Context, err error) database.Position {
	if _, invalid := errors.AsType[*InvalidError](err); invalid {
		return 0
	}
	return r.db.Wrote(ctx, err)
}

// read calls do with the reader of a standby, or else of the primary. If do returns false on a
// standby, the primary repeats the read.
func (r *Replicated[T, K]) read(ctx context.Context, do func(*reader[T, K]) (done bool, err error)) error {
	if i := r.db.PickStandby(ctx); i >= 0 {
		if done, err := do(r.copies[i]); done || ctx.Err() != nil {
			return err
		}
	}
	_, err := do(r.reader)
	return err
}

// Get is [Store.Get].
func (r *Replicated[T, K]) Get(ctx context.Context, key K) (row *T, err error) {
	err = r.read(ctx, func(s *reader[T, K]) (bool, error) {
		row, err = s.Get(ctx, key)
		_, absent := errors.AsType[*NotFoundError](err)
		return err == nil || absent, err
	})
	return row, err
}

// List is [Store.List].
func (r *Replicated[T, K]) List(ctx context.Context, f Filter[K]) (rows []T, err error) {
	err = r.read(ctx, func(s *reader[T, K]) (bool, error) {
		rows, err = s.List(ctx, f)
		return err == nil, err
	})
	return rows, err
}

// Export is [Store.Export].
func (r *Replicated[T, K]) Export(ctx context.Context, f Filter[K], yield func(*T) error) error {
	return r.read(ctx, func(s *reader[T, K]) (begun bool, err error) {
		err = s.Export(ctx, f, func(row *T) error {
			begun = true
			return yield(row)
		})
		return begun || err == nil, err
	})
}
