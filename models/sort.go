package models

import (
	"bufio"
	"cmp"
	"context"
	"io"
	"reflect"
	"slices"

	"plantstore/database"
	"plantstore/database/table"
)

// sortedSpool is a spool that returns its rows by ascending key, and those with the same
// key in the order in which they were written. It sorts them in runs that fit into memory,
// and merges the runs while they are read. Rows that are written in order, as those of an export,
// are a single run, which costs no more than a spool.
type sortedSpool[K Key] struct {
	*spool
	model  reflect.Type
	data   []byte         // of the rows that are not in a run yet
	rows   []sortedRow[K] // in data
	ends   []int64        // of the runs, in the file
	last   K              // the key at the end of the last run
	unread []*run[K]      // ordered by compareRuns: the first one has the next row
	only   *spool         // the only run, instead of unread, or nil
}

// sortedRow is a row of sortedSpool.data.
type sortedRow[K Key] struct {
	key        K
	start, end int
}

// runMemory limits the size of a run, with sortedRowSize bytes for each of its rows. There
// may be as many imports as [database.MaxTransfers].
const (
	runMemory     = 4 << 20
	sortedRowSize = 32
)

// newSortedSpool returns a spool of rows of model with columns, of which the first one is
// the key.
func newSortedSpool[K Key](ctx context.Context, db *database.DB, columns []*table.Column, model reflect.Type) (*sortedSpool[K], error) {
	spool, err := newSpool(ctx, db, columns)
	return &sortedSpool[K]{spool: spool, model: model}, err
}

func (s *sortedSpool[K]) keyOf(row reflect.Value) K {
	return *s.columns[0].Of(row).Addr().Interface().(*K)
}

func (s *sortedSpool[K]) write(line int, row reflect.Value) error {
	key, encoded := s.keyOf(row), s.encode(line, row)
	if n := len(s.ends); n > 0 && len(s.rows) == 0 && key >= s.last {
		err := s.append(encoded)
		s.ends[n-1], s.last = s.size, key
		return err
	}
	start := len(s.data)
	s.data = append(s.data, encoded...)
	s.rows = append(s.rows, sortedRow[K]{key, start, len(s.data)})
	if len(s.ends) == 0 {
		return s.endRun() // which the next rows may extend
	}
	if len(s.data)+len(s.rows)*sortedRowSize < runMemory {
		return nil
	}
	return s.endRun()
}

// endRun moves the rows in memory to the file.
func (s *sortedSpool[K]) endRun() error {
	slices.SortStableFunc(s.rows, func(a, b sortedRow[K]) int { return cmp.Compare(a.key, b.key) })
	for _, row := range s.rows {
		if err := s.append(s.data[row.start:row.end]); err != nil {
			return err
		}
	}
	s.ends, s.last = append(s.ends, s.size), s.rows[len(s.rows)-1].key
	s.data, s.rows = s.data[:0], s.rows[:0]
	return nil
}

func (s *sortedSpool[K]) rewind() error {
	if len(s.rows) > 0 {
		if err := s.endRun(); err != nil {
			return err
		}
		s.data, s.rows = nil, nil
	}
	if err := s.out.Flush(); err != nil {
		return unlessFull(err)
	}
	s.unread, s.only = nil, nil
	start := int64(0)
	for i, end := range s.ends {
		r := &run[K]{index: i, row: reflect.New(s.model).Elem()}
		r.rows = spool{columns: s.columns, in: bufio.NewReader(io.NewSectionReader(s.file, start, end-start))}
		if len(s.ends) == 1 {
			s.only = &r.rows
			return nil
		}
		if _, err := s.advance(r); err != nil {
			return err
		}
		s.unread, start = append(s.unread, r), end
	}
	slices.SortFunc(s.unread, compareRuns)
	return nil
}

// advance reads the next row of r, or returns false after the last.
func (s *sortedSpool[K]) advance(r *run[K]) (ok bool, err error) {
	if r.line, ok, err = r.rows.read(r.row); ok {
		r.key = s.keyOf(r.row)
	}
	return ok, err
}

func (s *sortedSpool[K]) read(row reflect.Value) (line int, ok bool, err error) {
	switch {
	case s.only != nil:
		return s.only.read(row)
	case len(s.unread) == 0:
		return 0, false, nil
	}
	r := s.unread[0]
	line = r.line
	for _, c := range s.columns {
		c.Of(row).Set(c.Of(r.row))
	}
	others := s.unread[1:]
	more, err := s.advance(r)
	if more {
		before, _ := slices.BinarySearchFunc(others, r, compareRuns)
		copy(s.unread, others[:before])
		s.unread[before] = r
	} else {
		s.unread = others
	}
	return line, err == nil, err
}

// run is a run that is being read, up to its row with key.
type run[K Key] struct {
	index int
	rows  spool
	row   reflect.Value
	line  int
	key   K
}

// compareRuns orders runs by their next row. With the same key, the earlier run has the earlier rows.
func compareRuns[K Key](a, b *run[K]) int {
	return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index))
}
