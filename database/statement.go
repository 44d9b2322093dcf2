package database

import (
	"context"
	"database/sql"
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
	rows, err := db.conn.QueryContext(ctx, s.Text, db.dialect.arguments(s.Args)...)
	if err != nil {
		return err
	}
	return s.scan(rows)
}

// scan reads the result of s.
func (s *Statement) scan(rows *sql.Rows) (err error) {
	defer func() { err = errors.Join(err, rows.Close()) }()
	if s.Found = rows.Next(); s.Found {
		err = rows.Scan(s.Targets...)
	}
	return errors.Join(err, rows.Err())
}
