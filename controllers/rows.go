package controllers

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"strings"
	"unicode/utf8"

	"plantstore/models"
)

// maxLine is how long a row of an import may be, in bytes.
const maxLine = 64 << 10

// readNDJSON reads a NewPlant from each line of body; empty lines are left out.
func readNDJSON(body io.Reader) iter.Seq2[models.ImportRow, error] {
	return func(yield func(models.ImportRow, error) bool) {
		lines := bufio.NewScanner(body)
		lines.Buffer(make([]byte, 0, maxLine), maxLine)
		n := 0
		for lines.Scan() {
			n++
			if len(bytes.TrimSpace(lines.Bytes())) == 0 {
				continue
			}
			row := models.ImportRow{Line: n}
			var in NewPlant
			switch row.Err = decodeJSON(lines.Bytes(), &in); {
			case row.Err != nil:
			case in.ID == nil || in.Name == nil: // so most rows are spared the reflection
				row.Err = checkRequired(&in)
			default:
				row.Plant = models.Plant{ID: *in.ID, Name: *in.Name, Tag: in.Tag}
			}
			if !yield(row, nil) {
				return
			}
		}
		switch err := lines.Err(); {
		case errors.Is(err, bufio.ErrTooLong):
			yield(models.ImportRow{}, lineTooLong(n+1))
		case err != nil:
			yield(models.ImportRow{}, bodyError(err))
		}
	}
}

func lineTooLong(line int) error {
	return problemf(codeBodyTooLarge, "line %d is larger than %d bytes", line, maxLine)
}

// readCSV reads a plant from each row of body (RFC 4180), behind a header row
// that names the columns.
func readCSV(body io.Reader) iter.Seq2[models.ImportRow, error] {
	return func(yield func(models.ImportRow, error) bool) {
		buffered := bufio.NewReader(body)
		if start, err := buffered.Peek(3); err == nil && string(start) == "\ufeff" { // as spreadsheets write it
			_, _ = buffered.Discard(3)
		}
		records := newRecordReader(buffered)
		header, err := readHeader(records)
		if err != nil {
			yield(models.ImportRow{}, err)
			return
		}
		for last := 1; ; {
			record, err := records.next()
			var row models.ImportRow
			malformed, bad := errors.AsType[*csv.ParseError](err)
			switch {
			case errors.Is(err, io.EOF):
				return
			case errors.Is(err, errRecordTooLong):
				yield(models.ImportRow{}, lineTooLong(last+1))
				return
			case bad:
				row.Line, last = malformed.StartLine, malformed.Line
				row.Err = problemf(codeMalformed, "row is not well-formed CSV: %v", malformed.Err)
			case err != nil:
				yield(models.ImportRow{}, bodyError(err))
				return
			default:
				row.Line, _ = records.FieldPos(0)
				last, _ = records.FieldPos(len(record) - 1)
				last += strings.Count(record[len(record)-1], "\n")
				row.Plant, row.Err = header.plant(record)
			}
			if !yield(row, nil) {
				return
			}
		}
	}
}

// csvHeader has the place of each column, or -1.
type csvHeader struct{ id, name, tag int }

func readHeader(records *recordReader) (*csvHeader, error) {
	record, err := records.next()
	if err != nil {
		if errors.Is(err, errRecordTooLong) {
			return nil, lineTooLong(1)
		}
		if malformed, ok := errors.AsType[*csv.ParseError](err); ok {
			return nil, problemf(codeMalformed, "line 1: row is not well-formed CSV: %v", malformed.Err)
		}
		if errors.Is(err, io.EOF) {
			return nil, problemf(codeMalformed, "body is empty: send CSV with the header id,name,tag")
		}
		return nil, bodyError(err)
	}
	header := &csvHeader{-1, -1, -1}
	columns := map[string]*int{"id": &header.id, "name": &header.name, "tag": &header.tag}
	for i, name := range record {
		column, ok := columns[name]
		switch {
		case !ok:
			return nil, problemf(codeUnknownField, "line 1: %s is not a column: there are id, name and tag", oddName(name))
		case *column >= 0:
			return nil, problemf(codeDuplicateField, "line 1: the column %s is given twice", name)
		}
		*column = i
	}
	for _, name := range []string{"id", "name"} {
		if *columns[name] < 0 {
			return nil, problemf(codeMissingOrType, "line 1: the column %s is required", name)
		}
	}
	return header, nil
}

// plant returns the plant in record.
func (h *csvHeader) plant(record []string) (models.Plant, error) {
	for _, cell := range record {
		if !utf8.ValidString(cell) {
			return models.Plant{}, problemf(codeMalformed, "row is not valid UTF-8")
		}
	}
	// The record is used again for the next row.
	p := models.Plant{Name: strings.Clone(fromCell(record[h.name]))}
	var ok bool
	if p.ID, ok = parseInt64(record[h.id]); !ok {
		return p, problemf(codeNotInt64, "id must be an integer literal from -9223372036854775808 to 9223372036854775807, "+
			"without a plus sign, zeros or blanks before it")
	}
	if h.tag >= 0 && record[h.tag] != "" {
		p.Tag = new(strings.Clone(fromCell(record[h.tag])))
	}
	return p, nil
}

// recordAllowance is how much of the body may be read for one row: the csv.Reader
// reads ahead by up to its buffer.
const recordAllowance = maxLine + 4096

var errRecordTooLong = errors.New("row is too long")

// recordReader reads records that are not too long. A quote that is never closed
// would make a row of all that follows.
type recordReader struct {
	*csv.Reader
	limit *recordLimit
}

func newRecordReader(r io.Reader) *recordReader {
	limit := &recordLimit{r: r}
	records := &recordReader{csv.NewReader(limit), limit}
	records.ReuseRecord = true
	return records
}

// next returns the next record, which is overwritten by the one behind it. It fails
// with errRecordTooLong, be what it has read of the row well-formed or not.
func (r *recordReader) next() ([]string, error) {
	r.limit.left = recordAllowance
	record, err := r.Read()
	if r.limit.exceeded {
		return nil, errRecordTooLong
	}
	return record, err
}

// recordLimit ends the reading of r when more than left bytes are taken for one
// row.
type recordLimit struct {
	r        io.Reader
	left     int
	exceeded bool
}

func (l *recordLimit) Read(p []byte) (int, error) {
	if l.left <= 0 {
		l.exceeded = true
		return 0, errRecordTooLong
	}
	n, err := l.r.Read(p[:min(len(p), l.left)])
	l.left -= n
	if err != nil && !errors.Is(err, io.EOF) {
		err = fmt.Errorf("read the body: %w", err)
	}
	return n, err
}
