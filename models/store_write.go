package models

import (
	"cmp"
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"plantstore/database"
)

// Condition must hold for a write to happen. The statement that writes decides it: of two
// writers with the same version, one succeeds.
type Condition struct {
	// Versions are the values of UpdatedAt of which the row must have one; nil allows
	// any.
	Versions []time.Time
	// Exists requires that the row exists, Absent that it does not.
	Exists, Absent bool
}

// ErrCondition means that a [Condition] does not hold. Nothing was written.
var ErrCondition = errors.New("the condition does not hold")

// where returns the SQL that holds for a row that has one of c's versions.
func (s *Store[T, K]) where(c Condition) string {
	if c.Versions == nil {
		return ""
	}
	return s.db.Among(s.table.Name+"."+s.table.Updated.DBName, "@versions")
}

// set returns the assignments that write columns, with a new version. value returns the SQL of the
// value of a column.
func (s *Store[T, K]) set(columns []*database.Column, value func(*database.Column) string) string {
	var set []string
	for _, c := range columns {
		set = append(set, c.DBName+" = "+value(c))
	}
	version := s.table.Updated
	set = append(set, version.DBName+" = "+s.db.After(s.table.Name+"."+version.DBName, value(version)))
	return " SET " + strings.Join(set, ", ")
}

// given and excluded are the values of a column in the row that a statement writes, the
// latter in the clause ON CONFLICT.
func given(c *database.Column) string    { return "@" + c.DBName }
func excluded(c *database.Column) string { return "excluded." + c.DBName }

// wrote notes a write with the outcome *err: see [database.DB.Wrote].
func (s *Store[T, K]) wrote(ctx context.Context, err *error) { s.db.Wrote(ctx, *err) }

// Put validates row and stores it under its key, whether or not there is a row
// already, and sets its timestamps. It reports whether there was none. It fails with an
// *InvalidError if the row breaks a rule, and with ErrCondition if c does not hold.
func (s *Store[T, K]) Put(ctx context.Context, row *T, c Condition) (created bool, err error) {
	if err := s.validate(row, s.table.Data); err != nil {
		return false, err
	}
	defer s.wrote(ctx, &err)
	change := database.Change{Write: s.table.Insert, Conflict: s.replace, Returns: len(s.table.Columns)}
	replaces := c.Versions != nil || c.Exists
	switch {
	case replaces && c.Absent:
		return false, ErrCondition
	case replaces:
		change.Write, change.Where, change.Conflict = s.update, s.where(c), ""
	case c.Absent:
		change.Conflict = s.table.Keep
	}
	stored, err := s.write(ctx, change, row, c)
	switch {
	case err != nil:
		return false, err
	case stored == nil && !replaces && !c.Absent:
		return false, errNotStored
	case stored == nil:
		return false, ErrCondition
	}
	*row = *stored
	return s.isNew(row), nil
}

// errNotStored is the outcome of a write that no condition prevented, and that wrote nothing.
var errNotStored = errors.New("the row was not stored: look for triggers and policies of the table")

// isNew reports whether row, as a statement has written it, is a new one: each later write
// moves the version forward, beyond the time of creation.
func (s *Store[T, K]) isNew(row *T) bool {
	created, updated := s.table.Created.Of(valueOf(row)), s.table.Updated.Of(valueOf(row))
	return created.Interface().(time.Time).Equal(updated.Interface().(time.Time))
}

// Patch writes the named columns of row to the row with its key, and returns the
// whole row as stored. It fails with an *InvalidError if one of these columns breaks a
// rule, a *NotFoundError if there is no such row, and ErrCondition if c does not hold.
func (s *Store[T, K]) Patch(ctx context.Context, row *T, columns []string, c Condition) (stored *T, err error) {
	changed := make([]*database.Column, len(columns))
	for i, name := range columns {
		content := slices.IndexFunc(s.table.Content, func(c *database.Column) bool { return c.DBName == name })
		if content < 0 {
			return nil, invalid(name, "cannot be changed")
		}
		changed[i] = s.table.Content[content]
	}
	if err := s.validate(row, changed); err != nil {
		return nil, err
	}
	defer s.wrote(ctx, &err)
	return s.writeExisting(ctx, database.Change{Write: "UPDATE " + s.table.Name + s.set(changed, given), Returns: len(s.table.Columns)}, row, c)
}

// Delete removes the row with key. It fails with a *NotFoundError if there is no such
// row, and with ErrCondition if c does not hold.
func (s *Store[T, K]) Delete(ctx context.Context, key K, c Condition) (err error) {
	defer s.wrote(ctx, &err)
	row := new(T)
	s.table.Key.Of(valueOf(row)).Set(reflect.ValueOf(key))
	_, err = s.writeExisting(ctx, database.Change{Write: "DELETE FROM " + s.table.Name, Returns: 1}, row, c)
	return err
}

// writeExisting updates or deletes a row. It fails with a *NotFoundError if the row does not
// exist, and with ErrCondition if c does not hold.
func (s *Store[T, K]) writeExisting(ctx context.Context, change database.Change, row *T, c Condition) (stored *T, err error) {
	if !c.Absent {
		change.Where = s.where(c)
		stored, err = s.write(ctx, change, row, c)
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

// write makes change, with the columns of row, and returns the row it wrote, or nil.
func (s *Store[T, K]) write(ctx context.Context, change database.Change, row *T, c Condition) (*T, error) {
	change.Table, change.Row, change.Versions = s.table, row, s.db.Times(c.Versions)
	begin := time.Now()
	err := s.changes.Do(ctx, &change)
	err = s.db.WaitForLock(ctx, begin, err, func(ctx context.Context, tx *database.DB) error { return tx.RunIn(ctx, []*database.Change{&change}) })
	stored, _ := change.Stored.(*T)
	if err != nil {
		return nil, database.Failed("write "+s.table.Noun, err)
	}
	return stored, nil
}

// change writes a batch and returns the outcome of each change.
func (s *Store[T, K]) change(ctx context.Context, batch []*database.Change) []error {
	err := s.db.Run(ctx, batch, s.db.NowFunc())
	outcomes := make([]error, len(batch))
	for i, c := range batch {
		outcomes[i] = cmp.Or(c.Err, err) // a deferred change has an error of its own
	}
	return outcomes
}
