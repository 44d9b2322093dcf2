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
	starts []int64        // of the runs, in the file
	last   K              // the key at the end of the last run
	unread []*run[K]      // ordered by compareRuns: the first one has the next row
	used   *run[K]        // whose row was returned last, or nil
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
	return &sortedSpool[K]{spool: spool, model: model, starts: []int64{0}}, err
}

func (s *sortedSpool[K]) keyOf(row reflect.Value) K {
	return *s.columns[0].Of(row).Addr().Interface().(*K)
}

func (s *sortedSpool[K]) write(line int, row reflect.Value) error {
	key, encoded := s.keyOf(row), s.encode(line, row)
	if len(s.rows) == 0 && (s.size == 0 || key >= s.last) { // the last run goes on
		s.last = key
		return s.append(encoded)
	}
	start := len(s.data)
	s.data = append(s.data, encoded...)
	s.rows = append(s.rows, sortedRow[K]{key, start, len(s.data)})
	if len(s.data)+len(s.rows)*sortedRowSize < runMemory {
		return nil
	}
	return s.endRun()
}

// endRun moves the rows in memory to the file.
func (s *sortedSpool[K]) endRun() error {
	slices.SortStableFunc(s.rows, func(a, b sortedRow[K]) int { return cmp.Compare(a.key, b.key) })
	s.starts = append(s.starts, s.size)
	for _, row := range s.rows {
		if err := s.append(s.data[row.start:row.end]); err != nil {
			return err
		}
	}
	s.last = s.rows[len(s.rows)-1].key
	s.data, s.rows = s.data[:0], s.rows[:0]
	return nil
}

// rewind goes back to the first row, for reading.
func (s *sortedSpool[K]) rewind() error {
	if len(s.rows) > 0 {
		if err := s.endRun(); err != nil {
			return err
		}
	}
	if err := s.out.Flush(); err != nil {
		return unlessFull(err)
	}
	s.data, s.rows, s.unread, s.used = nil, nil, nil, nil
	end := s.size
	for i, start := range slices.Backward(s.starts) {
		in := bufio.NewReader(io.NewSectionReader(s.file, start, end-start))
		r := &run[K]{index: i, rows: spool{columns: s.columns, in: in}, row: reflect.New(s.model).Elem()}
		if err := s.advance(r); err != nil {
			return err
		}
		end = start
	}
	return nil
}

// next returns the next row, until the next call, and its line, or false after the last.
func (s *sortedSpool[K]) next() (line int, row reflect.Value, ok bool, err error) {
	if s.used != nil {
		err = s.advance(s.used)
	}
	if err != nil || len(s.unread) == 0 {
		return 0, row, false, err
	}
	s.used = s.unread[0]
	s.unread = slices.Delete(s.unread, 0, 1)
	return s.used.line, s.used.row, true, nil
}

// advance reads the next row of r, and puts r in its place, unless it has ended.
func (s *sortedSpool[K]) advance(r *run[K]) error {
	line, ok, err := r.rows.read(r.row)
	if !ok {
		s.used = nil
		return err
	}
	r.line, r.key = line, s.keyOf(r.row)
	place, _ := slices.BinarySearchFunc(s.unread, r, compareRuns)
	s.unread = slices.Insert(s.unread, place, r)
	return nil
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
