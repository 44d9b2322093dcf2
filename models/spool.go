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
	"strconv"
	"time"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// spool keeps rows of an import or export in a temporary file, in the system's folder for
// such files, which $TMPDIR names. It returns them by ascending key, and rows with the same key in the
// order in which they were written. It sorts them in runs that fit into memory, and merges the runs while
// they are read. Rows that are written in order, as in an export, are a single run.
type spool[T any, K Key] struct {
	ctx         context.Context //nolint:containedctx // of the import or export
	db          *database.DB
	columns     []*table.Column // the key first
	file        *os.File
	out         *bufio.Writer
	size, taken int64 // in bytes, and how many of db's are taken for it
	edits       bool  // a row depends on the stored row

	written ImportRow[T] // last
	parts   []reflect.Value
	buffer  []byte
	data    []byte        // of the rows that are not in a run yet
	rows    []spoolRow[K] // in data
	starts  []int64       // of the runs, in the file
	last    K             // the key at the end of the last run
	unread  []*run[T, K]  // in order: the first run has the next row
	used    *run[T, K]    // whose row was returned last, or nil
}

// spoolRow is a row of spool.data.
type spoolRow[K Key] struct {
	key        K
	start, end int
}

const (
	spoolStep = 1 << 20 // how many bytes a spool takes at a time; see [database.Limits]
	// runMemory limits the size of a run, with spoolRowSize bytes for each of its rows. There
	// may be as many imports as [database.MaxTransfers].
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
// It fails with ErrTemporary if there can be no file.
func newSpool[T any, K Key](ctx context.Context, db *database.DB, columns []*table.Column) (*spool[T, K], error) {
	file, err := createTemporary()
	if err != nil {
		return nil, err
	}
	s := &spool[T, K]{ctx: ctx, db: db, columns: columns, file: file, out: bufio.NewWriterSize(file, 64<<10), starts: []int64{0}}
	s.parts = s.partsOf(&s.written)
	return s, nil
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
	s.db.Limits.Disk.Give(limit.Client(s.ctx), s.taken)
	_ = s.file.Close()
	_ = os.Remove(s.file.Name()) // on Windows, which removes no open file
}

// partsOf returns what a file has of row: its line, its columns, and what is done with it.
func (s *spool[T, K]) partsOf(row *ImportRow[T]) []reflect.Value {
	parts := []reflect.Value{reflect.ValueOf(&row.Line).Elem()}
	for _, c := range s.columns {
		parts = append(parts, c.Of(valueOf(&row.Row)))
	}
	for _, field := range valueOf(&row.Edit).Fields() {
		parts = append(parts, field)
	}
	return parts
}

// keyOf returns the key in the parts of a row.
func keyOf[K Key](parts []reflect.Value) K { return *parts[1].Addr().Interface().(*K) }

func (s *spool[T, K]) write(row *ImportRow[T]) error {
	s.edits = s.edits || row.Kind == Merge || row.Kind == Delete || row.Version != nil
	s.written = *row
	encoded := s.buffer[:0]
	for _, part := range s.parts {
		encoded = appendValue(encoded, part)
	}
	s.buffer = encoded
	key := keyOf[K](s.parts)
	if len(s.rows) == 0 && (s.size == 0 || key >= s.last) { // the last run goes on
		s.last = key
		return s.append(encoded)
	}
	start := len(s.data)
	s.data = append(s.data, encoded...)
	s.rows = append(s.rows, spoolRow[K]{key, start, len(s.data)})
	if len(s.data)+len(s.rows)*spoolRowSize < runMemory {
		return nil
	}
	return s.endRun()
}

// appendValue appends a pointer with a byte before it that is 0 if it is nil, and a text with its length.
func appendValue(b []byte, value reflect.Value) []byte {
	if value.Kind() == reflect.Pointer {
		if value.IsNil() {
			return append(b, 0)
		}
		b, value = append(b, 1), value.Elem()
	}
	switch value.Kind() {
	case reflect.String:
		return append(binary.AppendUvarint(b, uint64(value.Len())), value.String()...)
	case reflect.Bool:
		return strconv.AppendBool(b, value.Bool())[:len(b)+1] // t or f
	case reflect.Float64:
		return binary.AppendUvarint(b, math.Float64bits(value.Float()))
	case reflect.Struct:
		return binary.AppendVarint(b, value.Addr().Interface().(*time.Time).UnixMicro())
	default:
		return binary.AppendVarint(b, value.Int())
	}
}

// append appends an encoded row to the file.
func (s *spool[T, K]) append(b []byte) error {
	for s.size += int64(len(b)); s.taken < s.size; s.taken += spoolStep {
		if err := s.db.Limits.Disk.Take(limit.Client(s.ctx), spoolStep); err != nil {
			return fmt.Errorf("%w: %w", ErrNoRoom, err)
		}
	}
	_, err := s.out.Write(b)
	return unlessFull(err)
}

// unlessFull returns err, with ErrTemporary if it means that the disk is full.
func unlessFull(err error) error {
	if fault.IsDiskFull(err) {
		return fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	return err
}

// endRun moves the rows in memory to the file.
func (s *spool[T, K]) endRun() error {
	slices.SortStableFunc(s.rows, func(a, b spoolRow[K]) int { return cmp.Compare(a.key, b.key) })
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
func (s *spool[T, K]) rewind() error {
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
		r := &run[T, K]{index: i, in: bufio.NewReader(io.NewSectionReader(s.file, start, end-start))}
		r.parts = s.partsOf(&r.ImportRow)
		if err := s.advance(r); err != nil {
			return err
		}
		end = start
	}
	return nil
}

// read returns the run whose row is the next, until the next call, or nil after the last.
func (s *spool[T, K]) read() (*run[T, K], error) {
	if s.used != nil {
		if err := s.advance(s.used); err != nil {
			return nil, err
		}
	}
	if len(s.unread) == 0 {
		return nil, nil
	}
	s.used = s.unread[0]
	s.unread = slices.Delete(s.unread, 0, 1)
	return s.used, nil
}

// advance reads the next row of r, and puts r in its place, unless it has ended.
func (s *spool[T, K]) advance(r *run[T, K]) error {
	for i, part := range r.parts {
		err := r.readValue(part)
		switch {
		case errors.Is(err, io.EOF) && i == 0:
			s.used = nil
			return nil
		case errors.Is(err, io.EOF):
			return io.ErrUnexpectedEOF
		case err != nil:
			return err
		}
	}
	r.key = keyOf[K](r.parts)
	place, _ := slices.BinarySearchFunc(s.unread, r, func(a, b *run[T, K]) int {
		return cmp.Or(cmp.Compare(a.key, b.key), cmp.Compare(a.index, b.index)) // of a key, the earlier run has the earlier rows
	})
	s.unread = slices.Insert(s.unread, place, r)
	return nil
}

// run is a run that is being read, up to its row with key.
type run[T any, K Key] struct {
	ImportRow[T]
	parts  []reflect.Value // of ImportRow
	index  int
	in     *bufio.Reader
	key    K
	buffer []byte
}

func (r *run[T, K]) readValue(value reflect.Value) error {
	if value.Kind() == reflect.Pointer {
		present, err := r.in.ReadByte()
		if err != nil || present == 0 {
			value.SetZero()
			return err
		}
		value.Set(reflect.New(value.Type().Elem()))
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.String:
		length, err := binary.ReadUvarint(r.in)
		if err != nil {
			return err
		}
		r.buffer = slices.Grow(r.buffer[:0], int(length))[:length]
		_, err = io.ReadFull(r.in, r.buffer)
		value.SetString(string(r.buffer))
		return err
	case reflect.Bool:
		b, err := r.in.ReadByte()
		value.SetBool(b == 't')
		return err
	case reflect.Float64:
		n, err := binary.ReadUvarint(r.in)
		value.SetFloat(math.Float64frombits(n))
		return err
	case reflect.Struct:
		n, err := binary.ReadVarint(r.in)
		*value.Addr().Interface().(*time.Time) = time.UnixMicro(n).UTC()
		return err
	default:
		n, err := binary.ReadVarint(r.in)
		value.SetInt(n)
		return err
	}
}
