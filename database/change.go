package database

import (
	"cmp"
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
	Err      error  // why it was not made: its row is locked (see IsLocked), the database rejects it, or it is errDeferred
}

// kind identifies the statement of a Change: changes of one kind have the same text.
type kind struct {
	write, where, conflict string
	returns                int
}

func (c *Change) kind() kind { return kind{c.Write, c.Where, c.Conflict, c.Returns} }

// qualified returns the name of a column in a statement that has other tables, too.
func (t *Table) qualified(c *Column) string { return t.Name + "." + c.DBName }

// versions is the name that stands for a change's versions.
const versions = "versions"

// parameter matches a name that stands for a value.
var parameter = regexp.MustCompile(`@\w+`)

// inserts reports whether c is an INSERT.
func (c *Change) inserts() bool { return strings.HasPrefix(c.Write, "INSERT") }

// rowNames returns the names that stand for the values of a row.
func (t *Table) rowNames() string {
	return join(t.Columns, func(c *Column) string { return "@" + c.DBName })
}

// text returns the statement of c. from is the clause that its rows come from, if they are
// many, and keys a further condition.
func (c *Change) text(from, keys string) string {
	if from == "" && c.inserts() {
		from = " VALUES (" + c.Table.rowNames() + ")"
	}
	text := c.Write + from
	if !c.inserts() {
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

func (c *Change) values(names []string) []any {
	values, row := make([]any, len(names)), c.row()
	for i, name := range names {
		if values[i] = c.Versions; name != versions {
			values[i] = c.Table.column(name).Of(row).Interface()
		}
	}
	return values
}

// form is the statement of all changes of one kind.
type form struct {
	text  string
	names []string // that its parameters stand for, in their order
}

// forms keeps forms, which cost more to make than to run.
type forms struct{ sync.Map }

// of returns the form of c, for one row or for many. newForm makes it the first time.
func (f *forms) of(c *Change, many bool, newForm func(c *Change, many bool) form) form {
	key := struct {
		kind
		many bool
	}{c.kind(), many}
	if known, ok := f.Load(key); ok {
		return known.(form)
	}
	made := newForm(c, many)
	f.Store(key, made)
	return made
}

// Run runs changes in one transaction, at the time of now, or fails as a whole. It sets
// their Stored and Err. Changes of one row happen one after the other and have different
// times, so that each version is a new one.
func (db *DB) Run(ctx context.Context, changes []*Change, now time.Time) error {
	begin, groups := time.Now(), grouped(changes)
	for i, g := range groups {
		for _, c := range g.changes {
			c.Table.Stamp(c.row(), now.Add(time.Duration(i)*time.Microsecond))
		}
	}
	err := db.Retry(ctx, func() error {
		for _, c := range changes {
			c.Stored, c.Err = nil, nil
		}
		return db.dialect.run(ctx, db.pool, groups)
	})
	db.trace(ctx, begin, textOf(groups), len(changes), err)
	return err
}

// textOf returns the texts of groups.
func textOf(groups []*group) string {
	texts := make([]string, len(groups))
	for i, g := range groups {
		texts[i] = g.changes[0].text("", "")
	}
	return strings.Join(slices.Compact(texts), "; ")
}

// RunIn runs changes of one kind, each of another row and all with one time, in db, which
// is a transaction, and fails with the error of the first one that fails.
func (db *DB) RunIn(ctx context.Context, changes []*Change) error {
	if len(changes) == 0 {
		return nil
	}
	for _, c := range changes {
		c.Stored, c.Err = nil, nil
	}
	begin, groups := time.Now(), grouped(changes)
	err := db.dialect.runIn(ctx, db.conn, groups[0])
	for _, c := range changes {
		err = cmp.Or(err, c.Err)
	}
	db.trace(ctx, begin, textOf(groups), len(changes), err)
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

func (c *Change) scan(rows result) error {
	found, err := scanAll(rows, c.Table.Columns[:c.Returns], c.row().Type())
	c.Stored = nil
	for _, row := range found {
		c.Stored = row.Addr().Interface()
	}
	return err
}

// group is changes of one kind, each of another row.
type group struct {
	changes []*Change
	byKey   map[any]*Change
}

// grouped returns changes in groups, as few as possible.
func grouped(changes []*Change) (groups []*group) {
	for _, c := range changes {
		key := c.Table.Key.Of(c.row()).Interface()
		i := slices.IndexFunc(groups, func(g *group) bool { return g.changes[0].kind() == c.kind() && g.byKey[key] == nil })
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{byKey: make(map[any]*Change)})
		}
		groups[i].changes, groups[i].byKey[key] = append(groups[i].changes, c), c
	}
	return groups
}

func (g *group) scan(rows result) error {
	first := g.changes[0]
	found, err := scanAll(rows, first.Table.Columns[:first.Returns], first.row().Type())
	for _, row := range found {
		g.byKey[first.Table.Key.Of(row).Interface()].Stored = row.Addr().Interface()
	}
	return err
}

// all returns the changes of groups.
func all(groups []*group) (changes []*Change) {
	for _, g := range groups {
		changes = append(changes, g.changes...)
	}
	return changes
}
