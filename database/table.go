package database

import (
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/logger"
	"gorm.io/gorm/schema"
)

// Table is the one list of a model's columns, read from its GORM schema. Every
// statement, file and comparison is derived from it.
type Table struct {
	Name    string // of the table, such as plants
	Noun    string // for one row, such as plant
	Key     *Column
	Created *Column   // CreatedAt, or nil
	Updated *Column   // UpdatedAt, the version of a row, or nil
	Content []*Column // the columns besides these, which clients set, in the order of the fields
	Data    []*Column // Key and Content
	Columns []*Column // Data and the timestamps
	Insert  string    // the INSERT of a [Change], without its values
	Keep    string    // its clause ON CONFLICT that leaves a stored row as it is
	Select  string    // the SELECT of all rows
}

// Column is one column of a [Table] and the field that holds it.
type Column struct{ *schema.Field }

// NounOf returns the noun for a row of the model T, such as "garden bed" for GardenBed.
func NounOf[T any]() string {
	return strings.ReplaceAll(schema.NamingStrategy{}.ColumnName("", reflect.TypeFor[T]().Name()), "_", " ")
}

// TableOf returns the table of the GORM model T. It panics if T is not a model with
// one primary key, or has a timestamp that is not a time.Time.
func TableOf[T any]() *Table {
	parsed, err := schema.Parse(new(T), &sync.Map{}, schema.NamingStrategy{})
	if err != nil {
		panic(fmt.Sprintf("parse the model %T: %v", *new(T), err))
	}
	t := &Table{Name: parsed.Table, Noun: NounOf[T]()}
	for _, field := range parsed.Fields {
		if field.DBName == "" { // not a column
			continue
		}
		if timestamp := field.AutoCreateTime+field.AutoUpdateTime > 0; timestamp && field.FieldType != reflect.TypeFor[time.Time]() {
			panic(fmt.Sprintf("%T.%s is not a time.Time", *new(T), field.Name))
		}
		switch column := (&Column{field}); {
		case field.AutoIncrement:
			panic(fmt.Sprintf("%T.%s must have the tag autoIncrement:false, as clients choose keys", *new(T), field.Name))
		case field.PrimaryKey && t.Key == nil:
			t.Key = column
		case field.PrimaryKey:
			panic(fmt.Sprintf("%T has more than one primary key", *new(T)))
		case field.AutoCreateTime > 0:
			t.Created = column
		case field.AutoUpdateTime > 0:
			t.Updated = column
		default:
			t.Content = append(t.Content, column)
		}
	}
	if t.Key == nil {
		panic(fmt.Sprintf("%T has no primary key", *new(T)))
	}
	t.Data = append([]*Column{t.Key}, t.Content...)
	t.Columns = slices.Clone(t.Data)
	for _, timestamp := range []*Column{t.Created, t.Updated} {
		if timestamp != nil {
			t.Columns = append(t.Columns, timestamp)
		}
	}
	t.Select = "SELECT " + Names(t.Columns) + " FROM " + t.Name
	t.Keep = " ON CONFLICT (" + t.Key.DBName + ") DO NOTHING"
	t.Insert = "INSERT INTO " + t.Name + " (" + Names(t.Columns) + ")"
	return t
}

// Names returns the columns' names, as in SELECT.
func Names(columns []*Column) string { return strings.Join(names(columns), ", ") }

func names(columns []*Column) []string {
	names := make([]string, len(columns))
	for i, c := range columns {
		names[i] = c.DBName
	}
	return names
}

// join returns text(column) of each column, separated by commas.
func join(columns []*Column, text func(*Column) string) string {
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = text(c)
	}
	return strings.Join(texts, ", ")
}

func (t *Table) column(name string) *Column {
	i := slices.IndexFunc(t.Columns, func(c *Column) bool { return c.DBName == name })
	if i < 0 {
		return nil
	}
	return t.Columns[i]
}

// Of returns the column's field in row, a struct of the model.
func (c *Column) Of(row reflect.Value) reflect.Value { return row.FieldByIndex(c.StructField.Index) }

// AppendPointers appends pointers to the columns' fields in row, a struct of the model, for
// Scan.
func AppendPointers(to []any, columns []*Column, row reflect.Value) []any {
	for _, c := range columns {
		to = append(to, c.Of(row).Addr().Interface())
	}
	return to
}

// Equal reports whether two rows have the same value in the column.
func (c *Column) Equal(a, b reflect.Value) bool {
	return reflect.DeepEqual(c.Of(a).Interface(), c.Of(b).Interface())
}

// Stamp sets the timestamps of a new row.
func (t *Table) Stamp(row reflect.Value, now time.Time) {
	for _, timestamp := range []*Column{t.Created, t.Updated} {
		if timestamp != nil {
			*timestamp.Of(row).Addr().Interface().(*time.Time) = now // without a copy on the heap
		}
	}
}

// isTimestamp reports whether c is a timestamp, which all rows of an insert share.
func (t *Table) isTimestamp(c *Column) bool { return c == t.Created || c == t.Updated }

// InsertNew inserts the rows with free keys, in one transaction, and returns the outcome of
// each: nil, ErrTaken, or the error of a row that is locked (see IsLocked) or that the
// database rejects, which harms no others, unless db is a transaction. table is that of T, and
// rows are in ascending order of unique keys: inserts in another order can deadlock on
// PostgreSQL. All rows have the same timestamps. When it returns without an error, the inserted
// rows are on disk.
func InsertNew[T any](ctx context.Context, db *DB, table *Table, rows []*T) (outcomes []error, err error) {
	begin, structs := time.Now(), make([]reflect.Value, len(rows))
	for i, row := range rows {
		structs[i] = reflect.ValueOf(row).Elem()
	}
	err = db.Retry(ctx, func() (err error) {
		outcomes, err = db.dialect.insertNew(ctx, db.conn, table, structs)
		return err
	})
	db.trace(ctx, begin, "INSERT INTO "+table.Name, len(structs), err)
	return outcomes, err
}

// Lookup returns the rows of T, whose table is table, that have one of keys.
func Lookup[T, K any](ctx context.Context, db *DB, table *Table, keys []K) (found []*T, err error) {
	begin := time.Now()
	query, argument := db.dialect.lookup(table, keys)
	if db.locking {
		clause, oneByOne := db.dialect.lockRows()
		if oneByOne && len(keys) > 1 {
			for i := range keys {
				one, err := Lookup[T](ctx, db, table, keys[i:i+1])
				if err != nil {
					return nil, err
				}
				found = append(found, one...)
			}
			return found, nil
		}
		query += clause
	}
	err = db.Retry(ctx, func() error {
		found = nil
		return db.dialect.query(ctx, db.conn, query, []any{argument}, func(rows result) error {
			return scanRows(rows, table.Columns, func() reflect.Value {
				row := new(T)
				found = append(found, row)
				return reflect.ValueOf(row).Elem()
			})
		})
	})
	db.trace(ctx, begin, query, len(found), err)
	return found, err
}

// scanRows reads a result, which has columns, up to its end, where its error is. next
// returns the struct that takes the next row.
func scanRows(rows result, columns []*Column, next func() reflect.Value) error {
	var targets []any
	for rows.Next() {
		targets = AppendPointers(targets[:0], columns, next())
		if err := rows.Scan(targets...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// scanAll is scanRows into new structs of the type model.
func scanAll(rows result, columns []*Column, model reflect.Type) (all []reflect.Value, err error) {
	err = scanRows(rows, columns, func() reflect.Value {
		row := reflect.New(model).Elem()
		all = append(all, row)
		return row
	})
	return all, err
}

// Find runs the query that tx has built, on table. next returns the struct that takes the
// next row. It scans rows in half of GORM's time.
func (db *DB) Find(tx *gorm.DB, table *Table, next func() reflect.Value) error {
	begin, rows := time.Now(), 0
	built := tx.Session(&gorm.Session{DryRun: true, Logger: logger.Discard}).
		Table(table.Name).Select(Names(table.Columns)).Find(&[]map[string]any{})
	if built.Error != nil {
		return built.Error
	}
	ctx, text := built.Statement.Context, built.Statement.SQL.String()
	err := db.dialect.query(ctx, db.readPool, text, built.Statement.Vars, func(found result) error {
		return scanRows(found, table.Columns, func() reflect.Value {
			rows++
			return next()
		})
	})
	db.trace(ctx, begin, text, rows, err)
	return err
}

// Load inserts many rows into table, or no row at all, as fast as the database
// can, and returns how many there were: next returns a struct of the model, or false
// after the last. Unless keep is set, the rows are rolled back. It fails with
// errors.ErrUnsupported if the database has no faster way than InsertNew, or if only
// InsertNew can tell why a row is rejected, and with an error for which IsDuplicate holds
// if a key is taken.
func (db *DB) Load(ctx context.Context, table *Table, keep bool, next func() (reflect.Value, bool, error)) (int64, error) {
	values := make([]any, len(table.Columns))
	return db.dialect.load(ctx, db.pool, table, keep, func() ([]any, error) {
		row, ok, err := next()
		if !ok || err != nil {
			return nil, err
		}
		for i, c := range table.Columns {
			if values[i] == nil || !table.isTimestamp(c) { // all rows share the timestamps
				values[i] = c.Of(row).Interface()
			}
		}
		return values, nil
	})
}
