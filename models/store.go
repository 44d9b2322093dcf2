package models

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"

	lru "github.com/hashicorp/golang-lru/v2"

	"plantstore/database"
	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// Model is a GORM model with rules for its columns.
type Model interface{ Rules() Rules }

// Resources returns the models of the resources. A resource has the name of its table.
func Resources() []Model { return []Model{Plant{}} }

// Tables returns the tables of the resources.
func Tables() (all []*table.Table) {
	for _, model := range Resources() {
		all = append(all, table.OfModel(model))
	}
	return all
}

// All returns every model.
func All() []Model { return append(Resources(), Token{}) }

// Key is the type of a model's primary key.
type Key interface{ int64 | string | ID }

// Store keeps the rows of the model T, with keys that clients choose, in a
// database. It is safe for concurrent use.
//
// Its methods share these errors: an error for which fault.NothingStored holds if an operation did not get
// its turn, its share or a lock, and fault.ErrUnavailable if the database cannot be
// reached in time; the outcome of a write is then unknown. When a write returns nil,
// it is on disk.
//
// Get, List and Export read from a standby that has what ctx's client has written:
// see [database.DB.Standby]. All else comes from the primary.
type Store[T Model, K Key] struct {
	*reader[T, K]
	copies  map[*database.DB]*reader[T, K] // of the standbys
	related bool                           // a row may be rejected because of a row with another key

	changes *batch.Batcher[*table.Change]
	// The statements of Put without a version, of an import that replaces, and of Delete.
	put, replace, remove, removeVersion *table.Statement
	updates                             *lru.Cache[[2]string, *table.Statement] // see updateOf
}

// Declare returns the table and the rules of T. It panics if
// T is not a model with a key of type K, CreatedAt and UpdatedAt, if its other columns are not
// int64s, float64s, bools, times or of a type that fits their rule, or pointers to these, or if T relies on
// GORM for what the store does not do.
func Declare[T Model, K Key]() (*table.Table, Rules) {
	t, rules := table.Of[T](), (*new(T)).Rules()
	if key := t.Key.FieldType; key != reflect.TypeFor[K]() {
		panic(fmt.Sprintf("the key of %T is of type %s", *new(T), key))
	}
	rejectIgnored(t, rules)
	for _, c := range t.Columns {
		_, isPlain := table.Types[c.IndirectFieldType]
		switch rule := Base(rules[c.DBName]); {
		case t.IsTimestamp(c):
		case rule != nil && rule.fits(c.IndirectFieldType):
			c.Type = rule.SQL()
		case rule != nil || !isPlain || c.IndirectFieldType.Kind() == reflect.Slice:
			panic(fmt.Sprintf("%T.%s must be an int64, a float64, a bool, a time.Time, or of a type that fits its rule", *new(T), c.Name))
		}
	}
	for name := range rules {
		if c := t.Column(name); c == nil || t.IsTimestamp(c) {
			panic(fmt.Sprintf("%T has a rule for an unknown column", *new(T)))
		}
	}
	if t.Created == nil || t.Updated == nil {
		panic(fmt.Sprintf("%T must have the fields CreatedAt and UpdatedAt", *new(T)))
	}
	server := func(c *table.Column) bool { return rules.Server(c.DBName) }
	t.Content, t.Data = slices.DeleteFunc(t.Content, server), slices.DeleteFunc(t.Data, server)
	return t, rules
}

// NewStore returns the store of the rows of T in db, which must be migrated. It panics as Declare does.
func NewStore[T Model, K Key](db *database.DB) *Store[T, K] {
	s := &Store[T, K]{reader: newReader[T, K](db), copies: make(map[*database.DB]*reader[T, K])}
	s.updates, _ = lru.New[[2]string, *table.Statement](1000) // fails for a size of 0 only
	t, rules := s.table, s.rules
	for _, standby := range db.Standbys() {
		s.copies[standby] = newReader[T, K](standby)
	}
	for name := range rules {
		_, refers := rules.Ref(name)
		s.related = s.related || refers || rules.Unique(name)
	}
	for _, model := range All() { // a dry run must find the rows that refer to a row it would delete
		rules := model.Rules()
		for name := range rules {
			ref, refers := rules.Ref(name)
			s.related = s.related || refers && table.OfModel(ref.To).Name == t.Name
		}
	}
	s.changes = database.NewWriter(db, s.changeBatch)
	put := " ON CONFLICT (" + t.Key.DBName + ") DO UPDATE" + s.set(t.Content, "excluded.")
	s.put = &table.Statement{Table: t, Write: t.Insert.Write, Conflict: put, Returns: len(t.Columns)}
	s.replace = &table.Statement{Table: t, Write: t.Insert.Write, Conflict: put}
	s.remove = &table.Statement{Table: t, Write: "DELETE FROM " + t.Name, Returns: 1}
	hasVersion := db.Dialect.Among(t.Qualified(t.Updated), "@"+table.VersionsName)
	s.removeVersion = &table.Statement{Table: t, Write: s.remove.Write, Where: hasVersion, Returns: 1}
	return s
}

// rejectIgnored panics if the model of t relies on what GORM does, and the store does not.
func rejectIgnored(t *table.Table, rules Rules) {
	model := t.Key.Schema
	if model.BeforeSave || model.AfterSave || model.BeforeCreate || model.AfterCreate || model.BeforeUpdate || model.AfterUpdate ||
		model.BeforeDelete || model.AfterDelete || model.AfterFind {
		panic(fmt.Sprintf("%v has a hook of GORM, which its store does not call: declare a rule, or write an operation with Store.Update", model.ModelType))
	}
	for name := range model.Relationships.Relations {
		panic(fmt.Sprintf("%v.%s is an association, which its store does not write: move it to a model that embeds %[1]v, for Store.Query", model.ModelType, name))
	}
	for _, c := range t.Columns {
		constant := c.DefaultValueInterface != nil && c.Set(context.Background(), reflect.New(model.ModelType).Elem(), c.DefaultValueInterface) == nil
		if c.HasDefaultValue && (!constant || !rules.Server(c.DBName)) {
			panic(fmt.Sprintf("%v.%s has the tag default, which must be a constant, of a column whose rule is Server: clients set all other columns", model.ModelType, c.Name))
		}
		if c.Serializer != nil || !c.Creatable || !c.Updatable || !c.Readable {
			panic(fmt.Sprintf("%v.%s has a tag of GORM that its store ignores: remove serializer, <- and ->", model.ModelType, c.Name))
		}
	}
}

// setDefaults gives columns of the server without a value in a new row their defaults.
func (s *Store[T, K]) setDefaults(row reflect.Value) {
	for _, c := range s.table.Columns {
		if c.HasDefaultValue && c.Of(row).IsZero() {
			_ = c.Set(context.Background(), row, c.DefaultValueInterface) // rejectIgnored has tried it
		}
	}
}

// Outcome is the outcome of a write that succeeded.
type Outcome[T any] struct {
	Row      *T                // as it is stored; nil after a deletion
	Created  bool              // there was no such row
	Position database.Position // that has the write, for reads from other replicas; or 0
}

// outcome returns the outcome of a write by ctx's client that has stored row or failed with err. Its reads
// must see that from now on.
func (s *Store[T, K]) outcome(ctx context.Context, row *T, created bool, err error) (Outcome[T], error) {
	at := s.db.Wrote(ctx, err)
	if err != nil {
		return Outcome[T]{}, err
	}
	return Outcome[T]{row, created, at}, nil
}

// ExistsError means that a key is taken. The stored row is unchanged.
type ExistsError struct {
	Noun string // for the row, for example "plant"
	Key  any
	// Same is true if the stored row has the same content as the new row: an earlier
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

// blame returns err, which ended a write or the deletion of row, with the rows of a reference that does not hold.
func (s *Store[T, K]) blame(row *T, deletes bool, err error) error {
	broken, ok := errors.AsType[*fault.ReferenceError](err)
	if !ok {
		return err
	}
	ref, isRef := s.rules.Ref(broken.Column)
	switch broken.Deleted = deletes; {
	case deletes:
		broken.Row = fmt.Sprintf("%s %v", s.table.Noun, s.keyOf(row))
	case isRef && broken.Table == s.table.Name:
		broken.Row = fmt.Sprintf("%s %v", table.NounOf(ref.To), reflect.Indirect(s.table.Column(broken.Column).Of(valueOf(row))))
	}
	return err
}

// valueOf returns the struct behind row.
func valueOf[T any](row *T) reflect.Value { return reflect.ValueOf(row).Elem() }

// validate reports the first of columns in which row breaks a rule, as an
// *InvalidError.
func (s *Store[T, K]) validate(row *T, columns []*table.Column) error {
	for _, c := range columns {
		if value := reflect.Indirect(c.Of(valueOf(row))); value.IsValid() { // no nil pointer
			if err := Check(s.rules[c.DBName], c.DBName, value); err != nil {
				return err
			}
		}
	}
	return nil
}

// sameContent reports whether two rows differ in nothing but key and timestamps.
func (s *Store[T, K]) sameContent(a, b *T) bool {
	return !slices.ContainsFunc(s.table.Content, func(c *table.Column) bool { return !c.Equal(valueOf(a), valueOf(b)) })
}
