package controllers

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/go-json-experiment/json"

	"plantstore/models"
)

// readCSV reads a D from each row of body (RFC 4180) after the header, and converts it
// with toRow. The columns are the JSON fields of D, in any order.
func readCSV[D, T any](body io.Reader, toRow func(*D) T) iter.Seq2[models.ImportRow[T], error] {
	return func(yield func(models.ImportRow[T], error) bool) {
		buffered := bufio.NewReaderSize(body, readSize)
		if start, err := buffered.Peek(len(byteOrderMark)); err == nil && string(start) == byteOrderMark { // as spreadsheets write it
			_, _ = buffered.Discard(len(byteOrderMark))
		}
		var head bytes.Buffer // what the header was read from, and maybe more
		limit := &lineLimit{Reader: io.TeeReader(buffered, &head)}
		records := newRecordReader(limit)
		records.ReuseRecord = true
		fields := jsonFields(reflect.TypeFor[D]())
		columns, err := readHeader(records, fields)
		if err != nil {
			yield(models.ImportRow[T]{}, explained(head.String(), fields, err))
			return
		}
		limit.Reader = buffered
		in := new(D)
		for last := 1; ; {
			record, err := records.next()
			var row models.ImportRow[T]
			malformed, bad := errors.AsType[*csv.ParseError](err)
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errRecordTooLong) && limit.tooLong:
				yield(row, lineTooLong(limit.lines+1))
				return
			case errors.Is(err, errRecordTooLong):
				yield(row, problemf(codeBodyTooLarge, "the row that begins in line %d is larger than %d bytes: is a quote not closed?", last+1, MaxRecord))
				return
			case bad:
				row.Line, last = malformed.StartLine, malformed.Line
				row.Err = records.malformed(record, malformed)
				if errors.Is(err, csv.ErrQuote) && records.atEnd() { // the body may be cut off, or this row have others in it
					yield(models.ImportRow[T]{}, atLine(row.Line, row.Err))
					return
				}
				if errors.Is(err, csv.ErrFieldCount) {
					last = records.lastLine(record, row.Line)
					row.Err = problemf(codeMalformed, "the row has %d cells, and the header has %d: put quotes around a text that has commas", len(record), len(columns))
				}
			case err != nil:
				yield(row, bodyError(err))
				return
			default:
				row.Line, _ = records.FieldPos(0)
				last = records.lastLine(record, row.Line)
				*in = *new(D)
				if row.Err = readRecord(reflect.ValueOf(in).Elem(), columns, record); row.Err == nil {
					row.Err = checkFields(in)
				}
				if row.Err == nil {
					row.Row = toRow(in)
				}
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// readHeader returns the fields that the columns of the header name.
func readHeader(records *recordReader, fields []jsonField) ([]jsonField, error) {
	names := strings.Join(fieldNames(fields), ",")
	record, err := records.next()
	malformed, bad := errors.AsType[*csv.ParseError](err)
	switch {
	case errors.Is(err, errRecordTooLong):
		return nil, lineTooLong(records.limit.lines + 1)
	case bad:
		return nil, atLine(1, records.malformed(record, malformed))
	case errors.Is(err, io.EOF):
		return nil, problemf(codeMalformed, "the body is empty: send CSV with the header %s", names)
	case err != nil:
		return nil, bodyError(err)
	}
	columns := make([]jsonField, len(record))
	for i, name := range record {
		field := slices.IndexFunc(fields, func(f jsonField) bool { return f.name == name })
		switch {
		case field < 0:
			return nil, atLine(1, problemf(codeUnknownField, "unknown column %s; valid columns: %s", quoteName(name), names))
		case slices.Contains(record[:i], name):
			return nil, atLine(1, problemf(codeDuplicateField, "duplicate column %s", name))
		}
		columns[i] = fields[field]
	}
	for _, f := range fields {
		if f.required && !slices.Contains(record, f.name) {
			return nil, atLine(1, problemf(codeMissingOrType, "the column %s is required", f.name))
		}
	}
	return columns, nil
}

// explained returns the error of the header, with which head begins, with the right advice if the
// file is of another kind, such as those with semicolons that spreadsheets write in many countries.
func explained(head string, fields []jsonField, err error) error {
	header, _, _ := strings.Cut(strings.TrimLeft(head, "\r\n"), "\n")
	separator := strings.IndexAny(header, ";\t")
	p, isProblem := errors.AsType[*problem](err)
	switch {
	case !isProblem:
		return err
	case strings.HasPrefix(header, GzipMagic):
		return errCompressed
	case !utf8.ValidString(header) && p.Code != codeBodyTooLarge: // which may be cut within a character
		return atLine(1, problemf(codeMalformed, "the header is not valid UTF-8: save the file as UTF-8"))
	case strings.Contains(strings.TrimSuffix(header, "\r"), "\r"):
		return atLine(1, problemf(codeMalformed, "the lines must end with LF or CRLF, not with CR"))
	case separator < 0 || strings.Contains(header, ",") || p.Code != codeMalformed && p.Code != codeUnknownField:
		return err
	}
	names := map[byte]string{';': "semicolons", '\t': "tabs"}
	return atLine(1, problemf(p.Code, "the columns are separated by %s: separate them by commas, as in %s",
		names[header[separator]], strings.Join(fieldNames(fields), ",")))
}

// atLine adds a line to the message of a problem.
func atLine(line int, err error) error {
	p, _ := errors.AsType[*problem](err)
	return problemf(p.Code, "line %d: %s", line, p.Message)
}

func fieldNames(fields []jsonField) []string {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.name
	}
	return names
}

// readRecord sets the fields of row, which are pointers, to the cells of record. An empty
// cell is nil.
func readRecord(row reflect.Value, columns []jsonField, record []string) error {
	for _, cell := range record {
		if !utf8.ValidString(cell) {
			return problemf(codeMalformed, "the row is not valid UTF-8")
		}
	}
	for i, cell := range record {
		f := columns[i]
		if cell == "" {
			continue
		}
		switch field := row.FieldByIndex(f.index).Addr().Interface().(type) {
		case **string:
			text := strings.Clone(fromCell(cell)) // the record is reused
			*field = &text
		case **int64:
			n, err := parseInt64(codeNotInt64, f.name, cell)
			if err != nil {
				return err
			}
			*field = &n
		default:
			err := json.Unmarshal([]byte(cell), field, json.WithUnmarshalers(rejectNull))
			if err != nil || strings.TrimSpace(cell) != cell { // which JSON ignores
				return problemf(codeMissingOrType, "%s must be %s", f.name, goKinds[f.kind])
			}
		}
	}
	return nil
}

// newCSVWriter returns a writer of rows with a header. Its columns are the JSON fields of
// D, in their order.
func newCSVWriter[D any](out *bufio.Writer) rowWriter[D] {
	rows, fields := csv.NewWriter(out), jsonFields(reflect.TypeFor[D]())
	record := fieldNames(fields)
	_ = rows.Write(record) // flush returns its error
	return rowWriter[D]{
		write: func(row D) error {
			value := reflect.ValueOf(&row).Elem()
			for i, f := range fields {
				switch cell := reflect.Indirect(value.FieldByIndex(f.index)); {
				case !cell.IsValid(): // a nil pointer
					record[i] = ""
				case f.kind == reflect.String:
					record[i] = toCell(cell.String())
				case f.kind == reflect.Int64:
					record[i] = strconv.FormatInt(cell.Int(), 10)
				default:
					record[i] = fmt.Sprint(cell.Interface())
				}
			}
			return rows.Write(record)
		},
		flush: func() error {
			rows.Flush()
			return rows.Error()
		},
	}
}

// toCell returns a text as a cell of CSV that a spreadsheet does not run as a formula and
// that is not empty: with a ' before each part that is marked.
func toCell(text string) string {
	return replaceMarked(text, func(part string) string { return "'" + part })
}

// fromCell undoes toCell.
func fromCell(cell string) string {
	return replaceMarked(cell, func(part string) string { return strings.TrimPrefix(part, "'") })
}

// replaceMarked replaces the parts of a cell that are marked: those that start like a
// formula, and a cell that is empty. Any ' before that does not count, so a part is marked
// with and without the ' of toCell. A spreadsheet that separates cells by something other
// than commas takes the parts for cells; it ignores a " before them that belongs to the
// quotes of the whole cell.
func replaceMarked(cell string, replace func(part string) string) string {
	var replaced strings.Builder
	for ignored := "'"; ; ignored = `'"` {
		end := strings.IndexAny(cell, ";\t\r\n") + 1
		if end == 0 {
			end = len(cell)
		}
		part, isFirst := cell[:end], replaced.Len() == 0
		cell = cell[end:]
		if rest := strings.TrimLeft(part, ignored); isFormula(rest) || isFirst && rest == "" {
			part = replace(part)
		}
		if isFirst && cell == "" {
			return part
		}
		if replaced.WriteString(part); cell == "" {
			return replaced.String()
		}
	}
}

// isFormula reports whether text starts like a formula, to spreadsheets of East Asian
// languages, too.
func isFormula(text string) bool {
	sign, _ := utf8.DecodeRuneInString(text)
	return strings.ContainsRune("=+-@＝＋－＠", sign) && text != ""
}

// MaxRecord is how much of the body may be read for a row of several lines, in bytes. The
// csv.Reader reads ahead by up to its buffer, of 4 KiB.
const MaxRecord = MaxLine + 8<<10

var errRecordTooLong = errors.New("row is too long")

// recordReader reads records of limited length. A quote that is never closed would make
// one row of the rest of the body.
type recordReader struct {
	*csv.Reader
	body  *bufio.Reader // which the csv.Reader reads, as it has at least 4 KiB
	limit *lineLimit
}

func newRecordReader(limit *lineLimit) *recordReader {
	body := bufio.NewReader(limit)
	return &recordReader{csv.NewReader(body), body, limit}
}

// next returns the next record, which the following call overwrites. It fails with
// errRecordTooLong even if the part that it read is malformed.
func (r *recordReader) next() ([]string, error) {
	r.limit.record = 0
	record, err := r.Read()
	if r.limit.failed {
		return nil, errRecordTooLong
	}
	return record, err
}

// malformed returns the error of the current record, of which only the cells in record are
// well-formed.
func (r *recordReader) malformed(record []string, err *csv.ParseError) error {
	const advice = `write "5"" pot" for a cell with 5" pot`
	start := r.lastLine(record, err.StartLine) // of the next cell
	if errors.Is(err, csv.ErrQuote) && err.Line > start {
		return problemf(codeMalformed, "the row extends to line %d, as the quote in line %d is not closed: close it, or %s", err.Line, start, advice)
	}
	return problemf(codeMalformed, "a quote is out of place or not closed: "+advice)
}

// lastLine returns the line in which the last cell of record, the current one, ends, or first if
// it has none.
func (r *recordReader) lastLine(record []string, first int) int {
	if len(record) == 0 {
		return first
	}
	line, _ := r.FieldPos(len(record) - 1)
	return line + strings.Count(record[len(record)-1], "\n")
}

// atEnd reports whether nothing follows the current record.
func (r *recordReader) atEnd() bool {
	r.limit.record = 0
	_, err := r.body.Peek(1)
	return errors.Is(err, io.EOF)
}

// lineLimit reads up to a line of more than MaxLine bytes, and then fails, as it does if
// it has read more than MaxRecord bytes for a record.
type lineLimit struct {
	io.Reader
	line, record int  // bytes so far
	lines        int  // that have ended
	tooLong      bool // the line
	failed       bool
}

func (l *lineLimit) Read(p []byte) (int, error) {
	if l.tooLong || l.record > MaxRecord {
		l.failed = true
		return 0, errRecordTooLong
	}
	n, err := l.Reader.Read(p)
	l.record += n
	start := 0 // of the line
	for i, b := range p[:n] {
		if l.line++; b == '\n' {
			l.line, start = 0, i+1
			l.lines++
		}
		if l.line > MaxLine+1 || l.line > MaxLine && b != '\r' {
			l.tooLong = true
			return start, nil
		}
	}
	return n, err
}
