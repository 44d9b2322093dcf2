package database

import (
	"context"
	"time"
)

// Column is one column of rows that are to be inserted.
type Column struct {
	name   string
	kind   string // the type in PostgreSQL, such as bigint
	each   bool   // value is a slice with a value for each row, and not the value of all
	value  any
	at     func(row int) any
	length int
}

// ColumnOf returns the column name, whose PostgreSQL type is kind, with a value
// for each row.
func ColumnOf[T any](name, kind string, values []T) Column {
	return Column{name: name, kind: kind, each: true, value: values, at: func(row int) any { return values[row] }, length: len(values)}
}

// SameInAll returns the column name, whose PostgreSQL type is kind, with the same
// value in all rows.
func SameInAll(name, kind string, value any) Column {
	return Column{name: name, kind: kind, value: value, at: func(int) any { return value }}
}

// InsertNew inserts rows into table, in one transaction, but those whose key is
// taken, and returns the keys of those it has inserted. key is the primary key,
// with a value for each row, as the other columns have. When it returns without an error, the
// rows are on disk.
//
// Callers that insert at the same time must have their keys in ascending order,
// or PostgreSQL may have to break a deadlock.
func (db *DB) InsertNew(ctx context.Context, table string, key Column, others ...Column) ([]int64, error) {
	begin := time.Now()
	inserted, err := db.dialect.insertNew(ctx, db.conn, table, append([]Column{key}, others...))
	db.Logger.Trace(ctx, begin, func() (string, int64) { return "INSERT INTO " + table, int64(len(inserted)) }, err)
	return inserted, err
}

// Load inserts many rows into table, all of them or none, as fast as the database
// can: next returns the values of a row, in the order of columns, or nil after the
// last. It returns how many there were. Unless keep is set, none stays. It fails
// with errors.ErrUnsupported, before it asks for a row, where the database has no
// better way than InsertNew; and with an error for which IsDuplicate holds where
// a key is taken.
func (db *DB) Load(ctx context.Context, table string, columns []string, keep bool, next func() ([]any, error)) (int64, error) {
	return db.dialect.load(ctx, db.pool, table, columns, keep, next)
}
