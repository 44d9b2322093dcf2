package controllers

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"plantstore/models"
)

// csvReader reads rows of CSV (RFC 4180) after a header, which names some of fields in any order.
type csvReader struct {
	lines   *lineReader
	records *csv.Reader // of what Read returns
	fields  []jsonField
	ignored []string    // columns
	columns []jsonField // in the order of the header; nil before it is read

	rest        []byte // of the last line
	first, size int    // line and bytes of the current row
}

func newCSVReader(lines *lineReader, fields []jsonField, ignored []string) *csvReader {
	r := &csvReader{lines: lines, fields: fields, ignored: ignored}
	r.records = csv.NewReader(r)
	r.records.ReuseRecord = true
	return r
}

func (r *csvReader) next(in any, edit *models.Edit) (line int, err error) {
	if r.columns == nil {
		if err := r.readHeader(edit.Kind == models.Merge); err != nil {
			return 0, err
		}
	}
	record, line, err := r.readRecord()
	if err != nil {
		return line, err
	}
	row := reflect.ValueOf(in).Elem()
	for i, cell := range record {
		f := r.columns[i]
		switch {
		case cell == "" || f.name == ignoredColumn: // the field, a pointer, stays nil
			continue
		case f.name == "":
			return line, problemf(codeUnknownField, "cell %d is in a column without a name: name the column in the header, or empty the cell", i+1)
		case f.kind == reflect.String:
			cell = strings.Clone(fromCell(cell)) // the record is reused
		case f.kind == reflect.Int64 && isRounded(cell):
			r.lines.warn(line, "%s may be rounded: a spreadsheet keeps 15 digits of a number", f.name)
		}
		if err := parseValue(f.name, cell, f.kind, row.FieldByIndex(f.index).Addr().Interface()); err != nil {
			return line, err
		}
		if edit.Kind == models.Merge {
			edit.Columns += f.name + ","
		}
	}
	return line, nil
}

// readRecord returns the next record that is not blank, as the last rows of a spreadsheet may be, and its line. The
// following call overwrites the record. An error with a line is about this record alone; an error without a line ends the body.
func (r *csvReader) readRecord() (record []string, line int, err error) {
	for isBlank := true; isBlank; {
		r.first, r.size = r.lines.number+1, 0
		record, err = r.records.Read()
		isWhole := err == nil || errors.Is(err, csv.ErrFieldCount)
		isBlank = isWhole && !slices.ContainsFunc(record, func(cell string) bool { return cell != "" })
	}
	malformed, isMalformed := errors.AsType[*csv.ParseError](err)
	switch {
	case err == nil:
		line, _ = r.records.FieldPos(0)
		return record, line, nil
	case !isMalformed:
		return nil, 0, err
	case errors.Is(err, csv.ErrFieldCount):
		return nil, malformed.StartLine, problemf(codeMalformed,
			"the row has %d cells, and the header has %d: put quotes around a text that has the separator", len(record), len(r.columns))
	}
	quote := "a quote"
	if malformed.Line > malformed.StartLine {
		quote = fmt.Sprintf("a quote in the lines %d to %d", malformed.StartLine, malformed.Line)
	}
	rejected := problemf(codeMalformed, `%s is out of place or not closed: write "5"" pot" for a cell with 5" pot`, quote)
	if errors.Is(err, csv.ErrQuote) {
		if _, next := r.lines.body.Peek(1); errors.Is(next, io.EOF) { // the body may be cut off, or other rows be in this cell
			return nil, 0, atLine(malformed.StartLine, rejected)
		}
	}
	return nil, malformed.StartLine, rejected
}

// readHeader sets the columns to the fields that the header names. Rows that merge need only the id.
func (r *csvReader) readHeader(merges bool) error {
	names := strings.Join(fieldNames(r.fields), ",")
	record, line, err := r.readRecord()
	switch {
	case errors.Is(err, io.EOF):
		return problemf(codeMalformed, "the body is empty: send CSV with the header %s", names)
	case err != nil && line == 0:
		return err
	case err != nil:
		return atLine(line, err)
	case strings.HasPrefix(record[0], "sep="): // for spreadsheets; a comma there makes two cells
		return atLine(line, problemf(codeMalformed, "remove this line: the header tells the separator"))
	}
	ignored := make(map[string]bool)
	for _, name := range r.ignored {
		ignored[name] = true
	}
	r.columns = make([]jsonField, len(record))
	for i, name := range record {
		field := slices.IndexFunc(r.fields, func(f jsonField) bool { return f.name == name })
		switch {
		case name == "": // a column without a name, which must be empty
		case ignored[name]:
			r.columns[i].name = ignoredColumn
		case field < 0:
			return atLine(line, problemf(codeUnknownField, "unknown column %s; valid columns: %s; ignore_columns names others that are not read", quoteName(name), names))
		case slices.Contains(record[:i], name):
			return atLine(line, problemf(codeDuplicateField, "duplicate column %s", name))
		default:
			r.columns[i] = r.fields[field]
		}
	}
	for _, f := range r.fields {
		if f.required && (!merges || f.name == "id") && !slices.ContainsFunc(r.columns, func(c jsonField) bool { return c.name == f.name }) {
			return atLine(line, problemf(codeMissingOrType, "the column %s is required", f.name))
		}
	}
	return nil
}

// ignoredColumn is the name of a column whose cells are not read.
const ignoredColumn = "-"

// isRounded reports whether a spreadsheet may have rounded the integer in cell: it keeps 15 digits.
func isRounded(cell string) bool {
	digits := strings.TrimPrefix(cell, "-")
	return len(digits) > 15 && strings.Trim(digits[15:], "0") == ""
}

func fieldNames(fields []jsonField) []string {
	return mapAll(fields, func(f *jsonField) string { return f.name })
}

func atLine(line int, err error) error {
	p, _ := errors.AsType[*problem](err)
	return problemf(p.Code, "line %d: %s", line, p.Message)
}

// MaxRecord limits a row of several lines, in bytes: a quote that is not closed would make the rest
// of the body a row.
const MaxRecord = MaxLine + 8<<10

// Read reads the body line by line, so that the csv.Reader does not read ahead.
func (r *csvReader) Read(p []byte) (int, error) {
	if len(r.rest) == 0 {
		line, err := r.lines.next()
		if err != nil {
			return 0, err
		}
		r.rest = line
		if i := bytes.IndexAny(line, ",;\t"); r.columns == nil && i >= 0 { // as spreadsheets write the header in many countries
			r.records.Comma = rune(line[i])
		}
		if r.size += len(line); r.size > MaxRecord {
			return 0, problemf(codeBodyTooLarge, "the row that begins in line %d is larger than %d bytes: is a quote not closed?", r.first, MaxRecord)
		}
	}
	n := copy(p, r.rest)
	r.rest = r.rest[n:]
	return n, nil
}

// csvWriter writes rows after a header. Its columns are fields.
type csvWriter struct {
	*csv.Writer
	fields []jsonField
	record []string
}

func newCSVWriter(out *bufio.Writer, fields []jsonField) *csvWriter {
	w := &csvWriter{csv.NewWriter(out), fields, fieldNames(fields)}
	_ = w.Write(w.record) // flush returns its error
	return w
}

func (w *csvWriter) write(row any) error {
	value := reflect.ValueOf(row).Elem()
	for i, f := range w.fields {
		switch cell := reflect.Indirect(value.FieldByIndex(f.index)); {
		case !cell.IsValid(): // a nil pointer
			w.record[i] = ""
		case f.kind == reflect.String && cell.Type() != reflect.TypeFor[models.Number](): // which may start with -
			w.record[i] = toCell(cell.String())
		case f.kind == reflect.Int64:
			w.record[i] = strconv.FormatInt(cell.Int(), 10)
		default:
			w.record[i] = fmt.Sprint(cell.Interface())
		}
	}
	return w.Write(w.record)
}

func (w *csvWriter) flush() error {
	w.Flush()
	return w.Error()
}

// toCell returns a text as a cell of CSV that a spreadsheet does not run as a formula and that is not
// empty: with a ' before each part that is marked.
func toCell(text string) string { return replaceMarked(text, "", "'") }

// fromCell undoes toCell.
func fromCell(cell string) string { return replaceMarked(cell, "'", "") }

// replaceMarked replaces what the marked parts of a cell start with: the parts that start like a
// formula, and a cell that is empty. Any ' before that does not count, so a part is marked with and
// without the ' of toCell. A spreadsheet that separates cells by something other than commas takes
// the parts for cells; it ignores a " before them that belongs to the quotes of the whole cell.
func replaceMarked(cell, old, replacement string) string {
	var replaced strings.Builder
	copied, ignored := 0, "'"
	for start := 0; ; ignored = `'"` {
		part := cell[start:]
		if rest := strings.TrimLeft(part, ignored); rest != strings.TrimLeft(rest, formulaSigns) || start == 0 && rest == "" {
			replaced.WriteString(cell[copied:start])
			replaced.WriteString(replacement)
			copied = len(cell) - len(strings.TrimPrefix(part, old))
		}
		end := strings.IndexAny(part, ";\t\r\n")
		if end < 0 {
			return replaced.String() + cell[copied:]
		}
		start += end + 1
	}
}

// formulaSigns start a formula in a spreadsheet, in East Asia also with full width.
const formulaSigns = "=+-@＝＋－＠"
