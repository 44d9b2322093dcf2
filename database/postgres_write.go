package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"gorm.io/driver/postgres"
)

// conflictPeriod is how long insertNew expects keys to be taken after one was.
const conflictPeriod = time.Second

// insertNew expects that all keys are free, as they usually are. If one was not, it expects
// others to be taken for conflictPeriod: each such failure costs a transaction and a line in the
// server's log.
func (d *postgresDialect) insertNew(ctx context.Context, conn connection, table *Table, rows []reflect.Value) (outcomes []error, err error) {
	insertFree := &Change{Table: table, Write: table.Insert, Conflict: table.Keep, Returns: 1}
	pool, ownTransaction := conn.(*sql.DB)
	expectConflicts := !ownTransaction || d.citus.Load() && len(rows) == 1 || time.Now().UnixNano() < d.conflictsUntil.Load()
	taken := false
	if !expectConflicts {
		outcomes = make([]error, len(rows))
		if taken, err = d.insertAll(ctx, pool, table, rows); taken {
			d.conflictsUntil.Store(time.Now().Add(conflictPeriod).UnixNano())
		}
	}
	if expectConflicts || taken {
		outcomes, err = d.insertUntaken(ctx, conn, insertFree, rows)
	}
	if ownTransaction && isRowFault(err) {
		return d.insertEach(ctx, pool, insertFree, rows)
	}
	return outcomes, err
}

// insertAll inserts rows without ON CONFLICT, which takes two thirds of the time, and reports
// whether a key is taken, or on Citus may be: then it has inserted none. It may fail with ErrLeftOut.
func (d *postgresDialect) insertAll(ctx context.Context, pool *sql.DB, table *Table, rows []reflect.Value) (taken bool, err error) {
	if d.citus.Load() {
		copied, err := d.copyNew(ctx, pool, table, rows)
		return !copied && err == nil, err
	}
	text, args := d.changeRows(&Change{Table: table, Write: table.Insert}, rows, nil)
	err = d.query(ctx, pool, text, args, func(none result) error {
		none.Next()
		if stored := none.(pgx.Rows).CommandTag().RowsAffected(); none.Err() == nil && stored < int64(len(rows)) {
			return ErrLeftOut
		}
		return none.Err()
	})
	if IsDuplicate(err) {
		return true, nil
	}
	return false, err
}

// insertUntaken inserts the rows with free keys. The outcome of the others is ErrTaken.
func (d *postgresDialect) insertUntaken(ctx context.Context, conn connection, insertFree *Change, rows []reflect.Value) (outcomes []error, err error) {
	table := insertFree.Table
	text, args := d.changeRows(insertFree, rows, nil)
	err = d.write(ctx, conn, text, args, func(returned result) error {
		inserted, err := scanAll(returned, table.Columns[:1], rows[0].Type())
		keys := make(map[any]bool, len(inserted))
		for _, row := range inserted {
			keys[table.Key.Of(row).Interface()] = true
		}
		outcomes = slices.Repeat([]error{ErrTaken}, len(rows))
		for i, row := range rows {
			if keys[table.Key.Of(row).Interface()] {
				outcomes[i] = nil
			}
		}
		return err
	})
	return outcomes, err
}

// insertEach inserts the rows in one transaction, with a statement for each.
func (d *postgresDialect) insertEach(ctx context.Context, pool *sql.DB, insertFree *Change, rows []reflect.Value) ([]error, error) {
	taken := make([]bool, len(rows))
	outcomes, err := d.runEach(ctx, pool, insertFree.Table, len(rows), func(batch *pgx.Batch, i int) {
		text, args := d.changeRows(insertFree, rows[i:i+1], nil)
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error {
		result, err := results.Exec()
		taken[i] = err == nil && result.RowsAffected() == 0
		return err
	})
	for i := range outcomes {
		if outcomes[i] == nil && taken[i] {
			outcomes[i] = ErrTaken
		}
	}
	return outcomes, err
}

// write is query for a statement that is a transaction of its own, unless conn is one.
func (d *postgresDialect) write(ctx context.Context, conn connection, text string, args []any, read func(result) error) error {
	pool, ok := conn.(*sql.DB)
	if !ok || !d.citus.Load() {
		return d.query(ctx, conn, text, args, read)
	}
	return withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		batch := &pgx.Batch{}
		batch.Queue(text, args...)
		return d.send(ctx, conn, batch, func(results pgx.BatchResults) error { return readResult(results, read) })
	})
}

// query uses a connection of a pool without database/sql, which converts each value twice.
func (*postgresDialect) query(ctx context.Context, conn connection, text string, args []any, read func(result) error) error {
	pool, ok := conn.(*sql.DB)
	if !ok {
		return query(ctx, conn, text, args, read)
	}
	return withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return read(rows)
	})
}

// run sends all changes at once, with a statement for each group.
func (d *postgresDialect) run(ctx context.Context, pool *sql.DB, groups []*group) error {
	changes := all(groups)
	if c := changes[0]; len(changes) == 1 {
		text, args := d.change(c)
		err := d.write(ctx, pool, text, args, c.scan)
		if isRowFault(err) {
			c.Err, err = err, nil
		}
		if !isTableLocked(err) {
			return err
		}
	}
	if d.citus.Load() {
		groups = withoutManyVersions(groups)
	}
	batch := &pgx.Batch{}
	for _, g := range groups {
		text, args := d.changeGroup(g)
		batch.Queue(text, args...)
	}
	err := withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		return d.send(ctx, conn, batch, func(results pgx.BatchResults) error {
			for _, g := range groups {
				if err := readResult(results, g.scan); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if !isRowFault(err) && !isTableLocked(err) {
		return err
	}
	outcomes, err := d.runEach(ctx, pool, changes[0].Table, len(changes), func(batch *pgx.Batch, i int) {
		text, args := d.change(changes[i])
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error { return readResult(results, changes[i].scan) })
	for i, c := range changes {
		c.Err = outcomes[i]
	}
	return err
}

// runIn runs a statement for all changes.
func (d *postgresDialect) runIn(ctx context.Context, tx connection, g *group) error {
	text, args := d.changeGroup(g)
	return d.query(ctx, tx, text, args, g.scan)
}

func (d *postgresDialect) changeGroup(g *group) (text string, args []any) {
	rows := make([]reflect.Value, len(g.changes))
	for i, c := range g.changes {
		rows[i] = c.row()
	}
	return d.changeRows(g.changes[0], rows, func(i int) string { return g.changes[i].Versions })
}

// send runs batch in one transaction and calls read with its results. It returns the first
// error of a statement, or that of the commit, or else of read: depending on pgx's mode, the
// transaction is then committed.
func (d *postgresDialect) send(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, read func(pgx.BatchResults) error) error {
	if d.citus.Load() {
		return sendFramed(ctx, conn, batch, read)
	}
	results := conn.SendBatch(ctx, batch)
	err := read(results)
	return cmp.Or(results.Close(), err)
}

// readResult calls read with the next result of a batch.
func readResult(results pgx.BatchResults, read func(result) error) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

// change returns the statement of a change, and its arguments.
func (d *postgresDialect) change(c *Change) (text string, args []any) {
	f := d.forms.of(c, false, d.newForm)
	return f.text, c.values(f.names)
}

// changeRows is change for rows, structs of the model, with one time. If they are many,
// the arguments are an array for each column, but one value for a timestamp. versionsOf
// returns the versions of the i-th one.
func (d *postgresDialect) changeRows(c *Change, rows []reflect.Value, versionsOf func(i int) string) (text string, args []any) {
	if len(rows) == 1 { // PostgreSQL takes less time for a value than for an array of one
		one := *c
		one.Row = rows[0].Addr().Interface()
		return d.change(&one)
	}
	if d.citus.Load() && c.inserts() {
		return d.insertValues(c, rows)
	}
	f := d.forms.of(c, true, d.newForm)
	for _, name := range f.names {
		column := c.Table.column(name)
		switch {
		case column == nil:
			values := make([]string, len(rows))
			for i := range rows {
				values[i] = versionsOf(i)
			}
			args = append(args, values)
		case c.Table.isTimestamp(column):
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

func postgresType(c *Column) string { return (postgres.Dialector{}).DataTypeOf(c.Field) }

// newForm numbers the parameters. If there are many rows, they come from arrays. The keys
// in the condition let PostgreSQL use the index even if it planned the statement when the
// table was empty.
func (*postgresDialect) newForm(c *Change, many bool) form {
	names, stands := c.names(), make(map[string]string)
	var arrays, columns []string
	keys := ""
	for i, name := range names {
		kind, column := "text", c.Table.column(name)
		if column != nil {
			kind = postgresType(column)
		}
		stands["@"+name] = fmt.Sprintf("$%d::%s", i+1, kind)
		if !many || column != nil && c.Table.isTimestamp(column) {
			continue
		}
		array := stands["@"+name] + "[]"
		arrays, columns = append(arrays, array), append(columns, name)
		stands["@"+name] = "r." + name
		if column == c.Table.Key {
			keys = fmt.Sprintf("%s = ANY(%s) AND ", c.Table.qualified(column), array)
		}
	}
	from := ""
	if many {
		rows := fmt.Sprintf("unnest(%s) AS r(%s)", strings.Join(arrays, ", "), strings.Join(columns, ", "))
		switch {
		case c.inserts():
			from = " SELECT " + c.Table.rowNames() + " FROM " + rows
		case strings.HasPrefix(c.Write, "DELETE"):
			from = " USING " + rows
		default:
			from = " FROM " + rows
		}
	}
	text := parameter.ReplaceAllStringFunc(c.text(from, keys), func(name string) string { return stands[name] })
	return form{text, names}
}

// maxAttempts is how often runEach attempts to tell the rows of a batch that are locked from
// the others. Each attempt that meets one takes lockWait.
const maxAttempts = 16

// isFree reports whether no other transaction keeps this one from writing to table.
func (*postgresDialect) isFree(ctx context.Context, conn *pgx.Conn, table *Table) bool {
	_, err := conn.Exec(ctx, "DO $$ BEGIN LOCK TABLE "+table.Name+" IN ROW EXCLUSIVE MODE NOWAIT; END $$")
	return err == nil
}

// runEach runs n statements on table in one transaction: queue adds the i-th one to a batch,
// and read reads its result. A statement whose row is locked or rejected costs another
// attempt without it. Rows that are locked are often neighbors, as those of an import are:
// after each one, runEach defers twice as many of those that follow, and after maxAttempts
// all of them; their outcome is errDeferred. It returns the outcome of each statement, or fails
// as a whole.
func (d *postgresDialect) runEach(
	ctx context.Context, pool *sql.DB, table *Table, n int, queue func(batch *pgx.Batch, i int), read func(results pgx.BatchResults, i int) error,
) (outcomes []error, err error) {
	last, skip := -1, 1
	outcomes = make([]error, n)
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		for attempt := 1; ; attempt++ {
			batch, queued := &pgx.Batch{}, make([]int, 0, n)
			for i, outcome := range outcomes {
				if outcome == nil {
					queue(batch, i)
					queued = append(queued, i)
				}
			}
			done := 0
			err := d.send(ctx, conn, batch, func(results pgx.BatchResults) error {
				for ; done < len(queued); done++ {
					if err := read(results, queued[done]); err != nil {
						return err
					}
				}
				return nil
			})
			if isTableLocked(err) && d.isFree(ctx, conn, table) {
				err = &rowLockedError{err}
			}
			if done == len(queued) || !isRowFault(err) {
				return err
			}
			switch {
			case IsLocked(err) && attempt >= maxAttempts:
				skip = n
			case IsLocked(err) && done == last:
				skip *= 2
			default:
				skip = 1
			}
			last = done
			outcomes[queued[done]] = err
			for _, i := range queued[done+1 : min(done+skip, len(queued))] {
				outcomes[i] = errDeferred
			}
		}
	})
	return outcomes, err
}

// load copies the rows in PostgreSQL's binary format.
func (d *postgresDialect) load(
	ctx context.Context, pool *sql.DB, table *Table, keep bool, next func() ([]any, error),
) (rows int64, err error) {
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(ctx) //nolint:errcheck // does nothing after the commit
		if _, err := tx.Exec(ctx, d.lockTimeout(0)); err != nil {
			return err
		}
		columns, sent, source := names(table.Columns), int64(0), next
		next := func() ([]any, error) {
			row, err := source()
			if row != nil {
				sent++
			}
			return row, err
		}
		if table.Name == feedTable && !d.citus.Load() {
			rows, err = copyPlants(ctx, tx, columns, next)
		} else {
			rows, err = tx.CopyFrom(ctx, pgx.Identifier{table.Name}, columns, pgx.CopyFromFunc(next))
		}
		if err == nil && rows < sent { // InsertNew tells which
			err = fmt.Errorf("%w: %w", errors.ErrUnsupported, ErrLeftOut)
		}
		if err != nil || !keep {
			return err
		}
		delete(conn.PgConn().CustomData(), warning)
		err = tx.Commit(ctx)
		if err == nil && d.citus.Load() {
			err = lostNode(conn)
		}
		return err
	})
	if d.citus.Load() && sqlState(err) == internalError && !isCommitted(err) {
		// Perhaps a key is taken: COPY does not tell. InsertNew does.
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return rows, err
}
