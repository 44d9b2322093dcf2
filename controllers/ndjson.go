package controllers

import (
	"bytes"
	"strings"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/models"
)

// ndjsonReader reads a row from each line, as bindJSON does, or bindPatch for a row that merges. It skips empty lines.
type ndjsonReader struct {
	lines *lineReader
	name  string // the member of a line of the feed that has the row; or empty
}

func (r ndjsonReader) next(in any, edit *models.Edit) (line int, err error) {
	for {
		text, err := r.lines.next()
		if err != nil {
			return 0, err
		}
		text = bytes.TrimRight(text, "\r\n")
		switch trimmed := bytes.Trim(text, spaces); {
		case len(trimmed) == 0:
		case string(trimmed) == "{":
			return r.lines.number, problemf(codeMalformed, "the object must be on one line: `jq -c .` writes it so")
		case trimmed[0] == '[':
			return r.lines.number, problemf(codeMalformed, "the line begins an array: send one object per line, as `jq -c '.[]'` writes it")
		default:
			return r.lines.number, r.decode(text, in, edit)
		}
	}
}

// decode reads a line into the struct to which in points: a row, or a line of the feed of changes,
// {"id":7,"plant":{…}}.
func (r ndjsonReader) decode(text []byte, in any, edit *models.Edit) error {
	var change, row map[string]jsontext.Value
	switch {
	case r.name != "" && bytes.Contains(text, []byte(`"`+r.name+`"`)) && json.Unmarshal(text, &change) == nil && change[r.name] != nil:
		edit.Kind = models.Put
		if change[r.name].Kind() == jsontext.KindNull {
			edit.Kind, row = models.Delete, change
		} else if json.Unmarshal(change[r.name], &row) != nil || string(row["id"]) != string(change["id"]) {
			return problemf(codeInvalidValue, "%s must be null, or an object with the same id as the line", r.name)
		}
		delete(change, r.name)
		for name, value := range change {
			if row[name] = value; name != "id" && name != "etag" {
				return problemf(codeUnknownField, "unknown field %s beside %s; names are case-sensitive", quoteName(name), r.name)
			}
		}
		text, _ = json.Marshal(row) // which was JSON
	case edit.Kind == models.Merge:
		columns, err := decodePatch("line", text, in)
		edit.Columns = strings.Join(columns, ",")
		return err
	}
	return decodeJSON("line", text, in, false)
}
