package sqlite

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"

	"plantstore/database/fault"
	"plantstore/database/table"
)

// manyRows is the number of rows from which on insertMany is faster than Run.
const manyRows = 100

// Run runs the changes one by one, in a transaction. A single change is a transaction by itself. In the
// transaction conn, the end of ctx does not interrupt them: they are at most as many as an import
// stores at a time, and the driver would start a goroutine for each statement.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	if _, own := conn.(*sql.DB); own {
		return d.run(ctx, conn, groups)
	}
	for _, g := range groups {
		run := d.run
		if g.Plain != nil && g.Table.Feed != "" && len(g.Changes) >= manyRows {
			run = d.insertMany
		}
		if err := run(ctx, conn, []*table.Group{g}); err != nil {
			return err
		}
	}
	return nil
}

// insertMany is run for a group of INSERTs in the transaction tx. The rows enter the feed together:
// the trigger, which adds a row at a time, takes half as long as the INSERT itself.
func (d *Dialect) insertMany(ctx context.Context, tx gorm.ConnPool, groups []*table.Group) error {
	g := groups[0]
	name, trigger := g.Table.Name+"_insert", ""
	if err := tx.QueryRowContext(ctx, "SELECT sql FROM sqlite_schema WHERE name = ?", name).Scan(&trigger); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DROP TRIGGER "+name); err != nil {
		return err
	}
	if err := d.run(ctx, tx, groups); err != nil {
		return err
	}
	ids := make([]any, 0, len(g.Changes))
	for _, c := range g.Changes {
		if c.Stored.IsValid() {
			ids = append(ids, g.Table.Key.Of(c.Row).Interface())
		}
	}
	list, _ := json.Marshal(ids) // cannot fail for int64s
	if _, err := tx.ExecContext(ctx, g.Table.FeedSQL("INSERT INTO {row}_changes (id) SELECT value FROM json_each(?)"), string(list)); err != nil {
		return err
	}
	_, err := tx.ExecContext(ctx, trigger)
	return err
}

// run is Run without insertMany.
func (d *Dialect) run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	changes, prepared := table.All(groups), make(map[*table.Statement]*sql.Stmt)
	pool, own := conn.(*sql.DB)
	prepare := conn.PrepareContext
	if own {
		prepare = func(ctx context.Context, text string) (*sql.Stmt, error) { return d.prepare(ctx, pool, text) }
	} else {
		ctx = context.WithoutCancel(ctx)
	}
	for _, g := range groups {
		statement, err := prepare(ctx, g.Form(false, newForm).Text)
		if err != nil {
			return err
		}
		if !own {
			defer statement.Close()
		}
		prepared[g.Statement] = statement
	}
	if !own || len(changes) == 1 {
		return each(ctx, conn, changes, prepared)
	}
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit
	for s, statement := range prepared {
		prepared[s] = tx.StmtContext(ctx, statement)
	}
	if err := each(ctx, tx, changes, prepared); err != nil {
		return err
	}
	return tx.Commit()
}

// each runs changes with their prepared statements. A rejected change leaves the transaction as it was.
func each(ctx context.Context, conn gorm.ConnPool, changes []*table.Change, prepared map[*table.Statement]*sql.Stmt) error {
	for i, c := range changes {
		args := c.Values(c.Form(false, newForm).Names, listOf)
		if c.Returns > 1 {
			c.Err = table.ReadAll(table.Groups(changes[i : i+1])[0].Scan)(prepared[c.Statement].QueryContext(ctx, args...))
		} else { // how many rows it wrote tells whether it wrote Row, in half of the time
			var result sql.Result
			if result, c.Err = prepared[c.Statement].ExecContext(ctx, args...); c.Err == nil {
				if written, _ := result.RowsAffected(); written > 0 { // the driver knows it
					c.Stored = c.Row
				}
			}
		}
		if c.Err != nil && !fault.IsRowRejected(c.Err) {
			return c.Err
		}
		if fault.IsReference(c.Err) {
			c.Err = brokenReference(ctx, conn, c, c.Err)
		}
	}
	return nil
}

// brokenReference returns err, after which a reference does not hold, as a *fault.ReferenceError with that
// reference, which SQLite does not name. Before another change, it finds the rows as c has found them.
func brokenReference(ctx context.Context, conn gorm.ConnPool, c *table.Change, err error) error {
	type reference struct{ table, column, to, key string }
	var all []reference
	deletes, of := strings.HasPrefix(c.Write, "DELETE"), "t.name"
	if deletes {
		of = `r."table"`
	}
	query := `SELECT t.name, r."from", r."table", coalesce(r."to", (SELECT name FROM pragma_table_info(r."table") WHERE pk = 1))
		FROM sqlite_schema t JOIN pragma_foreign_key_list(t.name) r WHERE t.type = 'table' AND ` + of + ` = ?`
	failed := table.Query(ctx, conn, query, []any{c.Table.Name}, func(rows table.Rows) error {
		for rows.Next() {
			var r reference
			if err := rows.Scan(&r.table, &r.column, &r.to, &r.key); err != nil {
				return err
			}
			all = append(all, r)
		}
		return rows.Err()
	})
	for _, r := range all {
		in, by, column := r.to, r.key, c.Table.Column(r.column)
		if deletes {
			in, by, column = r.table, r.column, c.Table.Key
		}
		if column == nil || !slices.Contains(c.Names(), column.DBName) || !reflect.Indirect(column.Of(c.Row)).IsValid() {
			continue // c does not write it, or writes NULL
		}
		var exists bool
		text := "SELECT EXISTS (SELECT 1 FROM " + in + " WHERE " + by + " = ?)"
		failed = errors.Join(failed, conn.QueryRowContext(ctx, text, column.Of(c.Row).Interface()).Scan(&exists))
		if failed == nil && exists == deletes {
			return &fault.ReferenceError{Table: r.table, Column: r.column, Cause: err}
		}
	}
	return errors.Join(err, failed)
}

// newForm has a parameter for each occurrence of a name, since the driver is slow to find names, and
// returns no key alone: see each.
func newForm(s *table.Statement, _ bool) *table.Form {
	text := s.Text()
	if s.Returns == 1 {
		text, _, _ = strings.Cut(text, " RETURNING ")
	}
	f := &table.Form{}
	f.Text = table.Parameter.ReplaceAllStringFunc(text, func(match string) string {
		f.Names = append(f.Names, match[1:])
		return "?"
	})
	return f
}
