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

// testImport imports each body into an empty database.
func testImport(t *testing.T, contentType string, tests []importRow) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
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
	})
}

func TestImportNDJSON(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 256)
	testImport(t, service.InNDJSON, []importRow{
		{name: "an empty body", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "only blank lines", body: "\n \r\n\t\n", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "two unordered plants", body: `{"id":2,"name":"b","tag":""}` + "\n" + `{"tag":"t","id":1,"name":"a"}` + "\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
		{name: "no final newline", body: `{"id":1,"name":"a"}`, want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n"},
		{name: "CRLF, blank lines and spaces", body: "\r\n {\"id\":1,\"name\":\"a\"} \r\n\r\n{\"id\" : 2,\"name\":\"b\"}\r\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
		{name: "the edges of int64", body: `{"id":9223372036854775807,"name":"a"}` + "\n" + `{"id":-9223372036854775808,"name":"b"}`, want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":-9223372036854775808,"name":"b"}` + "\n" + `{"id":9223372036854775807,"name":"a"}` + "\n"},
		{name: "a bad row", body: service.Numbered(1, 2) + `{"id":3.0,"name":"x"}` + "\n" + service.Numbered(4, 5), code: 40005, want: "5: 4 new, 0 unchanged, 1 rejected; 3 40005"},
		{name: "blank lines are counted as lines", body: "\n\n" + service.Numbered(1, 1) + "\r\n\n" + `{"id":true,"name":"x"}`, code: 40004, want: "2: 1 new, 0 unchanged, 1 rejected; 6 40004"},
		{name: "a row of each fault", body: strings.Join([]string{
			`{"id":1,"name":"x"`, `[]`, "null", "x", "{\"id\":1,\"name\":\"\xff\"}", `{"id":1,"name":"x"} {"id":2,"name":"x"}`,
			`{"id":1,"name":"x","colour":1}`, `{"ID":1,"name":"x"}`, `{"id":1,"id":1,"name":"x"}`,
			`{"name":"x"}`, `{"id":1}`, `{"id":1,"name":"x","tag":null}`, `{"id":1,"name":2}`,
			`{"id":"1","name":"x"}`, `{"id":9223372036854775808,"name":"x"}`, `{"id":1,"name":""}`, `{"id":1,"name":"` + long + `"}`, `{"id":1,"name":"x","tag":"\n"}`,
		}, "\n"), code: 40001, want: "18: 0 new, 0 unchanged, 18 rejected; 1 40001; 2 40001; 3 40001; 4 40001; 5 40001; 6 40001" +
			"; 7 40002; 8 40002; 9 40003; 10 40004; 11 40004; 12 40004; 13 40004; 14 40005; 15 40005; 16 40006; 17 40006; 18 40006"},
		{name: "minus zero", body: `{"id":-0,"name":"x"}`, code: 40005, want: "1: 0 new, 0 unchanged, 1 rejected; 1 40005"},
		{name: "stored plants", body: `{"id":1,"name":"a","tag":"t","created_at":"2026-11-21T10:00:00.123456Z","updated_at":"2026-11-21T10:00:00Z"}` + "\n" + `{"id":2,"name":"b","updated_at":"2001-01-01T00:00:00+01:00"}`, want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
		{name: "times that are none", body: `{"id":1,"name":"a","created_at":"x"}` + "\n" + `{"id":2,"name":"b","updated_at":5}` + "\n" + `{"id":3,"name":"c","updated_at":null}`, code: 40006, want: "3: 0 new, 0 unchanged, 3 rejected; 1 40006; 2 40004; 3 40004"},
		{name: "a byte order mark", body: "\ufeff" + service.Numbered(1, 1), want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: service.Numbered(1, 1)},
		{name: "only a byte order mark", body: "\ufeff", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "a byte order mark in the second line", body: service.Numbered(1, 1) + "\ufeff" + service.Numbered(2, 2), code: 40001, want: "2: 1 new, 0 unchanged, 1 rejected; 2 40001"},
		{name: "two byte order marks", body: "\ufeff\ufeff" + service.Numbered(1, 1), code: 40001, want: "1: 0 new, 0 unchanged, 1 rejected; 1 40001"},
		{name: "a compressed file", body: "\x1f\x8b\x08;\"\n" + service.Numbered(1, 1), code: 40001, want: "the body is compressed: send Content-Encoding: gzip"},
		{name: "CSV", body: "\ufeffid,name,tag\r\n1,a,b\r\n", code: 40001, want: "2: 0 new, 0 unchanged, 2 rejected; 1 40001; 2 40001"},
		{name: "text that is no header", body: "ids\n" + service.Numbered(1, 1), code: 40001, want: "2: 1 new, 0 unchanged, 1 rejected; 1 40001"},
		{name: "a text in JSON", body: "\"identity\"\n", code: 40001, want: "1: 0 new, 0 unchanged, 1 rejected; 1 40001"},
		{name: "an array of plants", body: `[{"id":1,"name":"x"}]`, code: 40001, want: "1: 0 new, 0 unchanged, 1 rejected; 1 40001"},
		{name: "a row twice", body: service.Numbered(1, 2) + service.Numbered(1, 1), want: "3: 2 new, 1 unchanged, 0 rejected, stored", stored: service.Numbered(1, 2)},
		{name: "an id twice with another name", body: service.Numbered(1, 2) + `{"id":1,"name":"x"}`, code: 40901, want: "3: 2 new, 0 unchanged, 1 rejected; 3 40901"},
		{name: "an id twice with another tag", body: service.Numbered(1, 1) + `{"id":1,"name":"plant 1","tag":""}`, code: 40901, want: "2: 1 new, 0 unchanged, 1 rejected; 2 40901"},
		{name: "a long line", body: service.Numbered(1, 1) + `{"id":2,"name":"` + strings.Repeat("x", 70_000) + `"}`, code: 41301, want: "line 2"},
	})
}

func TestImportCSV(t *testing.T) {
	t.Parallel()
	long, longest := strings.Repeat("é", 256), strings.Repeat("🌵", 255)
	testImport(t, service.InCSV, []importRow{
		{name: "an empty body", code: 40001, want: "empty"},
		{name: "only a byte order mark", body: "\ufeff", code: 40001, want: "empty"},
		{name: "only a header", body: "id,name,tag\n", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "only a header without a newline", body: "id,name", want: "0: 0 new, 0 unchanged, 0 rejected, stored"},
		{name: "two plants", body: "id,name,tag\n1,a,t\n-2,b,\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":-2,"name":"b"}` + "\n" + `{"id":1,"name":"a","tag":"t"}` + "\n"},
		{name: "a byte order mark and CRLF", body: "\ufeffid,name,tag\r\n1,a,t\r\n2,b,'\r\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
		{name: "a quoted header behind a byte order mark", body: "\ufeff\"id\",\"name\"\n\"1\",\"a\"\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n"},
		{name: "another column order, no final newline", body: "tag,name,id\nt,a,1", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n"},
		{name: "no column for tags", body: "name,id\na,1\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n"},
		{name: "quoted cells", body: "id,name,tag\n\"1\",\"a \"\"b\"\", c\",\"\"\n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a \"b\", c"}` + "\n"},
		{name: "spaces are kept", body: "id,name,tag\n1, a , \n", want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":" a ","tag":" "}` + "\n"},
		{name: "the longest texts", body: "id,name,tag\n1," + longest + "," + longest, want: "1: 1 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"` + longest + `","tag":"` + longest + `"}` + "\n"},
		{
			name: "formulas, with and without a ' before them", body: "id,name,tag\n1,'=a,'-b\n2,=a,-b\n3,''=a,'@\n4,'a,''\n", want: "4: 4 new, 0 unchanged, 0 rejected, stored",
			stored: `{"id":1,"name":"=a","tag":"-b"}` + "\n" + `{"id":2,"name":"=a","tag":"-b"}` + "\n" + `{"id":3,"name":"'=a","tag":"@"}` + "\n" + `{"id":4,"name":"'a","tag":"'"}` + "\n",
		},
		{
			name: "formulas within cells", body: "id,name,tag\n1,a;'=b,'＝c\n2,a;=b,a;''+b\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored",
			stored: `{"id":1,"name":"a;=b","tag":"＝c"}` + "\n" + `{"id":2,"name":"a;=b","tag":"a;'+b"}` + "\n",
		},
		{name: "stored plants", body: "created_at,id,updated_at,name\n2026-11-21T10:00:00.123456Z,1,2026-11-21T10:00:00Z,a\n,2,,b\n", want: "2: 2 new, 0 unchanged, 0 rejected, stored", stored: `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
		{name: "times that are none", body: "id,name,created_at,updated_at\n1,a,x,\n2,b,,2026-11-21\n", code: 40006, want: "2: 0 new, 0 unchanged, 2 rejected; 2 40006; 3 40006"},
		{
			name: "bad ids", body: "id,name\n+1,a\n01,a\n 1,a\n1.0,a\n,a\nabc,a\n9223372036854775808,a\n-0,a\n1_0,a\n'1,a\n", code: 40005,
			want: "10: 0 new, 0 unchanged, 10 rejected; 2 40005; 3 40005; 4 40005; 5 40005; 6 40004; 7 40005; 8 40005; 9 40005; 10 40005; 11 40005",
		},
		{
			name: "bad texts", body: "id,name,tag\n1,,\n2,  ,\n3," + long + ",\n4,a\tb,\n5,a," + long + "\n6,a,b\u0085\n7,',\n8,'',\n", code: 40004,
			want: "8: 1 new, 0 unchanged, 7 rejected; 2 40004; 3 40006; 4 40006; 5 40006; 6 40006; 7 40006; 8 40006",
		},
		{
			name: "newlines in cells", body: "id,name,tag\n1,\"a\n\nb\",\n2,b,\n3,\"c\r\nd\",\"e\nf\"\n4,,\n", code: 40006,
			want: "4: 1 new, 0 unchanged, 3 rejected; 2 40006; 6 40006; 9 40004",
		},
		{name: "blank lines between rows", body: "\n\nid,name\n\n1,a\n\r\n\n2,\n", code: 40004, want: "2: 1 new, 0 unchanged, 1 rejected; 8 40004"},
		{name: "too few and too many cells", body: "id,name,tag\n1,a\n2,a,b,c\n3\n \n5,a,b\n", code: 40001, want: "5: 1 new, 0 unchanged, 4 rejected; 2 40001; 3 40001; 4 40001; 5 40001"},
		{name: "quotes out of place", body: "id,name,tag\n1,a\"b,\n2,\"a\"b,\n3,a,b\n", code: 40001, want: "3: 1 new, 0 unchanged, 2 rejected; 2 40001; 3 40001"},
		{name: "an unclosed quote", body: "id,name,tag\n1,a,b\n2,\"a,b\n3,a,b\n4,a,b\n", code: 40001, want: "line 3: the row extends to line 5, as the quote in line 3 is not closed"},
		{name: "a file cut off within quotes", body: "id,name\n1,\"a\"\n2,\"b", code: 40001, want: "line 3: a quote is out of place or not closed"},
		{name: "bad UTF-8", body: "id,name,tag\n1,a\xff,b\n2,a,b\xed\xa0\x80\n3,a,\n", code: 40001, want: "3: 1 new, 0 unchanged, 2 rejected; 2 40001; 3 40001"},
		{name: "NUL", body: "id,name\n1,a\x00\n", code: 40006, want: "1: 0 new, 0 unchanged, 1 rejected; 2 40006"},
		{name: "an id twice with another name", body: "id,name\n1,a\n1,a\n1,b\n", code: 40901, want: "3: 1 new, 1 unchanged, 1 rejected; 4 40901"},
		{name: "an unknown column", body: "id,name,colour\n1,a,b\n", code: 40002, want: "colour"},
		{name: "another case", body: "ID,name\n1,a\n", code: 40002, want: "ID"},
		{name: "a blank before a column", body: "id, name\n1,a\n", code: 40002, want: `" name"`},
		{name: "an unnamed column", body: "id,name,\n1,a,\n", code: 40002, want: `""`},
		{name: "too few cells", body: "id,name,tag\n1,a\n", code: 40001, want: "1: 0 new, 0 unchanged, 1 rejected; 2 40001"},
		{name: "a header in UTF-16", body: "\xff\xfei\x00d\x00,\x00", code: 40001, want: "line 1: the header is not valid UTF-8"},
		{name: "lines that end with CR", body: "id,name\r1,a\r", code: 40001, want: "the lines must end with LF or CRLF"},
		{name: "many lines that end with CR", body: "id,name\r" + strings.Repeat("1,a\r", 20000), code: 40001, want: "the lines must end with LF or CRLF"},
		{name: "a compressed file", body: "\x1f\x8b\x08;\"", code: 40001, want: "the body is compressed: send Content-Encoding: gzip"},
		{name: "a column twice", body: "id,name,id\n1,a,1\n", code: 40003, want: "id"},
		{name: "no column for names", body: "id,tag\n1,a\n", code: 40004, want: "name"},
		{name: "no column for ids", body: "name\na\n", code: 40004, want: "id"},
		{name: "another separator", body: "id;name;tag\n1;a;b\n", code: 40002, want: "line 1: the columns are separated by semicolons: separate them by commas, as in id,name,tag"},
		{name: "another separator and quotes", body: "\"id\";\"name\"\n\"1\";\"a\"\n", code: 40001, want: "semicolons"},
		{name: "a malformed header", body: "id,na\"me\n", code: 40001, want: "line 1"},
		{name: "a long row", body: "id,name\n1,a\n2," + strings.Repeat("x", 200_000) + "\n3,a\n", code: 41301, want: "line 3"},
		{name: "an unclosed quote before a large rest", body: "id,name\n1,\"a\n" + strings.Repeat("2,b\n", 50_000), code: 41301, want: "the row that begins in line 2 is larger than 73728 bytes: is a quote not closed?"},
		{name: "a long header", body: strings.Repeat("x", 200_000) + "\n", code: 41301, want: "line 1"},
	})
}
