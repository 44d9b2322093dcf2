package database

import (
	"context"
	"reflect"
	"time"
)

// InsertNew inserts the rows with free keys, in one transaction, and returns the keys that
// it inserted, or nil if that is all of them. rows is a slice of pointers to the model of
// table, in ascending order of unique keys: inserts in another order can deadlock on
// PostgreSQL. All rows have the same timestamps. When it returns without an error, the
// rows are on disk.
func (db *DB) InsertNew(ctx context.Context, table *Table, rows any) (inserted map[any]bool, err error) {
	begin, values := time.Now(), reflect.ValueOf(rows)
	keys, all, err := db.dialect.insertNew(ctx, db.conn, table, values)
	db.Logger.Trace(ctx, begin, func() (string, int64) { return "INSERT INTO " + table.Name, int64(values.Len()) }, err)
	if all || err != nil {
		return nil, err
	}
	inserted = make(map[any]bool, len(keys))
	for _, key := range keys {
		inserted[key] = true
	}
	return inserted, nil
}

// Load inserts many rows into table, or no row at all, as fast as the database
// can, and returns how many there were: next returns a struct of the model, or false
// after the last. Unless keep is set, the rows are rolled back. It fails with
// errors.ErrUnsupported, before it calls next, if the database has no faster way
// than InsertNew, and with an error for which IsDuplicate holds if a key is taken.
func (db *DB) Load(ctx context.Context, table *Table, keep bool, next func() (reflect.Value, bool, error)) (int64, error) {
	return db.dialect.load(ctx, db.pool, table, keep, func() ([]any, error) {
		row, ok, err := next()
		if !ok || err != nil {
			return nil, err
		}
		return table.values(row), nil
	})
}
