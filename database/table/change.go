package table

import (
	"cmp"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"
)

// Statement writes at most a row of a table for each [Change]. In its text, @name stands
// for the value of the column name in the row of the change, and @versions for its versions.
// Changes with the same *Statement share its text.
type Statement struct {
	Table    *Table
	Write    string // INSERT INTO … (…), or UPDATE … SET …, or DELETE FROM …
	Where    string // the condition of an UPDATE or DELETE, besides that the row has the key
	Conflict string // the clause ON CONFLICT of an INSERT
	Returns  int    // how many of the table's columns, from the key on, it returns
	// Plain is the same INSERT without ON CONFLICT, which fails if a key is taken; other statements have none. Taken is
	// true if the key of the last row was taken, so that the next key probably is.
	Plain *Statement
	Taken atomic.Bool

	one, many atomic.Pointer[Form] // as [Statement.Form] has made them
}

// Form is the text of a statement as a database takes it, and the names that its parameters stand for.
type Form struct {
	Text  string
	Names []string
}

// Form returns the form of s for a row or for many. The first call makes it, which takes longer than to run it.
func (s *Statement) Form(many bool, newForm func(s *Statement, many bool) *Form) *Form {
	form := &s.one
	if many {
		form = &s.many
	}
	if form.Load() == nil {
		form.Store(newForm(s, many))
	}
	return form.Load()
}

// VersionsName is the name that stands for the versions of a change: a name that no column has.
const VersionsName = "if_versions"

// Parameter matches a name that stands for a value.
var Parameter = regexp.MustCompile(`@\w+`)

// Inserts reports whether s is an INSERT.
func (s *Statement) Inserts() bool { return strings.HasPrefix(s.Write, "INSERT") }

// RowNames returns the names that stand for the values of a row. Its timestamps are the same: see [Table.Stamp].
func (s *Statement) RowNames() string {
	return join(s.Table.Columns, func(c *Column) string {
		if s.Table.IsTimestamp(c) {
			c = s.Table.timestamps[0]
		}
		return "@" + c.DBName
	})
}

// Text returns the text of s for a row.
func (s *Statement) Text() string {
	if s.Inserts() {
		return s.TextFrom(" VALUES ("+s.RowNames()+")", "")
	}
	return s.TextFrom("", "")
}

// TextFrom returns the text of s for rows that come from a clause. keys is a further condition.
func (s *Statement) TextFrom(clause, keys string) string {
	text := s.Write + clause
	if !s.Inserts() {
		text += " WHERE " + keys + s.Table.Qualified(s.Table.Key) + " = @" + s.Table.Key.DBName
		if s.Where != "" {
			text += " AND " + s.Where
		}
	}
	text += s.Conflict
	if s.Returns > 0 {
		text += " RETURNING " + join(s.Table.Columns[:s.Returns], s.Table.Qualified)
	}
	return text
}

// Names returns the names in the text of s, each once.
func (s *Statement) Names() (names []string) {
	for _, match := range Parameter.FindAllString(s.Text(), -1) {
		if name := match[1:]; !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// Change is a statement with a row, and its outcome.
type Change struct {
	*Statement
	Row      reflect.Value // a struct of the model of the table
	Versions []time.Time
	Stored   reflect.Value // the row that it has written: Row, or a copy with all columns if it returns them; or invalid
	Err      error         // why it was not made: its row is locked or deferred, or the database rejects it
}

// Values returns the values that names stand for. list writes the versions as a single value.
func (c *Change) Values(names []string, list func([]time.Time) string) []any {
	values := make([]any, len(names))
	for i, name := range names {
		switch {
		case name == VersionsName:
			values[i] = list(c.Versions)
		case i > 0 && name == names[i-1]:
			values[i] = values[i-1]
		default:
			values[i] = c.Table.Column(name).Of(c.Row).Interface()
		}
	}
	return values
}

// Group is changes with the same statement, each of another row.
type Group struct {
	*Statement
	Changes []*Change
}

// CompareKeys orders changes of a table by the keys of their rows.
func CompareKeys(a, b *Change) int {
	x, y := a.Table.Key.Of(a.Row), b.Table.Key.Of(b.Row)
	if x.Kind() == reflect.String {
		return cmp.Compare(x.String(), y.String())
	}
	return cmp.Compare(x.Int(), y.Int())
}

// Groups returns changes, which are in the order of their keys, in groups, as few as possible.
func Groups(changes []*Change) (groups []*Group) {
	if len(changes) == 1 {
		return []*Group{{changes[0].Statement, changes}}
	}
	for _, c := range changes {
		i := slices.IndexFunc(groups, func(g *Group) bool {
			return g.Statement == c.Statement && CompareKeys(g.Changes[len(g.Changes)-1], c) < 0
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &Group{Statement: c.Statement})
		}
		groups[i].Changes = append(groups[i].Changes, c)
	}
	return groups
}

// Scan sets Stored of the changes whose keys are in a result.
func (g *Group) Scan(rows Rows) error {
	for _, c := range g.Changes {
		c.Stored = reflect.Value{} // of an earlier attempt
	}
	var found []reflect.Value
	err := Scan(rows, g.Table.Columns[:g.Returns], func() reflect.Value {
		found = append(found, reflect.New(g.Changes[0].Row.Type()).Elem())
		return found[len(found)-1]
	})
	wanted := &Change{Statement: g.Statement}
	for _, row := range found {
		wanted.Row = row
		if i, known := slices.BinarySearchFunc(g.Changes, wanted, CompareKeys); known {
			c := g.Changes[i]
			if c.Stored = row; g.Returns == 1 {
				c.Stored = c.Row
			}
		}
	}
	return err
}

// All returns the changes of groups.
func All(groups []*Group) (changes []*Change) {
	if len(groups) == 1 {
		return groups[0].Changes
	}
	for _, g := range groups {
		changes = append(changes, g.Changes...)
	}
	return changes
}
