package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// reader reads the rows of the model T in a database, which may be a standby.
type reader[T Model, K Key] struct {
	db      *database.DB
	table   *table.Table
	rules   Rules // of the values
	lookups *batch.Batcher[*lookup[T, K]]
}

func newReader[T Model, K Key](db *database.DB) *reader[T, K] {
	r := &reader[T, K]{db: db}
	r.table, r.rules = Declare[T, K]()
	db.Require(r.table)
	r.lookups = database.NewReader(db, r.getBatch)
	return r
}

// NotFoundError means that a row does not exist.
type NotFoundError struct {
	Noun string // for the row, for example "plant"
	Or   string // what else the cause may be, ", or it is already revoked", or empty
}

func (e *NotFoundError) Error() string { return "no such " + e.Noun + e.Or }

// read calls do with the reader of a standby, or else of the primary. If do fails on a standby, other than with a
// *NotFoundError, the primary repeats the read.
func (s *Store[T, K]) read(ctx context.Context, do func(*reader[T, K]) error) error {
	if standby := s.db.Standby(ctx); standby != nil {
		err := do(s.copies[standby])
		if _, absent := errors.AsType[*NotFoundError](err); err == nil || absent || ctx.Err() != nil {
			return err
		}
	}
	return do(s.reader)
}

// Get returns the row with key, with every write of ctx's client that ended before the call. It fails
// with a *NotFoundError if the row does not exist.
func (s *Store[T, K]) Get(ctx context.Context, key K) (row *T, err error) {
	err = s.read(ctx, func(r *reader[T, K]) error {
		row, err = r.get(ctx, key)
		return err
	})
	return row, err
}

// List returns rows by ascending key. Its cost does not depend on how many precede
// f.After.
func (s *Store[T, K]) List(ctx context.Context, f Filter[K]) (rows []T, err error) {
	err = s.read(ctx, func(r *reader[T, K]) error {
		rows, err = r.list(ctx, f)
		return err
	})
	return rows, err
}

// Query calls do with a handle for a query that List does not have: joins, aggregates, Preload. cost is database.Scan if
// the query may read all rows of a table, otherwise database.Few. do ends its query with what it reads into, and may be
// called again: tx.Joins("JOIN …").Find(&plants), for example. The rows are of any model: associations belong in a model
// of their own, which embeds T. Values belong in arguments, never in the text. A query that finds no row with First, Last
// or Take fails with a *NotFoundError.
func (s *Store[T, K]) Query(ctx context.Context, cost database.Cost, do func(tx *gorm.DB) *gorm.DB) error {
	return s.read(ctx, func(r *reader[T, K]) error {
		err := r.db.Read(ctx, "query "+r.table.Name, cost, func(tx *gorm.DB) error { return do(tx).Error })
		if errors.Is(err, gorm.ErrRecordNotFound) {
			return &NotFoundError{Noun: r.table.Noun}
		}
		return err
	})
}

// lookup is a read of a single row, which is nil if it does not exist.
type lookup[T any, K Key] struct {
	key K
	row *T
}

// get returns the row with key, with every write that ended before the call. It fails with a
// *NotFoundError if the row does not exist.
func (r *reader[T, K]) get(ctx context.Context, key K) (*T, error) {
	l := &lookup[T, K]{key: key}
	if err := r.lookups.Do(ctx, l); err != nil {
		return nil, fault.In("get "+r.table.Noun, err)
	}
	if l.row == nil {
		return nil, &NotFoundError{Noun: r.table.Noun}
	}
	return l.row, nil
}

// getBatch reads the rows of a batch with one query, and returns the outcome of each.
func (r *reader[T, K]) getBatch(ctx context.Context, items []*lookup[T, K]) []error {
	keys := make([]K, len(items))
	for i, l := range items {
		keys[i] = l.key
	}
	found, outcomes, err := database.Get[T](ctx, r.db, r.table, keys, false)
	if err != nil {
		return slices.Repeat([]error{err}, len(items))
	}
	if outcomes == nil {
		outcomes = make([]error, len(items))
	}
	rows := r.byKey(found)
	for _, l := range items {
		if row := rows[l.key]; row != nil {
			l.row = new(*row) // a key can occur twice
		}
	}
	return outcomes
}

// getAll returns the rows with the given keys, by key, and locks them if lock is set.
func (r *reader[T, K]) getAll(ctx context.Context, db *database.DB, keys []K, lock bool) (map[K]*T, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	found, outcomes, err := database.Get[T](ctx, db, r.table, keys, lock)
	return r.byKey(found), cmp.Or(append(outcomes, err)...)
}

func (r *reader[T, K]) byKey(rows []*T) map[K]*T {
	byKey := make(map[K]*T, len(rows))
	for _, row := range rows {
		byKey[r.keyOf(row)] = row
	}
	return byKey
}

// Contains is the operator of a [Comparison] with a part of a text, in any case of ASCII letters at least.
const Contains = "contains"

// Comparison holds for the rows whose column compares with any of Values. The operator is =, or >, < or Contains with a
// single value.
type Comparison struct {
	Column, Operator string
	Values           []any
}

// MaxValues is the largest number of values of a Comparison.
const MaxValues = 20

// LargePage is the number of rows from which on a page takes about a millisecond.
const LargePage = 100

// Filter selects the rows of a list or an export, and orders the rows of a list.
type Filter[K Key] struct {
	Where      []Comparison // all must hold
	Sort       string       // the column that orders the rows, before the key; or empty
	Descending bool
	After      *K   // only rows behind the row with this key,
	Value      any  // and with this value of Sort
	Limit      int  // at most this many in a list
	Scan       bool // no index finds the rows, so the database may look at all of them
	Versions   bool // an export also has the versions
}

// filter returns tx with f, but without the limit, and the order of the rows, which an index on Sort and the key has. SQLite,
// which does not know the values, might use another index, and sort what it finds: a comparison that IS TRUE uses none.
func (r *reader[T, K]) filter(tx *gorm.DB, f Filter[K]) (filtered *gorm.DB, order string) {
	key, direction, behind := r.table.Key.DBName, "", ">"
	if f.Descending {
		direction, behind = " DESC", "<"
	}
	known := f.Sort == "" || r.table.Column(f.Sort) != nil
	for _, c := range f.Where {
		text, value := c.Column+" "+c.Operator+" ?", c.Values[0]
		switch starts := c.Operator == behind && f.After != nil; {
		case c.Operator == Contains:
			text, value = r.db.Dialect.Contains(c.Column, value.(string))
		case len(c.Values) > 1: // NULL equals nothing, and gives any number of values the same text
			text, value = "("+c.Column+" IN ?) IS TRUE", append(slices.Clip(c.Values), make([]any, MaxValues-len(c.Values))...)
		case c.Column != f.Sort && (c.Operator != "=" || f.Sort != ""), starts:
			text = "(" + text + ") IS TRUE"
		}
		tx, known = tx.Where(text, value), known && r.table.Column(c.Column) != nil
	}
	if !known {
		_ = tx.AddError(fmt.Errorf("a filter of %s names an unknown column", r.table.Name))
	}
	order = key + direction
	switch {
	case f.Sort != "":
		order = f.Sort + direction + "," + order
		if f.After != nil {
			tx = tx.Where("("+f.Sort+", "+key+") "+behind+" (?, "+r.db.Dialect.Facts().KeyValue+")", f.Value, *f.After)
		}
	case f.After != nil:
		tx = tx.Where(key+" "+behind+" ?", *f.After)
	}
	return tx, order
}

// Count returns the number of rows that f selects, whatever f.After is, but at most f.Limit.
func (s *Store[T, K]) Count(ctx context.Context, f Filter[K]) (n int, err error) {
	f.After = nil
	err = s.read(ctx, func(r *reader[T, K]) error {
		return r.db.Read(ctx, "count "+r.table.Name, database.Scan, func(tx *gorm.DB) error {
			found, order := r.filter(tx.Table(r.table.Name).Select("1"), f)
			return tx.Raw("SELECT count(*) FROM (?) AS found", found.Order(order).Limit(f.Limit)).Scan(&n).Error
		})
	})
	return n, err
}

// page returns the query for the rows of a list. For several values of a column with an index, it merges a page of each
// value, which the index has in its order. IN would read all rows with the values, and sort them. So would PostgreSQL
// without a limit for each value.
func (r *reader[T, K]) page(tx *gorm.DB, f Filter[K]) *gorm.DB {
	several := slices.IndexFunc(f.Where, func(c Comparison) bool { return len(c.Values) > 1 })
	if several < 0 || f.Scan {
		tx, order := r.filter(tx, f)
		return tx.Order(order).Limit(f.Limit)
	}
	var pages []any
	var order string
	for _, value := range f.Where[several].Values {
		f.Where = slices.Clone(f.Where)
		f.Where[several].Values = []any{value}
		tx, by := r.filter(tx.Table(r.table.Name).Select(table.Names(r.table.Columns)), f)
		pages, order = append(pages, tx.Order(by).Limit(f.Limit)), by
	}
	const page = "SELECT * FROM (?) AS page"
	return tx.Raw(page+strings.Repeat(" UNION ALL "+page, len(pages)-1)+" ORDER BY "+order+" LIMIT ?", append(pages, f.Limit)...)
}

func (r *reader[T, K]) list(ctx context.Context, f Filter[K]) ([]T, error) {
	rows := make([]T, 0, f.Limit)
	cost := database.Few
	switch {
	case f.Scan:
		cost = database.Scan
	case f.Limit > LargePage+1:
		cost = database.Many
	}
	err := r.db.Read(ctx, "list "+r.table.Name, cost, func(tx *gorm.DB) error {
		rows = rows[:0] // of an earlier attempt
		return r.db.Find(r.page(tx, f), r.table, f.Scan, func() reflect.Value {
			rows = append(rows, *new(T))
			return valueOf(&rows[len(rows)-1])
		})
	})
	return rows, err
}

func (r *reader[T, K]) keyOf(row *T) K { return *r.table.Key.Of(valueOf(row)).Addr().Interface().(*K) }
