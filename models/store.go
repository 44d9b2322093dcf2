package models

import (
	"fmt"
	"reflect"
	"slices"
	"sync/atomic"

	"plantstore/database"
)

// Model is a GORM model with rules for its columns.
type Model interface{ Rules() Rules }

// All returns every model.
func All() []Model { return []Model{Plant{}, Token{}} }

// Key is the type of a model's primary key.
type Key interface{ int64 | string }

// Store keeps the rows of the model T, with keys that clients choose, in a
// database. It is safe for concurrent use.
//
// Its methods share these errors: database.ErrOverloaded if too many operations are
// waiting, and one that wraps database.ErrUnavailable if the database cannot be
// reached in time; the outcome of a write is then unknown. When a write returns nil,
// it is on disk.
//
// Get, List and Export read from a standby of the database that has what ctx's client has written:
// see [database.DB.PickStandby]. All else, such as what a write reads, comes from the primary.
type Store[T Model, K Key] struct {
	*reader[T, K]
	copies  []*reader[T, K] // of the standbys
	rules   Rules
	inserts *database.Writer[*T]
	changes *database.Writer[*database.Change]
	// mostTaken is whether most keys of the last batch of inserts were taken.
	mostTaken atomic.Bool
	// update is the UPDATE of a change; replace is the clause ON CONFLICT that replaces a stored row.
	update, replace string
}

// NewStore returns the store of the rows of T in db, which must be migrated. It panics if
// T is not a model with a key of type K, CreatedAt and UpdatedAt, if its other columns are not
// texts with a rule, int64s or bools, or pointers to these, or if a rule does not fit its column.
func NewStore[T Model, K Key](db *database.DB) *Store[T, K] {
	s := &Store[T, K]{reader: newReader[T, K](db), rules: (*new(T)).Rules()}
	if key := s.table.Key.FieldType; key != reflect.TypeFor[K]() {
		panic(fmt.Sprintf("the key of %T is of type %s", *new(T), key))
	}
	for _, standby := range db.Standbys() {
		s.copies = append(s.copies, newReader[T, K](standby))
	}
	ruled := 0
	for _, c := range s.table.Data {
		switch rule, kind := s.rules[c.DBName], c.IndirectFieldType.Kind(); {
		case rule != nil && rule.kind() == kind:
			ruled++
		case rule != nil || kind != reflect.Int64 && kind != reflect.Bool:
			panic(fmt.Sprintf("%T.%s must be a text with a rule, an int64 with or without one, or a bool", *new(T), c.Name))
		}
	}
	if ruled != len(s.rules) {
		panic(fmt.Sprintf("%T has a rule for an unknown column", *new(T)))
	}
	if s.table.Created == nil || s.table.Updated == nil {
		panic(fmt.Sprintf("%T must have the fields CreatedAt and UpdatedAt", *new(T)))
	}
	s.inserts = database.NewWriter(db, database.PerNode(db, s.table, func(row *T) any { return s.keyOf(row) }, s.create))
	s.changes = database.NewWriter(db, database.PerNode(db, s.table, func(c *database.Change) any { return s.keyOf(c.Row.(*T)) }, s.change))
	s.update = "UPDATE " + s.table.Name + s.set(s.table.Content, given)
	s.replace = " ON CONFLICT (" + s.table.Key.DBName + ") DO UPDATE" + s.set(s.table.Content, excluded)
	return s
}

// ExistsError means that a key is taken. The stored row is unchanged.
type ExistsError struct {
	Noun string // for the row, such as "plant"
	Key  any
	// Same is true if the stored row has the same content as the new one: an earlier
	// attempt succeeded.
	Same bool
}

func (e *ExistsError) Error() string {
	content := "different"
	if e.Same {
		content = "the same"
	}
	return fmt.Sprintf("%s %v exists with %s content", e.Noun, e.Key, content)
}

// valueOf returns the struct behind row.
func valueOf[T any](row *T) reflect.Value { return reflect.ValueOf(row).Elem() }

// validate reports the first of columns in which row breaks a rule, as an
// *InvalidError.
func (s *Store[T, K]) validate(row *T, columns []*database.Column) error {
	for _, c := range columns {
		rule, value := s.rules[c.DBName], reflect.Indirect(c.Of(valueOf(row)))
		if rule == nil || !value.IsValid() { // a nil pointer
			continue
		}
		if err := rule.check(c.DBName, value); err != nil {
			return err
		}
	}
	return nil
}

// sameContent reports whether two rows differ in nothing but key and timestamps.
func (s *Store[T, K]) sameContent(a, b *T) bool {
	return !slices.ContainsFunc(s.table.Content, func(c *database.Column) bool { return !c.Equal(valueOf(a), valueOf(b)) })
}
