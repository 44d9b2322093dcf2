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

	"plantstore/database/limit"
	"plantstore/models"
)

// plantRows are the plants of an import.
type plantRows = iter.Seq2[models.ImportRow[models.Plant], error]

// The bodies of requests for plants, under the names that they have in the OpenAPI document.
type (
	NewPlant         = newRow[int64, PlantContent]
	ImportedPlant    = importedRow[int64, PlantContent]
	PlantReplacement = replacement[int64, PlantContent]
	PlantPatch       = PlantContent
)

var plantHandlers = NewPlants(nil)

func plantOf(in *ImportedPlant) models.Plant {
	return *plantHandlers.row(new(models.Plant), *in.ID, &in.Content)
}

func toNewPlant(plant *models.Plant) NewPlant {
	out := NewPlant{ID: &plant.ID}
	copyFields(&out.Content, plant, plantHandlers.fields)
	return out
}

func readPlantsNDJSON(body io.Reader) plantRows {
	return readRows(new(limit.Turn), ndjsonReader{newLineReader(body), "plant"}, models.Insert, rowOf(plantOf))
}

// rowOf returns toRow for readRows.
func rowOf[D, T any](toRow func(*D) T) func(*D, *models.ImportRow[T]) {
	return func(in *D, row *models.ImportRow[T]) { row.Row = toRow(in) }
}

func readPlantsCSV(body io.Reader) plantRows { return readCSV(body, plantOf) }

func readCSV[D, T any](body io.Reader, toRow func(*D) T) iter.Seq2[models.ImportRow[T], error] {
	return readRows(new(limit.Turn), newCSVReader(newLineReader(body), jsonFields(reflect.TypeFor[D]()), nil), models.Insert, rowOf(toRow))
}

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
		{"only blank lines", readPlantsNDJSON, "\n \r\n\t\n", ""},
		{"no final newline", readPlantsNDJSON, `{"id":1,"name":"a"}`, `1: 1 "a"`},
		{"CRLF, blank lines and spaces", readPlantsNDJSON, "\r\n {\"id\":1,\"name\":\"a\"} \r\n\r\n{\"id\" : 2,\"name\":\"b\"}\r\n", `2: 1 "a"|4: 2 "b"`},
		{"the edges of int64", readPlantsNDJSON, `{"id":9223372036854775807,"name":"a"}` + "\n" + `{"id":-9223372036854775808,"name":"b"}`, `1: 9223372036854775807 "a"|2: -9223372036854775808 "b"`},
		{"a bad row", readPlantsNDJSON, "{\"id\":1,\"name\":\"plant 1\"}\n{\"id\":2,\"name\":\"plant 2\"}\n" + `{"id":3.0,"name":"x"}` + "\n" + "{\"id\":4,\"name\":\"plant 4\"}\n{\"id\":5,\"name\":\"plant 5\"}\n", `1: 1 "plant 1"|2: 2 "plant 2"|3: 40005|4: 4 "plant 4"|5: 5 "plant 5"`},
		{"blank lines are counted as lines", readPlantsNDJSON, "\n\n" + "{\"id\":1,\"name\":\"plant 1\"}\n" + "\r\n\n" + `{"id":true,"name":"x"}`, `3: 1 "plant 1"|6: 40004`},
		{"minus zero", readPlantsNDJSON, `{"id":-0,"name":"x"}`, `1: 40005`},
		{"a byte order mark", readPlantsNDJSON, "\ufeff" + "{\"id\":1,\"name\":\"plant 1\"}\n", `1: 1 "plant 1"`},
		{"only a byte order mark", readPlantsNDJSON, "\ufeff", ""},
		{"a byte order mark in the second line", readPlantsNDJSON, "{\"id\":1,\"name\":\"plant 1\"}\n" + "\ufeff" + "{\"id\":2,\"name\":\"plant 2\"}\n", `1: 1 "plant 1"|2: 40001`},
		{"two byte order marks", readPlantsNDJSON, "\ufeff\ufeff" + "{\"id\":1,\"name\":\"plant 1\"}\n", `1: 40001`},
		{"CSV", readPlantsNDJSON, "\ufeffid,name,tag\r\n1,a,b\r\n", `1: 40001|2: 40001`},
		{"text that is no header", readPlantsNDJSON, "ids\n" + "{\"id\":1,\"name\":\"plant 1\"}\n", `1: 40001|2: 1 "plant 1"`},
		{"a text in JSON", readPlantsNDJSON, "\"identity\"\n", `1: 40001`},
		{"an array of plants", readPlantsNDJSON, `[{"id":1,"name":"x"}]`, `1: 40001`},
		{"only a header without a newline", readPlantsCSV, "id,name", ""},
		{"a byte order mark and CRLF", readPlantsCSV, "\ufeffid,name,tag\r\n1,a,t\r\n2,b,'\r\n", `2: 1 "a" "t"|3: 2 "b" ""`},
		{"a quoted header behind a byte order mark", readPlantsCSV, "\ufeff\"id\",\"name\"\n\"1\",\"a\"\n", `2: 1 "a"`},
		{"another column order, no final newline", readPlantsCSV, "tag,name,id\nt,a,1", `2: 1 "a" "t"`},
		{"no column for tags", readPlantsCSV, "name,id\na,1\n", `2: 1 "a"`},
		{"quoted cells", readPlantsCSV, "id,name,tag\n\"1\",\"a \"\"b\"\", c\",\"\"\n", `2: 1 "a \"b\", c"`},
		{"spaces are kept", readPlantsCSV, "id,name,tag\n1, a , \n", `2: 1 " a " " "`},
		{"formulas, with and without a ' before them", readPlantsCSV, "id,name,tag\n1,'=a,'-b\n2,=a,-b\n3,''=a,'@\n4,'a,''\n", `2: 1 "=a" "-b"|3: 2 "=a" "-b"|4: 3 "'=a" "@"|5: 4 "'a" "'"`},
		{"formulas within cells", readPlantsCSV, "id,name,tag\n1,a;'=b,'＝c\n2,a;=b,a;''+b\n", `2: 1 "a;=b" "＝c"|3: 2 "a;=b" "a;'+b"`},
		{"bad ids", readPlantsCSV, "id,name\n+1,a\n01,a\n 1,a\n1.0,a\n,a\nabc,a\n9223372036854775808,a\n-0,a\n1_0,a\n'1,a\n", `2: 40005|3: 40005|4: 40005|5: 40005|6: 40004|7: 40005|8: 40005|9: 40005|10: 40005|11: 40005`},
		{"blank lines between rows", readPlantsCSV, "\n\nid,name\n\n1,a\n\r\n\n2,\n", `5: 1 "a"|8: 40004`},
		{"too few and too many cells", readPlantsCSV, "id,name,tag\n1,a\n2,a,b,c\n3\n \n5,a,b\n", `2: 40001|3: 40001|4: 40001|5: 40001|6: 5 "a" "b"`},
		{"quotes out of place", readPlantsCSV, "id,name,tag\n1,a\"b,\n2,\"a\"b,\n3,a,b\n", `2: 40001|3: 40001|4: 3 "a" "b"`},
		{"too few cells", readPlantsCSV, "id,name,tag\n1,a\n", `2: 40001`},
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

// TestReadRowsToAFault reads bodies with a fault that ends the import.
func TestReadRowsToAFault(t *testing.T) {
	for _, test := range []struct {
		name     string
		read     func(io.Reader) plantRows
		body     string
		want     string // the rows before it, with | between them
		code     int32
		mentions string
	}{
		{"an empty body", readPlantsCSV, "", "", 40001, "empty"},
		{"only a byte order mark", readPlantsCSV, "\ufeff", "", 40001, "empty"},
		{"a file cut off within quotes", readPlantsCSV, "id,name\n1,\"a\"\n2,\"b", `2: 1 "a"`, 40001, "line 3: a quote is out of place or not closed"},
		{"another case", readPlantsCSV, "ID,name\n1,a\n", "", 40002, "ID"},
		{"a blank before a column", readPlantsCSV, "id, name\n1,a\n", "", 40002, `" name"`},
		{"a header in UTF-16", readPlantsCSV, "\xff\xfei\x00d\x00,\x00", "", 40001, "the body is UTF-16: save the file as UTF-8"},
		{"a compressed file", readPlantsCSV, "\x1f\x8b\x08;\"", "", 40001, "the body is compressed: send Content-Encoding: gzip"},
		{"a column twice", readPlantsCSV, "id,name,id\n1,a,1\n", "", 40003, "id"},
		{"no column for names", readPlantsCSV, "id,tag\n1,a\n", "", 40004, "name"},
		{"no column for ids", readPlantsCSV, "name\na\n", "", 40004, "id"},
		{"bad UTF-8", readPlantsCSV, "id,name,tag\n1,a,\n2,a,b\xed\xa0\x80\n3,a\xff,\n", `2: 1 "a"`, 40001, "line 3 is not UTF-8: save the file as UTF-8"},
		{"bad UTF-8 in JSON", readPlantsNDJSON, "{\"id\":1,\"name\":\"\xff\"}\n", "", 40001, "line 1 is not UTF-8: save the file as UTF-8"},
		{"a malformed header", readPlantsCSV, "id,na\"me\n", "", 40001, "line 1"},
		{"an unclosed quote before a large rest", readPlantsCSV, "id,name\n1,\"a\n" + strings.Repeat("2,b\n", 50_000), "", 41301, "the row that begins in line 2 is larger than 73728 bytes: is a quote not closed?"},
		{"a long header", readPlantsCSV, strings.Repeat("x", 200_000) + "\n", "", 41301, "line 1"},
	} {
		t.Run(test.name, func(t *testing.T) {
			read, err := readAll(test.read(strings.NewReader(test.body)))
			if got := strings.Join(read, "|"); err == nil || got != test.want {
				t.Fatalf("got %s, %v, want %s and an error", got, err, test.want)
			}
			if end := describe(nil, err); end.Code != test.code || !strings.Contains(end.Message, test.mentions) {
				t.Errorf("got %d %s, want %d with %s", end.Code, end.Message, test.code, test.mentions)
			}
		})
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

// writeAll returns the rows of an export in CSV.
func writeAll[T, D any](t *testing.T, rows []models.ImportRow[T], convert func(*T) D) []byte {
	t.Helper()
	var body bytes.Buffer
	w := newCSVWriter(bufio.NewWriter(&body), jsonFields(reflect.TypeFor[D]()))
	for i := range rows {
		row := convert(&rows[i].Row)
		if err := w.write(&row); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.flush(); err != nil {
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
