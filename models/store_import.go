package models

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"reflect"
	"slices"
	"strings"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// ImportRow is a row of an import, or the reason why it is not valid.
type ImportRow[T any] struct {
	Line int // of the file, from 1
	Row  T
	Edit
	Err error
}

// Edit says what an import does with a row.
type Edit struct {
	Kind    Kind
	Columns string     // that a Merge changes, separated by commas; other names are ignored
	Version *time.Time // that the stored row with the key must have, or nil
}

// Kind is what an import does with a row whose key is taken.
type Kind int8

// The kinds. Put and Delete are of the lines of a feed of changes: they count instead of the rows with the same key
// before them.
const (
	Insert  Kind = iota // rejects the row if its content differs
	Replace             // stores the row instead
	Merge               // changes only some columns
	Put                 // is like Replace
	Delete
)

// ImportOptions says which rows an import stores.
type ImportOptions struct {
	Partial bool // the valid rows, even if other rows are rejected
	DryRun  bool // nothing
}

// MaxRejected is how many of the rejected rows a report lists.
const MaxRejected = 1000

// MaxKeys is how many keys of changed rows a report lists. They take up to 40 MB.
const MaxKeys = 1_000_000

// ImportReport is the result of an import.
type ImportReport struct {
	Rows      int // in the file
	Created   int
	Replaced  int // stored before with different content
	Merged    int // the same, of which some columns were changed
	Deleted   int
	Keys      []string          // of the rows that were replaced, merged or deleted, the first MaxKeys of them, in ascending order
	Unchanged int               // stored before with the same content, or without a row to delete, or before a later line of the feed
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

// VersionError means that the stored row does not have the version that a row of an import demands.
type VersionError RepeatedError

func (e *VersionError) Error() string {
	return fmt.Sprintf("%s %v was changed or deleted meanwhile, so its etag differs", e.Noun, e.Key)
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
// temporary file. Rows that break a rule, whose Version does not match, or that have the key of a row with
// different content, are rejected in the report; that is not an error. A row that replaces a stored row gets its
// time of creation and a new version.
//
// It fails with the error that rows ends with, with limit.ErrShare at the limit of
// running imports and exports, in all or of ctx's client, and with the errors that all
// methods share. After fault.ErrUnavailable, the outcome is unknown; after any other error, no row is stored.
func (s *Store[T, K]) Import(ctx context.Context, rows iter.Seq2[ImportRow[T], error], o ImportOptions) (report ImportReport, err error) {
	err = s.db.Limits.Transfers.Do(ctx, func() error {
		// Sorted, so that imports of the same rows wait for each other, rather than deadlock, and
		// rows with the same key meet.
		spool := newSpool[T, K](ctx, s.db, s.table.Data)
		defer spool.close()
		var row ImportRow[T] // for all, as each would be allocated
		for next, err := range rows {
			if err != nil {
				return err
			}
			row = next
			report.Rows++
			if row.Err == nil {
				row.Err = cmp.Or(s.validate(&row.Row, s.table.Columns[:1]), s.validate(&row.Row, s.written(&row.Edit)))
			}
			if row.Err != nil {
				report.reject(row.Line, row.Err)
			} else if err := spool.write(&row); err != nil {
				return err
			}
		}
		if err := spool.flush(); err != nil {
			return err
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

// written returns the columns that e writes.
func (s *Store[T, K]) written(e *Edit) []*table.Column {
	switch e.Kind {
	case Merge:
		names := strings.Split(e.Columns, ",")
		return slices.DeleteFunc(slices.Clone(s.table.Content), func(c *table.Column) bool { return !slices.Contains(names, c.DBName) })
	case Delete:
		return nil
	}
	return s.table.Data
}

func (s *Store[T, K]) importSpool(ctx context.Context, spool *spool[T, K], o ImportOptions, report *ImportReport) error {
	storable := func() bool { return report.Rejected == 0 || o.Partial }
	reads := o.DryRun && !s.related
	if reads {
		return s.insertSpool(ctx, s.db, spool, reads, report)
	}
	if storable() && !spool.edits && !o.DryRun { // most imports are of new rows only
		err := s.db.Retry(ctx, func() error { return s.loadSpool(ctx, spool, report) })
		if !errors.Is(err, errors.ErrUnsupported) && !fault.IsRowRejected(err) {
			return err
		}
	}
	rollback, parsed := errors.New("rollback"), *report
	parsed.Errors = slices.Clip(parsed.Errors) // each attempt appends to a copy
	err := s.db.Transaction(ctx, func(tx *database.DB) error {
		*report = parsed // without the counts of an attempt that was rolled back
		if err := s.insertSpool(ctx, tx, spool, reads, report); err != nil || storable() && !o.DryRun {
			return err
		}
		return rollback
	})
	if errors.Is(err, rollback) {
		return nil
	}
	report.Stored = err == nil
	return err
}

// loadSpool stores all rows, or fails.
func (s *Store[T, K]) loadSpool(ctx context.Context, spool *spool[T, K], report *ImportReport) error {
	var now any = s.db.NowFunc() // converted once
	read, values, begin, n := spool.read(), make([]any, len(s.table.Columns)), time.Now(), 0
	created, err := s.db.Dialect.Load(ctx, s.table, func() ([]any, error) {
		next, err := read()
		if err != nil || next == nil {
			return nil, err
		}
		if n++; n%batchRows == 0 {
			begin = s.db.Pace(ctx, begin)
		}
		row := valueOf(&next.Row)
		s.setDefaults(row)
		for i, c := range s.table.Columns {
			if values[i] = now; !s.table.IsTimestamp(c) {
				values[i] = c.Of(row).Interface()
			}
		}
		return values, nil
	})
	if err == nil {
		report.Created, report.Stored = int(created), true
	}
	return err
}

// importedRow is a row of an import, with the lines that have it. Its Err is why it is rejected.
type importedRow[T any] struct {
	ImportRow[T]
	lines  []int         // the first MaxRejected of them
	more   int           // how many further lines there are
	change *table.Change // nil if the row is rejected, or changes nothing
}

// insertSpool stores the rows with free keys and compares the other rows with the stored rows. If it reads, it only
// compares.
func (s *Store[T, K]) insertSpool(ctx context.Context, tx *database.DB, spool *spool[T, K], reads bool, report *ImportReport) error {
	var batch []*importedRow[T]
	read, begin := spool.read(), time.Now()
	for {
		next, err := read()
		if err != nil {
			return err
		}
		if last := len(batch) - 1; next != nil && last >= 0 && s.keyOf(&batch[last].Row) == *next.key {
			b := batch[last]
			switch same := reflect.DeepEqual(b.Edit, next.Edit) && s.sameContent(&b.Row, &next.Row); {
			case !same && next.Kind >= Put:
				report.Unchanged += len(b.lines) + b.more
				batch[last] = &importedRow[T]{ImportRow: next.ImportRow, lines: []int{next.Line}}
			case !same:
				report.reject(next.Line, &RepeatedError{s.table.Noun, *next.key})
			case len(b.lines) < MaxRejected:
				b.lines = append(b.lines, next.Line)
			default:
				b.more++
			}
			continue
		}
		if next == nil || len(batch) == batchRows {
			if err := s.importBatch(ctx, tx, batch, reads || spool.edits, reads, report); err != nil {
				return err
			}
			batch, begin = batch[:0], tx.Pace(ctx, begin)
		}
		if next == nil {
			return nil
		}
		batch = append(batch, &importedRow[T]{ImportRow: next.ImportRow, lines: []int{next.Line}})
	}
}

// importBatch stores rows with different keys, in ascending order. If it compares, it reads the stored rows first. If it
// reads, it does nothing else.
func (s *Store[T, K]) importBatch(ctx context.Context, tx *database.DB, batch []*importedRow[T], compares, reads bool, report *ImportReport) error {
	// Nobody else may change a row between the comparison and the replacement.
	locks := compares || slices.ContainsFunc(batch, func(b *importedRow[T]) bool { return b.Kind != Insert })
	rows := slices.Clone(batch)
	for attempt := 0; len(rows) > 0; attempt++ { // later attempts are for rows whose keys are taken
		if attempt == createAttempts {
			return errNotStored
		}
		var keys []K
		for _, b := range rows {
			if compares || attempt > 0 {
				keys = append(keys, s.keyOf(&b.Row))
			}
		}
		stored, err := s.getAll(ctx, tx, keys, locks && !reads)
		if err != nil {
			return err
		}
		var changes []*table.Change
		for _, b := range rows {
			if s.decide(b, stored[s.keyOf(&b.Row)]); b.change != nil {
				changes = append(changes, b.change)
			}
		}
		if reads {
			break
		}
		if err := tx.Run(ctx, changes, s.db.NowFunc()); err != nil && fault.Constraint(err) == nil {
			return err
		}
		rows = slices.DeleteFunc(rows, func(b *importedRow[T]) bool {
			return b.change == nil || b.change.Err != nil || !s.creates(b) || b.change.Stored.IsValid()
		})
	}
	for _, b := range batch {
		if err := s.count(b, report); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store[T, K]) creates(b *importedRow[T]) bool { return b.change.Statement == s.table.Insert }

// decide sets the change that b makes to holder, the row with its key or nil, or why it is rejected. A row that
// changes nothing need not have its version: an earlier attempt may have stored it.
func (s *Store[T, K]) decide(b *importedRow[T], holder *T) {
	row, columns, key := valueOf(&b.Row), s.written(&b.Edit), s.keyOf(&b.Row)
	differs := func(c *table.Column) bool { return !c.Equal(row, valueOf(holder)) }
	lacks := func(c *table.Column) bool {
		return c.FieldType.Kind() != reflect.Pointer && !slices.Contains(columns, c)
	}
	exists, same, missing := holder != nil, holder == nil, slices.IndexFunc(s.table.Content, lacks)
	if b.Kind != Delete {
		same = exists && !slices.ContainsFunc(columns, differs)
	}
	statement := s.replace
	b.change, b.Err = nil, nil
	switch {
	case same:
		return
	case exists && b.Kind == Insert:
		b.Err = &ExistsError{s.table.Noun, key, same}
	case b.Version != nil && (!exists || !s.table.Updated.Time(valueOf(holder)).Equal(*b.Version)):
		b.Err = &VersionError{s.table.Noun, key}
	case !exists && missing >= 0:
		b.Err = invalid(s.table.Content[missing].DBName, "is required, as there is no %s %v yet", s.table.Noun, key)
	case !exists:
		s.setDefaults(row)
		statement = s.table.Insert
	case b.Kind == Merge:
		statement = s.updateOf(columns, false)
	case b.Kind == Delete:
		statement = s.remove
	}
	if b.Err == nil {
		b.change = &table.Change{Statement: statement, Row: row}
	}
}

// count adds the outcome of b to report. It fails if the outcome is not a fault of the row.
func (s *Store[T, K]) count(b *importedRow[T], report *ImportReport) error {
	if b.change != nil {
		b.Err = b.change.Err
	}
	switch {
	case b.change != nil && b.Err != nil && fault.Constraint(b.Err) == nil:
		return b.Err
	case b.Err != nil:
		err := s.blame(&b.Row, b.Kind == Delete, fault.In("import "+s.table.Noun, b.Err))
		for _, line := range b.lines {
			report.reject(line, err)
		}
		report.Rejected += b.more
		return nil
	case b.change == nil:
		report.Unchanged++
	case s.creates(b):
		report.Created++
	default:
		*[...]*int{Replace: &report.Replaced, Merge: &report.Merged, Put: &report.Replaced, Delete: &report.Deleted}[b.Kind]++
		if len(report.Keys) < MaxKeys {
			report.Keys = append(report.Keys, fmt.Sprint(s.keyOf(&b.Row)))
		}
	}
	report.Unchanged += len(b.lines) - 1 + b.more // the first line made them so
	return nil
}

// Edit imports row with e under the key of each row that f selects, or of no row: if the report has more than f.Limit
// rows, or rejects a row, nothing was written. It fails as Import does.
func (s *Store[T, K]) Edit(ctx context.Context, f Filter[K], row *T, e Edit, o ImportOptions) (report ImportReport, err error) {
	if err := s.validate(row, s.written(&e)); err != nil {
		return report, err
	}
	most := f.Limit
	f.Limit++
	for range 5 { // other clients may have written the rows meanwhile
		rows, err := s.list(ctx, f)
		if err != nil || len(rows) > most {
			return ImportReport{Rows: len(rows)}, err
		}
		report, err = s.Import(ctx, func(yield func(ImportRow[T], error) bool) {
			for i := range rows {
				edited, selected := ImportRow[T]{Line: i + 1, Row: *row, Edit: e}, valueOf(&rows[i])
				s.table.Key.Of(valueOf(&edited.Row)).Set(s.table.Key.Of(selected))
				edited.Version = new(s.table.Updated.Time(selected)) // f may not select another version
				if !yield(edited, nil) {
					return
				}
			}
		}, o)
		if err != nil || report.Rejected == 0 {
			return report, err
		}
	}
	return report, nil
}
