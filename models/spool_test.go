package models

import (
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
)

// writeSpool returns a spool that has rows.
func writeSpool(t *testing.T, rows []ImportRow) *spool {
	t.Helper()
	s, err := newSpool()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	})
	for _, row := range rows {
		if err := s.write(row); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

// TestSpoolRoundTrip reads what was written, and reads it again.
func TestSpoolRoundTrip(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("🌵", 255)
	rows := []ImportRow{
		{Line: 1, Plant: Plant{ID: 0, Name: "no tag"}},
		{Line: 2, Plant: Plant{ID: -1, Name: "an empty tag", Tag: new("")}},
		{Line: math.MaxInt32 + 7, Plant: Plant{ID: math.MinInt64, Name: "x", Tag: new("a tag of another length")}},
		{Line: 300, Plant: Plant{ID: math.MaxInt64, Name: long, Tag: &long}},
		{Line: 5, Plant: Plant{ID: 9007199254740993, Name: "\x00\n\xff", Tag: new("\x00")}},
		{Line: 6, Plant: Plant{ID: 64, Name: strings.Repeat("x", 200_000), Tag: new(strings.Repeat("y", 100_000))}},
	}
	for i := range 5000 {
		row := ImportRow{Line: 7 + i, Plant: Plant{ID: int64(rand.Uint64()), Name: strings.Repeat("n", rand.IntN(300))}} //nolint:gosec // any id will do
		if i%3 > 0 {
			row.Plant.Tag = new(strings.Repeat("t", rand.IntN(300)))
		}
		rows = append(rows, row)
	}
	s := writeSpool(t, rows)
	for range 3 {
		if err := s.rewind(); err != nil {
			t.Fatal(err)
		}
		var got []ImportRow // all are kept: no row may lie in the memory of another
		for {
			row, err := s.read()
			if err != nil {
				t.Fatal(err)
			}
			if row == nil {
				break
			}
			got = append(got, *row)
		}
		if len(got) != len(rows) {
			t.Fatalf("%d rows of %d", len(got), len(rows))
		}
		for i, row := range got {
			if row.Line != rows[i].Line || row.Plant.ID != rows[i].Plant.ID || !row.Plant.SameContent(&rows[i].Plant) || row.Err != nil {
				t.Fatalf("row %d is %+v, want %+v", i, row, rows[i])
			}
		}
	}
}

func TestSpoolOfNothing(t *testing.T) {
	t.Parallel()
	s := writeSpool(t, nil)
	if err := s.rewind(); err != nil {
		t.Fatal(err)
	}
	if row, err := s.read(); row != nil || err != nil {
		t.Errorf("read %v, %v", row, err)
	}
}

// TestSpoolThatIsCut reads a file that has lost its end, at each byte of its only
// row: that is an error, and never a row or none.
func TestSpoolThatIsCut(t *testing.T) {
	t.Parallel()
	s := writeSpool(t, []ImportRow{{Line: 1000, Plant: Plant{ID: math.MinInt64, Name: "name", Tag: new("tag")}}})
	if err := s.rewind(); err != nil {
		t.Fatal(err)
	}
	info, err := s.file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	for size := info.Size() - 1; size > 0; size-- {
		if err := errors.Join(s.file.Truncate(size), s.rewind()); err != nil {
			t.Fatal(err)
		}
		if row, err := s.read(); err == nil {
			t.Errorf("of %d bytes: %+v", size, row)
		}
	}
}
