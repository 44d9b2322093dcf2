package database

import "context"

// Column is one column of rows that are to be inserted: a value for each row.
type Column struct {
	name   string
	kind   string // the type in PostgreSQL, such as bigint
	values any    // a slice
	at     func(row int) any
	length int
}

// ColumnOf returns the column name, whose PostgreSQL type is kind, with values.
func ColumnOf[T any](name, kind string, values []T) Column {
	return Column{name: name, kind: kind, values: values, at: func(row int) any { return values[row] }, length: len(values)}
}

// InsertNew inserts rows into table, in one transaction, but those whose key is
// taken, and returns the keys of those it has inserted. key is the primary key;
// every column has as many values as key. When it returns without an error, the
// rows are on disk.
//
// Callers that insert at the same time must have their keys in ascending order,
// or PostgreSQL may have to break a deadlock.
func (db *DB) InsertNew(ctx context.Context, table string, key Column, others ...Column) ([]int64, error) {
	return db.dialect.insertNew(ctx, db.pool, table, append([]Column{key}, others...))
}
