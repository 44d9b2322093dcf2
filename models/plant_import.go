package models

import (
	"context"
	"errors"
	"iter"

	"plantstore/database"
)

// ImportRow is a row of an import: a plant, or the reason why it is none.
type ImportRow struct {
	Line  int // in what is imported, from 1
	Plant Plant
	Err   error
}

// ImportOptions says what an import keeps.
type ImportOptions struct {
	Partial bool // the good rows, though others are refused
	DryRun  bool // nothing
}

// maxRefused is how many of the refused rows a report lists.
const maxRefused = 1000

// ImportReport says what became of an import's rows.
type ImportReport struct {
	Rows      int         // all of them
	Created   int         // that were new
	Unchanged int         // that were there before, with the same content
	Refused   []ImportRow // the first of those with an Err, without the plant, in no certain order
	NRefused  int         // all of those
	Stored    bool        // whether the created ones were kept
}

func (r *ImportReport) refuse(row ImportRow, err error) {
	r.NRefused++
	if len(r.Refused) < maxRefused {
		r.Refused = append(r.Refused, ImportRow{Line: row.Line, Err: err})
	}
}

// importBatch is how many rows are inserted with one statement where they cannot
// be loaded all at once.
const importBatch = 1000

// Import stores plants, all of them or none, unless o says otherwise. It reads
// rows to their end before it stores the first, so that a slow client holds
// nothing up, and keeps them in a temporary file until then: it needs no more
// memory for many rows than for few. Rows that break a rule or whose id is taken by
// other content are refused, and told of in the report; that is no error.
//
// It fails with the error that rows end with, ErrOverloaded where too many exports
// and imports are running, and one that wraps ErrUnavailable when the database
// cannot be reached. None of the rows is stored then.
func (s *PlantStore) Import(ctx context.Context, rows iter.Seq2[ImportRow, error], o ImportOptions) (report ImportReport, err error) {
	if err := s.beginBulk(); err != nil {
		return report, err
	}
	defer s.endBulk()
	spool, err := newSpool()
	if err != nil {
		return report, err
	}
	defer func() { err = errors.Join(err, spool.close()) }()
	for row, err := range rows {
		if err != nil {
			return report, err
		}
		report.Rows++
		if row.Err == nil {
			row.Err = row.Plant.Validate()
		}
		if row.Err != nil {
			report.refuse(row, row.Err)
			continue
		}
		if err := spool.write(row); err != nil {
			return report, err
		}
	}
	return report, storeError("import plants", s.importSpool(ctx, spool, o, &report))
}

// importSpool stores the rows in spool.
func (s *PlantStore) importSpool(ctx context.Context, spool *spool, o ImportOptions, report *ImportReport) error {
	good := func() bool { return report.NRefused == 0 || o.Partial }
	if good() {
		// Most imports are of new plants.
		created, err := s.loadSpool(ctx, spool, !o.DryRun)
		if err == nil {
			report.Created, report.Stored = created, !o.DryRun
			return nil
		}
		if !errors.Is(err, errors.ErrUnsupported) && !database.IsDuplicate(err) {
			return err
		}
	}
	undo := errors.New("undo")
	err := s.db.Transaction(ctx, func(tx *database.DB) error {
		if err := insertSpool(ctx, tx, spool, report); err != nil {
			return err
		}
		if !good() || o.DryRun {
			return undo
		}
		return nil
	})
	if errors.Is(err, undo) {
		return nil
	}
	report.Stored = err == nil
	return err
}

// loadSpool stores all rows, or none.
func (s *PlantStore) loadSpool(ctx context.Context, spool *spool, keep bool) (int, error) {
	if err := spool.rewind(); err != nil {
		return 0, err
	}
	now := s.db.NowFunc()
	n, err := s.db.Load(ctx, "plants", []string{"id", "name", "tag", "created_at", "updated_at"}, keep, func() ([]any, error) {
		row, err := spool.read()
		if row == nil || err != nil {
			return nil, err
		}
		return []any{row.Plant.ID, row.Plant.Name, row.Plant.Tag, now, now}, nil
	})
	return int(n), err
}

// insertSpool stores those rows whose ids are free, and looks at what the others
// are taken by.
func insertSpool(ctx context.Context, tx *database.DB, spool *spool, report *ImportReport) error {
	if err := spool.rewind(); err != nil {
		return err
	}
	for last := false; !last; {
		var rows []ImportRow
		var batch []*Plant
		for len(rows) < importBatch && !last {
			row, err := spool.read()
			if err != nil {
				return err
			}
			if last = row == nil; !last {
				rows, batch = append(rows, *row), append(batch, &row.Plant)
			}
		}
		if len(batch) == 0 {
			return nil
		}
		outcomes := make([]error, len(batch))
		if err := insertPlants(ctx, tx, batch, outcomes); err != nil {
			return err
		}
		for i, err := range outcomes {
			exists, taken := errors.AsType[*ExistsError](err)
			switch {
			case err == nil:
				report.Created++
			case taken && exists.Same:
				report.Unchanged++
			case taken:
				report.refuse(rows[i], err)
			default:
				return err
			}
		}
	}
	return nil
}
