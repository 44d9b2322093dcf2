package models

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"reflect"
	"strconv"

	"plantstore/database"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// spool keeps rows of an import or export in a temporary file, in the system's folder for
// such files, which $TMPDIR names.
type spool struct {
	ctx         context.Context //nolint:containedctx // of the import or export
	db          *database.DB
	size, taken int64 // in bytes, and how many of db's are taken for it
	columns     []*table.Column
	file        *os.File
	in          *bufio.Reader
	out         *bufio.Writer
	buffer      []byte
}

// spoolStep is how many bytes a spool takes at a time; see [database.Limits].
const spoolStep = 1 << 20

// ErrNoRoom means that the temporary files of imports and exports may take no more room, in all or
// for one client. It wraps limit.ErrShare.
var ErrNoRoom = fmt.Errorf("no room for temporary files: %w", limit.ErrShare)

// ErrTemporary means that temporary files cannot be written, as their disk is full, or their
// folder is missing. Nothing was stored.
var ErrTemporary = errors.New("temporary files (TMPDIR) cannot be written")

// newSpool returns a spool of rows with columns of the kinds that NewStore allows. It fails with
// ErrTemporary if there can be no file.
func newSpool(ctx context.Context, db *database.DB, columns []*table.Column) (*spool, error) {
	file, err := os.CreateTemp("", "plantstore-rows-*")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrTemporary, err)
	}
	_ = os.Remove(file.Name()) // without a name, it does not outlive the process; see close
	return &spool{ctx: ctx, db: db, columns: columns, file: file, in: bufio.NewReader(file), out: bufio.NewWriterSize(file, 64<<10)}, nil
}

// close ends the file. That it fails means nothing: the rows have been read, and perhaps stored.
func (s *spool) close() {
	s.db.Limits.Disk.Give(limit.Client(s.ctx), s.taken)
	_ = s.file.Close()
	_ = os.Remove(s.file.Name()) // on Windows, which removes no open file
}

func (s *spool) write(line int, row reflect.Value) error { return s.append(s.encode(line, row)) }

// encode returns a row, until the next call: its line, then its columns, each pointer with
// a byte before it that is 0 if it is nil, and each text with its length.
func (s *spool) encode(line int, row reflect.Value) []byte {
	b := binary.AppendUvarint(s.buffer[:0], uint64(line))
	for _, c := range s.columns {
		value := c.Of(row)
		if value.Kind() == reflect.Pointer {
			if value.IsNil() {
				b = append(b, 0)
				continue
			}
			b, value = append(b, 1), value.Elem()
		}
		switch value.Kind() {
		case reflect.String:
			b = binary.AppendUvarint(b, uint64(value.Len()))
			b = append(b, value.String()...)
		case reflect.Bool:
			b = strconv.AppendBool(b, value.Bool())[:len(b)+1] // t or f
		default:
			b = binary.AppendVarint(b, value.Int())
		}
	}
	s.buffer = b
	return b
}

// append appends a row that encode returned.
func (s *spool) append(b []byte) error {
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

// rewind goes back to the first row, for reading.
func (s *spool) rewind() error {
	if err := s.out.Flush(); err != nil {
		return unlessFull(err)
	}
	_, err := s.file.Seek(0, io.SeekStart)
	s.in.Reset(s.file)
	return err
}

// read sets the columns of row to those of the next one and returns its line, or
// false after the last.
func (s *spool) read(row reflect.Value) (line int, ok bool, err error) {
	n, err := binary.ReadUvarint(s.in)
	if errors.Is(err, io.EOF) {
		return 0, false, nil
	}
	for _, c := range s.columns {
		if err == nil {
			err = s.readValue(c.Of(row))
		}
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF // within a row
	}
	return int(n), err == nil, err
}

func (s *spool) readValue(value reflect.Value) error {
	if value.Kind() == reflect.Pointer {
		present, err := s.in.ReadByte()
		if err != nil || present == 0 {
			value.SetZero()
			return err
		}
		value.Set(reflect.New(value.Type().Elem()))
		value = value.Elem()
	}
	switch value.Kind() {
	case reflect.String:
		length, err := binary.ReadUvarint(s.in)
		if err != nil {
			return err
		}
		if uint64(cap(s.buffer)) < length {
			s.buffer = make([]byte, length)
		}
		_, err = io.ReadFull(s.in, s.buffer[:length])
		value.SetString(string(s.buffer[:length]))
		return err
	case reflect.Bool:
		b, err := s.in.ReadByte()
		value.SetBool(b == 't')
		return err
	default:
		n, err := binary.ReadVarint(s.in)
		value.SetInt(n)
		return err
	}
}
