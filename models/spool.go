package models

import (
	"bufio"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"reflect"
	"slices"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// spool keeps rows of an import or export in a temporary file, in the system's folder for
// such files, which $TMPDIR names. It returns them by ascending key, and rows with the same key in the
// order in which they were written, which is that of their lines. It sorts them in runs that fit into memory, and
// merges the runs while they are read. Rows that are written in order, as in an export, are a single run.
type spool[T any, K Key] struct {
	ctx     context.Context //nolint:containedctx // of the import or export
	db      *database.DB
	columns []*table.Column // the key first
	file    *os.File        // nil before the first run
	size    int64           // of the file, in bytes
	starts  []int64         // of the runs, in the file
	last    K               // the key at the end of the last run
	edits   bool            // a row depends on the stored row

	written *run[T, K] // has the row that was written last
	data    []byte     // of the rows that are not in the file yet
	rows    []spoolRow[K]
}

type spoolRow[K Key] struct {
	key        K
	start, end int // in spool.data
}

// runMemory limits the size of a run, with spoolRowSize bytes for each of its rows. There
// may be as many imports as [database.MaxTransfers].
const (
	runMemory    = 4 << 20
	spoolRowSize = 32
)

// ErrNoRoom means that the temporary files of imports and exports may take no more room, in all or
// for a client. It wraps limit.ErrShare.
var ErrNoRoom = fmt.Errorf("no room for temporary files: %w", limit.ErrShare)

// ErrTemporary means that temporary files cannot be written, as their disk is full, or their
// folder is missing. Nothing was stored.
var ErrTemporary = errors.New("temporary files (TMPDIR) cannot be written")

// newSpool returns a spool of rows of T with columns, the key first, which are of the kinds that NewStore allows.
func newSpool[T any, K Key](ctx context.Context, db *database.DB, columns []*table.Column) *spool[T, K] {
	return &spool[T, K]{ctx: ctx, db: db, columns: columns, written: newRun[T, K](columns)}
}

// createTemporary returns a temporary file, or fails with ErrTemporary.
func createTemporary() (*os.File, error) {
	file, err := os.CreateTemp("", "plantstore-rows-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	_ = os.Remove(file.Name()) // without a name, it does not outlive the process; see spool.close
	return file, nil
}

// CheckTemporary fails with ErrTemporary if imports and exports could not write temporary files.
func CheckTemporary() error {
	file, err := createTemporary()
	if err != nil {
		return err
	}
	defer os.Remove(file.Name()) // on Windows, which removes no open file
	_, err = file.Write([]byte{0})
	return unlessFull(errors.Join(err, file.Close()))
}

// close ends the file. That it fails means nothing: the rows have been read, and perhaps stored.
func (s *spool[T, K]) close() {
	s.db.Limits.Disk.Give(limit.Client(s.ctx), s.size)
	if s.file != nil {
		_ = s.file.Close()
		_ = os.Remove(s.file.Name()) // on Windows, which removes no open file
	}
}

func (s *spool[T, K]) write(row *ImportRow[T]) error {
	s.edits = s.edits || row.Kind == Merge || row.Kind == Delete || row.Version != nil
	s.written.ImportRow = *row
	start := len(s.data)
	for _, part := range s.written.parts {
		s.data = appendValue(s.data, part)
	}
	s.rows = append(s.rows, spoolRow[K]{*s.written.key, start, len(s.data)})
	if len(s.data)+len(s.rows)*spoolRowSize < runMemory {
		return nil
	}
	return s.flush()
}

// flush moves the rows in memory to the file, as a run or as the rest of the last run. It fails with ErrNoRoom, and
// with ErrTemporary.
func (s *spool[T, K]) flush() (err error) {
	if len(s.rows) == 0 {
		return nil
	}
	if s.file == nil {
		if s.file, err = createTemporary(); err != nil {
			return err
		}
	}
	if err := s.db.Limits.Disk.Take(limit.Client(s.ctx), int64(len(s.data))); err != nil {
		return fmt.Errorf("%w: %w", ErrNoRoom, err)
	}
	slices.SortStableFunc(s.rows, func(a, b spoolRow[K]) int { return cmp.Compare(a.key, b.key) })
	if s.starts == nil || s.rows[0].key < s.last {
		s.starts = append(s.starts, s.size)
	}
	s.size += int64(len(s.data))
	out := bufio.NewWriterSize(s.file, 64<<10)
	for _, row := range s.rows {
		_, _ = out.Write(s.data[row.start:row.end]) // Flush returns its error
	}
	s.last = s.rows[len(s.rows)-1].key
	s.data, s.rows = s.data[:0], s.rows[:0]
	return unlessFull(out.Flush())
}

// unlessFull returns err, with ErrTemporary if it means that the disk is full.
func unlessFull(err error) error {
	if fault.IsDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return err
}

// read returns a function that returns the next row in the file, from the first on. The row is valid until the next
// call. After the last row, it is nil.
func (s *spool[T, K]) read() func() (*run[T, K], error) {
	var ordered, unordered []*run[T, K] // the runs by their next rows, and those that have to read it
	end := s.size
	s.data, s.rows = nil, nil // as nothing is written any more
	for _, start := range slices.Backward(s.starts) {
		r := newRun[T, K](s.columns)
		r.in = bufio.NewReader(io.NewSectionReader(s.file, start, end-start))
		unordered, end = append(unordered, r), start
	}
	return func() (*run[T, K], error) {
		for _, r := range unordered {
			switch err := r.read(); {
			case errors.Is(err, io.EOF): // the run has ended
			case err != nil:
				return nil, err
			default:
				place, _ := slices.BinarySearchFunc(ordered, r, func(a, b *run[T, K]) int {
					return cmp.Or(cmp.Compare(*a.key, *b.key), cmp.Compare(a.Line, b.Line))
				})
				ordered = slices.Insert(ordered, place, r)
			}
		}
		if len(ordered) == 0 {
			return nil, nil
		}
		next := ordered[0]
		ordered, unordered = slices.Delete(ordered, 0, 1), append(unordered[:0], next)
		return next, nil
	}
}

// run is a run of a spool, with its next row.
type run[T any, K Key] struct {
	ImportRow[T]
	parts  []reflect.Value // of ImportRow that are in the file: its line, its columns, and what is done with it
	key    *K              // in Row
	in     *bufio.Reader
	buffer []byte
}

func newRun[T any, K Key](columns []*table.Column) *run[T, K] {
	r := new(run[T, K])
	r.parts = append(r.parts, reflect.ValueOf(&r.Line).Elem())
	for _, c := range columns {
		r.parts = append(r.parts, c.Of(valueOf(&r.Row)))
	}
	for _, field := range valueOf(&r.Edit).Fields() {
		r.parts = append(r.parts, field)
	}
	r.key = r.parts[1].Addr().Interface().(*K)
	return r
}

// read reads the next row. It fails with io.EOF after the last.
func (r *run[T, K]) read() error {
	for i, part := range r.parts {
		if err := r.readValue(part); err != nil {
			if i > 0 && errors.Is(err, io.EOF) {
				return io.ErrUnexpectedEOF
			}
			return err
		}
	}
	return nil
}

// appendValue appends a text with its length, any other value as an integer, and a pointer as an integer that is 0 if it
// is nil, followed by its value.
func appendValue(b []byte, value reflect.Value) []byte {
	n := int64(0)
	switch value.Kind() {
	case reflect.Pointer:
		if value.IsNil() {
			return append(b, 0)
		}
		return appendValue(binary.AppendVarint(b, 1), value.Elem())
	case reflect.String:
		return append(binary.AppendVarint(b, int64(value.Len())), value.String()...)
	case reflect.Bool:
		if value.Bool() {
			n = 1
		}
	case reflect.Float64:
		n = int64(math.Float64bits(value.Float()))
	case reflect.Struct:
		n = value.Addr().Interface().(*time.Time).UnixMicro()
	default:
		n = value.Int()
	}
	return binary.AppendVarint(b, n)
}

// readValue sets value to what appendValue has appended.
func (r *run[T, K]) readValue(value reflect.Value) error {
	n, err := binary.ReadVarint(r.in)
	if err != nil {
		return err
	}
	switch value.Kind() {
	case reflect.Pointer:
		if value.SetZero(); n != 0 {
			value.Set(reflect.New(value.Type().Elem()))
			return r.readValue(value.Elem())
		}
	case reflect.String:
		r.buffer = slices.Grow(r.buffer[:0], int(n))[:n]
		_, err = io.ReadFull(r.in, r.buffer)
		value.SetString(string(r.buffer))
	case reflect.Bool:
		value.SetBool(n != 0)
	case reflect.Float64:
		value.SetFloat(math.Float64frombits(uint64(n)))
	case reflect.Struct:
		*value.Addr().Interface().(*time.Time) = time.UnixMicro(n).UTC()
	default:
		value.SetInt(n)
	}
	return err
}
