package controllers

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"

	"plantstore/models"
)

// plantRows are the plants of an import.
type plantRows = iter.Seq2[models.ImportRow[models.Plant], error]

func plantOf(in *ImportedPlant) models.Plant { return *in.toPlant(*in.ID) }

func readPlantsNDJSON(body io.Reader) plantRows { return readNDJSON(body, plantOf) }
func readPlantsCSV(body io.Reader) plantRows    { return readCSV(body, plantOf) }

// readAll returns the rows, as texts, and the error that ends them.
func readAll(rows plantRows) (read []string, end error) {
	for row, err := range rows {
		if err != nil {
			return read, err
		}
		text := fmt.Sprintf("%d: ", row.Line)
		switch p, ok := errors.AsType[*problem](row.Err); {
		case ok:
			text += strconv.Itoa(int(p.Code))
		case row.Err != nil:
			text += row.Err.Error()
		case row.Row.Tag != nil:
			text += fmt.Sprintf("%d %q %q", row.Row.ID, row.Row.Name, *row.Row.Tag)
		default:
			text += fmt.Sprintf("%d %q", row.Row.ID, row.Row.Name)
		}
		read = append(read, text)
	}
	return read, nil
}

// TestReadRows reads bodies as a whole, byte by byte, and with an error at their end.
func TestReadRows(t *testing.T) {
	for _, test := range []struct {
		name string
		read func(io.Reader) plantRows
		body string
		want string // the rows, with | between them
	}{
		{"empty lines are skipped", readPlantsNDJSON, "{\"id\":1,\"name\":\"a\"}\n\n \r\n{\"id\":2,\"name\":\"b\",\"tag\":\"\"}\r\n{}\n{\"id\":3,\"name\":\"c\"}", `1: 1 "a"|4: 2 "b" ""|5: 40004|6: 3 "c"`},
		{"cells may be quoted", readPlantsCSV, "id,name,tag\n1,a,\n\n2,\"b \"\"c\"\"\",'\r\n", `2: 1 "a"|4: 2 "b \"c\"" ""`},
		{"cells may have more than one line", readPlantsCSV, "id,name,tag\n\"1\",\"a\nb\",\"c\n\nd\"\n2,b,\"\n\"\n3,c,d\n", `2: 1 "a\nb" "c\n\nd"|6: 2 "b" "\n"|8: 3 "c" "d"`},
		{"a malformed row of more than one line", readPlantsCSV, "id,name\n1,\"a\n\nb\"c\n2,b\n", `2: 40001|5: 2 "b"`},
		{"a row of more than one line with too many cells", readPlantsCSV, "id,name\n1,\"a\n\nb\",c\n2,b\n", `2: 40001|5: 2 "b"`},
		{"a quote that is closed by that of a later line", readPlantsCSV, "id,name\n1,\"a\n2,b\n3,\"c\n4,d\n5,\"e\"\n", `2: 40001|5: 4 "d"|6: 5 "e"`},
		{"a quote out of place in the last of two lines", readPlantsCSV, "id,name,tag\n1,\"a\nb\",\"c\"d\n2,b,\n", `2: 40001|4: 2 "b"`},
		{"an id of more than one line is malformed", readPlantsCSV, "id,name\n\"1\n\",a\n2,b\n", `2: 40005|4: 2 "b"`},
		{"empty lines before the header are skipped", readPlantsCSV, "\n\r\nname,id\na,1\n", `4: 1 "a"`},
	} {
		t.Run(test.name, func(t *testing.T) {
			for reader, body := range map[string]io.Reader{
				"as a whole": strings.NewReader(test.body), "byte by byte": iotest.OneByteReader(strings.NewReader(test.body)),
			} {
				read, err := readAll(test.read(body))
				if got := strings.Join(read, "|"); err != nil || got != test.want {
					t.Errorf("%s: got %s, %v, want %s", reader, got, err, test.want)
				}
			}
			for cause, want := range map[error]int32{io.ErrUnexpectedEOF: codeMalformed, errors.New("reset"): codeMalformed, &http.MaxBytesError{Limit: 7}: codeBodyTooLarge} {
				_, err := readAll(test.read(io.MultiReader(strings.NewReader(test.body), iotest.ErrReader(cause))))
				if err == nil || describe(nil, err).Code != want {
					t.Errorf("before %v: got %v, want error %d", cause, err, want)
				}
			}
			for row, err := range test.read(strings.NewReader(test.body)) { // it must stop at the break
				if err != nil || row.Line == 0 {
					t.Errorf("the first row: got %+v, %v", row, err)
				}
				break
			}
		})
	}
}

// TestCSVAsNDJSON: the message about the header says what to do.
func TestCSVAsNDJSON(t *testing.T) {
	const want = "the line is a header of CSV: send Content-Type: text/csv"
	for line, isHeader := range map[string]bool{
		"id,name,tag\r\n": true, "\ufeffid,name\n": true, `"name";"id"`: true, "name": true, "\n\nid,name": false, "ids,name": false, `"identity"`: false,
	} {
		for row, err := range readPlantsNDJSON(strings.NewReader(line)) {
			if err != nil || row.Err == nil || (row.Err.Error() == want) != isHeader {
				t.Errorf("%q: got %v, %v", line, row.Err, err)
			}
		}
	}
}

// TestRowsOfEachLength reads rows of up to the greatest length, after rows of lengths
// around that of a buffer.
func TestRowsOfEachLength(t *testing.T) {
	for _, test := range []struct {
		format  string
		read    func(io.Reader) plantRows
		valid   string   // three plants, with %s for the names of the first two
		first   int      // line of the first plant
		invalid string   // a plant, with %s for its name, then %s and further plants
		line    int      // of the second %s
		tooLong []string // for the second %s
	}{
		{
			format: "CSV", read: readPlantsCSV,
			valid: "id,name\n1,%s\n2,%s\n3,c\n", first: 2,
			invalid: "id,name\n1,\"%s\n\"\n2,%s\n3,c\n4,d\n", line: 4,
			tooLong: []string{
				strings.Repeat("x", 2*MaxLine), `"` + strings.Repeat("x", 2*MaxLine), `x"` + strings.Repeat("x", 2*MaxLine),
				strings.Repeat("x,", MaxLine), strings.Repeat(`"`, 2*MaxLine+1),
			},
		},
		{
			format: "NDJSON", read: readPlantsNDJSON,
			valid: `{"id":1,"name":"%s"}` + "\n" + `{"id":2,"name":"%s"}` + "\n" + `{"id":3,"name":"c"}`, first: 1,
			invalid: `{"id":1,"name":"%s"}` + "\n%s\n" + `{"id":3,"name":"c"}`, line: 2,
			tooLong: []string{strings.Repeat("x", MaxLine+1)},
		},
	} {
		for _, before := range []int{0, 1, 1000, 4080, 4096, 5000, 60_000} {
			name := strings.Repeat("n", before+1)
			for _, length := range []int{100, 4096, MaxLine - 5000, MaxLine - 50} {
				t.Run(fmt.Sprintf("%s of %d bytes after %d is read", test.format, length, before), func(t *testing.T) {
					long := strings.Repeat("x", length)
					got, err := readAll(test.read(strings.NewReader(fmt.Sprintf(test.valid, name, long))))
					want := []string{fmt.Sprintf(`%d: 1 "%s"`, test.first, name), fmt.Sprintf(`%d: 2 "%s"`, test.first+1, long), fmt.Sprintf(`%d: 3 "c"`, test.first+2)}
					if err != nil || !slices.Equal(got, want) {
						t.Errorf("got %d rows, %v, want 3", len(got), err)
					}
				})
			}
			for i, long := range test.tooLong { // it ends the import: the rest of it is not a row
				t.Run(fmt.Sprintf("%s that is too long after %d is rejected %d", test.format, before, i), func(t *testing.T) {
					got, err := readAll(test.read(strings.NewReader(fmt.Sprintf(test.invalid, name, long))))
					want := fmt.Sprintf("line %d is larger", test.line)
					if p, ok := errors.AsType[*problem](err); !ok || p.Code != codeBodyTooLarge || len(got) != 1 || !strings.HasPrefix(p.Message, want) {
						t.Errorf("got %d rows, %v, want one row and %s", len(got), err, want)
					}
				})
			}
		}
	}
}

// TestLongestLine reads lines of as many bytes as are allowed, and of one more.
func TestLongestLine(t *testing.T) {
	for _, format := range []struct {
		name         string
		read         func(io.Reader) plantRows
		head         string
		start, close string // of the line
	}{
		{"NDJSON", readPlantsNDJSON, "", `{"id":1,"name":"`, `"}`},
		{"NDJSON that ends with spaces", readPlantsNDJSON, "", `{"id":1,"name":"x"`, "}" + strings.Repeat(" ", 100)},
		{"CSV", readPlantsCSV, "id,name\n", "1,", ""},
		{"quoted CSV", readPlantsCSV, "id,name\n", `1,"`, `"`},
		{"CSV of two lines", readPlantsCSV, "id,name\n", "1,\"a\n", `"`},
		{"CSV after a blank line", readPlantsCSV, "id,name\r\n\r\n", "1,", ""},
	} {
		for end, name := range map[string]string{"\n": "LF", "\r\n": "CRLF", "": "no end"} {
			for more := range 3 {
				t.Run(fmt.Sprintf("%s with %s and %d bytes too many", format.name, name, more), func(t *testing.T) {
					size := MaxLine + more - len(format.start) - len(format.close) + strings.LastIndexByte(format.start, '\n') + 1
					line := format.start + strings.Repeat("x", size) + format.close
					if strings.HasSuffix(format.close, " ") {
						line = format.start + strings.Repeat(" ", size) + format.close
					}
					for reader, body := range map[string]io.Reader{
						"as a whole":   strings.NewReader(format.head + line + end),
						"byte by byte": iotest.OneByteReader(strings.NewReader(format.head + line + end)),
						"before another": strings.NewReader(format.head + line + cmp.Or(end, "\n") +
							strings.ReplaceAll(format.start, "1", "2") + format.close + "\n"),
					} {
						got, err := readAll(format.read(body))
						p, ok := errors.AsType[*problem](err)
						if more > 0 && (!ok || p.Code != codeBodyTooLarge || len(got) > 0) || more == 0 && (err != nil || len(got) == 0) {
							t.Errorf("%s: got %d rows, %v", reader, len(got), err)
						}
					}
				})
			}
		}
	}
}

// writeAll returns the rows of an export.
func writeAll[T, D any](t *testing.T, newWriter func(*bufio.Writer) rowWriter[D], rows []models.ImportRow[T], convert func(*T) D) []byte {
	t.Helper()
	var body bytes.Buffer
	out := bufio.NewWriter(&body)
	w := newWriter(out)
	for i := range rows {
		if err := w.write(convert(&rows[i].Row)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.flush(), out.Flush()); err != nil {
		t.Fatal(err)
	}
	return body.Bytes()
}

// checkRows fails the test unless each row is a plant or a fault of the client, and has a
// greater line than the one before, of body. It returns the plants, and whether it read
// the whole body.
func checkRows(t *testing.T, body []byte, rows plantRows) (plants []models.ImportRow[models.Plant], whole bool) {
	t.Helper()
	last, lines := 0, bytes.Count(body, []byte("\n"))+1
	for row, err := range rows {
		if err != nil {
			p, ok := errors.AsType[*problem](err)
			if !ok || len(p.Message) > 500 {
				t.Fatalf("%q: %v is not a fault of the client", body, err)
			}
			return plants, false
		}
		if row.Line <= last || row.Line > lines {
			t.Fatalf("%q: got line %d after %d, of %d", body, row.Line, last, lines)
		}
		last = row.Line
		if row.Err != nil {
			if e := describe(nil, row.Err); e.Code < codeMalformed || e.Code > codeInvalidValue || len(e.Message) > 500 {
				t.Fatalf("%q: line %d: %v is not a fault of the client", body, row.Line, row.Err)
			}
			continue
		}
		// The store validates texts, but cannot see invalid UTF-8 that was replaced
		// before.
		if strings.Contains(row.Row.Name, "\ufffd") && !bytes.Contains(body, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q: line %d: got the name %q", body, row.Line, row.Row.Name)
		}
		plants = append(plants, row)
	}
	return plants, true
}

func FuzzReadNDJSON(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":\"b\",\"tag\":\"\"}\r\n\n{}", `{"id":1,"name":"\u0000"}`, "{\"id\":1,\"name\":\"\xff\"}\n[]\nnull\n", "\ufeff{}", "\ufeff{\"id\":1,\"name\":\"a\"}\n",
		`{"id":-0,"name":"a"}`, `{"id":-1,"name":"-0","created_at":"2026-01-01T00:00:00Z","updated_at":"x"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		lines := strings.Split(strings.TrimPrefix(string(body), byteOrderMark), "\n")
		plants, _ := checkRows(t, body, readPlantsNDJSON(bytes.NewReader(body)))
		for _, row := range plants {
			// The line alone is the same plant.
			var want ImportedPlant
			if err := bind([]byte(lines[row.Line-1]), &want); err != nil || !reflect.DeepEqual(row.Row, plantOf(&want)) {
				t.Fatalf("%q: line %d: got %+v, and %+v from the line alone, %v", body, row.Line, row.Row, want, err)
			}
		}
	})
}
