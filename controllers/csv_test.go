package controllers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"reflect"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/quick"

	"plantstore/models"
)

// formula matches a part of a cell that a spreadsheet could run.
var formula = regexp.MustCompile(`^[=+\-@＝＋－＠]|[;\t\r\n]"*[=+\-@＝＋－＠]`)

// TestMalformedCSV: the message about a row says where it is, and what to do. A row that the rest
// of the body may be in, or that may be cut off, ends the import.
func TestMalformedCSV(t *testing.T) {
	const (
		advice = `write "5"" pot" for a cell with 5" pot`
		place  = "a quote is out of place or not closed: " + advice
		lines  = "a quote in the lines %d to %d is out of place or not closed: " + advice
	)
	rows := "1,\"a,b" + strings.Repeat("\n2,c,d", 101)
	for body, want := range map[string][2]string{ // of the first row, or of the body
		"1,a\n":                              {"the row has 2 cells, and the header has 3: put quotes around a text that has the separator"},
		"1,a\"b,\n":                          {place},
		"1,\"a\"b,\n2,c,d\n":                 {place},
		"1,\"a\"b,\n":                        {1: "line 2: " + place},
		"1,\"a":                              {1: "line 2: " + place},
		"1,\"a\r\n":                          {1: "line 2: " + place},
		"1,\"a,b\n2,c,d\n3,\"e,f\n4,g,h\n":   {fmt.Sprintf(lines, 2, 4)},
		"1,\"a\nb\",\"c\n2,b,\"x\"\n3,a,b\n": {fmt.Sprintf(lines, 2, 4)},
		"1,\"a\nb\",c\"d\n":                  {fmt.Sprintf(lines, 2, 3)},
		rows:                                 {1: "line 2: " + fmt.Sprintf(lines, 2, 103)},
		rows + "\n":                          {1: "line 2: " + fmt.Sprintf(lines, 2, 103)},
		"1,\"a,b\n2,c,d\n3,\"e,f\n":          {1: "line 2: " + fmt.Sprintf(lines, 2, 4)},
	} {
		t.Run(body[:min(len(body), 50)], func(t *testing.T) {
			for row, err := range readPlantsCSV(strings.NewReader("id,name,tag\n" + body)) {
				if got := [2]string{fmt.Sprint(row.Err), fmt.Sprint(err)}; got != [2]string{cmp.Or(want[0], "<nil>"), cmp.Or(want[1], "<nil>")} {
					t.Errorf("got %q, want %q", got, want)
				}
				break
			}
		})
	}
}

// TestCells: every text has a cell of its own that is read as the same text, and is
// neither empty nor has a formula.
func TestCells(t *testing.T) {
	valid := func(text string) bool {
		cell := toCell(text)
		return fromCell(cell) == text && cell != "" && !formula.MatchString(cell)
	}
	// All texts of up to five of the special and other characters.
	texts := []string{""}
	for start := 0; len(texts) < 20_000; {
		end := len(texts)
		for _, text := range texts[start:end] {
			for _, c := range []string{"'", "=", "＠", ";", "\t", `"`, "x"} {
				texts = append(texts, text+c)
			}
		}
		start = end
	}
	for _, text := range texts {
		if !valid(text) {
			t.Errorf("%q: got the cell %q, which is read as %q", text, toCell(text), fromCell(toCell(text)))
		}
	}
	if err := quick.Check(valid, nil); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"a;=b": "a;'=b", "a;'=b;+": "a;''=b;'+", ";-1": ";'-1", "a\t@b": "a\t'@b", "a\n=b": "a\n'=b", "=1;=2": "'=1;'=2", `a;"=b`: `a;'"=b`, "a;＋1": "a;'＋1",
		"';=": "';'=",
	} {
		if got := toCell(text); got != want {
			t.Errorf("%q: got the cell %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"", "=1+1", "+1", "-1", "@x", "'", "'=", "''", "＝1", "＋1", "－1", "＠x", "'＝"} {
		if got, want := toCell(text), "'"+text; got != want {
			t.Errorf("%q: got the cell %q, want %q", text, got, want)
		}
	}
	for _, text := range []string{"x", "'x", " =", "é", "''x'", "a=b", "1-1", "a;b", "a; =b", "a;'b", ";", "a;;", `"=a`, "a＝b", "a,=b", "−1"} {
		if got := toCell(text); got != text {
			t.Errorf("%q: got the cell %q, want the text", text, got)
		}
	}
}

// TestCellOfManyParts: the time that a cell takes is proportional to its length.
func TestCellOfManyParts(t *testing.T) {
	cell := strings.Repeat(";'=", 10_000)
	if n := testing.AllocsPerRun(1, func() { fromCell(cell) }); n > 100 {
		t.Errorf("got %.0f allocations, want them to be independent of the parts", n)
	}
	if got, want := fromCell(cell), strings.Repeat(";=", 10_000); got != want {
		t.Errorf("got %.20q, want %.20q", got, want)
	}
}

// potRow is a resource with other fields than a plant. It is its own model.
type potRow struct {
	Code *string `json:"code" binding:"required"`
	potContent
}

type potContent struct {
	Width *int64  `json:"width_mm" binding:"required"`
	Label *string `json:"label,omitzero"`
	Depth *int64  `json:"depth_mm,omitzero"`
}

func samePot(p *potRow) potRow { return *p }

func TestCSVOfAnotherResource(t *testing.T) {
	pot := func(code string, width int64, label *string, depth *int64) potRow {
		return potRow{&code, potContent{&width, label, depth}}
	}
	for _, test := range []struct {
		name, body string
		want       []potRow
		err        string // of the body, or of the only row
	}{
		{
			name: "all columns in their order", body: "code,width_mm,label,depth_mm\na,1,x,2\n",
			want: []potRow{pot("a", 1, new("x"), new(int64(2)))},
		},
		{
			name: "in another order, without the optional ones", body: "width_mm,code\n-1,a\n2,'=b\n",
			want: []potRow{pot("a", -1, nil, nil), pot("=b", 2, nil, nil)},
		},
		{
			name: "an empty cell is nil, and a ' an empty text", body: "code,width_mm,label,depth_mm\n',0,,\nb,0,',0\n",
			want: []potRow{pot("", 0, nil, nil), pot("b", 0, new(""), new(int64(0)))},
		},
		{name: "a required column is missing", body: "code,label\na,b\n", err: "line 1: the column width_mm is required"},
		{name: "semicolons", body: "code;width_mm;label\na;1;b,\"c;d\"\n", err: "a quote is out of place or not closed: write \"5\"\" pot\" for a cell with 5\" pot"},
		{name: "semicolons in quotes", body: "code;width_mm;label\na;1;\"b,c;d\"\n", want: []potRow{pot("a", 1, new("b,c;d"), nil)}},
		{name: "semicolons and a byte order mark", body: "\ufeff\"code\";\"width_mm\"\r\na;1\r\n", want: []potRow{pot("a", 1, nil, nil)}},
		{name: "the separator that Excel announces", body: "\nsep=;\ncode;width_mm\na;1\n", err: "line 2: remove this line: the header tells the separator"},
		{name: "tabs", body: "code\twidth_mm\tlabel\na\t1\tb;c\n", want: []potRow{pot("a", 1, new("b;c"), nil)}},
		{name: "an unknown column with a semicolon", body: "code,width_mm;depth\na,1\n", err: "line 1: unknown column width_mm;depth; valid columns: code,width_mm,label,depth_mm; ignore_columns names others that are not read"},
		{name: "an unknown column", body: "code,width_mm,depth\na,1,2\n", err: "line 1: unknown column depth; valid columns: code,width_mm,label,depth_mm; ignore_columns names others that are not read"},
		{name: "a duplicate column", body: "code,width_mm,code\na,1,a\n", err: "line 1: duplicate column code"},
		{name: "no header", body: "", err: "the body is empty: send CSV with the header code,width_mm,label,depth_mm"},
		{
			name: "an optional number that is malformed", body: "code,width_mm,depth_mm\na,1,x\n",
			err: "depth_mm must be an integer literal from -9223372036854775808 to 9223372036854775807, without a plus sign, leading zeros or spaces",
		},
		{name: "an empty required number", body: "code,width_mm\na,\n", err: "width_mm is required"},
		{name: "an empty required text", body: "code,width_mm\n,1\n", err: "code is required"},
	} {
		t.Run(test.name, func(t *testing.T) {
			var rows []models.ImportRow[potRow]
			var got []potRow
			var message string
			for row, err := range readCSV(strings.NewReader(test.body), samePot) {
				if err = errors.Join(err, row.Err); err != nil {
					message = err.Error()
					continue
				}
				rows, got = append(rows, row), append(got, row.Row)
			}
			if !reflect.DeepEqual(got, test.want) || message != test.err {
				t.Errorf("got %+v, %q, want %+v, %q", got, message, test.want, test.err)
			}
			if test.err != "" {
				return
			}
			exported := writeAll(t, rows, func(p *potRow) potRow { return *p })
			if header, _, _ := strings.Cut(string(exported), "\n"); header != "code,width_mm,label,depth_mm" {
				t.Errorf("got the header %s", header)
			}
			i := 0
			for row, err := range readCSV(bytes.NewReader(exported), samePot) {
				if err != nil || row.Err != nil || !reflect.DeepEqual(row.Row, test.want[i]) {
					t.Errorf("from the export: got %+v, %v, want %+v", row, err, test.want[i])
				}
				i++
			}
			if i != len(test.want) {
				t.Errorf("from the export: got %d rows, want %d", i, len(test.want))
			}
		})
	}
}

// TestBooleansOfCSV: a boolean has two spellings, as in JSON.
func TestBooleansOfCSV(t *testing.T) {
	type row struct {
		Clay *bool `json:"clay"`
	}
	for cell, valid := range map[string]bool{"true": true, "false": true, " true": false, "false ": false, "TRUE": false, "1": false, "null": false} {
		t.Run(cell, func(t *testing.T) {
			for row, err := range readCSV(strings.NewReader("clay\n"+cell+"\n"), func(r *row) row { return *r }) {
				switch err = errors.Join(err, row.Err); {
				case valid && (err != nil || strconv.FormatBool(*row.Row.Clay) != cell):
					t.Errorf("got %+v, %v", row.Row, err)
				case !valid && (err == nil || err.Error() != "clay must be true or false"):
					t.Errorf("got %v, want that it must be true or false", err)
				}
			}
		})
	}
}

// TestLongLineOfCSV: the error of a line that is too long names that line.
func TestLongLineOfCSV(t *testing.T) {
	long := strings.Repeat("x", MaxLine+10)
	for name, test := range map[string]struct{ body, want string }{
		"after blank lines":        {"id,name\n1,a\n\n\n\n2," + long + "\n", "line 6 is"},
		"within a cell":            {"id,name\n1,a\n2,\"a\nb\n" + long + "\"\n", "line 5 is"},
		"header after blank lines": {"\n\n" + long + "\n", "line 3 is"},
	} {
		t.Run(name, func(t *testing.T) {
			var last error
			for _, err := range readPlantsCSV(strings.NewReader(test.body)) {
				last = err
			}
			if last == nil || !strings.HasPrefix(last.Error(), test.want) {
				t.Errorf("got %v, want %s", last, test.want)
			}
		})
	}
}

func FuzzReadCSV(f *testing.F) {
	for _, seed := range []string{
		"", "\n", "id,name,tag\n1,a,\n2,\"b\n\"\"\",'=c\r\n", "\ufeffname,id\na,1", "id,name\n1,\"a\n2,b\n", "id,name,id\n", "id,name\n01,\xff\n,\n", "id\n1\n",
		"id,name,created_at\n1,a,2026-01-01T00:00:00Z\n2,b,\n3,c,x\n",
		"id,name,tag\n1,a;'=b,\"c;\"\"＝\"\n2,';=,a;''+b\n",
		"tag,id,name\n'',-9223372036854775808,\"x\ny\"\n\n\n,0,'\n", "id,name\n1,a\"\n1,a,b\n\"\"\"\n",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		plants, whole := checkRows(t, body, readPlantsCSV(bytes.NewReader(body)))
		if !whole {
			return
		}
		// Exported, they are read as the same plants.
		exported := writeAll(t, plants, toNewPlant)
		again, whole := checkRows(t, exported, readPlantsCSV(bytes.NewReader(exported)))
		if !whole || len(again) != len(plants) {
			t.Fatalf("%q: got %d plants from the export, want %d", body, len(again), len(plants))
		}
		for i, row := range again {
			if !reflect.DeepEqual(row.Row, plants[i].Row) {
				t.Fatalf("%q: got %+v from the export, want %+v", body, row.Row, plants[i].Row)
			}
		}
	})
}
