package controllers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"iter"
	"reflect"
	"slices"
	"strings"

	"github.com/go-json-experiment/json"

	"plantstore/models"
)

// MaxLine limits a line of an import, in bytes, without its end.
const MaxLine = 64 << 10

// readSize is how much of the body of an import is read at once, in bytes. With the usual
// 4 KiB, an import takes a tenth longer.
const readSize = 64 << 10

// readNDJSON reads a D from each line of body, as bindJSON does, and converts it with
// toRow. Empty lines are skipped, and a byte order mark at the start is ignored (RFC 8259,
// section 8.1).
func readNDJSON[D, T any](body io.Reader, toRow func(*D) T) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, readSize), MaxLine+len("\r\n"))
		n, in := 0, new(D)
		for lines.Scan() {
			line := lines.Bytes()
			if n++; n == 1 {
				line = bytes.TrimPrefix(line, []byte(byteOrderMark))
				if bytes.HasPrefix(line, []byte(GzipMagic)) {
					yield(models.ImportRow[T]{}, errCompressed)
					return
				}
			}
			if len(line) > MaxLine {
				yield(models.ImportRow[T]{}, lineTooLong(n))
				return
			}
			if len(bytes.Trim(line, spaces)) == 0 {
				continue
			}
			row := models.ImportRow[T]{Line: n}
			*in = *new(D)
			if row.Err = decodeJSON("line", line, in, false); row.Err == nil {
				row.Err = checkFields(in)
			}
			if row.Err == nil {
				row.Row = toRow(in)
			} else if n == 1 && isHeader(line, jsonFields(reflect.TypeFor[D]())) {
				row.Err = problemf(codeMalformed, "the line is a header of CSV: send Content-Type: %s", TypeCSV)
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

// GzipMagic is how a gzip file begins (RFC 1952, section 2.3.1).
const GzipMagic = "\x1f\x8b"

var errCompressed = problemf(codeMalformed, "the body is compressed: send Content-Encoding: gzip")

// isHeader reports whether a line is the header of CSV whose first column is one of fields.
func isHeader(line []byte, fields []jsonField) bool {
	cells := strings.FieldsFunc(string(line), func(r rune) bool { return strings.ContainsRune(",;\t\" \r", r) })
	return len(cells) > 0 && slices.Contains(fieldNames(fields), cells[0])
}

func lineTooLong(line int) error {
	return problemf(codeBodyTooLarge, "line %d is larger than %d bytes", line, MaxLine)
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
