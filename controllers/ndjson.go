package controllers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"

	"github.com/go-json-experiment/json"

	"plantstore/models"
)

// maxLine limits a line of an import, in bytes, without its end.
const maxLine = 64 << 10

// readSize is how much of the body of an import is read at once, in bytes. With the usual
// 4 KiB, an import takes a tenth longer.
const readSize = 64 << 10

// readNDJSON reads a D from each line of body, as bindJSON does, and converts it with
// toRow. Empty lines are skipped.
func readNDJSON[D, T any](body io.Reader, toRow func(*D) T) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, readSize), maxLine+len("\r\n"))
		n, in := 0, new(D)
		for lines.Scan() {
			n++
			if len(lines.Bytes()) > maxLine {
				yield(models.ImportRow[T]{}, lineTooLong(n))
				return
			}
			if len(bytes.Trim(lines.Bytes(), spaces)) == 0 {
				continue
			}
			row := models.ImportRow[T]{Line: n}
			*in = *new(D)
			if row.Err = decodeJSON("line", lines.Bytes(), in, false); row.Err == nil {
				row.Err = checkFields(in)
			}
			if row.Err == nil {
				row.Row = toRow(in)
			}
			if !yield(row, nil) {
				return
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(models.ImportRow[T]{}, lineTooLong(n+1))
		case err != nil:
			yield(models.ImportRow[T]{}, bodyError(err))
		}
	}
}

func lineTooLong(line int) error {
	return problemf(codeBodyTooLarge, "line %d is larger than %d bytes", line, maxLine)
}

// rowWriter writes the rows of an export.
type rowWriter[D any] struct {
	write func(D) error
	flush func() error
}

func newNDJSONWriter[D any](out *bufio.Writer) rowWriter[D] {
	return rowWriter[D]{
		write: func(row D) error {
			if err := json.MarshalWrite(out, row); err != nil {
				return err
			}
			return out.WriteByte('\n')
		},
		flush: func() error { return nil },
	}
}
