package postgres

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

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

// Run runs groups of changes in their order, in a single transaction. If a row is locked or rejected, it runs them again:
// see runIn.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	pool, own := conn.(*sql.DB)
	if !own {
		return d.runIn(ctx, conn, groups, new(int))
	}
	plain := d.plain(groups)
	err := d.runAll(ctx, pool, plain)
	if fault.IsRowRejected(err) && !slices.Equal(plain, groups) {
		for _, g := range groups {
			g.Taken.Store(true) // perhaps
		}
		err = d.runAll(ctx, pool, groups)
	}
	if err = whichLock(ctx, pool, groups[0].Table, err); !fault.IsRowFault(err) {
		return err
	}
	if changes := table.All(groups); len(changes) == 1 {
		changes[0].Err = err
		return nil
	}
	ctx, cancel := batch.Attach(ctx)
	defer cancel()
	single, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer single.Close()
	isolate := func() error {
		tx, err := single.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after the commit
		// A row has been locked for LockWait, so the attempts to find it wait for less. No constraint may wait for the commit.
		if _, err := tx.ExecContext(ctx, d.SetLockTimeout(time.Millisecond)+"; SET CONSTRAINTS ALL IMMEDIATE"); err != nil {
			return err
		}
		if err := d.runIn(ctx, tx, groups, new(int)); err != nil {
			return err
		}
		return tx.Commit()
	}
	if d.Commit != nil {
		return d.Commit(single, isolate)
	}
	return isolate()
}

// plain returns groups with a plain INSERT for each INSERT, unless keys are probably taken: without ON CONFLICT, an INSERT
// takes two thirds of the time. If a key is taken, it inserts no row, and the server logs a line.
func (d *Dialect) plain(groups []*table.Group) (plain []*table.Group) {
	for _, g := range groups {
		if d.Send == nil && g.Plain != nil && !g.Taken.Load() {
			g = &table.Group{Statement: g.Plain, Changes: g.Changes}
		}
		plain = append(plain, g)
	}
	return plain
}

// maxLocked is how often runIn waits for locks before it defers the rest, so that they do not hold up other changes.
const maxLocked = 64

// runIn runs groups in the transaction conn. If a row is locked or rejected, it runs the halves of groups, until the
// change is alone and gets its error. locked is how often it has waited in vain for a lock.
func (d *Dialect) runIn(ctx context.Context, conn gorm.ConnPool, groups []*table.Group, locked *int) error {
	_, err := conn.ExecContext(ctx, "SAVEPOINT changes")
	for _, g := range groups {
		if err == nil {
			text, args := d.textOf(g.Statement, g.Changes)
			err = d.Query(ctx, conn, text, args, g.Scan)
		}
	}
	if err == nil {
		_, err = conn.ExecContext(ctx, "RELEASE changes")
	}
	if !fault.IsRowRejected(err) && !fault.IsLocked(err) {
		return err
	}
	if _, err := conn.ExecContext(ctx, "ROLLBACK TO changes; RELEASE changes"); err != nil {
		return err
	}
	if err = whichLock(ctx, conn, groups[0].Table, err); !fault.IsRowFault(err) {
		return err
	}
	if fault.IsLocked(err) {
		*locked++
	}
	switch changes := table.All(groups); {
	case len(changes) == 1:
		changes[0].Err = err
		return nil
	case *locked > maxLocked:
		for _, c := range changes {
			c.Err = batch.ErrDeferred
		}
		return nil
	case len(groups) == 1:
		g := groups[0]
		groups = nil
		for half := range slices.Chunk(changes, (len(changes)+1)/2) {
			groups = append(groups, &table.Group{Statement: g.Statement, Changes: half})
		}
	}
	for half := range slices.Chunk(groups, (len(groups)+1)/2) {
		if err := d.runIn(ctx, conn, half, locked); err != nil {
			return err
		}
	}
	return nil
}

// whichLock returns err, the error of a change of t. If t can be locked, a lock in the way was not the table's, but a
// row's: see [fault.RowLocked].
func whichLock(ctx context.Context, conn gorm.ConnPool, t *table.Table, err error) error {
	if !fault.IsTableLocked(err) {
		return err
	}
	ctx, cancel := batch.Attach(ctx)
	defer cancel()
	// A table can only be locked in a transaction, as two statements are.
	if _, err := conn.ExecContext(ctx, "SELECT; LOCK TABLE "+t.Name+" IN ROW EXCLUSIVE MODE"); err != nil {
		return err
	}
	return fault.RowLocked(err)
}

// runAll runs groups in a single transaction, with a statement for each.
func (d *Dialect) runAll(ctx context.Context, pool *sql.DB, groups []*table.Group) error {
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		if len(groups) == 1 && d.Send == nil { // takes less time than a batch
			text, args := d.textOf(groups[0].Statement, groups[0].Changes)
			rows, err := conn.Query(ctx, text, args...)
			if err != nil {
				return err
			}
			return readResult(rows, groups[0])
		}
		batch := &pgx.Batch{}
		for _, g := range groups {
			text, args := d.textOf(g.Statement, g.Changes)
			batch.Queue(text, args...).Query(func(rows pgx.Rows) error { return readResult(rows, g) })
		}
		if d.Send != nil {
			return d.Send(ctx, conn, batch)
		}
		return conn.SendBatch(ctx, batch).Close()
	})
}

// readResult sets Stored of the changes of g.
func readResult(rows pgx.Rows, g *table.Group) error {
	err := g.Scan(rows)
	if rows.Close(); err == nil && g.Returns == 0 && rows.CommandTag().RowsAffected() == int64(len(g.Changes)) {
		for _, c := range g.Changes { // unless a trigger left out some of them
			c.Stored = c.Row
		}
	}
	return err
}

// Load copies rows in PostgreSQL's binary format.
func (d *Dialect) Load(ctx context.Context, t *table.Table, next func() ([]any, error)) (rows int64, err error) {
	load := func(tx pgx.Tx) error {
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
		return err
	}
	err = WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error { return pgx.BeginFunc(ctx, conn, load) })
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
