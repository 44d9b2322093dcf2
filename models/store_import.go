package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// ImportRow is a row of an import, or the reason why it is not valid.
type ImportRow[T any] struct {
	Line int // of the file, from 1
	Row  T
	Err  error
}

// ImportOptions says which rows an import stores.
type ImportOptions struct {
	Partial bool // the valid rows, even if other rows are rejected
	DryRun  bool // nothing
	Replace bool // also those with the key of a row with different content, instead of it
}

// MaxRejected is how many of the rejected rows a report lists.
const MaxRejected = 1000

// MaxKeys is how many keys of replaced rows a report lists. They take up to 40 MB.
const MaxKeys = 1_000_000

// ImportReport is the result of an import.
type ImportReport struct {
	Rows      int // in the file
	Created   int
	Replaced  int               // stored before with different content
	Keys      []string          // of the rows that were replaced, the first MaxKeys of them, in ascending order
	Unchanged int               // stored before with the same content
	Rejected  int               // not valid, or stored before with different content, unless that is replaced
	Errors    []RejectedRow     // the first MaxRejected of them, by line
	Stored    bool              // whether the created and replaced rows were committed
	Position  database.Position // that has the rows, as in an [Outcome]
}

// RejectedRow says why a row of an import was rejected.
type RejectedRow struct {
	Line int
	Err  error
}

// RepeatedError means that an import has a key again, with different content. The key belongs to
// the first row that has it.
type RepeatedError struct {
	Noun string // for the row, for example "plant"
	Key  any
}

func (e *RepeatedError) Error() string {
	return fmt.Sprintf("%s %v occurs twice with different content", e.Noun, e.Key)
}

// reject counts a row, in any order.
func (r *ImportReport) reject(line int, err error) {
	r.Rejected++
	if r.Errors = append(r.Errors, RejectedRow{line, err}); len(r.Errors) == 2*MaxRejected {
		r.trim()
	}
}

// trim leaves the first of the rejected rows.
func (r *ImportReport) trim() {
	slices.SortFunc(r.Errors, func(a, b RejectedRow) int { return cmp.Compare(a.Line, b.Line) })
	r.Errors = r.Errors[:min(len(r.Errors), MaxRejected)]
}

// batchRows is how many rows share a statement if they cannot be loaded at once.
const batchRows = 1000

// Import stores rows, or no row at all, unless o says otherwise. It reads all rows
// before it stores the first, so that a slow client holds no lock, and keeps them in a
// temporary file. Rows that break a rule, or have the key of a row with different content, are rejected in
// the report; that is not an error. If o replaces such a row, the new row gets the time of creation of the
// old row and a new version.
//
// It fails with the error that rows ends with, with limit.ErrShare at the limit of
// running imports and exports, in all or of ctx's client, and with the errors that all
// methods share. After fault.ErrUnavailable, the outcome is unknown; after any other error, no row is stored.
func (s *Store[T, K]) Import(ctx context.Context, rows iter.Seq2[ImportRow[T], error], o ImportOptions) (report ImportReport, err error) {
	err = s.db.Limits.Transfers.Do(ctx, func() error {
		// Sorted, so that imports of the same rows wait for each other, rather than deadlock, and
		// rows with the same key meet.
		spool, err := newSpool[T, K](ctx, s.db, s.table)
		if err != nil {
			return err
		}
		defer spool.close()
		var row ImportRow[T] // for all, as each would be allocated
		for next, err := range rows {
			if err != nil {
				return err
			}
			row = next
			report.Rows++
			if row.Err == nil {
				row.Err = s.validate(&row.Row, s.table.Data)
			}
			if row.Err != nil {
				report.reject(row.Line, row.Err)
			} else if err := spool.write(row.Line, valueOf(&row.Row)); err != nil {
				return err
			}
		}
		return s.db.WriteBulk(ctx, "import "+s.table.Name, func() error { return s.importSpool(ctx, spool, o, &report) })
	})
	report.trim()
	if !report.Stored {
		report.Keys = nil
	}
	report.Position = s.db.Wrote(ctx, err)
	return report, err
}

func (s *Store[T, K]) importSpool(ctx context.Context, spool *spool[K], o ImportOptions, report *ImportReport) error {
	storable := func() bool { return report.Rejected == 0 || o.Partial }
	if o.DryRun && !s.related {
		return s.insertSpool(ctx, s.db, spool, o, report)
	}
	if storable() { // most imports are of new rows only
		var created int64
		err := s.db.Retry(ctx, func() (err error) {
			created, err = s.loadSpool(ctx, spool, !o.DryRun)
			return err
		})
		if err == nil {
			report.Created, report.Stored = int(created), !o.DryRun
			return nil
		}
		if !errors.Is(err, errors.ErrUnsupported) && !fault.IsRowRejected(err) {
			return err
		}
	}
	rollback, parsed := errors.New("rollback"), *report
	parsed.Errors = slices.Clip(parsed.Errors) // each attempt appends to a copy
	err := s.db.Transaction(ctx, func(tx *database.DB) error {
		*report = parsed // without the counts of an attempt that was rolled back
		if err := s.insertSpool(ctx, tx, spool, o, report); err != nil {
			return err
		}
		if !storable() || o.DryRun {
			return rollback
		}
		return nil
	})
	if errors.Is(err, rollback) {
		return nil
	}
	report.Stored = err == nil
	return err
}

// loadSpool stores all rows, or fails, and returns their number.
func (s *Store[T, K]) loadSpool(ctx context.Context, spool *spool[K], keep bool) (int64, error) {
	if err := spool.rewind(); err != nil {
		return 0, err
	}
	var now any = s.db.NowFunc() // converted once
	values, begin, n := make([]any, len(s.table.Columns)), time.Now(), 0
	return s.db.Dialect().Load(ctx, s.table, keep, func() ([]any, error) {
		_, row, ok, err := spool.read()
		if err != nil || !ok {
			return nil, err
		}
		if n++; n%batchRows == 0 {
			begin = s.db.Pace(ctx, begin)
		}
		s.setDefaults(row)
		for i, c := range s.table.Columns {
			if values[i] = now; !s.table.IsTimestamp(c) {
				values[i] = c.Of(row).Interface()
			}
		}
		return values, nil
	})
}

// importedRow is a row of an import, with the lines that have it.
type importedRow[T any] struct {
	row   *T
	lines []int // the first MaxRejected of them
	more  int   // how many further lines there are
}

// insertSpool stores the rows with free keys and compares the other rows with the stored rows. A dry run only compares,
// unless rows are related.
func (s *Store[T, K]) insertSpool(ctx context.Context, tx *database.DB, spool *spool[K], o ImportOptions, report *ImportReport) error {
	if err := spool.rewind(); err != nil {
		return err
	}
	var batch []importedRow[T]
	begin := time.Now()
	for {
		line, stored, ok, err := spool.read()
		if err != nil {
			return err
		}
		row := new(T)
		if ok {
			valueOf(row).Set(stored)
		}
		if last := len(batch) - 1; ok && last >= 0 && s.keyOf(batch[last].row) == s.keyOf(row) {
			switch {
			case !s.sameContent(batch[last].row, row):
				report.reject(line, &RepeatedError{s.table.Noun, s.keyOf(row)})
			case len(batch[last].lines) < MaxRejected:
				batch[last].lines = append(batch[last].lines, line)
			default:
				batch[last].more++
			}
			continue
		}
		if !ok || len(batch) == batchRows {
			if err := s.importBatch(ctx, tx, batch, o, report); err != nil {
				return err
			}
			batch, begin = batch[:0], tx.Pace(ctx, begin)
		}
		if !ok {
			return nil
		}
		batch = append(batch, importedRow[T]{row: row, lines: []int{line}})
	}
}

// importBatch is insertSpool for rows with different keys, in ascending order.
func (s *Store[T, K]) importBatch(ctx context.Context, tx *database.DB, batch []importedRow[T], o ImportOptions, report *ImportReport) error {
	if len(batch) == 0 {
		return nil
	}
	rows := make([]*T, len(batch))
	for i := range batch {
		rows[i] = batch[i].row
	}
	expected := mayBeTaken
	if o.Replace {
		expected = lockTaken // what is unchanged stays so until the other rows are replaced
	}
	var outcomes []error
	reads := o.DryRun && !s.related
	if reads {
		outcomes = slices.Repeat([]error{fault.ErrTaken}, len(rows))
		s.compare(ctx, tx, rows, outcomes, false)
	} else {
		outcomes = s.insert(ctx, tx, rows, expected)
	}
	var changes []*table.Change
	replacements := make([]*table.Change, len(rows))
	for i, err := range outcomes {
		if exists, taken := errors.AsType[*ExistsError](err); taken && !exists.Same && o.Replace {
			replacements[i] = &table.Change{Statement: s.replace, Row: valueOf(rows[i])}
			changes = append(changes, replacements[i])
		}
	}
	if !reads {
		if err := tx.Run(ctx, changes, s.db.NowFunc()); err != nil && !fault.IsConstraint(err) {
			return err
		}
	}
	for i, err := range outcomes {
		replacement := replacements[i]
		if replacement != nil {
			err = replacement.Err
		}
		exists, taken := errors.AsType[*ExistsError](err)
		switch {
		case err == nil && replacement != nil:
			if report.Replaced++; report.Replaced <= MaxKeys {
				report.Keys = append(report.Keys, fmt.Sprint(s.keyOf(rows[i])))
			}
		case err == nil, reads && errors.Is(err, errNoHolder):
			report.Created++
		case taken && exists.Same:
			report.Unchanged++
		case taken, fault.IsConstraint(err):
			err = s.blame(rows[i], false, fault.In("import "+s.table.Noun, err))
			for _, line := range batch[i].lines {
				report.reject(line, err)
			}
			report.Rejected += batch[i].more
			continue
		default:
			return err
		}
		report.Unchanged += len(batch[i].lines) - 1 + batch[i].more // the first line made them so
	}
	return nil
}
