package database

import (
	"context"
	"errors"
	"slices"
	"strings"
	"time"
)

// Statement is an SQL statement that writes at most one row.
type Statement struct {
	Text    string         // with named arguments, such as @id, and RETURNING
	Args    map[string]any // by name
	Targets []any          // pointers that the columns of the row are scanned into
	Found   bool           // whether it has written a row
}

// Run runs statements in one transaction, in their order, and returns the outcome of each,
// or fails as a whole. Those whose row is locked (see IsLocked), or that the database
// rejects, harm no others.
func (db *DB) Run(ctx context.Context, statements []*Statement) (outcomes []error, err error) {
	begin := time.Now()
	err = db.Retry(ctx, func() (err error) {
		outcomes, err = db.dialect.run(ctx, db.pool, statements)
		return err
	})
	db.Logger.Trace(ctx, begin, func() (string, int64) { return textOf(statements), int64(len(statements)) }, err)
	return outcomes, err
}

// textOf returns the distinct texts of statements.
func textOf(statements []*Statement) string {
	var texts []string
	for _, s := range statements {
		if !slices.Contains(texts, s.Text) {
			texts = append(texts, s.Text)
		}
	}
	return strings.Join(texts, "; ")
}

// RunOne runs a statement on its own, or in db if that is a transaction.
func (db *DB) RunOne(ctx context.Context, s *Statement) (err error) {
	begin := time.Now()
	defer func() { db.Logger.Trace(ctx, begin, func() (string, int64) { return s.Text, 1 }, err) }()
	return s.runOn(ctx, db.conn, db.dialect)
}

func (s *Statement) runOn(ctx context.Context, conn connection, d dialect) (err error) {
	rows, err := conn.QueryContext(ctx, s.Text, d.arguments(s.Args)...)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return s.scan(rows)
}

// result is a *sql.Rows or a pgx.Rows.
type result interface {
	Next() bool
	Scan(targets ...any) error
	Err() error
}

// scan reads the result of s up to its end, where its error is.
func (s *Statement) scan(rows result) error {
	if s.Found = rows.Next(); s.Found {
		if err := rows.Scan(s.Targets...); err != nil {
			return err
		}
		rows.Next() // there is no other row
	}
	return rows.Err()
}
