package models

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"plantstore/database"
)

// Create validates and stores a new row and sets its timestamps. It fails with an
// *InvalidError if the row breaks a rule, and with an *ExistsError if its key is
// taken.
func (s *Store[T, K]) Create(ctx context.Context, row *T) (err error) {
	if err := s.validate(row, s.table.Data); err != nil {
		return err
	}
	defer s.wrote(ctx, &err)
	begin := time.Now()
	err = s.inserts.Do(ctx, row)
	err = s.db.WaitForLock(ctx, begin, err, func(ctx context.Context, tx *database.DB) error { return s.insertOne(ctx, tx, row) })
	if err != nil {
		return database.Failed("insert "+s.table.Noun, err)
	}
	return nil
}

// create writes a batch and returns the outcome of each row. If most keys of the last batch
// were taken, as when a client repeats its requests, it looks for taken keys first: that
// needs no write.
func (s *Store[T, K]) create(ctx context.Context, batch []*T) []error {
	outcomes := make([]error, len(batch))
	var err error
	if s.mostTaken.Load() {
		err = s.findTaken(ctx, batch, outcomes)
	}
	if err == nil {
		err = s.insertAll(ctx, s.db, batch, outcomes)
	}
	taken := 0
	for i := range outcomes {
		outcomes[i] = cmp.Or(outcomes[i], err)
		if _, exists := errors.AsType[*ExistsError](outcomes[i]); exists {
			taken++
		}
	}
	s.mostTaken.Store(2*taken > len(batch))
	return outcomes
}

// findTaken sets the outcomes of the rows whose keys are taken.
func (s *Store[T, K]) findTaken(ctx context.Context, batch []*T, outcomes []error) error {
	holders, err := s.holders(ctx, s.db, batch)
	for i, row := range batch {
		if holder := holders[s.keyOf(row)]; holder != nil {
			outcomes[i] = s.exists(row, holder)
		}
	}
	return err
}

// holders returns the stored rows that have the keys of batch, by key.
func (s *Store[T, K]) holders(ctx context.Context, db *database.DB, batch []*T) (map[K]*T, error) {
	keys := make([]K, len(batch))
	for i, row := range batch {
		keys[i] = s.keyOf(row)
	}
	return s.lookUpKeys(ctx, db, keys)
}

// exists returns the error of row: the stored row holder has its key.
func (s *Store[T, K]) exists(row, holder *T) error {
	return &ExistsError{Noun: s.table.Noun, Key: s.keyOf(row), Same: s.sameContent(row, holder)}
}

// errNoHolder is the outcome of a row that was not stored, as if its key were taken, while no row with
// that key can be read: that one was deleted between the two statements, or rejected, unless a trigger
// left out the new row, or a policy hides the other.
var errNoHolder = errors.New("the row was not stored, and no row with its key can be read: look for triggers and policies of the table")

// insertAttempts is how often insertOne inserts a row for which there is no holder.
const insertAttempts = 10

// insertOne writes a row and returns its outcome.
func (s *Store[T, K]) insertOne(ctx context.Context, db *database.DB, row *T) (err error) {
	for range insertAttempts {
		outcome := make([]error, 1)
		if err = s.insertOnce(ctx, db, []*T{row}, outcome); err == nil {
			err = outcome[0]
		}
		if !errors.Is(err, errNoHolder) {
			break
		}
	}
	return err
}

// insertAll writes the rows of a batch that have no outcome yet and sets the outcome of each, or fails
// as a whole.
func (s *Store[T, K]) insertAll(ctx context.Context, db *database.DB, batch []*T, outcomes []error) error {
	err := s.insertOnce(ctx, db, batch, outcomes)
	for i, row := range batch {
		if errors.Is(outcomes[i], errNoHolder) {
			outcomes[i] = s.insertOne(ctx, db, row)
		}
	}
	return err
}

// insertOnce is insertAll with one statement.
func (s *Store[T, K]) insertOnce(ctx context.Context, db *database.DB, batch []*T, outcomes []error) error {
	ordered := s.toInsert(batch, outcomes, db.NowFunc())
	if len(ordered) == 0 {
		return nil
	}
	rows := make([]*T, len(ordered))
	for i := range ordered {
		rows[i] = ordered[i].row
	}
	results, err := database.InsertNew(ctx, db, s.table, rows)
	if database.IsUnknown(err) || errors.Is(err, database.ErrLeftOut) {
		return s.findOut(ctx, db, batch, outcomes, err)
	}
	if err != nil {
		return err
	}
	holders := make(map[K]*T, len(rows)) // by key, the row that is stored
	rejected := make(map[*T]error)
	locked := make(map[K]error) // or deferred, for as long as others hold the lock
	var taken []K
	for i, row := range ordered {
		switch {
		case results[i] == nil:
			holders[row.key] = row.row
		case errors.Is(results[i], database.ErrTaken):
			taken = append(taken, row.key)
		case database.IsRowRejected(results[i]):
			rejected[row.row] = results[i]
		default:
			locked[row.key] = results[i]
		}
	}
	if len(holders) == len(batch) {
		return nil
	}
	// The inserted rows are stored, even if the others cannot be read.
	stored, unknown := s.lookUpKeys(ctx, db, taken)
	maps.Copy(holders, stored)
	for i, row := range batch {
		key := s.keyOf(row)
		switch holder := holders[key]; {
		case outcomes[i] != nil || holder == row:
		case holder != nil:
			outcomes[i] = s.exists(row, holder)
		case rejected[row] != nil:
			outcomes[i] = rejected[row]
		case locked[key] != nil:
			outcomes[i] = locked[key]
		case unknown != nil:
			outcomes[i] = unknown
		default:
			outcomes[i] = errNoHolder
		}
	}
	return nil
}

// toInsert stamps the rows of a batch that have no outcome yet, and returns them in the order that
// InsertNew requires: of rows with the same key, the first wins.
func (s *Store[T, K]) toInsert(batch []*T, outcomes []error, now time.Time) []keyed[T, K] {
	ordered := make([]keyed[T, K], 0, len(batch))
	for i, row := range batch {
		if outcomes[i] == nil {
			s.table.Stamp(valueOf(row), now)
			ordered = append(ordered, keyed[T, K]{s.keyOf(row), row})
		}
	}
	slices.SortStableFunc(ordered, func(a, b keyed[T, K]) int { return cmp.Compare(a.key, b.key) })
	return slices.CompactFunc(ordered, func(a, b keyed[T, K]) bool { return a.key == b.key })
}

// findOut sets the missing outcomes of a batch that may or may not have been stored, as unknown
// says. The stored rows show which: those of the batch have its timestamps.
func (s *Store[T, K]) findOut(ctx context.Context, db *database.DB, batch []*T, outcomes []error, unknown error) error {
	stored, err := s.holders(ctx, db, batch)
	if err != nil {
		return unknown
	}
	claimed := make(map[K]bool)
	for i, row := range batch {
		key := s.keyOf(row)
		switch holder := stored[key]; {
		case outcomes[i] != nil:
		case holder == nil: // it may still appear
			outcomes[i] = unknown
		case !claimed[key] && s.sameContent(row, holder) && s.sameTimes(row, holder):
			claimed[key] = true
		default:
			outcomes[i] = s.exists(row, holder)
		}
	}
	return nil
}

// sameTimes reports whether two rows were written by the same statement.
func (s *Store[T, K]) sameTimes(a, b *T) bool {
	for _, c := range []*database.Column{s.table.Created, s.table.Updated} {
		if !c.Of(valueOf(a)).Interface().(time.Time).Equal(c.Of(valueOf(b)).Interface().(time.Time)) {
			return false
		}
	}
	return true
}

type keyed[T any, K Key] struct {
	key K
	row *T
}
