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
	"gorm.io/driver/postgres"
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

// Get reads the rows of t that have one of keys, a slice, and locks them if lock is set. next returns
// the struct that takes the next row. It returns no outcomes of single keys.
func (d *Dialect) Get(ctx context.Context, conn gorm.ConnPool, t *table.Table, keys any, lock bool, next func() reflect.Value) (outcomes []error, err error) {
	condition, argument := " = ANY($1)", keys
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes less time than an array of one
		condition, argument = " = $1", list.Index(0).Interface()
	}
	text := t.Select + " WHERE " + t.Key.DBName + condition
	if lock {
		text += " ORDER BY 1 FOR NO KEY UPDATE" // by key, or two transactions could deadlock
	}
	return nil, d.Query(ctx, conn, text, []any{argument}, func(rows table.Rows) error { return table.Scan(rows, t.Columns, next) })
}

// Insert inserts the rows with free keys, which are in ascending order of unique keys, and returns the
// outcome of each. free means that all keys are probably free.
func (d *Dialect) Insert(ctx context.Context, conn gorm.ConnPool, t *table.Table, rows []reflect.Value, free bool) (outcomes []error, err error) {
	pool, own := conn.(*sql.DB)
	free = free && own
	if free {
		outcomes, err = make([]error, len(rows)), d.insertAll(ctx, pool, t, rows)
	}
	if !free || fault.IsDuplicate(err) || errors.Is(err, fault.ErrLeftOut) {
		outcomes, err = d.insertFree(ctx, conn, t, rows)
	}
	if own && fault.IsRowFault(err) {
		return d.insertEach(ctx, pool, t, rows)
	}
	return outcomes, err
}

// insertAll inserts rows without ON CONFLICT, which takes two thirds of the time. If a key is
// taken, it inserts no row, and the server logs a line. It may fail with fault.ErrLeftOut.
func (d *Dialect) insertAll(ctx context.Context, pool *sql.DB, t *table.Table, rows []reflect.Value) error {
	text, args := d.rowsOf(t.Insert, rows, nil)
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		tag, err := conn.Exec(ctx, text, args...)
		if err == nil && tag.RowsAffected() < int64(len(rows)) {
			return fault.ErrLeftOut
		}
		return err
	})
}

// insertFree inserts the rows with free keys. The outcome of the other rows is fault.ErrTaken.
func (d *Dialect) insertFree(ctx context.Context, conn gorm.ConnPool, t *table.Table, rows []reflect.Value) (outcomes []error, err error) {
	text, args := d.rowsOf(t.InsertFree, rows, nil)
	err = d.write(ctx, conn, text, args, func(returned table.Rows) error {
		inserted, err := table.ScanNew(returned, t.Columns[:1], rows[0].Type())
		keys := make(map[any]bool, len(inserted))
		for _, row := range inserted {
			keys[t.Key.Of(row).Interface()] = true
		}
		outcomes = slices.Repeat([]error{fault.ErrTaken}, len(rows))
		for i, row := range rows {
			if keys[t.Key.Of(row).Interface()] {
				outcomes[i] = nil
			}
		}
		return err
	})
	return outcomes, err
}

// insertEach inserts the rows in one transaction, with a statement for each.
func (d *Dialect) insertEach(ctx context.Context, pool *sql.DB, t *table.Table, rows []reflect.Value) ([]error, error) {
	taken := make([]bool, len(rows))
	outcomes, err := d.each(ctx, pool, t, len(rows), func(batch *pgx.Batch, i int) {
		text, args := d.rowsOf(t.InsertFree, rows[i:i+1], nil)
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error {
		result, err := results.Exec()
		taken[i] = err == nil && result.RowsAffected() == 0
		return err
	})
	for i := range outcomes {
		if outcomes[i] == nil && taken[i] {
			outcomes[i] = fault.ErrTaken
		}
	}
	return outcomes, err
}

// write is Query for a statement that is a transaction of its own, unless conn is one.
func (d *Dialect) write(ctx context.Context, conn gorm.ConnPool, text string, args []any, read func(table.Rows) error) error {
	pool, own := conn.(*sql.DB)
	if !own || d.Send == nil {
		return d.Query(ctx, conn, text, args, read)
	}
	return WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue(text, args...)
		return d.Send(ctx, conn, batch, func(results pgx.BatchResults) error { return readResult(results, read) })
	})
}

// Run runs groups of changes in their order: in one transaction, in which a change whose row is locked
// or rejected gets its own error, or in the transaction conn, which a failed change ends.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	pool, own := conn.(*sql.DB)
	if !own {
		for _, g := range groups {
			text, args := d.groupOf(g)
			if err := d.Query(ctx, conn, text, args, g.Scan); err != nil {
				return err
			}
		}
		return nil
	}
	changes := table.All(groups)
	if c := changes[0]; len(changes) == 1 {
		text, args := d.changeOf(c)
		err := d.write(ctx, pool, text, args, c.Scan)
		if fault.IsRowFault(err) {
			c.Err, err = err, nil
		}
		if !fault.IsTableLocked(err) {
			return err
		}
	}
	batch := &pgx.Batch{}
	for _, g := range groups {
		text, args := d.groupOf(g)
		batch.Queue(text, args...)
	}
	err := WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		return d.send(ctx, conn, batch, func(results pgx.BatchResults) error {
			for _, g := range groups {
				if err := readResult(results, g.Scan); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if !fault.IsRowFault(err) && !fault.IsTableLocked(err) {
		return err
	}
	outcomes, err := d.each(ctx, pool, changes[0].Table, len(changes), func(batch *pgx.Batch, i int) {
		text, args := d.changeOf(changes[i])
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error { return readResult(results, changes[i].Scan) })
	for i, c := range changes {
		c.Err = outcomes[i]
	}
	return err
}

// send runs batch in one transaction and calls read with its results. It returns the first
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

// readResult calls read with the next result of a batch.
func readResult(results pgx.BatchResults, read func(table.Rows) error) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

// maxAttempts is how often each attempts to tell the locked rows of a batch from its other rows. Each
// attempt that meets a locked row takes LockWait.
const maxAttempts = 16

// each runs n statements on t in one transaction: queue adds the i-th statement to a batch,
// and read reads its result. A statement whose row is locked or rejected costs another
// attempt without it. After maxAttempts, it defers the statements that follow: their outcome is
// batch.ErrDeferred. It returns the outcome of each statement, or fails as a whole.
func (d *Dialect) each(
	ctx context.Context, pool *sql.DB, t *table.Table, n int, queue func(batch *pgx.Batch, i int), read func(results pgx.BatchResults, i int) error,
) (outcomes []error, err error) {
	outcomes = make([]error, n)
	err = WithConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		for attempt := 1; ; attempt++ {
			statements, queued := &pgx.Batch{}, make([]int, 0, n)
			for i, outcome := range outcomes {
				if outcome == nil {
					queue(statements, i)
					queued = append(queued, i)
				}
			}
			done := 0
			err := d.send(ctx, conn, statements, func(results pgx.BatchResults) error {
				for ; done < len(queued); done++ {
					if err := read(results, queued[done]); err != nil {
						return err
					}
				}
				return nil
			})
			if fault.IsTableLocked(err) && isFree(ctx, conn, t) {
				err = fault.RowLocked(err)
			}
			if done == len(queued) || !fault.IsRowFault(err) {
				return err
			}
			outcomes[queued[done]] = err
			if fault.IsLocked(err) && attempt >= maxAttempts {
				for _, i := range queued[done+1:] {
					outcomes[i] = batch.ErrDeferred
				}
			}
		}
	})
	return outcomes, err
}

// isFree reports whether no other transaction keeps this one from writing to t.
func isFree(ctx context.Context, conn *pgx.Conn, t *table.Table) bool {
	_, err := conn.Exec(ctx, "DO $$ BEGIN LOCK TABLE "+t.Name+" IN ROW EXCLUSIVE MODE NOWAIT; END $$")
	return err == nil
}

// Load copies rows in PostgreSQL's binary format, all or none, and returns their number. next returns
// nil after the last row. Unless keep is set, the rows are rolled back. It fails with
// errors.ErrUnsupported if only Insert can tell why a row is rejected.
func (d *Dialect) Load(ctx context.Context, t *table.Table, keep bool, next func() ([]any, error)) (rows int64, err error) {
	err = WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // does nothing after the commit
		if _, err := tx.Exec(ctx, d.SetLockTimeout(0)); err != nil {
			return err
		}
		var columns []string
		for _, c := range t.Columns {
			columns = append(columns, c.DBName)
		}
		sent := int64(0)
		counted := func() ([]any, error) {
			row, err := next()
			if row != nil {
				sent++
			}
			return row, err
		}
		if t.Name == d.Followed.Table {
			rows, err = d.copyFollowed(ctx, tx, columns, counted)
		} else {
			rows, err = tx.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromFunc(counted))
		}
		if err == nil && rows < sent { // Insert tells which
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, fault.ErrLeftOut)
		}
		if err != nil || !keep {
			return err
		}
		return tx.Commit(ctx)
	})
	return rows, err
}

// form is the text of a statement with numbered parameters.
type form struct {
	text  string
	names []string // that the parameters stand for, in their order
}

// changeOf returns the text of a change, and its arguments.
func (d *Dialect) changeOf(c *table.Change) (text string, args []any) {
	f := d.formOf(c.Statement, false)
	return f.text, c.Values(f.names)
}

func (d *Dialect) groupOf(g *table.Group) (text string, args []any) {
	rows := make([]reflect.Value, len(g.Changes))
	for i, c := range g.Changes {
		rows[i] = c.Row
	}
	return d.rowsOf(g.Statement, rows, func(i int) string { return g.Changes[i].Versions })
}

// rowsOf returns the text and the arguments that apply s to rows. Several rows become one array per
// column; they share their timestamps. versions returns those of the i-th row.
func (d *Dialect) rowsOf(s *table.Statement, rows []reflect.Value, versions func(i int) string) (text string, args []any) {
	if len(rows) == 1 { // PostgreSQL takes less time for a value than for an array of one
		c := table.Change{Statement: s, Row: rows[0]}
		if versions != nil {
			c.Versions = versions(0)
		}
		return d.changeOf(&c)
	}
	if d.InsertRows != nil && s.Inserts() {
		return d.InsertRows(s, rows)
	}
	f := d.formOf(s, true)
	for _, name := range f.names {
		column := s.Table.Column(name)
		switch {
		case column == nil:
			values := make([]string, len(rows))
			for i := range rows {
				values[i] = versions(i)
			}
			args = append(args, values)
		case s.Table.IsTimestamp(column):
			args = append(args, column.Of(rows[0]).Interface())
		default:
			values := reflect.MakeSlice(reflect.SliceOf(column.FieldType), len(rows), len(rows))
			for i, row := range rows {
				values.Index(i).Set(column.Of(row))
			}
			args = append(args, values.Interface())
		}
	}
	return f.text, args
}

// TypeOf returns the type of a column.
func TypeOf(c *table.Column) string { return (postgres.Dialector{}).DataTypeOf(c.Field) }

// formOf returns the form of s for one row or for many. Forms are kept: they cost more to make than
// to run.
func (d *Dialect) formOf(s *table.Statement, many bool) form {
	key := struct {
		*table.Statement
		many bool
	}{s, many}
	if known, ok := d.forms.Load(key); ok {
		return known.(form)
	}
	f := newForm(s, many)
	d.forms.Store(key, f)
	return f
}

// newForm numbers the parameters. If there are many rows, they come from arrays. The keys
// in the condition let PostgreSQL use the index even if it planned the statement when the
// table was empty.
func newForm(s *table.Statement, many bool) form {
	names, stands, t := s.Names(), make(map[string]string), s.Table
	var arrays, columns []string
	keys := ""
	for i, name := range names {
		kind, column := "text", t.Column(name)
		if column != nil {
			kind = TypeOf(column)
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
	return form{table.Parameter.ReplaceAllStringFunc(text, func(name string) string { return stands[name] }), names}
}
