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
		text = bytes.TrimRight(text, "\r\n")
		switch trimmed := bytes.Trim(text, spaces); {
		case len(trimmed) == 0:
		case string(trimmed) == "{":
			return r.lines.number, problemf(codeMalformed, "the object must be on one line: `jq -c .` writes it so"), nil
		case trimmed[0] == '[':
			return r.lines.number, problemf(codeMalformed, "the line begins an array: send one object per line, as `jq -c '.[]'` writes it"), nil
		default:
			return r.lines.number, decodeJSON("line", text, in, false), nil
		}
	}
}

// ndjsonWriter writes a line for each row.
type ndjsonWriter struct{ *bufio.Writer }

func (w ndjsonWriter) write(row any) error {
	if err := json.MarshalWrite(w.Writer, row, asJSON...); err != nil {
		return err
	}
	return w.WriteByte('\n')
}

func (w ndjsonWriter) flush() error { return w.Flush() }
