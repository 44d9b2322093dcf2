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

// manyRows is the number of rows from which on insertMany is faster than each.
const manyRows = 100

// Run runs the changes one by one, in a transaction. A single change is a transaction by itself. In the
// transaction conn, the end of ctx does not interrupt them: they are at most as many as an import
// stores at a time, and the driver would start a goroutine for each statement.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	commit := func() error { return nil }
	pool, own := conn.(*sql.DB)
	if !own {
		ctx = context.WithoutCancel(ctx)
	}
	statements := make([]*sql.Stmt, len(groups))
	for i, g := range groups {
		statement, free, err := d.prepare(ctx, conn, g.Form(false, newForm).Text) //nolint:sqlclosecheck // free closes it
		if err != nil {
			return err
		}
		defer free()
		statements[i] = statement
	}
	if own && len(table.All(groups)) > 1 {
		tx, err := pool.BeginTx(ctx, nil)
		if err != nil {
			return err
		}
		defer tx.Rollback() //nolint:errcheck // does nothing after the commit
		for i, statement := range statements {
			statements[i] = tx.StmtContext(ctx, statement)
		}
		conn, commit = tx, tx.Commit
	}
	for i, g := range groups {
		run := each
		if !own && g.Plain != nil && g.Table.Feed != "" && len(g.Changes) >= manyRows {
			run = insertMany
		}
		if err := run(ctx, conn, g, statements[i]); err != nil {
			return err
		}
	}
	return commit()
}

// insertMany is each for INSERTs in the transaction tx. The rows enter the feed together: the trigger, which adds a row at a
// time, takes half as long as the INSERT itself.
func insertMany(ctx context.Context, tx gorm.ConnPool, g *table.Group, statement *sql.Stmt) error {
	name, trigger := g.Table.Name+"_insert", ""
	if err := tx.QueryRowContext(ctx, "SELECT sql FROM sqlite_schema WHERE name = ?", name).Scan(&trigger); err != nil {
		return err
	}
	if _, err := tx.ExecContext(ctx, "DROP TRIGGER "+name); err != nil {
		return err
	}
	if err := each(ctx, tx, g, statement); err != nil {
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

// each runs the changes of g with their prepared statement. A rejected change leaves the transaction as it was.
func each(ctx context.Context, conn gorm.ConnPool, g *table.Group, statement *sql.Stmt) error {
	names := g.Form(false, newForm).Names
	for i, c := range g.Changes {
		args := c.Values(names, listOf)
		if g.Returns > 1 {
			one := &table.Group{Statement: g.Statement, Changes: g.Changes[i : i+1]}
			c.Err = table.ReadAll(one.Scan)(statement.QueryContext(ctx, args...))
		} else { // how many rows it wrote tells whether it wrote Row, in half of the time
			var result sql.Result
			if result, c.Err = statement.ExecContext(ctx, args...); c.Err == nil {
				if written, _ := result.RowsAffected(); written > 0 { // the driver knows it
					c.Stored = c.Row
				}
			}
		}
		if c.Err != nil && !fault.IsRowRejected(c.Err) {
			return c.Err
		}
		if _, ok := errors.AsType[*fault.ReferenceError](fault.Constraint(c.Err)); ok {
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
