package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// Query runs a query on conn and calls read with its result. It uses a connection of a pool without
// database/sql, which converts each value twice.
func (*Dialect) Query(ctx context.Context, conn gorm.ConnPool, text string, args []any, read func(table.Rows) error) error {
	pool, ok := conn.(*sql.DB)
	if !ok {
		return table.Query(ctx, conn, text, args, read)
	}
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return read(rows)
	})
}

// Get returns no outcomes of single keys.
func (d *Dialect) Get(ctx context.Context, conn gorm.ConnPool, t *table.Table, keys any, lock bool, next func() reflect.Value) (outcomes []error, err error) {
	condition, argument := " = ANY($1)", keys
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes less time than an array of length 1
		condition, argument = " = $1", list.Index(0).Interface()
	} else if element := list.Type().Elem(); predeclared(element) != element {
		texts := make([]string, list.Len())
		for i := range texts {
			texts[i] = list.Index(i).String()
		}
		argument = texts
	}
	text := t.Select + " WHERE " + t.Key.DBName + condition
	if lock {
		text += " ORDER BY 1 FOR NO KEY UPDATE" // by key, or two transactions could deadlock
	}
	return nil, d.Query(ctx, conn, text, []any{argument}, func(rows table.Rows) error { return table.Scan(rows, t.Columns, next) })
}

// Run runs groups of changes in their order: in a single transaction, or in as few as possible if a row is
// locked or rejected and its change gets its own error, or in the transaction conn, which a locked row ends.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) (err error) {
	pool, own := conn.(*sql.DB)
	if !own {
		for _, g := range groups {
			if err := d.runIn(ctx, conn, g); err != nil {
				return err
			}
		}
		return nil
	}
	changes, plain := table.All(groups), d.plain(groups)
	err = d.runAll(ctx, pool, plain)
	if fault.IsRowRejected(err) && !slices.Equal(plain, groups) {
		for _, g := range groups {
			g.Taken.Store(true) // perhaps
		}
		err = d.runAll(ctx, pool, groups)
	}
	switch {
	case len(changes) == 1 && fault.IsRowFault(err):
		changes[0].Err = err
		return nil
	case fault.IsRowRejected(err) && d.Send == nil: // the halves have transactions of their own
		for half := range slices.Chunk(changes, (len(changes)+1)/2) {
			err := d.Run(ctx, conn, table.Groups(half))
			if err != nil && !fault.IsUnavailable(err) {
				err = batch.ErrDeferred // another attempt of the whole would repeat what the other half has stored
			}
			for _, c := range half {
				c.Err = cmp.Or(c.Err, err)
			}
		}
		return nil
	case fault.IsRowFault(err), fault.IsTableLocked(err):
		return d.each(ctx, pool, changes)
	}
	return err
}

// plain returns groups with a plain INSERT for each INSERT, unless keys are probably taken: without ON CONFLICT, an INSERT
// takes two thirds of the time. If a key is taken, it inserts no row, and the server logs a line.
func (d *Dialect) plain(groups []*table.Group) []*table.Group {
	if d.Send != nil {
		return groups
	}
	groups = slices.Clone(groups)
	for i, g := range groups {
		if g.Plain != nil && !g.Taken.Load() {
			groups[i] = &table.Group{Statement: g.Plain, Changes: g.Changes}
		}
	}
	return groups
}

// runIn runs g in the transaction conn. If a change is rejected, it runs the halves of g, until the change is
// alone and gets its error.
func (d *Dialect) runIn(ctx context.Context, conn gorm.ConnPool, g *table.Group) error {
	if _, err := conn.ExecContext(ctx, "SAVEPOINT changes"); err != nil {
		return err
	}
	text, args := d.textOf(g.Statement, g.Changes)
	err := d.Query(ctx, conn, text, args, g.Scan)
	if rejected := err; fault.IsRowRejected(rejected) {
		_, err = conn.ExecContext(ctx, "ROLLBACK TO changes")
		if len(g.Changes) == 1 {
			g.Changes[0].Err = rejected
		} else {
			for half := range slices.Chunk(g.Changes, (len(g.Changes)+1)/2) {
				if err == nil {
					err = d.runIn(ctx, conn, table.Groups(half)[0])
				}
			}
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "RELEASE changes")
	}
	return err
}

// runAll runs groups in a single transaction, with a statement for each.
func (d *Dialect) runAll(ctx context.Context, pool *sql.DB, groups []*table.Group) error {
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		if len(groups) == 1 && d.Send == nil { // takes less time than a batch
			text, args := d.textOf(groups[0].Statement, groups[0].Changes)
			rows, err := conn.Query(ctx, text, args...)
			return readResult(rows, err, groups[0])
		}
		batch := &pgx.Batch{}
		for _, g := range groups {
			text, args := d.textOf(g.Statement, g.Changes)
			batch.Queue(text, args...)
		}
		return d.send(ctx, conn, batch, func(results pgx.BatchResults) error {
			for _, g := range groups {
				rows, err := results.Query()
				if err := readResult(rows, err, g); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

// send runs batch in a single transaction and calls read with its results. It returns the first
// error of a statement, or that of the commit, or else of read: depending on pgx's mode, the
// transaction is then committed.
func (d *Dialect) send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, read func(pgx.BatchResults) error) error {
	if d.Send != nil {
		return d.Send(ctx, conn, batch, read)
	}
	results := conn.SendBatch(ctx, batch)
	err := read(results)
	return cmp.Or(results.Close(), err)
}

// readResult sets Stored of the changes of g.
func readResult(rows pgx.Rows, err error, g *table.Group) error {
	if err != nil {
		return err
	}
	err = g.Scan(rows)
	if rows.Close(); err == nil && g.Returns == 0 && rows.CommandTag().RowsAffected() == int64(len(g.Changes)) {
		for _, c := range g.Changes { // unless a trigger left out some of them
			c.Stored = c.Row
		}
	}
	return err
}

// maxAttempts is how often each attempts to tell the locked rows of a batch from its other rows. Each
// attempt that meets a locked row takes LockWait.
const maxAttempts = 16

// each runs changes in one transaction, with a statement for each, and sets their Err. A change whose row
// is locked or rejected costs another attempt without it. After maxAttempts, it defers the changes that
// follow: their Err is batch.ErrDeferred.
func (d *Dialect) each(ctx context.Context, pool *sql.DB, changes []*table.Change) error {
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		for attempt := 1; ; attempt++ {
			statements, queued := &pgx.Batch{}, make([]*table.Change, 0, len(changes))
			for _, c := range changes {
				if c.Err == nil {
					text, args := d.textOf(c.Statement, []*table.Change{c})
					statements.Queue(text, args...)
					queued = append(queued, c)
				}
			}
			done := 0
			err := d.send(ctx, conn, statements, func(results pgx.BatchResults) error {
				for ; done < len(queued); done++ {
					rows, err := results.Query()
					if err := readResult(rows, err, table.Groups(queued[done : done+1])[0]); err != nil {
						return err
					}
				}
				return nil
			})
			if done == len(queued) {
				return err
			}
			failed := queued[done]
			if fault.IsTableLocked(err) && isFree(ctx, conn, failed.Table) {
				err = fault.RowLocked(err)
			}
			if !fault.IsRowFault(err) {
				return err
			}
			failed.Err = err
			if fault.IsLocked(err) && attempt >= maxAttempts {
				for _, c := range queued[done+1:] {
					c.Err = batch.ErrDeferred
				}
			}
		}
	})
}

// isFree reports whether no other transaction keeps conn from writing to t.
func isFree(ctx context.Context, conn *pgx.Conn, t *table.Table) bool {
	_, err := conn.Exec(ctx, "DO $$ BEGIN LOCK TABLE "+t.Name+" IN ROW EXCLUSIVE MODE NOWAIT; END $$")
	return err == nil
}

// Load copies rows in PostgreSQL's binary format.
func (d *Dialect) Load(ctx context.Context, t *table.Table, next func() ([]any, error)) (rows int64, err error) {
	err = WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // does nothing after the commit
		if _, err := tx.Exec(ctx, d.SetLockTimeout(0)); err != nil {
			return err
		}
		columns, sent := strings.Split(table.Names(t.Columns), ", "), int64(0)
		counted := func() ([]any, error) {
			row, err := next()
			if row != nil {
				sent++
			}
			return row, err
		}
		if t.Feed != "" {
			rows, err = copyFollowed(ctx, tx, t, columns, counted)
		} else {
			rows, err = tx.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromFunc(counted))
		}
		if err == nil && rows < sent { // a trigger left out rows; Run tells which
			err = errors.ErrUnsupported
		}
		if err != nil {
			return err
		}
		return tx.Commit(ctx)
	})
	return rows, err
}

// textOf returns the text and the arguments that apply s to the rows of changes. Several rows become an
// array per column; they share their timestamps.
func (d *Dialect) textOf(s *table.Statement, changes []*table.Change) (text string, args []any) {
	if len(changes) == 1 { // PostgreSQL takes less time for a value than for an array of length 1
		f := s.Form(false, newForm)
		return f.Text, changes[0].Values(f.Names, listOf)
	}
	if d.InsertRows != nil && s.Inserts() {
		return d.InsertRows(s, changes)
	}
	f := s.Form(true, newForm)
	for _, name := range f.Names {
		column := s.Table.Column(name)
		switch {
		case column == nil:
			values := make([]string, len(changes))
			for i, c := range changes {
				values[i] = listOf(c.Versions)
			}
			args = append(args, values)
		case s.Table.IsTimestamp(column):
			args = append(args, column.Of(changes[0].Row).Interface())
		default:
			element := predeclared(column.FieldType)
			values := reflect.MakeSlice(reflect.SliceOf(element), len(changes), len(changes))
			for i, c := range changes {
				value := column.Of(c.Row)
				if element != column.FieldType {
					value = value.Convert(element)
				}
				values.Index(i).Set(value)
			}
			args = append(args, values.Interface())
		}
	}
	return f.Text, args
}

// predeclared returns t, or the predeclared type of a text that has a type of its own: pgx knows arrays of such types only if
// the server tells it the types of parameters, which some of pgx's modes do not ask for.
func predeclared(t reflect.Type) reflect.Type {
	switch {
	case t.Kind() == reflect.String:
		return reflect.TypeFor[string]()
	case t.Kind() == reflect.Pointer && t.Elem().Kind() == reflect.String:
		return reflect.TypeFor[*string]()
	}
	return t
}

// newForm numbers the parameters. If there are many rows, they come from arrays. The keys
// in the condition let PostgreSQL use the index even if it planned the statement when the
// table was empty.
func newForm(s *table.Statement, many bool) *table.Form {
	names, stands, t := s.Names(), make(map[string]string), s.Table
	var arrays, columns []string
	keys := ""
	for i, name := range names {
		kind, column := "text", t.Column(name)
		if column != nil {
			kind = column.Type.Postgres
		}
		stands["@"+name] = fmt.Sprintf("$%d::%s", i+1, kind)
		if !many || column != nil && t.IsTimestamp(column) {
			continue
		}
		array := stands["@"+name] + "[]"
		arrays, columns = append(arrays, array), append(columns, name)
		stands["@"+name] = "r." + name
		if column == t.Key {
			keys = fmt.Sprintf("%s = ANY(%s) AND ", t.Qualified(column), array)
		}
	}
	text := s.Text()
	if many {
		rows := fmt.Sprintf("unnest(%s) AS r(%s)", strings.Join(arrays, ", "), strings.Join(columns, ", "))
		switch {
		case s.Inserts():
			text = s.TextFrom(" SELECT "+s.RowNames()+" FROM "+rows, "")
		case strings.HasPrefix(s.Write, "DELETE"):
			text = s.TextFrom(" USING "+rows, keys)
		default:
			text = s.TextFrom(" FROM "+rows, keys)
		}
	}
	return &table.Form{Text: table.Parameter.ReplaceAllStringFunc(text, func(name string) string { return stands[name] }), Names: names}
}
