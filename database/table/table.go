// Package table derives the columns of a table, and the statements that read and write its rows,
// from a GORM model.
package table

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/schema"
)

// Table is the only list of a model's columns, read from its GORM schema. Every
// statement, file and comparison is derived from it.
type Table struct {
	Name       string // of the table: plants
	Noun       string // for a row: plant
	Key        *Column
	Created    *Column    // CreatedAt, or nil
	Updated    *Column    // UpdatedAt, the version of a row, or nil
	Feed       string     // the table with the state of its feed of changes, or empty if it has no feed
	Content    []*Column  // the columns besides these, in the order of the fields; in a store, only what clients set
	Data       []*Column  // Key and Content
	Columns    []*Column  // Key, all others, and the timestamps
	Select     string     // the SELECT of all rows
	Insert     *Statement // the INSERT of a row, unless its key is taken
	timestamps []*Column  // Created and Updated, if they are not nil
}

// Column is a column of a [Table] and the field that holds it.
type Column struct {
	*schema.Field
	Type Type
}

// Type is a type of columns on each kind of database.
type Type struct{ Postgres, SQLite string }

// Types has the types of columns by the types of their fields. All other fields are texts.
var Types = map[reflect.Type]Type{
	reflect.TypeFor[int64]():     {"bigint", "INTEGER"},
	reflect.TypeFor[float64]():   {"double precision", "REAL"},
	reflect.TypeFor[bool]():      {"boolean", "BOOLEAN"},
	reflect.TypeFor[time.Time](): {"timestamptz", "TIMESTAMP"},
	reflect.TypeFor[[]byte]():    {"bytea", "BLOB"},
}

// Text is the type of a column for a text.
var Text = Type{"text", "TEXT"}

// NounOf returns the noun for a row of model, "garden bed" for GardenBed.
func NounOf(model any) string {
	return strings.ReplaceAll(schema.NamingStrategy{}.ColumnName("", reflect.TypeOf(model).Name()), "_", " ")
}

// Of returns the table of the GORM model T. It panics as OfModel does.
func Of[T any]() *Table { return OfModel(*new(T)) }

// OfModel returns the table of a GORM model. It panics if model is not a struct with a single primary
// key, or has a timestamp that is not a time.Time.
func OfModel(model any) *Table {
	parsed, err := schema.Parse(model, &sync.Map{}, schema.NamingStrategy{})
	if err != nil {
		panic(fmt.Sprintf("parse the model %T: %v", model, err))
	}
	if len(parsed.PrimaryFields) != 1 || parsed.PrimaryFields[0].AutoIncrement {
		panic(fmt.Sprintf("%T must have one primary key, with the tag autoIncrement:false, as clients choose keys", model))
	}
	t := &Table{Name: parsed.Table, Noun: NounOf(model)}
	for _, field := range parsed.Fields {
		switch column := (&Column{field, cmp.Or(Types[field.IndirectFieldType], Text)}); {
		case field.DBName == "": // not a column
		case field.PrimaryKey:
			t.Key = column
		case field.AutoCreateTime > 0:
			t.Created = column
			t.timestamps = append(t.timestamps, column)
		case field.AutoUpdateTime > 0:
			t.Updated = column
			t.timestamps = append(t.timestamps, column)
		default:
			t.Content = append(t.Content, column)
		}
	}
	for _, c := range t.timestamps {
		if c.FieldType != reflect.TypeFor[time.Time]() {
			panic(fmt.Sprintf("%T.%s is not a time.Time", model, c.Name))
		}
	}
	if followed, ok := model.(interface{ Feed() string }); ok {
		t.Feed = followed.Feed()
	}
	t.Data = append([]*Column{t.Key}, t.Content...)
	t.Columns = slices.Concat(t.Data, t.timestamps)
	t.Select = "SELECT " + Names(t.Columns) + " FROM " + t.Name
	insert := "INSERT INTO " + t.Name + " (" + Names(t.Columns) + ")"
	t.Insert = &Statement{
		Table: t, Write: insert, Conflict: " ON CONFLICT (" + t.Key.DBName + ") DO NOTHING", Returns: 1,
		Plain: &Statement{Table: t, Write: insert},
	}
	return t
}

// FeedSQL returns text with the names of the tables of t's feed: {rows} is t, {feed} the table with the state of
// the feed, and {row} the first word in the names of the other tables.
func (t *Table) FeedSQL(text string) string {
	return strings.NewReplacer("{rows}", t.Name, "{feed}", t.Feed, "{row}", strings.ReplaceAll(t.Noun, " ", "_")).Replace(text)
}

// Names returns the columns' names, as in SELECT.
func Names(columns []*Column) string {
	return join(columns, func(c *Column) string { return c.DBName })
}

// join returns text(column) of each column, separated by commas.
func join(columns []*Column, text func(*Column) string) string {
	texts := make([]string, len(columns))
	for i, c := range columns {
		texts[i] = text(c)
	}
	return strings.Join(texts, ", ")
}

// Column returns the column name, or nil.
func (t *Table) Column(name string) *Column {
	i := slices.IndexFunc(t.Columns, func(c *Column) bool { return c.DBName == name })
	if i < 0 {
		return nil
	}
	return t.Columns[i]
}

// Qualified returns the name of a column in a statement that has other tables.
func (t *Table) Qualified(c *Column) string { return t.Name + "." + c.DBName }

// IsTimestamp reports whether c is a timestamp, which all rows of an insert share.
func (t *Table) IsTimestamp(c *Column) bool { return c == t.Created || c == t.Updated }

// Of returns the column's field in row, a struct of the model.
func (c *Column) Of(row reflect.Value) reflect.Value { return row.FieldByIndex(c.StructField.Index) }

// Time returns the timestamp in row.
func (c *Column) Time(row reflect.Value) time.Time { return *c.Of(row).Addr().Interface().(*time.Time) }

// Equal reports whether two rows have the same value in the column.
func (c *Column) Equal(a, b reflect.Value) bool {
	if x, y := reflect.Indirect(c.Of(a)), reflect.Indirect(c.Of(b)); x.IsValid() && y.IsValid() && c.IndirectFieldType == reflect.TypeFor[time.Time]() {
		return x.Interface().(time.Time).Equal(y.Interface().(time.Time))
	}
	return reflect.DeepEqual(c.Of(a).Interface(), c.Of(b).Interface())
}

// Stamp sets the timestamps of a new row.
func (t *Table) Stamp(row reflect.Value, now time.Time) {
	for _, c := range t.timestamps {
		*c.Of(row).Addr().Interface().(*time.Time) = now // without a copy on the heap
	}
}

// Rows is the result of a query: a *sql.Rows or a pgx.Rows.
type Rows interface {
	Next() bool
	Scan(targets ...any) error
	Err() error
}

// AppendPointers appends pointers to the columns' fields in row, a struct of the model, for
// Scan.
func AppendPointers(to []any, columns []*Column, row reflect.Value) []any {
	for _, c := range columns {
		to = append(to, c.Of(row).Addr().Interface())
	}
	return to
}

// Scan reads a result, which has columns, up to its end, where its error is. next
// returns the struct that takes the next row.
func Scan(rows Rows, columns []*Column, next func() reflect.Value) error {
	targets := make([]any, 0, len(columns))
	for rows.Next() {
		targets = AppendPointers(targets[:0], columns, next())
		if err := rows.Scan(targets...); err != nil {
			return err
		}
	}
	return rows.Err()
}

// Query runs a query on a connection of database/sql and calls read with its result.
func Query(ctx context.Context, conn gorm.ConnPool, text string, args []any, read func(Rows) error) error {
	return ReadAll(read)(conn.QueryContext(ctx, text, args...))
}

// ReadAll returns a function that calls read with the result of a query, and closes it.
func ReadAll(read func(Rows) error) func(*sql.Rows, error) error {
	return func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		return errors.Join(read(rows), rows.Close())
	}
}
