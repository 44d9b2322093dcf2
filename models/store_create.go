package models

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// Create validates and stores a new row and sets its timestamps. It fails with an
// *InvalidError if the row breaks a rule, and with an *ExistsError if its key is
// taken.
func (s *Store[T, K]) Create(ctx context.Context, row *T) (Outcome[T], error) {
	if err := s.validate(row, s.table.Data); err != nil {
		return Outcome[T]{}, err
	}
	begin := time.Now()
	err := s.inserts.Do(ctx, row)
	if fault.IsLocked(err) {
		err = s.db.WaitForLock(ctx, begin, err, func(ctx context.Context, tx *database.DB) error {
			outcome := make([]error, 1)
			return cmp.Or(s.insert(ctx, tx, []*T{row}, outcome, mayBeTaken), outcome[0])
		})
	}
	if err != nil {
		err = fault.In("insert "+s.table.Noun, err)
	}
	return s.outcome(ctx, row, true, err)
}

// keys says how many keys of rows are taken already.
type keys int32

const (
	areFree    keys = iota // probably
	mayBeTaken             // some of them
	areTaken               // most of them
	lockTaken              // like mayBeTaken, and locks the rows that have them until the end of the transaction
)

// insertBatch writes a batch and returns the outcome of each row. It expects as many taken keys as in the
// last batch. If most were taken, as when a client repeats its requests, it looks for taken keys first:
// that needs no write.
func (s *Store[T, K]) insertBatch(ctx context.Context, rows []*T) []error {
	outcomes, expected := make([]error, len(rows)), keys(s.taken.Load())
	var err error
	if expected == areTaken {
		err = s.findTaken(ctx, rows, outcomes)
	}
	if err == nil {
		err = s.insert(ctx, s.db, rows, outcomes, expected)
	}
	taken := 0
	for i := range outcomes {
		outcomes[i] = cmp.Or(outcomes[i], err)
		if _, exists := errors.AsType[*ExistsError](outcomes[i]); exists {
			taken++
		}
	}
	switch {
	case taken == 0:
		expected = areFree
	case 2*taken > len(rows):
		expected = areTaken
	default:
		expected = mayBeTaken
	}
	s.taken.Store(int32(expected))
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
	return s.getAll(ctx, db, keys, false)
}

// exists returns the error of row: the stored row holder has its key.
func (s *Store[T, K]) exists(row, holder *T) error {
	return &ExistsError{Noun: s.table.Noun, Key: s.keyOf(row), Same: s.sameContent(row, holder)}
}

// errNoHolder is the outcome of a row that was not stored, as if its key were taken, while no row with
// that key can be read: that row was deleted between the two statements, or rejected, unless a trigger
// left out the new row, or a policy hides the stored row.
var errNoHolder = errors.New("the row was not stored, and no row with its key can be read: look for triggers and policies of the table")

// insertAttempts is how often insert inserts a row for which there is no holder.
const insertAttempts = 10

// insert writes the rows of a batch that have no outcome yet and sets the outcome of each, or fails
// as a whole.
func (s *Store[T, K]) insert(ctx context.Context, db *database.DB, rows []*T, outcomes []error, expected keys) error {
	err := s.insertOnce(ctx, db, rows, outcomes, expected)
	for i := range rows {
		for n := 1; n < insertAttempts && errors.Is(outcomes[i], errNoHolder); n++ {
			outcomes[i] = nil
			if err := s.insertOnce(ctx, db, rows[i:i+1], outcomes[i:i+1], max(expected, mayBeTaken)); err != nil {
				outcomes[i] = err
			}
		}
	}
	return err
}

// insertOnce is insert with one statement.
func (s *Store[T, K]) insertOnce(ctx context.Context, db *database.DB, batch []*T, outcomes []error, expected keys) error {
	ordered := s.toInsert(batch, outcomes, db.NowFunc())
	if len(ordered) == 0 {
		return nil
	}
	rows := make([]*T, len(ordered))
	for i := range ordered {
		rows[i] = ordered[i].row
	}
	results, err := database.Insert(ctx, db, s.table, rows, expected == areFree)
	if fault.IsUnknown(err) || errors.Is(err, fault.ErrLeftOut) {
		return s.findOut(ctx, db, batch, outcomes, err)
	}
	if err != nil {
		return err
	}
	holders := make(map[K]*T, len(rows)) // by key, the row that is stored
	rejected := make(map[*T]error)
	locked := make(map[K]error) // or deferred, for as long as another transaction holds the lock
	var taken []K
	for i, row := range ordered {
		switch {
		case results[i] == nil:
			holders[row.key] = row.row
		case errors.Is(results[i], fault.ErrTaken):
			taken = append(taken, row.key)
		case fault.IsRowRejected(results[i]):
			rejected[row.row] = results[i]
		default:
			locked[row.key] = results[i]
		}
	}
	if len(holders) == len(batch) {
		return nil
	}
	// The inserted rows are stored, even if the holders of taken keys cannot be read.
	stored, unknown := s.getAll(ctx, db, taken, expected == lockTaken)
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
// database.Insert requires: of rows with the same key, the first wins.
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
	for _, c := range []*table.Column{s.table.Created, s.table.Updated} {
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
