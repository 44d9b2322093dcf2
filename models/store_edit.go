package models

import "context"

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
