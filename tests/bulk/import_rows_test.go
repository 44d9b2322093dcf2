package bulk

import (
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// importRow is a row of TestImportNDJSON and TestImportCSV.
type importRow struct {
	name, body string
	code       int    // 0 for success
	want       string // the report or, without one, a part of the message
	stored     string // the export afterwards
}

// testImport imports each body into an empty database. TestReadRows and TestReadRowsToAFault of
// controllers have all that is found when rows are read.
func testImport(t *testing.T, contentType string, tests []importRow) {
	t.Helper()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url)
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := s.ImportRows(t, "", contentType, test.body)
			r.CheckHeaders(t)
			if r.Code() != test.code || r.Status != service.StatusOf(test.code) {
				t.Errorf("got %v, want error %d", r, test.code)
			}
			switch got := r.Summary(); {
			case !strings.Contains(test.want, "rejected"):
				r.CheckError(t, test.code, test.want)
			case got != test.want:
				t.Errorf("got %v, want the report %s", r, test.want)
			case test.code != 0:
				// The message is about the first rejected row.
				_, rest, _ := strings.Cut(got, "; ")
				line, _, _ := strings.Cut(rest, " ")
				if !strings.Contains(r.Body, `"line `+line+": ") || !strings.Contains(r.Body, `; nothing was stored"`) {
					t.Errorf("got %v, want a message about line %s, and that nothing was stored", r, line)
				}
			}
			if got := s.Export(t, service.InNDJSON); got != test.stored {
				t.Errorf("stored %q, want %q", got, test.stored)
			}
			if test.stored != "" {
				emptyTable(t, url)
			}
		})
	}
}

func TestImportNDJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 256)
	testImport(t, service.InNDJSON, []importRow{
		{name: "an empty body", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "two unordered plants", body: `{"id":2,"name":"b","tag":""}` + "\n" + `{"tag":"t","id":1,"name":"a"}` + "\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
		{name: "a row of each fault", body: strings.Join([]string{
			`{"id":1,"name":"x"`, `[]`, "null", "x", `{"id":1,"name":}`, `{"id":1,"name":"x"} {"id":2,"name":"x"}`,
			`{"id":1,"name":"x","colour":1}`, `{"ID":1,"name":"x"}`, `{"id":1,"id":1,"name":"x"}`,
			`{"name":"x"}`, `{"id":1}`, `{"id":1,"name":"x","tag":null}`, `{"id":1,"name":2}`,
			`{"id":"1","name":"x"}`, `{"id":9223372036854775808,"name":"x"}`, `{"id":1,"name":""}`, `{"id":1,"name":"` + long + `"}`, `{"id":1,"name":"x","tag":"\n"}`,
		}, "\n"), code: 40001, want: "18: 0 new, 0 unchanged, 18 rejected; 1 40001; 2 40001; 3 40001; 4 40001; 5 40001; 6 40001" +
			"; 7 40002; 8 40002; 9 40003; 10 40004; 11 40004; 12 40004; 13 40004; 14 40005; 15 40005; 16 40006; 17 40006; 18 40006"},
		{name: "stored plants", body: `{"id":1,"name":"a","tag":"t","created_at":"2026-11-21T10:00:00.123456Z","updated_at":"2026-11-21T10:00:00Z"}` + "\n" + `{"id":2,"name":"b","updated_at":"2001-01-01T00:00:00+01:00"}`, want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
		{name: "times that are none", body: `{"id":1,"name":"a","created_at":"x"}` + "\n" + `{"id":2,"name":"b","updated_at":5}` + "\n" + `{"id":3,"name":"c","updated_at":null}`, code: 40006, want: "3: 0 new, 0 unchanged, 3 rejected; 1 40006; 2 40004; 3 40004"},
		{name: "a compressed file", body: "\x1f\x8b\x08;\"\n" + service.Numbered(1, 1), code: 40001, want: "the body is compressed: send Content-Encoding: gzip"},
		{name: "Windows-1252", body: service.Numbered(1, 2) + "{\"id\":3,\"name\":\"\xe9\"}\n", code: 40001, want: "line 3 is not UTF-8: save the file as UTF-8 (CSV UTF-8 in Excel), or convert it, as with iconv -f windows-1252 -t utf-8"},
		{name: "UTF-16", body: "\xff\xfe{\x00}\x00", code: 40001, want: "the body is UTF-16: save the file as UTF-8"},
		{name: "UTF-16 without a mark", body: "{\x00\"\x00i\x00d\x00", code: 40001, want: "the body is not text in UTF-8"},
		{name: "an array", body: `[{"id":1,"name":"a"}]`, code: 40001, want: "1: 0 new, 0 unchanged, 1 rejected; 1 40001"},
		{name: "objects on several lines", body: "{\n\"id\":1,\n\"name\":\"a\"\n}\n", code: 40001, want: "4: 0 new, 0 unchanged, 4 rejected; 1 40001; 2 40001; 3 40001; 4 40001"},
		{name: "a row twice", body: service.Numbered(1, 2) + service.Numbered(1, 1), want: "3: 2 new, 1 unchanged, 0 rejected, stored", stored: service.Numbered(1, 2)},
		{name: "an id twice with another name", body: service.Numbered(1, 2) + `{"id":1,"name":"x"}`, code: 40901, want: "3: 2 new, 0 unchanged, 1 rejected; 3 40901"},
		{name: "an id twice with another tag", body: service.Numbered(1, 1) + `{"id":1,"name":"plant 1","tag":""}`, code: 40901, want: "2: 1 new, 0 unchanged, 1 rejected; 2 40901"},
		{name: "a long line", body: service.Numbered(1, 1) + `{"id":2,"name":"` + strings.Repeat("x", 70_000) + `"}`, code: 41301, want: "line 2"},
	})
}

// TestSpreadsheets: an import says what a spreadsheet has probably changed, and stores the rows as they are.
func TestSpreadsheets(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct {
		name, body string
		warnings   string // the whole member of the report, or nothing
	}{
		{"UTF-8", "id,name\n1,Rosa × sémiplena\n2,Größe „x“ €\n3,Щ 植物\n", ""},
		{"UTF-8 read as Windows-1252", "id,name\n1,a\n2,Rosa Ã— sÃ©miplena\n", `[{"line":3,"message":"the text looks as if UTF-8 had been read as Windows 1252: in the spreadsheet, import the file as UTF-8, or export it with bom=true"}]`},
		{"UTF-8 read as Windows-1251", "id,name\n1,Р©\n", `[{"line":2,"message":"the text looks as if UTF-8 had been read as Windows 1251: in the spreadsheet, import the file as UTF-8, or export it with bom=true"}]`},
		{"a rounded id", "id,name\n9007199254740990,a\n-90071992547409900,b\n", `[{"line":2,"message":"id may be rounded: a spreadsheet keeps 15 digits of a number"},{"line":3,"message":"id may be rounded: a spreadsheet keeps 15 digits of a number"}]`},
		{"ids that are not rounded", "id,name\n9007199254740993,a\n100000000000000,b\n", ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := s.ImportRows(t, "?dry_run=true", service.InCSV, test.body)
			_, warnings, _ := strings.Cut(strings.TrimSuffix(r.Body, "}"), `"warnings":`)
			if r.Status != 200 || warnings != test.warnings {
				t.Errorf("got %v, want the warnings %s", r, test.warnings)
			}
		})
	}
	t.Run("of many warnings, a report has the first", func(t *testing.T) {
		r := s.ImportRows(t, "?dry_run=true", service.InCSV, "id,name\n"+strings.Repeat("1000000000000000,a\n", 1000))
		if n := strings.Count(r.Body, "may be rounded"); r.Status != 200 || n != 100 {
			t.Errorf("got status %d with %d warnings, want 100", r.Status, n)
		}
	})
	t.Run("an export with a byte order mark comes back", func(t *testing.T) {
		s.ImportRows(t, "", service.InCSV, "id,name\n7,sémiplena\n").CheckReport(t, 0, "1: 1 new, 0 unchanged, 0 rejected, stored")
		r := s.Send(t, "GET", "/plants/export?bom=true", nil, service.As(service.Token, "Accept", service.InCSV)...)
		if r.Body != "\ufeffid,name,tag\n7,sémiplena,\n" {
			t.Errorf("got %q, want a mark and a row", r.Body)
		}
		s.ImportRows(t, "", service.InCSV, r.Body).CheckReport(t, 0, "1: 0 new, 1 unchanged, 0 rejected, stored")
	})
	t.Run("NDJSON has no byte order mark", func(t *testing.T) {
		if r := s.Get(t, "/plants/export?bom=true", service.As(service.Token)...); r.Body != `{"id":7,"name":"sémiplena"}`+"\n" {
			t.Errorf("got %q, want a row without a mark", r.Body)
		}
	})
}

// TestLineSeparators: U+2028 and U+2029, at which some clients split lines, are escaped in all JSON.
func TestLineSeparators(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	const name = `"a\u2028b\u2029c"`
	s.Call(t, "PUT", "/plants/1", "{\"name\":\"a\u2028b\u2029c\"}")
	for _, path := range []string{"/plants/1", "/plants", "/plants/export", "/plants/changes?after=0"} {
		t.Run(path, func(t *testing.T) {
			if r := s.Get(t, path, service.As(service.Token)...); !strings.Contains(r.Body, `"name":`+name) {
				t.Errorf("got %v, want the name %s", r, name)
			}
		})
	}
}

func TestImportCSV(t *testing.T) {
	t.Parallel()
	long, longest := strings.Repeat("é", 256), strings.Repeat("🌵", 255)
	testImport(t, service.InCSV, []importRow{
		{name: "only a header", body: "id,name,tag\n", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "two plants", body: "id,name,tag\n1,a,t\n-2,b,\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":-2,"name":"b"}` + "\n" + `{"id":1,"name":"a","tag":"t"}` + "\n"},
		{name: "the longest texts", body: "id,name,tag\n1," + longest + "," + longest, want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"` + longest + `","tag":"` + longest + `"}` + "\n"},
		{name: "stored plants", body: "created_at,id,updated_at,name\n2026-11-21T10:00:00.123456Z,1,2026-11-21T10:00:00Z,a\n,2,,b\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
		{name: "times that are none", body: "id,name,created_at,updated_at\n1,a,x,\n2,b,,2026-11-21\n", code: 40006, want: "2: 0 new, 0 unchanged, 2 rejected; 2 40006; 3 40006"},
		{
			name: "bad texts", body: "id,name,tag\n1,,\n2,  ,\n3," + long + ",\n4,a\tb,\n5,a," + long + "\n6,a,b\u0085\n7,',\n8,'',\n", code: 40004,
			want: "8: 1 new, 0 unchanged, 7 rejected; 2 40004; 3 40006; 4 40006; 5 40006; 6 40006; 7 40006; 8 40006",
		},
		{
			name: "newlines in cells", body: "id,name,tag\n1,\"a\n\nb\",\n2,b,\n3,\"c\r\nd\",\"e\nf\"\n4,,\n", code: 40006,
			want: "4: 1 new, 0 unchanged, 3 rejected; 2 40006; 6 40006; 9 40004",
		},
		{name: "an unclosed quote", body: "id,name,tag\n1,a,b\n2,\"a,b\n3,a,b\n4,a,b\n", code: 40001, want: "line 3: a quote in the lines 3 to 5 is out of place or not closed"},
		{name: "NUL", body: "id,name\n1,a\x00\n", code: 40006, want: "1: 0 new, 0 unchanged, 1 rejected; 2 40006"},
		{name: "an id twice with another name", body: "id,name\n1,a\n1,a\n1,b\n", code: 40901, want: "3: 1 new, 1 unchanged, 1 rejected; 4 40901"},
		{name: "blank rows", body: ",,\nid,name,tag\n,,\n1,a,\n,\n,,\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n"},
		{name: "columns without names", body: "id,name,tag,,\n1,a,,,\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n"},
		{name: "a value in a column without a name", body: "id,name,,\n1,a,,\n2,b,,c\n", code: 40002, want: "2: 1 new, 0 unchanged, 1 rejected; 3 40002"},
		{name: "a line for spreadsheets", body: "sep=,\nid,name\n1,a\n", code: 40001, want: "line 1: remove this line: the header tells the separator"},
		{name: "a line for spreadsheets, with a semicolon", body: "sep=;\nid;name\n1;a\n", code: 40001, want: "line 1: remove this line"},
		{name: "semicolons", body: "name;id;tag\na,b;1;\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a,b"}` + "\n"},
		{name: "semicolons after blank lines", body: "\n\nname;id;tag\na,b;1;\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a,b"}` + "\n"},
		{name: "Windows-1252", body: "id,name\n1,a\n" + strings.Repeat("2,Caf\xe9\n", 4418), code: 40001, want: "line 3 is not UTF-8: save the file as UTF-8 (CSV UTF-8 in Excel), or convert it, as with iconv -f windows-1252 -t utf-8"},
		{name: "a workbook", body: "PK\x03\x04\x14\x00\x06\x00", code: 40001, want: "the body is a workbook or an archive: save the table as CSV UTF-8"},
		{name: "an old workbook", body: "\xd0\xcf\x11\xe0\xa1\xb1", code: 40001, want: "the body is a workbook: save the table as CSV UTF-8"},
		{name: "UTF-16 of a spreadsheet", body: "\xff\xfei\x00d\x00", code: 40001, want: "the body is UTF-16: save the file as UTF-8"},
		{name: "an unknown column", body: "id,name,colour\n1,a,b\n", code: 40002, want: "colour"},
		{name: "a long row", body: "id,name\n1,a\n2," + strings.Repeat("x", 200_000) + "\n3,a\n", code: 41301, want: "line 3"},
	})
}
