package database

import (
	"context"
	"database/sql"
	"errors"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Change is a statement that writes at most one row of a table. In its text, @name stands
// for the value of the column name in Row, and @versions for Versions.
type Change struct {
	Table    *Table
	Write    string // the table's Insert, or UPDATE … SET …, or DELETE FROM …
	Where    string // the condition of an UPDATE or DELETE, besides that the row has Row's key
	Conflict string // the clause ON CONFLICT of an INSERT
	Returns  int    // how many of the table's columns, from the key on, it returns
	Row      any    // a pointer to the model of the table
	Versions string // see [DB.Times]
	Stored   any    // the row that it has written, with these columns, as a pointer to the model; or nil
}

// qualified returns the name of a column in a statement that has other tables, too.
func (t *Table) qualified(c *Column) string { return t.Name + "." + c.DBName }

// versions is the name that stands for a change's versions.
const versions = "versions"

// parameter matches a name that stands for a value.
var parameter = regexp.MustCompile(`@\w+`)

// text returns the statement of c. from is a clause that its rows come from, and keys a
// further condition.
func (c *Change) text(from, keys string) string {
	text := c.Write + from
	if !strings.HasPrefix(c.Write, "INSERT") {
		text += " WHERE " + keys + c.Table.qualified(c.Table.Key) + " = @" + c.Table.Key.DBName
		if c.Where != "" {
			text += " AND " + c.Where
		}
	}
	text += c.Conflict
	if c.Returns > 0 {
		text += " RETURNING " + join(c.Table.Columns[:c.Returns], c.Table.qualified)
	}
	return text
}

// names returns the names in the statement of c.
func (c *Change) names() (names []string) {
	for _, match := range parameter.FindAllString(c.text("", ""), -1) {
		if name := match[1:]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// row returns the struct behind Row.
func (c *Change) row() reflect.Value { return reflect.ValueOf(c.Row).Elem() }

// values returns the values that names stand for.
func (c *Change) values(names []string) []any {
	values, row := make([]any, len(names)), c.row()
	for i, name := range names {
		if values[i] = c.Versions; name != versions {
			values[i] = c.Table.column(name).Of(row).Interface()
		}
	}
	return values
}

// form is the statement of all changes with one text.
type form struct {
	text  string
	names []string // that its parameters stand for, in their order
}

// forms keeps forms, which cost more to make than to run.
type forms struct{ sync.Map }

// of returns the form of c, for one row or for many, that newForm makes.
func (f *forms) of(c *Change, many bool, newForm func(c *Change, many bool) form) form {
	key := struct {
		text    [3]string
		returns int
		many    bool
	}{[3]string{c.Write, c.Where, c.Conflict}, c.Returns, many}
	if known, ok := f.Load(key); ok {
		return known.(form)
	}
	made := newForm(c, many)
	f.Store(key, made)
	return made
}

// Run runs changes in one transaction and returns the outcome of each, or fails as a whole.
// Those whose row is locked (see IsLocked), or that the database rejects, harm no others.
// Their timestamps are those of the first.
func (db *DB) Run(ctx context.Context, changes []*Change) (outcomes []error, err error) {
	begin := time.Now()
	err = db.Retry(ctx, func() (err error) {
		for _, c := range changes {
			c.Stored = nil
		}
		outcomes, err = db.dialect.run(ctx, db.pool, changes)
		return err
	})
	db.Logger.Trace(ctx, begin, func() (string, int64) { return textOf(changes), int64(len(changes)) }, err)
	return outcomes, err
}

// textOf returns the distinct texts of changes.
func textOf(changes []*Change) string {
	var texts []string
	for _, c := range changes {
		if text := c.text("", ""); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, "; ")
}

// RunOne runs a change on its own, or in db if that is a transaction.
func (db *DB) RunOne(ctx context.Context, c *Change) (err error) {
	begin := time.Now()
	text, args := db.dialect.change(c)
	err = db.dialect.query(ctx, db.conn, text, args, c.scan)
	db.Logger.Trace(ctx, begin, func() (string, int64) { return text, 1 }, err)
	return err
}

// result is a *sql.Rows or a pgx.Rows.
type result interface {
	Next() bool
	Scan(targets ...any) error
	Err() error
}

// query is the method query of a dialect on a connection of database/sql.
func query(ctx context.Context, conn connection, text string, args []any, read func(result) error) error {
	return readAll(read)(conn.QueryContext(ctx, text, args...))
}

// readAll returns a function that calls read with the result of a query, and closes it.
func readAll(read func(result) error) func(*sql.Rows, error) error {
	return func(rows *sql.Rows, err error) error {
		if err != nil {
			return err
		}
		return errors.Join(read(rows), rows.Close())
	}
}

// scan reads the result of c.
func (c *Change) scan(rows result) error {
	found, err := scanAll(rows, c.Table.Columns[:c.Returns], c.row().Type())
	c.Stored = nil
	for _, row := range found {
		c.Stored = row.Addr().Interface()
	}
	return err
}

// group is changes with one text, each of another row.
type group struct {
	changes []*Change
	byKey   map[any]*Change
}

// grouped returns changes in groups.
func grouped(changes []*Change) (groups []*group) {
	for _, c := range changes {
		key := c.Table.Key.Of(c.row()).Interface()
		i := slices.IndexFunc(groups, func(g *group) bool {
			first := g.changes[0]
			return first.Write == c.Write && first.Where == c.Where && first.Conflict == c.Conflict && g.byKey[key] == nil
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{byKey: make(map[any]*Change)})
		}
		groups[i].changes, groups[i].byKey[key] = append(groups[i].changes, c), c
	}
	return groups
}

// scan reads the result of g.
func (g *group) scan(rows result) error {
	first := g.changes[0]
	found, err := scanAll(rows, first.Table.Columns[:first.Returns], first.row().Type())
	for _, row := range found {
		g.byKey[first.Table.Key.Of(row).Interface()].Stored = row.Addr().Interface()
	}
	return err
}
