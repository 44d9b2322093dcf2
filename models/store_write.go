package models

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// Condition must hold for a write to happen. The statement that writes decides it: of two
// writers with the same version, only the first succeeds.
type Condition struct {
	// Versions are the values that UpdatedAt of the row may have; nil allows any.
	Versions []time.Time
	// Exists requires that the row exists, Absent that it does not.
	Exists, Absent bool
}

// ErrCondition means that a [Condition] does not hold. Nothing was written.
var ErrCondition = errors.New("the condition does not hold")

// set returns the assignments that write columns, with a new version. The value of a column has the
// prefix value, which is @ for the row of the statement, or excluded. in the clause ON CONFLICT.
func (s *Store[T, K]) set(columns []*table.Column, value string) string {
	var set []string
	for _, c := range columns {
		set = append(set, c.DBName+" = "+value+c.DBName)
	}
	version := s.table.Updated
	set = append(set, version.DBName+" = "+s.db.Dialect.After(s.table.Qualified(version), value+version.DBName))
	return " SET " + strings.Join(set, ", ")
}

// updateOf returns the UPDATE of columns. If versioned is set, it changes only a row with one of the change's Versions.
func (s *Store[T, K]) updateOf(columns []*table.Column, versioned bool) *table.Statement {
	key := [2]string{table.Names(columns)}
	if versioned {
		key[1] = s.removeVersion.Where
	}
	if known, ok := s.updates.Get(key); ok {
		return known
	}
	write := "UPDATE " + s.table.Name + s.set(columns, "@")
	statement := &table.Statement{Table: s.table, Write: write, Where: key[1], Returns: len(s.table.Columns)}
	s.updates.Add(key, statement)
	return statement
}

// createAttempts is how often an INSERT is tried, if each time the row with the key is deleted before it is read.
const createAttempts = 10

// Create validates and stores a new row and sets its timestamps. It fails with an
// *InvalidError if the row breaks a rule, and with an *ExistsError if its key is
// taken.
func (s *Store[T, K]) Create(ctx context.Context, row *T) (Outcome[T], error) {
	if err := s.validate(row, s.table.Data); err != nil {
		return Outcome[T]{}, err
	}
	s.setDefaults(valueOf(row))
	insert := s.table.Insert
	for attempt := range createAttempts {
		if attempt > 0 || insert.Taken.Load() { // perhaps a client repeats its requests: that needs no write
			holder, err := s.get(ctx, s.keyOf(row))
			if err == nil {
				err = &ExistsError{s.table.Noun, s.keyOf(row), s.sameContent(row, holder)}
			}
			if _, deleted := errors.AsType[*NotFoundError](err); !deleted {
				return s.outcome(ctx, nil, false, err)
			}
		}
		stored, err := s.write(ctx, insert, row, Condition{})
		if taken := err == nil && stored == nil; taken != insert.Taken.Load() { // few change what all read
			insert.Taken.Store(taken)
		}
		if err != nil || stored != nil {
			return s.outcome(ctx, row, true, err)
		}
	}
	return Outcome[T]{}, errNotStored
}

// Put validates row and stores it under its key, whether or not there is a row
// already, and sets its timestamps. It fails with an *InvalidError if the row breaks a rule, and with
// ErrCondition if c does not hold.
func (s *Store[T, K]) Put(ctx context.Context, row *T, c Condition) (Outcome[T], error) {
	if err := s.validate(row, s.table.Data); err != nil {
		return Outcome[T]{}, err
	}
	s.setDefaults(valueOf(row))
	statement, unwritten := s.put, errNotStored
	switch replaces := c.Versions != nil || c.Exists; {
	case replaces && c.Absent:
		return Outcome[T]{}, ErrCondition
	case replaces:
		statement, unwritten = s.updateOf(s.table.Content, c.Versions != nil), ErrCondition
	case c.Absent:
		statement, unwritten = s.table.Insert, ErrCondition
	}
	stored, err := s.write(ctx, statement, row, c)
	if err == nil && stored == nil {
		err = unwritten
	}
	if err != nil {
		return s.outcome(ctx, nil, false, err)
	}
	*row = *stored
	// Each later write moves the version forward, beyond the time of creation.
	created := s.table.Created.Time(valueOf(row)).Equal(s.table.Updated.Time(valueOf(row)))
	return s.outcome(ctx, row, created, nil)
}

// errNotStored is the outcome of a write that stored nothing, although no condition and no stored row prevented it.
var errNotStored = errors.New("the row was not stored: look for triggers and policies of the table")

// Patch writes the named columns of row to the row with its key. It fails with an *InvalidError if any of
// these columns breaks a rule, a *NotFoundError if there is no such row, and ErrCondition if c does not
// hold.
func (s *Store[T, K]) Patch(ctx context.Context, row *T, columns []string, c Condition) (Outcome[T], error) {
	changed := make([]*table.Column, len(columns))
	for i, name := range columns {
		content := slices.IndexFunc(s.table.Content, func(c *table.Column) bool { return c.DBName == name })
		if content < 0 {
			return Outcome[T]{}, invalid(name, "cannot be changed")
		}
		changed[i] = s.table.Content[content]
	}
	if err := s.validate(row, changed); err != nil {
		return Outcome[T]{}, err
	}
	stored, err := s.writeExisting(ctx, s.updateOf(changed, c.Versions != nil), row, c)
	return s.outcome(ctx, stored, false, err)
}

// Update locks the row with key, calls do with it, and stores what do has changed in it, with a new version.
// With tx, do may read and write other tables: all of it is a transaction, which is rolled back if do fails.
// If the transaction collides with another, do is called again with the row as it is then, so do must change
// nothing else, and it must be short, as other writes wait. Update fails with do's error, and as Patch does.
func (s *Store[T, K]) Update(ctx context.Context, key K, c Condition, do func(tx *gorm.DB, row *T) error) (Outcome[T], error) {
	var change *table.Change
	settable := slices.DeleteFunc(slices.Clone(s.table.Columns[1:]), s.table.IsTimestamp) // the key is the first
	at, err := s.db.Write(ctx, "update "+s.table.Noun, func(tx *database.DB) error {
		ctx := tx.Statement.Context
		rows, err := s.getAll(ctx, tx, []K{key}, true)
		row := rows[key]
		switch {
		case err != nil:
			return err
		case row == nil:
			return &NotFoundError{Noun: s.table.Noun}
		case c.Absent || c.Versions != nil && !slices.ContainsFunc(c.Versions, s.table.Updated.Time(valueOf(row)).Equal):
			return ErrCondition
		}
		if err := cmp.Or(do(tx.DB, row), s.validate(row, settable)); err != nil {
			return err
		}
		s.table.Key.Of(valueOf(row)).Set(reflect.ValueOf(key)) // whatever do has set it to
		change = &table.Change{Statement: s.updateOf(settable, false), Row: valueOf(row)}
		err = tx.Run(ctx, []*table.Change{change}, s.db.NowFunc())
		if err == nil && !change.Stored.IsValid() {
			err = errNotStored
		}
		return err
	})
	if err != nil {
		if change != nil {
			err = s.blame(change.Row.Addr().Interface().(*T), false, err)
		}
		return Outcome[T]{}, err
	}
	return Outcome[T]{change.Stored.Addr().Interface().(*T), false, at}, nil
}

// Delete removes the row with key. It fails with a *NotFoundError if there is no such
// row, and with ErrCondition if c does not hold.
func (s *Store[T, K]) Delete(ctx context.Context, key K, c Condition) (Outcome[T], error) {
	row, statement := new(T), s.remove
	s.table.Key.Of(valueOf(row)).Set(reflect.ValueOf(key))
	if c.Versions != nil {
		statement = s.removeVersion
	}
	_, err := s.writeExisting(ctx, statement, row, c)
	return s.outcome(ctx, nil, false, err)
}

// writeExisting updates or deletes a row. It fails with a *NotFoundError if the row does not
// exist, and with ErrCondition if c does not hold.
func (s *Store[T, K]) writeExisting(ctx context.Context, statement *table.Statement, row *T, c Condition) (stored *T, err error) {
	if !c.Absent {
		stored, err = s.write(ctx, statement, row, c)
	}
	switch {
	case err != nil || stored != nil:
		return stored, err
	case c.Versions == nil && !c.Absent:
		return nil, &NotFoundError{Noun: s.table.Noun}
	}
	if _, err := s.get(ctx, s.keyOf(row)); err != nil {
		return nil, err
	}
	return nil, ErrCondition
}

// write runs statement with the columns of row, and returns the row it wrote, or nil.
func (s *Store[T, K]) write(ctx context.Context, statement *table.Statement, row *T, c Condition) (*T, error) {
	change := &table.Change{Statement: statement, Row: valueOf(row), Versions: c.Versions}
	begin := time.Now()
	err := s.changes.Do(ctx, change)
	if fault.IsLocked(err) {
		err = s.db.WaitForLock(ctx, begin, err, func(tx *database.DB) error {
			return tx.Run(tx.Statement.Context, []*table.Change{change}, s.db.NowFunc())
		})
	}
	if err != nil {
		return nil, s.blame(row, statement == s.remove || statement == s.removeVersion, fault.In("write "+s.table.Noun, err))
	}
	if !change.Stored.IsValid() {
		return nil, nil
	}
	return change.Stored.Addr().Interface().(*T), nil
}

// changeBatch writes a batch and returns the outcome of each change.
func (s *Store[T, K]) changeBatch(ctx context.Context, changes []*table.Change) []error {
	err := s.db.Run(ctx, changes, s.db.NowFunc())
	outcomes := make([]error, len(changes))
	for i, c := range changes {
		outcomes[i] = cmp.Or(c.Err, err) // a deferred change has an error of its own
	}
	return outcomes
}
