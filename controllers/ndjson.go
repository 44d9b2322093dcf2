package controllers

import (
	"bufio"
	"bytes"

	"github.com/go-json-experiment/json"
)

// ndjsonReader reads a row from each line, as bindJSON does. It skips empty lines.
type ndjsonReader struct{ lines *lineReader }

func (r ndjsonReader) next(in any) (line int, rejected, end error) {
	for {
		text, err := r.lines.next()
		if err != nil {
			return 0, nil, err
		}
		if text = bytes.TrimRight(text, "\r\n"); len(bytes.Trim(text, spaces)) > 0 {
			return r.lines.number, decodeJSON("line", text, in, false), nil
		}
	}
}

// ndjsonWriter writes a line for each row.
type ndjsonWriter struct{ *bufio.Writer }

func (w ndjsonWriter) write(row any) error {
	if err := json.MarshalWrite(w.Writer, row); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

func (w ndjsonWriter) flush() error { return w.Flush() }
