package database

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
)

// insertNew runs a statement for each row.
func (d *sqliteDialect) insertNew(ctx context.Context, conn connection, table *Table, rows []reflect.Value) (outcomes []error, err error) {
	changes := make([]*Change, len(rows))
	for i, row := range rows {
		changes[i] = &Change{Table: table, Write: table.Insert, Conflict: table.Keep, Row: row.Addr().Interface()}
	}
	if pool, ok := conn.(*sql.DB); ok {
		err = d.run(ctx, pool, []*group{{changes: changes}})
	} else {
		err = d.insertMany(ctx, conn, &group{changes: changes})
	}
	if err != nil {
		return nil, err
	}
	outcomes = make([]error, len(rows))
	for i, c := range changes {
		outcomes[i] = c.Err
		if c.Err == nil && c.Stored == nil {
			outcomes[i] = ErrTaken
		}
	}
	return outcomes, nil
}

// manyRows is the number of rows from which on insertMany is faster than runIn.
const manyRows = 100

// insertMany runs the INSERTs of g in the transaction tx. Many plants enter the feed together:
// the trigger, which adds one at a time, takes half as long as the INSERT itself.
func (d *sqliteDialect) insertMany(ctx context.Context, tx connection, g *group) error {
	if g.changes[0].Table.Name != feedTable || len(g.changes) < manyRows {
		return d.runIn(ctx, tx, g)
	}
	var trigger string
	err := query(ctx, tx, "SELECT sql FROM sqlite_schema WHERE name = 'plants_insert'", nil, func(rows result) error {
		rows.Next()
		return rows.Scan(&trigger)
	})
	if err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DROP TRIGGER plants_insert"); err != nil {
		return err
	}
	if err := d.runIn(ctx, tx, g); err != nil {
		return err
	}
	ids := make([]any, 0, len(g.changes))
	for _, c := range g.changes {
		if c.Stored != nil {
			ids = append(ids, c.Table.Key.Of(c.row()).Interface())
		}
	}
	list, _ := json.Marshal(ids) // cannot fail for int64s
	if _, err := tx.ExecContext(ctx, "INSERT INTO plant_changes (id) SELECT value FROM json_each(?)", string(list)); err != nil {
		return err
	}
	_, err = tx.ExecContext(ctx, trigger)
	return err
}

// run runs the changes one by one, in a transaction. A single one is one by itself.
func (d *sqliteDialect) run(ctx context.Context, pool *sql.DB, groups []*group) (err error) {
	ctx = uninterrupted(ctx)
	changes, prepared := all(groups), make(map[string]*sql.Stmt)
	for _, g := range groups {
		text, _ := d.change(g.changes[0])
		if prepared[text], err = d.prepare(ctx, pool, text); err != nil { //nolint:sqlclosecheck // the pool closes it
			return err
		}
	}
	if len(changes) == 1 {
		return d.runEach(ctx, changes, prepared)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit
	for text, statement := range prepared {
		prepared[text] = tx.StmtContext(ctx, statement)
	}
	if err := d.runEach(ctx, changes, prepared); err != nil {
		return err
	}
	return tx.Commit()
}

// runIn runs changes of one kind in the transaction tx. They are at most as many as an import
// stores at a time, so the end of ctx need not interrupt them: see uninterrupted.
func (d *sqliteDialect) runIn(ctx context.Context, tx connection, g *group) (err error) {
	ctx = context.WithoutCancel(ctx)
	text, _ := d.change(g.changes[0])
	statement, err := tx.PrepareContext(ctx, text)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, statement.Close()) }()
	return d.runEach(ctx, g.changes, map[string]*sql.Stmt{text: statement})
}

// runEach runs changes with the statements that are prepared for their texts. A rejected
// one leaves the transaction as it was.
func (d *sqliteDialect) runEach(ctx context.Context, changes []*Change, prepared map[string]*sql.Stmt) error {
	for _, c := range changes {
		text, args := d.change(c)
		if c.Returns > 1 {
			c.Err = readAll(c.scan)(prepared[text].QueryContext(ctx, args...))
		} else {
			c.Err = execute(ctx, c, prepared[text], args)
		}
		if c.Err != nil && !IsRowRejected(c.Err) {
			return c.Err
		}
	}
	return nil
}

// execute runs the statement of c, which returns no row: how many rows it wrote tells whether
// it wrote Row, in half of the time.
func execute(ctx context.Context, c *Change, statement *sql.Stmt, args []any) error {
	result, err := statement.ExecContext(ctx, args...)
	if err != nil {
		return err
	}
	if written, err := result.RowsAffected(); err != nil || written == 0 {
		return err
	}
	c.Stored = c.Row
	return nil
}

// change returns the statement of a change, and its arguments. It has a parameter for each
// occurrence of a name, since the driver is slow to find names, and returns no key alone: see
// execute.
func (d *sqliteDialect) change(c *Change) (text string, args []any) {
	f := d.forms.of(c, false, func(c *Change, _ bool) (f form) {
		c = new(*c)
		if c.Returns == 1 {
			c.Returns = 0
		}
		f.text = parameter.ReplaceAllStringFunc(c.text("", ""), func(match string) string {
			f.names = append(f.names, match[1:])
			return "?"
		})
		return f
	})
	return f.text, c.values(f.names)
}
