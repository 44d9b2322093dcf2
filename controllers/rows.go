package controllers

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"slices"
	"unicode/utf8"

	"golang.org/x/text/encoding/charmap"

	"plantstore/database/limit"
	"plantstore/models"
)

// rowReader reads the rows of an import.
type rowReader interface {
	// next reads a row into the struct to which in points, and completes edit, whose Kind is that of on_conflict. It returns
	// the row's line, and why the row is rejected, if it is. An error without a line ends the import: it is io.EOF after the last row.
	next(in any, edit *models.Edit) (line int, err error)
}

// rowsInTurn is how many rows an import parses before other requests have a turn.
const rowsInTurn = 64

// readRows reads a D from each of rows, in turns, and converts it with toRow. kind is that of on_conflict.
func readRows[D, T any](turn *limit.Turn, rows rowReader, kind models.Kind, toRow func(*D, *models.ImportRow[T])) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		turn.Take()
		defer turn.Give()
		in := new(D)
		for n := 1; ; n++ {
			if n%rowsInTurn == 0 {
				turn.Give()
				turn.Take()
			}
			*in = *new(D)
			row := models.ImportRow[T]{Edit: models.Edit{Kind: kind}}
			row.Line, row.Err = rows.next(in, &row.Edit)
			if row.Line == 0 {
				if !errors.Is(row.Err, io.EOF) {
					yield(models.ImportRow[T]{}, row.Err)
				}
				return
			}
			if row.Err == nil {
				row.Err = checkFields(in, row.Kind == models.Merge || row.Kind == models.Delete)
			}
			if row.Err == nil {
				toRow(in, &row)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// MaxLine limits a line of an import, in bytes, without its end.
const MaxLine = 64 << 10

// byteOrderMark is what some programs write at the start of a file in UTF-8.
const byteOrderMark = "\ufeff"

// otherFormats are how a file begins that is no text in UTF-8, and what to do with it.
var otherFormats = map[string]string{
	"\x1f\x8b":         "compressed: send Content-Encoding: gzip", // RFC 1952, section 2.3.1
	"PK\x03\x04":       "a workbook or an archive: save the table as CSV UTF-8, and send that file",
	"\xd0\xcf\x11\xe0": "a workbook: save the table as CSV UTF-8, and send that file",
	"\xff\xfe":         "UTF-16: save the file as UTF-8",
	"\xfe\xff":         "UTF-16: save the file as UTF-8",
}

// lineReader reads the lines of an import. It ignores a byte order mark at the start.
type lineReader struct {
	body   *bufio.Reader
	number int // of the last line, from 1

	warnings []RowWarning
}

// maxWarnings is how many warnings a report has.
const maxWarnings = 100

// warn adds a warning about a row that begins in line.
func (r *lineReader) warn(line int, format string, args ...any) {
	if len(r.warnings) < maxWarnings {
		r.warnings = append(r.warnings, RowWarning{line, fmt.Sprintf(format, args...)})
	}
}

func newLineReader(body io.Reader) *lineReader {
	return &lineReader{body: bufio.NewReaderSize(body, len(byteOrderMark)+MaxLine+len("\r\n"))}
}

// next returns the next line with its end, which the following call overwrites. Its errors are io.EOF
// and faults of the client.
func (r *lineReader) next() ([]byte, error) {
	line, err := r.body.ReadSlice('\n')
	switch {
	case errors.Is(err, bufio.ErrBufferFull):
		return nil, lineTooLong(r.number + 1)
	case errors.Is(err, io.EOF) && len(line) == 0:
		return nil, io.EOF
	case err != nil && !errors.Is(err, io.EOF):
		return nil, bodyError(err)
	}
	if r.number++; r.number == 1 {
		for start, advice := range otherFormats {
			if bytes.HasPrefix(line, []byte(start)) {
				return nil, problemf(codeMalformed, "the body is %s", advice)
			}
		}
		if bytes.IndexByte(line, 0) >= 0 {
			return nil, problemf(codeMalformed, "the body is not text in UTF-8: it has NUL bytes, as UTF-16 does; save the file as UTF-8")
		}
		line = bytes.TrimPrefix(line, []byte(byteOrderMark))
	}
	if len(bytes.TrimSuffix(bytes.TrimSuffix(line, []byte("\n")), []byte("\r"))) > MaxLine {
		return nil, lineTooLong(r.number)
	}
	if !utf8.Valid(line) {
		return nil, problemf(codeMalformed, "line %d is not UTF-8: save the file as UTF-8 (CSV UTF-8 in Excel), or convert it, as with iconv -f windows-1252 -t utf-8", r.number)
	}
	if page := garbledBy(line); page != nil {
		r.warn(r.number, "the text looks as if UTF-8 had been read as %v: in the spreadsheet, import the file as UTF-8, or export it with bom=true", page)
	}
	return line, nil
}

// codePages are those that spreadsheets take for that of a file without a byte order mark.
var codePages = []*charmap.Charmap{charmap.Windows1252, charmap.Windows1250, charmap.Windows1251, charmap.Macintosh}

// garbledBy returns the code page in which text, if it was UTF-8, has been read by mistake, or nil: in that code
// page, it is UTF-8.
func garbledBy(text []byte) *charmap.Charmap {
	if !slices.ContainsFunc(text, func(b byte) bool { return b >= utf8.RuneSelf }) {
		return nil
	}
	for _, page := range codePages {
		if encoded, err := page.NewEncoder().Bytes(text); err == nil && utf8.Valid(encoded) {
			return page
		}
	}
	return nil
}

func lineTooLong(line int) error {
	return problemf(codeBodyTooLarge, "line %d is larger than %d bytes", line, MaxLine)
}
