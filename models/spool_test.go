package models

import (
	"cmp"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/database/table"
)

// spooled is a row of a spool of T.
type spooled[T any] struct {
	line int
	row  T
	edit Edit
}

// writeSpool returns a spool that has rows.
func writeSpool[T any, K Key](t *testing.T, rows ...spooled[T]) *spool[T, K] {
	t.Helper()
	s := newSpool[T, K](t.Context(), dbtest.Open(t, dbtest.Options(dbtest.SQLite(t))), table.Of[T]().Data)
	t.Cleanup(s.close)
	for _, row := range rows {
		if err := s.write(&ImportRow[T]{Line: row.line, Row: row.row, Edit: row.edit}); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// readSpool returns all rows of s. It keeps each: a row must not share memory with the
// next.
func readSpool[T any, K Key](t *testing.T, s *spool[T, K]) (rows []spooled[T]) {
	t.Helper()
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	for read := s.read(); ; {
		next, err := read()
		if err != nil {
			t.Fatal(err)
		}
		if next == nil {
			return rows
		}
		rows = append(rows, spooled[T]{next.Line, next.Row, next.Edit})
	}
}

func TestSpoolReturnsTheSameRowsEachTime(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("🌵", 255)
	rows := []spooled[Plant]{
		{1, Plant{ID: 0, Name: "no tag"}, Edit{}},
		{2, Plant{ID: -1, Name: "an empty tag", Tag: new("")}, Edit{}},
		{math.MaxInt32 + 7, Plant{ID: math.MinInt64, Name: "x", Tag: new("a tag of another length")}, Edit{}},
		{300, Plant{ID: math.MaxInt64, Name: long, Tag: &long}, Edit{}},
		{5, Plant{ID: 9007199254740993, Name: "\x00\n\xff", Tag: new("\x00")}, Edit{}},
		{6, Plant{ID: 64, Name: strings.Repeat("x", 200_000), Tag: new(strings.Repeat("y", 100_000))}, Edit{}},
	}
	for i := range 5000 {
		p := Plant{ID: int64(rand.Uint64()), Name: strings.Repeat("n", rand.IntN(300))} //nolint:gosec // any id will do
		if i%3 > 0 {
			p.Tag = new(strings.Repeat("t", rand.IntN(300)))
		}
		edits := []Edit{{}, {Kind: Merge, Columns: "name,tag", Version: new(time.UnixMicro(0).UTC())}, {Kind: Merge}, {Kind: Delete, Version: new(time.UnixMicro(-1).UTC())}}
		rows = append(rows, spooled[Plant]{7 + i, p, edits[i%len(edits)]})
	}
	s := writeSpool[Plant, int64](t, rows...)
	slices.SortStableFunc(rows, func(a, b spooled[Plant]) int { return cmp.Compare(a.row.ID, b.row.ID) })
	for range 3 {
		got := readSpool[Plant](t, s)
		if len(got) != len(rows) {
			t.Fatalf("got %d rows, want %d", len(got), len(rows))
		}
		for i := range got {
			if !reflect.DeepEqual(got[i], rows[i]) {
				t.Fatalf("row %d: got %+v, want %+v", i, got[i], rows[i])
			}
		}
	}
}

// everyKind is a model with a column of each kind that a spool keeps.
type everyKind struct {
	Code       string `gorm:"primaryKey"`
	Text       level  // a type of its own
	Int        int
	Int8       int8
	Int16      int16
	Int32      int32
	Int64      int64
	Bool       bool
	MaybeText  *string
	MaybeInt32 *int32
	MaybeBool  *bool
	CreatedAt  time.Time // not part of the data
}

type level string

func TestSpoolKeepsEveryKind(t *testing.T) {
	t.Parallel()
	full := everyKind{
		Code: "a", Text: "high", Int: math.MinInt, Int8: math.MinInt8, Int16: math.MaxInt16, Int32: math.MinInt32,
		Int64: math.MaxInt64, Bool: true, MaybeText: new("x"), MaybeInt32: new(int32(-1)), MaybeBool: new(true),
	}
	zero := everyKind{MaybeText: new(""), MaybeInt32: new(int32(0)), MaybeBool: new(false)}
	rows := []spooled[everyKind]{{1, everyKind{}, Edit{}}, {2, zero, Edit{}}, {3, full, Edit{}}, {4, full, Edit{}}}
	if got := readSpool[everyKind](t, writeSpool[everyKind, string](t, rows...)); !reflect.DeepEqual(got, rows) {
		t.Errorf("got %+v, want %+v", got, rows)
	}
}

// TestSpoolSorts returns the rows of many runs by key, and those with the same key by line. Rows in
// order are a single run.
func TestSpoolSorts(t *testing.T) {
	t.Parallel()
	db := dbtest.Open(t, dbtest.Options(dbtest.SQLite(t)))
	for name, keys := range map[string]func(i int) int64{
		"ascending":  func(i int) int64 { return int64(i) - 1000 },
		"descending": func(i int) int64 { return -int64(i) },
		"repeated":   func(i int) int64 { return int64(i % 7) },
		"random":     func(int) int64 { return int64(rand.Uint64()) }, //nolint:gosec // any key will do
	} {
		t.Run(name, func(t *testing.T) {
			for _, n := range []int{0, 1, 2, 30_000} {
				s := newSpool[Plant, int64](t.Context(), db, table.Of[Plant]().Data)
				defer s.close()
				rows := make([]spooled[Plant], n)
				for i := range rows {
					rows[i] = spooled[Plant]{i + 1, Plant{ID: keys(i), Name: strconv.Itoa(i)}, Edit{}}
					if i%2 == 0 {
						rows[i].row.Tag = new(strings.Repeat("t", 1000+i%20))
					}
					if err := s.write(&ImportRow[Plant]{Line: rows[i].line, Row: rows[i].row, Edit: rows[i].edit}); err != nil {
						t.Fatal(err)
					}
				}
				slices.SortStableFunc(rows, func(a, b spooled[Plant]) int { return cmp.Compare(a.row.ID, b.row.ID) })
				for range 2 {
					got := readSpool[Plant](t, s)
					if len(got) != n {
						t.Fatalf("got %d rows, want %d", len(got), n)
					}
					for i := range got {
						if !reflect.DeepEqual(got[i], rows[i]) {
							t.Fatalf("row %d: got %+v, want %+v", i, got[i], rows[i])
						}
					}
				}
				if runs := len(s.starts); n > 2 && (runs == 1) != (name == "ascending") {
					t.Errorf("got %d runs", runs)
				}
			}
		})
	}
}

func TestEmptySpool(t *testing.T) {
	t.Parallel()
	if rows := readSpool[Plant](t, writeSpool[Plant, int64](t)); rows != nil {
		t.Errorf("got %v, want no row", rows)
	}
}

// TestTruncatedSpool reads a file without its end, cut at each byte of its only row. That
// is an error, and never a row or io.EOF, which COPY takes for the regular end.
func TestTruncatedSpool(t *testing.T) {
	t.Parallel()
	s := writeSpool[Plant, int64](t, spooled[Plant]{1000, Plant{ID: math.MinInt64, Name: "name", Tag: new("tag")}, Edit{Kind: Merge, Columns: "tag", Version: new(time.Now())}})
	if err := s.flush(); err != nil {
		t.Fatal(err)
	}
	info, err := s.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for size := info.Size() - 1; size > 0; size-- {
		if err := s.file.Truncate(size); err != nil {
			t.Fatal(err)
		}
		if _, err := s.read()(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("of %d bytes: got %v, want an error other than EOF", size, err)
		}
	}
}
