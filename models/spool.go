package models

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
)

// spool keeps the rows of an import in a temporary file, in the system's folder
// for such files, which $TMPDIR names.
type spool struct {
	file   *os.File
	in     *bufio.Reader
	out    *bufio.Writer
	buffer []byte
}

func newSpool() (*spool, error) {
	file, err := os.CreateTemp("", "plantstore-import-*")
	if err != nil {
		return nil, fmt.Errorf("make a temporary file for the import: %w", err)
	}
	// Without a name, it is gone when the process is.
	if err := os.Remove(file.Name()); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &spool{file: file, in: bufio.NewReader(file), out: bufio.NewWriterSize(file, 64<<10)}, nil
}

func (s *spool) close() error { return s.file.Close() }

// write appends a row: the line, the id, the name and the tag, texts with their
// lengths before them, and that of the tag one higher, for no tag is 0.
func (s *spool) write(row ImportRow) error {
	b := binary.AppendUvarint(s.buffer[:0], uint64(row.Line))
	b = binary.AppendVarint(b, row.Plant.ID)
	b = binary.AppendUvarint(b, uint64(len(row.Plant.Name)))
	b = append(b, row.Plant.Name...)
	if row.Plant.Tag == nil {
		b = append(b, 0)
	} else {
		b = binary.AppendUvarint(b, uint64(len(*row.Plant.Tag))+1)
		b = append(b, *row.Plant.Tag...)
	}
	s.buffer = b
	_, err := s.out.Write(b)
	return err
}

// rewind goes back to the first row, for reading.
func (s *spool) rewind() error {
	if err := s.out.Flush(); err != nil {
		return err
	}
	_, err := s.file.Seek(0, io.SeekStart)
	s.in.Reset(s.file)
	return err
}

// read returns the next row, or nil after the last.
func (s *spool) read() (*ImportRow, error) {
	line, err := binary.ReadUvarint(s.in)
	if errors.Is(err, io.EOF) {
		return nil, nil //nolint:nilnil // no row is no error
	}
	if err != nil {
		return nil, err
	}
	row := &ImportRow{Line: int(line)}
	if row.Plant.ID, err = binary.ReadVarint(s.in); err != nil {
		return nil, err
	}
	length, err := binary.ReadUvarint(s.in)
	if err != nil {
		return nil, err
	}
	if row.Plant.Name, err = s.text(length); err != nil {
		return nil, err
	}
	if length, err = binary.ReadUvarint(s.in); err != nil || length == 0 {
		return row, err
	}
	tag, err := s.text(length - 1)
	row.Plant.Tag = &tag
	return row, err
}

// text returns the next length bytes.
func (s *spool) text(length uint64) (string, error) {
	if uint64(cap(s.buffer)) < length {
		s.buffer = make([]byte, length)
	}
	_, err := io.ReadFull(s.in, s.buffer[:length])
	return string(s.buffer[:length]), err
}
