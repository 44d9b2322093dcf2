package controllers

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"iter"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/quick"

	"plantstore/models"
)

// readAll returns what a reader yields: its rows, a line each, and the error that
// ends it.
func readAll(rows iter.Seq2[models.ImportRow, error]) (read []string, end error) {
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
		case row.Plant.Tag != nil:
			text += fmt.Sprintf("%d %q %q", row.Plant.ID, row.Plant.Name, *row.Plant.Tag)
		default:
			text += fmt.Sprintf("%d %q", row.Plant.ID, row.Plant.Name)
		}
		read = append(read, text)
	}
	return read, nil
}

// TestReadRows reads bodies whole, byte by byte, and with an error at their end.
func TestReadRows(t *testing.T) {
	for _, test := range []struct {
		what, body string
		read       func(io.Reader) iter.Seq2[models.ImportRow, error]
		want       string // the rows, with | between them
	}{
		{"lines", "{\"id\":1,\"name\":\"a\"}\n\n \r\n{\"id\":2,\"name\":\"b\",\"tag\":\"\"}\r\n{}\n{\"id\":3,\"name\":\"c\"}", readNDJSON, `1: 1 "a"|4: 2 "b" ""|5: 40004|6: 3 "c"`},
		{"cells", "id,name,tag\n1,a,\n\n2,\"b \"\"c\"\"\",'\r\n", readCSV, `2: 1 "a"|4: 2 "b \"c\"" ""`},
		{"cells of more than one line", "id,name,tag\n\"1\",\"a\nb\",\"c\n\nd\"\n2,b,\"\n\"\n3,c,d\n", readCSV, `2: 1 "a\nb" "c\n\nd"|6: 2 "b" "\n"|8: 3 "c" "d"`},
		{"a row of more than one line that is malformed", "id,name\n1,\"a\n\nb\"c\n2,b\n", readCSV, `2: 40001|5: 2 "b"`},
		{"a row of more than one line that has too many cells", "id,name\n1,\"a\n\nb\",c\n2,b\n", readCSV, `2: 40001|5: 2 "b"`},
		{"an id in more than one line", "id,name\n\"1\n\",a\n2,b\n", readCSV, `2: 40005|4: 2 "b"`},
		{"blank lines before the header", "\n\r\nname,id\na,1\n", readCSV, `4: 1 "a"`},
	} {
		whole, err := readAll(test.read(strings.NewReader(test.body)))
		if got := strings.Join(whole, "|"); err != nil || got != test.want {
			t.Errorf("%s: got %s, %v, want %s", test.what, got, err, test.want)
		}
		bytewise, err := readAll(test.read(iotest.OneByteReader(strings.NewReader(test.body))))
		if got := strings.Join(bytewise, "|"); err != nil || got != test.want {
			t.Errorf("%s, byte by byte: got %s, %v, want %s", test.what, got, err, test.want)
		}
		for cause, code := range map[error]int32{io.ErrUnexpectedEOF: codeMalformed, errors.New("reset"): codeMalformed, &http.MaxBytesError{Limit: 7}: codeBodyTooLarge} {
			_, err := readAll(test.read(io.MultiReader(strings.NewReader(test.body), iotest.ErrReader(cause))))
			if got := describe(nil, err).Code; err == nil || got != code {
				t.Errorf("%s, and then %v: %v", test.what, cause, err)
			}
		}
		// A reader whose rows are not wanted any more stops.
		for row, err := range test.read(strings.NewReader(test.body)) {
			if err != nil || row.Line == 0 {
				t.Errorf("%s: %+v, %v", test.what, row, err)
			}
			break
		}
	}
}

// TestRowsOfEachLength reads rows of about the longest length, behind rows of
// each length modulo a buffer's.
func TestRowsOfEachLength(t *testing.T) {
	for _, before := range []int{0, 1, 1000, 4080, 4096, 5000, 60_000} {
		name := strings.Repeat("n", before+1)
		for _, length := range []int{100, 4096, maxLine - 5000, maxLine - 50} {
			long := strings.Repeat("x", length)
			body := fmt.Sprintf("id,name\n1,%s\n2,%s\n3,c\n", name, long)
			if rows, err := readAll(readCSV(strings.NewReader(body))); err != nil || len(rows) != 3 || rows[1] != fmt.Sprintf(`3: 2 "%s"`, long) || rows[2] != `4: 3 "c"` {
				t.Errorf("CSV of %d after %d: %d rows, %v", length, before, len(rows), err)
			}
			body = fmt.Sprintf(`{"id":1,"name":"%s"}`+"\n"+`{"id":2,"name":"%s"}`+"\n"+`{"id":3,"name":"c"}`, name, long)
			if rows, err := readAll(readNDJSON(strings.NewReader(body))); err != nil || len(rows) != 3 || rows[1] != fmt.Sprintf(`2: 2 "%s"`, long) || rows[2] != `3: 3 "c"` {
				t.Errorf("NDJSON of %d after %d: %d rows, %v", length, before, len(rows), err)
			}
		}
		// What is too long ends it all: its end is no row.
		for _, long := range []string{strings.Repeat("x", 2*maxLine), `"` + strings.Repeat("x", 2*maxLine), `x"` + strings.Repeat("x", 2*maxLine), strings.Repeat("x,", maxLine), strings.Repeat(`"`, 2*maxLine+1)} {
			rows, err := readAll(readCSV(strings.NewReader(fmt.Sprintf("id,name\n1,\"%s\n\"\n2,%s\n3,c\n4,d\n", name, long))))
			p, ok := errors.AsType[*problem](err)
			if !ok || p.Code != codeBodyTooLarge || len(rows) != 1 || !strings.HasPrefix(p.Message, "line 4 is larger") {
				t.Errorf("CSV of %d after %d: %d rows, %v", len(long), before, len(rows), err)
			}
		}
		rows, err := readAll(readNDJSON(strings.NewReader(fmt.Sprintf("{\"id\":1,\"name\":\"%s\"}\n%s\n", name, strings.Repeat("x", maxLine+1)))))
		if p, ok := errors.AsType[*problem](err); !ok || p.Code != codeBodyTooLarge || len(rows) != 1 || !strings.HasPrefix(p.Message, "line 2 is larger") {
			t.Errorf("NDJSON: %d rows, %v", len(rows), err)
		}
	}
}

// TestCells: every text has a cell of its own, from which it comes back, and
// which is neither empty nor a formula.
func TestCells(t *testing.T) {
	holds := func(text string) bool {
		cell := toCell(text)
		return fromCell(cell) == text && cell != "" && !strings.ContainsAny(cell[:1], "=+-@")
	}
	// All texts of up to five of the characters that matter.
	texts := []string{""}
	for start := 0; len(texts) < 20_000; {
		end := len(texts)
		for _, text := range texts[start:end] {
			for _, c := range []string{"'", "=", "+", "-", "@", "x", "é"} {
				texts = append(texts, text+c)
			}
		}
		start = end
	}
	for _, text := range texts {
		if !holds(text) {
			t.Errorf("%q has the cell %q, which is read as %q", text, toCell(text), fromCell(toCell(text)))
		}
	}
	if err := quick.Check(holds, nil); err != nil {
		t.Error(err)
	}
	for _, text := range []string{"", "=1+1", "+1", "-1", "@x", "'", "'=", "''"} {
		if got := toCell(text); got != "'"+text {
			t.Errorf("the cell of %q is %q", text, got)
		}
	}
	for _, text := range []string{"x", "'x", " =", "é", "''x'", "a=b", "1-1"} {
		if got := toCell(text); got != text {
			t.Errorf("the cell of %q is %q", text, got)
		}
	}
}

// checkRows checks that each row has a good reason or a plant that may be, that
// lines go up, and that they are lines of body.
func checkRows(t *testing.T, body []byte, rows iter.Seq2[models.ImportRow, error]) (plants []models.ImportRow, whole bool) {
	t.Helper()
	last, lines := 0, bytes.Count(body, []byte("\n"))+1
	for row, err := range rows {
		if err != nil {
			p, ok := errors.AsType[*problem](err)
			if !ok || len(p.Message) > 500 {
				t.Fatalf("%q: %v is not the client's fault", body, err)
			}
			return plants, false
		}
		if row.Line <= last || row.Line > lines {
			t.Fatalf("%q: line %d comes after %d, of %d", body, row.Line, last, lines)
		}
		last = row.Line
		if row.Err != nil {
			p, ok := errors.AsType[*problem](row.Err)
			if !ok || p.Code < codeMalformed || p.Code > codeNotInt64 || len(p.Message) > 500 {
				t.Fatalf("%q: line %d: %v is not the client's fault", body, row.Line, row.Err)
			}
			continue
		}
		// The store looks at texts again. What it cannot see is bad UTF-8 that
		// was taken for something else on the way.
		if strings.Contains(row.Plant.Name, "\ufffd") && !bytes.Contains(body, []byte("\ufffd")) && !bytes.Contains(bytes.ToLower(body), []byte(`\ufffd`)) {
			t.Fatalf("%q: line %d has the name %q", body, row.Line, row.Plant.Name)
		}
		plants = append(plants, row)
	}
	return plants, true
}

func FuzzReadNDJSON(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "{\"id\":1,\"name\":\"a\"}\n{\"id\":2,\"name\":\"b\",\"tag\":\"\"}\r\n\n{}", `{"id":1,"name":"\u0000"}`, "{\"id\":1,\"name\":\"\xff\"}\n[]\nnull\n", "\ufeff{}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		lines := strings.Split(string(body), "\n")
		plants, _ := checkRows(t, body, readNDJSON(bytes.NewReader(body)))
		for _, row := range plants {
			// The line alone is the same plant.
			var want NewPlant
			if err := bind([]byte(lines[row.Line-1]), &want); err != nil || *want.ID != row.Plant.ID ||
				!row.Plant.SameContent(&models.Plant{Name: *want.Name, Tag: want.Tag}) {
				t.Fatalf("%q: line %d is read as %+v, and as %+v alone: %v", body, row.Line, row.Plant, want, err)
			}
		}
	})
}

func FuzzReadCSV(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "id,name,tag\n1,a,\n2,\"b\n\"\"\",'=c\r\n", "\ufeffname,id\na,1", "id,name\n1,\"a\n2,b\n", "id,name,id\n", "id,name\n01,\xff\n,\n", "id\n1\n",
		"tag,id,name\n'',-9223372036854775808,\"x\ny\"\n\n\n,0,'\n", "id,name\n1,a\"\n1,a,b\n\"\"\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		plants, whole := checkRows(t, body, readCSV(bytes.NewReader(body)))
		if !whole {
			return
		}
		// Written as an export has it, it is read as the same plants.
		var again bytes.Buffer
		out := csv.NewWriter(&again)
		_ = out.Write([]string{"id", "name", "tag"})
		for _, row := range plants {
			tag := ""
			if row.Plant.Tag != nil {
				tag = toCell(*row.Plant.Tag)
			}
			_ = out.Write([]string{strconv.FormatInt(row.Plant.ID, 10), toCell(row.Plant.Name), tag})
		}
		out.Flush()
		same, whole := checkRows(t, again.Bytes(), readCSV(&again))
		if !whole || len(same) != len(plants) {
			t.Fatalf("%q has %d plants, and %d after the export", body, len(plants), len(same))
		}
		for i, row := range same {
			if row.Plant.ID != plants[i].Plant.ID || !row.Plant.SameContent(&plants[i].Plant) {
				t.Fatalf("%q: %+v came back as %+v", body, plants[i].Plant, row.Plant)
			}
		}
	})
}
