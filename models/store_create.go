package models

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
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
		err = s.db.WaitForLock(ctx, begin, err, func(tx *database.DB) error {
			return s.insert(tx.Statement.Context, tx, []*T{row}, mayBeTaken)[0]
		})
	}
	if err != nil {
		err = s.blame(row, false, fault.In("insert "+s.table.Noun, err))
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

// insertBatch inserts a batch and returns the outcome of each row. It expects as many taken keys as in the
// last batch.
func (s *Store[T, K]) insertBatch(ctx context.Context, rows []*T) []error {
	outcomes := s.insert(ctx, s.db, rows, keys(s.taken.Load()))
	taken := 0
	for _, err := range outcomes {
		if _, exists := errors.AsType[*ExistsError](err); exists {
			taken++
		}
	}
	expected := mayBeTaken
	switch {
	case taken == 0:
		expected = areFree
	case 2*taken > len(rows):
		expected = areTaken
	}
	s.taken.Store(int32(expected))
	return outcomes
}

// errNoHolder is the outcome of a row that was not stored, while no row with its key can be read: that row was
// deleted between the two statements, unless a trigger left out the new row, or a policy hides the stored row.
var errNoHolder = errors.New("the row was not stored, and no row with its key can be read: look for triggers and policies of the table")

// insertAttempts is how often insert inserts a row for which there is no holder.
const insertAttempts = 10

// insert inserts rows and returns the outcome of each. If most keys are taken, as when a client repeats its
// requests, it looks for them first: that needs no write.
func (s *Store[T, K]) insert(ctx context.Context, db *database.DB, rows []*T, expected keys) []error {
	outcomes := slices.Repeat([]error{errNoHolder}, len(rows))
	if expected == areTaken {
		outcomes = slices.Repeat([]error{fault.ErrTaken}, len(rows))
		s.compare(ctx, db, rows, outcomes, false)
	}
	for range insertAttempts {
		order := s.toInsert(rows, outcomes)
		if len(order) == 0 {
			break
		}
		ordered, now := make([]reflect.Value, len(order)), db.NowFunc()
		for i, row := range order {
			ordered[i] = valueOf(rows[row.at])
			s.table.Stamp(ordered[i], now)
			s.setDefaults(ordered[i])
		}
		results, err := db.Insert(ctx, s.table, ordered, expected == areFree)
		if err != nil {
			for i := range outcomes {
				if errors.Is(outcomes[i], errNoHolder) {
					outcomes[i] = err
				}
			}
			break
		}
		for i, row := range order {
			outcomes[row.at] = nil
			if results != nil {
				outcomes[row.at] = results[i]
			}
		}
		s.compare(ctx, db, rows, outcomes, expected == lockTaken)
		expected = max(expected, mayBeTaken)
	}
	return outcomes
}

// keyed is the key of rows[at].
type keyed[K Key] struct {
	key K
	at  int
}

// toInsert returns which rows have no holder, in the order that [database.DB.Insert] requires: of rows with the
// same key, the first wins.
func (s *Store[T, K]) toInsert(rows []*T, outcomes []error) []keyed[K] {
	if !slices.Contains(outcomes, errNoHolder) {
		return nil
	}
	order := make([]keyed[K], 0, len(rows))
	for i, row := range rows {
		if errors.Is(outcomes[i], errNoHolder) {
			order = append(order, keyed[K]{s.keyOf(row), i})
		}
	}
	slices.SortStableFunc(order, func(a, b keyed[K]) int { return cmp.Compare(a.key, b.key) })
	return slices.CompactFunc(order, func(a, b keyed[K]) bool { return a.key == b.key })
}

// compare sets the outcomes of the rows whose keys are taken, by stored rows or by earlier rows, to an
// *ExistsError, or to errNoHolder.
func (s *Store[T, K]) compare(ctx context.Context, db *database.DB, rows []*T, outcomes []error, lock bool) {
	if !slices.ContainsFunc(outcomes, func(err error) bool { return err != nil }) {
		return
	}
	holders := make(map[K]*T) // by key, the row that is stored
	var taken []K
	for i, row := range rows {
		switch {
		case outcomes[i] == nil:
			holders[s.keyOf(row)] = row
		case errors.Is(outcomes[i], fault.ErrTaken):
			taken = append(taken, s.keyOf(row))
		}
	}
	// The inserted rows are stored, even if the holders of taken keys cannot be read.
	stored, unknown := s.getAll(ctx, db, taken, lock)
	maps.Copy(holders, stored)
	for i, row := range rows {
		isTaken := errors.Is(outcomes[i], fault.ErrTaken)
		if !isTaken && !errors.Is(outcomes[i], errNoHolder) {
			continue
		}
		key := s.keyOf(row)
		switch holder := holders[key]; {
		case holder != nil:
			outcomes[i] = &ExistsError{Noun: s.table.Noun, Key: key, Same: s.sameContent(row, holder)}
		case isTaken:
			outcomes[i] = cmp.Or(unknown, errNoHolder)
		}
	}
}
