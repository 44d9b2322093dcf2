package tests

import (
	"bufio"
	"context"
	"encoding/csv"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

const (
	inNDJSON = "application/x-ndjson"
	inCSV    = "text/csv"
)

// importRows sends an import.
func (s *service) importRows(t *testing.T, query, contentType, body string) response {
	t.Helper()
	return s.call(t, "POST", "/plants/import"+query, body, "Content-Type", contentType)
}

// summary returns the report of an import in one line, with the line and the code
// of each row that was refused.
func (r response) summary() string {
	type report struct {
		Rows, Created, Unchanged, Refused *int
		Stored                            *bool
		Errors                            []struct {
			Line    int
			Error   int
			Message string
		}
	}
	var refused struct{ Report *report }
	rep := new(report)
	_ = json.Unmarshal([]byte(r.body), rep)
	if _ = json.Unmarshal([]byte(r.body), &refused); refused.Report != nil {
		rep = refused.Report
	}
	if rep.Rows == nil || rep.Created == nil || rep.Unchanged == nil || rep.Refused == nil || rep.Stored == nil || rep.Errors == nil {
		return "no report"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d: %d new, %d unchanged, %d refused", *rep.Rows, *rep.Created, *rep.Unchanged, *rep.Refused)
	if *rep.Stored {
		text.WriteString(", stored")
	}
	for _, e := range rep.Errors {
		fmt.Fprintf(&text, "; %d %d", e.Line, e.Error)
		if e.Message == "" {
			text.WriteString(" without a message")
		}
	}
	return text.String()
}

// checkReport checks the code of an import, 0 for success, and its report.
func checkReport(t *testing.T, r response, code int, want string) {
	t.Helper()
	if r.status != statusOf(code) || r.code() != code || r.summary() != want {
		t.Errorf("got %v, want error %d and the report %s", r, code, want)
	}
}

// export returns the plants that are stored, as an export has them.
func (s *service) export(t *testing.T, accept string) string {
	t.Helper()
	r := s.call(t, "GET", "/plants/export", "", "Accept", accept)
	if r.status != 200 {
		t.Fatalf("export: %v", r)
	}
	return r.body
}

// emptyTable removes every plant beside the service.
func emptyTable(t *testing.T, databaseURL string) {
	t.Helper()
	if _, err := openTable(t, databaseURL).ExecContext(t.Context(), "DELETE FROM plants"); err != nil {
		t.Fatal(err)
	}
}

// numbered returns rows with the ids from first to last.
func numbered(first, last int64) string {
	var rows strings.Builder
	for id := first; id <= last; id++ {
		rows.WriteString(bodyOf(id) + "\n")
	}
	return rows.String()
}

// TestImportRows walks what an import can have in its body, into an empty store.
func TestImportRows(t *testing.T) {
	long, longest := strings.Repeat("é", 256), strings.Repeat("🌵", 255)
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, contentType, body string
			code                    int    // or 0
			want                    string // the report, or what the message names where there is none
			stored                  string // the export then
		}{
			{name: "nothing", contentType: inNDJSON, want: "0: 0 new, 0 unchanged, 0 refused, stored"},
			{name: "only blank lines", contentType: inNDJSON, body: "\n \r\n\t\n", want: "0: 0 new, 0 unchanged, 0 refused, stored"},
			{name: "two plants in no order", contentType: inNDJSON, body: `{"id":2,"name":"b","tag":""}` + "\n" + `{"tag":"t","id":1,"name":"a"}` + "\n", want: "2: 2 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
			{name: "no last line end", contentType: inNDJSON, body: `{"id":1,"name":"a"}`, want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a"}` + "\n"},
			{name: "CRLF, blank lines and blanks", contentType: inNDJSON, body: "\r\n {\"id\":1,\"name\":\"a\"} \r\n\r\n{\"id\" : 2,\"name\":\"b\"}\r\n", want: "2: 2 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
			{name: "the edges of int64", contentType: inNDJSON, body: `{"id":9223372036854775807,"name":"a"}` + "\n" + `{"id":-9223372036854775808,"name":"b"}`, want: "2: 2 new, 0 unchanged, 0 refused, stored", stored: `{"id":-9223372036854775808,"name":"b"}` + "\n" + `{"id":9223372036854775807,"name":"a"}` + "\n"},
			{name: "a bad third of five", contentType: inNDJSON, body: numbered(1, 2) + `{"id":3.0,"name":"x"}` + "\n" + numbered(4, 5), code: 40005, want: "5: 4 new, 0 unchanged, 1 refused; 3 40005"},
			{name: "blank lines are counted as lines", contentType: inNDJSON, body: "\n\n" + numbered(1, 1) + "\r\n\n" + `{"id":true,"name":"x"}`, code: 40004, want: "2: 1 new, 0 unchanged, 1 refused; 6 40004"},
			{name: "a row of each fault", contentType: inNDJSON, body: strings.Join([]string{
				`{"id":1,"name":"x"`, `[]`, "null", "x", "{\"id\":1,\"name\":\"\xff\"}", `{"id":1,"name":"x"} {"id":2,"name":"x"}`,
				`{"id":1,"name":"x","colour":1}`, `{"ID":1,"name":"x"}`, `{"id":1,"id":1,"name":"x"}`,
				`{"name":"x"}`, `{"id":1}`, `{"id":1,"name":"x","tag":null}`, `{"id":1,"name":2}`,
				`{"id":"1","name":"x"}`, `{"id":9223372036854775808,"name":"x"}`, `{"id":1,"name":""}`, `{"id":1,"name":"` + long + `"}`, `{"id":1,"name":"x","tag":"\n"}`,
			}, "\n"), code: 40001, want: "18: 0 new, 0 unchanged, 18 refused; 1 40001; 2 40001; 3 40001; 4 40001; 5 40001; 6 40001" +
				"; 7 40002; 8 40002; 9 40003; 10 40004; 11 40004; 12 40004; 13 40004; 14 40005; 15 40005; 16 40006; 17 40006; 18 40006"},
			{name: "a byte order mark", contentType: inNDJSON, body: "\ufeff" + numbered(1, 1), code: 40001, want: "1: 0 new, 0 unchanged, 1 refused; 1 40001"},
			{name: "an array of plants", contentType: inNDJSON, body: `[{"id":1,"name":"x"}]`, code: 40001, want: "1: 0 new, 0 unchanged, 1 refused; 1 40001"},
			{name: "twins", contentType: inNDJSON, body: numbered(1, 2) + numbered(1, 1), want: "3: 2 new, 1 unchanged, 0 refused, stored", stored: numbered(1, 2)},
			{name: "twins that differ", contentType: inNDJSON, body: numbered(1, 2) + `{"id":1,"name":"x"}`, code: 40901, want: "3: 2 new, 0 unchanged, 1 refused; 3 40901"},
			{name: "twins that differ in their tag", contentType: inNDJSON, body: numbered(1, 1) + `{"id":1,"name":"plant 1","tag":""}`, code: 40901, want: "2: 1 new, 0 unchanged, 1 refused; 2 40901"},
			{name: "a long line", contentType: inNDJSON, body: numbered(1, 1) + `{"id":2,"name":"` + strings.Repeat("x", 70_000) + `"}`, code: 41301, want: "line 2"},
			{name: "a long line of blanks", contentType: inNDJSON, body: numbered(1, 2) + strings.Repeat(" ", 70_000), code: 41301, want: "line 3"},

			{name: "nothing", contentType: inCSV, code: 40001, want: "empty"},
			{name: "only a byte order mark", contentType: inCSV, body: "\ufeff", code: 40001, want: "empty"},
			{name: "only a header", contentType: inCSV, body: "id,name,tag\n", want: "0: 0 new, 0 unchanged, 0 refused, stored"},
			{name: "only a header without an end", contentType: inCSV, body: "id,name", want: "0: 0 new, 0 unchanged, 0 refused, stored"},
			{name: "two plants", contentType: inCSV, body: "id,name,tag\n1,a,t\n-2,b,\n", want: "2: 2 new, 0 unchanged, 0 refused, stored", stored: `{"id":-2,"name":"b"}` + "\n" + `{"id":1,"name":"a","tag":"t"}` + "\n"},
			{name: "a byte order mark and CRLF", contentType: inCSV, body: "\ufeffid,name,tag\r\n1,a,t\r\n2,b,'\r\n", want: "2: 2 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
			{name: "a quoted header behind a byte order mark", contentType: inCSV, body: "\ufeff\"id\",\"name\"\n\"1\",\"a\"\n", want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a"}` + "\n"},
			{name: "another order, without a last line end", contentType: inCSV, body: "tag,name,id\nt,a,1", want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a","tag":"t"}` + "\n"},
			{name: "no column for tags", contentType: inCSV, body: "name,id\na,1\n", want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a"}` + "\n"},
			{name: "quoted cells", contentType: inCSV, body: "id,name,tag\n\"1\",\"a \"\"b\"\", c\",\"\"\n", want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"a \"b\", c"}` + "\n"},
			{name: "blanks stay", contentType: inCSV, body: "id,name,tag\n1, a , \n", want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":" a ","tag":" "}` + "\n"},
			{name: "the longest texts", contentType: inCSV, body: "id,name,tag\n1," + longest + "," + longest, want: "1: 1 new, 0 unchanged, 0 refused, stored", stored: `{"id":1,"name":"` + longest + `","tag":"` + longest + `"}` + "\n"},
			{
				name: "formulas, with and without a ' before them", contentType: inCSV, body: "id,name,tag\n1,'=a,'-b\n2,=a,-b\n3,''=a,'@\n4,'a,''\n", want: "4: 4 new, 0 unchanged, 0 refused, stored",
				stored: `{"id":1,"name":"=a","tag":"-b"}` + "\n" + `{"id":2,"name":"=a","tag":"-b"}` + "\n" + `{"id":3,"name":"'=a","tag":"@"}` + "\n" + `{"id":4,"name":"'a","tag":"'"}` + "\n",
			},
			{
				name: "bad ids", contentType: inCSV, body: "id,name\n+1,a\n01,a\n 1,a\n1.0,a\n,a\nabc,a\n9223372036854775808,a\n-0,a\n1_0,a\n'1,a\n", code: 40005,
				want: "10: 0 new, 0 unchanged, 10 refused; 2 40005; 3 40005; 4 40005; 5 40005; 6 40005; 7 40005; 8 40005; 9 40005; 10 40005; 11 40005"},
			{
				name: "bad texts", contentType: inCSV, body: "id,name,tag\n1,,\n2,  ,\n3," + long + ",\n4,a\tb,\n5,a," + long + "\n6,a,b\u0085\n7,',\n8,'',\n", code: 40006,
				want: "8: 1 new, 0 unchanged, 7 refused; 2 40006; 3 40006; 4 40006; 5 40006; 6 40006; 7 40006; 8 40006"},
			{
				name: "line ends in cells", contentType: inCSV, body: "id,name,tag\n1,\"a\n\nb\",\n2,b,\n3,\"c\r\nd\",\"e\nf\"\n4,,\n", code: 40006,
				want: "4: 1 new, 0 unchanged, 3 refused; 2 40006; 6 40006; 9 40006"},
			{name: "blank lines between rows", contentType: inCSV, body: "\n\nid,name\n\n1,a\n\r\n\n2,\n", code: 40006, want: "2: 1 new, 0 unchanged, 1 refused; 8 40006"},
			{name: "too few and too many cells", contentType: inCSV, body: "id,name,tag\n1,a\n2,a,b,c\n3\n \n5,a,b\n", code: 40001, want: "5: 1 new, 0 unchanged, 4 refused; 2 40001; 3 40001; 4 40001; 5 40001"},
			{name: "quotes out of place", contentType: inCSV, body: "id,name,tag\n1,a\"b,\n2,\"a\"b,\n3,a,b\n", code: 40001, want: "3: 1 new, 0 unchanged, 2 refused; 2 40001; 3 40001"},
			{name: "a quote that is not closed", contentType: inCSV, body: "id,name,tag\n1,a,b\n2,\"a,b\n3,a,b\n4,a,b\n", code: 40001, want: "2: 1 new, 0 unchanged, 1 refused; 3 40001"},
			{name: "bad UTF-8", contentType: inCSV, body: "id,name,tag\n1,a\xff,b\n2,a,b\xed\xa0\x80\n3,a,\n", code: 40001, want: "3: 1 new, 0 unchanged, 2 refused; 2 40001; 3 40001"},
			{name: "NUL", contentType: inCSV, body: "id,name\n1,a\x00\n", code: 40006, want: "1: 0 new, 0 unchanged, 1 refused; 2 40006"},
			{name: "twins that differ", contentType: inCSV, body: "id,name\n1,a\n1,a\n1,b\n", code: 40901, want: "3: 1 new, 1 unchanged, 1 refused; 4 40901"},
			{name: "an unknown column", contentType: inCSV, body: "id,name,colour\n1,a,b\n", code: 40002, want: "colour"},
			{name: "another case", contentType: inCSV, body: "ID,name\n1,a\n", code: 40002, want: "ID"},
			{name: "a blank before a column", contentType: inCSV, body: "id, name\n1,a\n", code: 40002, want: `" name"`},
			{name: "an unnamed column", contentType: inCSV, body: "id,name,\n1,a,\n", code: 40002, want: `""`},
			{name: "a column twice", contentType: inCSV, body: "id,name,id\n1,a,1\n", code: 40003, want: "id"},
			{name: "no column for names", contentType: inCSV, body: "id,tag\n1,a\n", code: 40004, want: "name"},
			{name: "no column for ids", contentType: inCSV, body: "name\na\n", code: 40004, want: "id"},
			{name: "another separator", contentType: inCSV, body: "id;name;tag\n1;a;b\n", code: 40002, want: "id;name;tag"},
			{name: "a malformed header", contentType: inCSV, body: "id,na\"me\n", code: 40001, want: "line 1"},
			{name: "a row that is too long", contentType: inCSV, body: "id,name\n1,a\n2," + strings.Repeat("x", 200_000) + "\n3,a\n", code: 41301, want: "line 3"},
			{name: "a row that is too long, with a quote out of place", contentType: inCSV, body: "id,name\n1,a\n2,x\"" + strings.Repeat("x", 200_000) + "\n3,a\n", code: 41301, want: "line 3"},
			{name: "a row that is too long after a cell of two lines", contentType: inCSV, body: "id,name\n1,\"a\nb\"\n2," + strings.Repeat("x", 200_000) + "\n", code: 41301, want: "line 4"},
			{name: "a quote that is not closed before too much", contentType: inCSV, body: "id,name\n1,\"a\n" + strings.Repeat("2,b\n", 50_000), code: 41301, want: "line 2"},
			{name: "a header that is too long", contentType: inCSV, body: strings.Repeat("x", 200_000) + "\n", code: 41301, want: "line 1"},
		} {
			t.Run(test.contentType+": "+test.name, func(t *testing.T) {
				r := s.importRows(t, "", test.contentType, test.body)
				checkHeaders(t, r)
				if r.code() != test.code || r.status != statusOf(test.code) {
					t.Errorf("got %v, want error %d", r, test.code)
				}
				switch got := r.summary(); {
				case !strings.Contains(test.want, "refused"):
					checkError(t, r, test.code, test.want)
				case got != test.want:
					t.Errorf("got %v, want the report %s", r, test.want)
				case test.code != 0:
					// The error is that of the first row.
					_, rest, _ := strings.Cut(got, "; ")
					line, _, _ := strings.Cut(rest, " ")
					if !strings.Contains(r.body, `"line `+line+": ") {
						t.Errorf("got %v, want a message about line %s", r, line)
					}
				}
				if got := s.export(t, inNDJSON); got != test.stored {
					t.Errorf("stored %q, want %q", got, test.stored)
				}
				if test.stored != "" {
					emptyTable(t, url)
				}
			})
		}
	})
}

// TestImportModes imports five rows, the third of them bad, and the same again,
// in every mode.
func TestImportModes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, query, before string // before is stored already
			bad                 bool   // whether the third row is
			code                int
			want, stored        string
		}{
			{name: "good rows", want: "5: 5 new, 0 unchanged, 0 refused, stored", stored: "12345"},
			{name: "good rows in mode=all", query: "?mode=all&dry_run=false", want: "5: 5 new, 0 unchanged, 0 refused, stored", stored: "12345"},
			{name: "good rows in mode=partial", query: "?mode=partial", want: "5: 5 new, 0 unchanged, 0 refused, stored", stored: "12345"},
			{name: "good rows in a dry run", query: "?dry_run=true", want: "5: 5 new, 0 unchanged, 0 refused"},
			{name: "good rows in a dry run of mode=partial", query: "?dry_run=true&mode=partial", want: "5: 5 new, 0 unchanged, 0 refused"},
			{name: "a bad row", bad: true, code: 40006, want: "5: 4 new, 0 unchanged, 1 refused; LINE3 40006"},
			{name: "a bad row in mode=partial", query: "?mode=partial", bad: true, want: "5: 4 new, 0 unchanged, 1 refused, stored; LINE3 40006", stored: "1245"},
			{name: "a bad row in a dry run", query: "?dry_run=true", bad: true, code: 40006, want: "5: 4 new, 0 unchanged, 1 refused; LINE3 40006"},
			{name: "a bad row in a dry run of mode=partial", query: "?dry_run=true&mode=partial", bad: true, want: "5: 4 new, 0 unchanged, 1 refused; LINE3 40006"},
			{name: "what is stored already", before: "12345", want: "5: 0 new, 5 unchanged, 0 refused, stored", stored: "12345"},
			{name: "what is stored in part", before: "15", want: "5: 3 new, 2 unchanged, 0 refused, stored", stored: "12345"},
			{name: "what is stored in part, in a dry run", query: "?dry_run=true", before: "15", want: "5: 3 new, 2 unchanged, 0 refused", stored: "15"},
			{name: "ids that others have", before: "aB", code: 40901, want: "5: 3 new, 0 unchanged, 2 refused; LINE1 40901; LINE2 40901", stored: "aB"},
			{name: "ids that others have, in mode=partial", query: "?mode=partial", before: "5a", want: "5: 3 new, 1 unchanged, 1 refused, stored; LINE1 40901", stored: "a2345"},
			{name: "ids that others have, in a dry run", query: "?dry_run=true", before: "a", code: 40901, want: "5: 4 new, 0 unchanged, 1 refused; LINE1 40901", stored: "a"},
			{name: "ids that others have, in a dry run of mode=partial", query: "?mode=partial&dry_run=true", before: "a", want: "5: 4 new, 0 unchanged, 1 refused; LINE1 40901", stored: "a"},
			{name: "ids that others have, and a bad row", before: "aB", bad: true, code: 40901, want: "5: 2 new, 0 unchanged, 3 refused; LINE1 40901; LINE2 40901; LINE3 40006", stored: "aB"},
			{name: "ids that others have, and a bad row, in mode=partial", query: "?mode=partial", before: "a5", bad: true, want: "5: 2 new, 1 unchanged, 2 refused, stored; LINE1 40901; LINE3 40006", stored: "a245"},
		} {
			t.Run(test.name, func(t *testing.T) {
				for _, contentType := range []string{inNDJSON, inCSV} {
					t.Run(contentType, func(t *testing.T) {
						// A plant is one letter: a digit as the import has it, a letter for another.
						for _, c := range test.before {
							id := strings.IndexRune("12345abcdeABCDE", c)%5 + 1
							requireStatus(t, s.call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%c"}`, c)), 200)
						}
						before := s.call(t, "GET", "/plants", "")
						var body strings.Builder
						first := 1
						if contentType == inCSV {
							body.WriteString("id,name\n")
							first = 2
						}
						for id := 1; id <= 5; id++ {
							name := strconv.Itoa(id)
							if test.bad && id == 3 {
								name = " "
							}
							if contentType == inCSV {
								fmt.Fprintf(&body, "%d,%s\n", id, name)
							} else {
								fmt.Fprintf(&body, `{"id":%d,"name":"%s"}`+"\n", id, name)
							}
						}
						want := test.want
						for i := range 3 {
							want = strings.ReplaceAll(want, fmt.Sprintf("LINE%d", i+1), strconv.Itoa(i+first))
						}
						r := s.importRows(t, test.query, contentType, body.String())
						if got := r.summary(); got != want || r.code() != test.code || r.status != statusOf(test.code) {
							t.Errorf("got %v, want error %d and the report %s", r, test.code, want)
						}
						after := s.call(t, "GET", "/plants", "")
						var names []string
						for _, p := range after.plants(t) {
							names = append(names, p.Name)
						}
						if stored := strings.Join(names, ""); stored != test.stored {
							t.Errorf("%s is stored, want %s", stored, test.stored)
						}
						// What was there stays as it was, to its version.
						for _, p := range before.plants(t) {
							if !strings.Contains(after.body, p.UpdatedAt.Format(time.RFC3339Nano)) {
								t.Errorf("%+v was there, and then %s", p, after.body)
							}
						}
						emptyTable(t, url)
					})
				}
			})
		}
	})
}

// TestImportManyRows imports what does not fit into one batch, or one report.
func TestImportManyRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)

		twins := numbered(1, 2500) + numbered(1, 1) + `{"id":2,"name":"x"}` + "\n" + numbered(2500, 2500)
		if r := s.importRows(t, "", inNDJSON, twins); r.status != 409 || r.summary() != "2503: 2500 new, 2 unchanged, 1 refused; 2502 40901" {
			t.Errorf("twins: %v", r)
		}
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("twins: %d bytes are stored", len(got))
		}
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, twins), 0, "2503: 2500 new, 2 unchanged, 1 refused, stored; 2502 40901")
		if got := s.export(t, inNDJSON); got != numbered(1, 2500) {
			t.Errorf("twins in mode=partial: %d bytes are stored", len(got))
		}
		checkReport(t, s.importRows(t, "", inNDJSON, numbered(1, 3000)), 0, "3000: 500 new, 2500 unchanged, 0 refused, stored")

		// All are told of that fit into a report, by their lines, and the rest counted.
		listed := func(code, shift int) string {
			var lines strings.Builder
			for line := 1; line <= 1000; line++ {
				fmt.Fprintf(&lines, "; %d %d", line+shift, code)
			}
			return lines.String()
		}
		bad := strings.Repeat("{}\n", 1500)
		checkReport(t, s.importRows(t, "", inNDJSON, bad), 40004, "1500: 0 new, 0 unchanged, 1500 refused"+listed(40004, 0))
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, numbered(5001, 5002)+bad+numbered(5003, 5003)), 0, "1503: 3 new, 0 unchanged, 1500 refused, stored"+listed(40004, 2))
		conflicts := strings.ReplaceAll(numbered(1, 2000), "plant", "pot")
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, conflicts+numbered(6001, 6001)), 0, "2001: 1 new, 0 unchanged, 2000 refused, stored"+listed(40901, 0))
		if got := s.export(t, inNDJSON); got != numbered(1, 3000)+numbered(5001, 5003)+numbered(6001, 6001) {
			t.Errorf("after all of them: %d bytes are stored", len(got))
		}
	})
}

func TestImportParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, test := range []struct{ query, mentions string }{
		{"mode=", "mode"},
		{"mode", "mode"},
		{"mode=none", "mode"},
		{"mode=PARTIAL", "mode"},
		{"mode=all&mode=all", "mode"},
		{"mode=all&mode=partial", "mode"},
		{"dry_run=", "dry_run"},
		{"dry_run", "dry_run"},
		{"dry_run=1", "dry_run"},
		{"dry_run=True", "dry_run"},
		{"dry_run=true&dry_run=true", "dry_run"},
		{"dryrun=true", "dryrun"},
		{"mode=all&limit=1", "limit"},
		{"mode=partial;dry_run=true", "query"},
		{"mode=%zz", "query"},
	} {
		t.Run(test.query, func(t *testing.T) {
			r := s.importRows(t, "?"+test.query, inNDJSON, bodyOf(1))
			checkError(t, r, 40007, test.mentions)
		})
	}
	for _, test := range []struct {
		header, value string
		code          int // 0: accepted
	}{
		{"Content-Type", "application/json", 41501},
		{"Content-Type", "application/ndjson", 41501},
		{"Content-Type", "application/x-ndjson; charset=iso-8859-1", 41501},
		{"Content-Type", "text/csv; charset=utf-16", 41501},
		{"Content-Type", "text/plain", 41501},
		{"Content-Type", "text/*", 41501},
		{"Content-Type", "multipart/form-data; boundary=x", 41501},
		{"Content-Type", ";", 41501},
		{"Content-Encoding", "gzip", 41501},
		{"Content-Encoding", "identity", 41501},
		{"Content-Type", "", 0},
		{"Content-Type", "application/x-ndjson", 0},
		{"Content-Type", "Application/X-NDJSON; Charset=UTF-8", 0},
	} {
		t.Run(test.header+": "+test.value, func(t *testing.T) {
			r := s.call(t, "POST", "/plants/import", bodyOf(1)+"\n", "Content-Type", inNDJSON, test.header, test.value)
			if test.code != 0 {
				checkError(t, r, test.code)
			} else if !strings.HasPrefix(r.summary(), "1: ") || r.status != 200 {
				t.Errorf("got %v", r)
			}
			if stored := s.export(t, inNDJSON) != ""; test.code != 0 && stored {
				t.Errorf("it was stored")
			}
		})
	}
	for _, contentType := range []string{"text/csv; charset=utf-8; header=present", `Text/CSV;charset="UTF-8"`} {
		t.Run(contentType, func(t *testing.T) {
			if r := s.importRows(t, "", contentType, "id,name\n2,a\n"); r.status != 200 || !strings.HasPrefix(r.summary(), "1: ") {
				t.Errorf("got %v", r)
			}
		})
	}
}

// TestImportTooLarge imports more than is allowed, said before and not.
func TestImportTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_BULK_MAX_BODY_BYTES=70000")
	if r := s.importRows(t, "", inNDJSON, strings.Repeat("\n", 70000-len(bodyOf(0)))+bodyOf(0)); r.status != 200 || !strings.HasPrefix(r.summary(), "1: 1 new") {
		t.Errorf("as much as is allowed: %v", r)
	}
	for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
		for _, contentType := range []string{inNDJSON, inCSV} {
			t.Run(contentType+query, func(t *testing.T) {
				body := numbered(1, 2500)
				if contentType == inCSV {
					body = "id,name\n" + strings.Repeat("1,a\n", 20000)
				}
				headers := []string{"Authorization", "Bearer " + token, "Content-Type", contentType}
				checkError(t, s.importRows(t, query, contentType, body), 41301)
				checkError(t, s.send(t, "POST", "/plants/import"+query, io.MultiReader(strings.NewReader(body)), headers...), 41301)
				if got := s.export(t, inNDJSON); strings.Count(got, "\n") != 1 {
					t.Errorf("%s%s: %s is stored", contentType, query, got)
				}
			})
		}
	}
}

// openImport is an import whose body goes on.
type openImport struct {
	t         *testing.T
	body      *io.PipeWriter
	leave     func()        // as a client that is killed, or whose service is
	responses chan response // closed where there is none
}

// beginImport begins an import, and returns when the service has begun to read
// it.
func (s *service) beginImport(t *testing.T, query string) *openImport {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	i := &openImport{t: t, body: in, responses: make(chan response, 1)}
	i.leave = func() {
		cancel()
		_ = in.CloseWithError(context.Canceled) // which the transport waits for
	}
	// The client sends the body when the service asks for it.
	begun := make(chan struct{})
	body := &watchedReader{out, sync.OnceFunc(func() { close(begun) })}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/plants/import"+query, body)
	if err != nil {
		t.Fatal(err)
	}
	for header, value := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": inNDJSON, "Expect": "100-continue"} {
		request.Header.Set(header, value)
	}
	go func() {
		defer close(i.responses)
		defer cancel()
		transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * patience}
		resp, err := transport.RoundTrip(request)
		if err != nil {
			return
		}
		if r, err := readResponse(resp); err == nil {
			i.responses <- r
		}
	}()
	receive(t, begun)
	return i
}

// write sends more of the body.
func (i *openImport) write(rows string) {
	i.t.Helper()
	if _, err := io.WriteString(i.body, rows); err != nil {
		i.t.Fatal(err)
	}
}

// end ends the body and returns the answer.
func (i *openImport) end() response {
	i.t.Helper()
	if err := i.body.Close(); err != nil {
		i.t.Fatal(err)
	}
	return receive(i.t, i.responses)
}

// TestImportSlowly holds two imports open: they are in nobody's way, but in that
// of a third.
func TestImportSlowly(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		first, second := s.beginImport(t, ""), s.beginImport(t, "?mode=partial")
		first.write(numbered(1, 2000))
		second.write(numbered(2001, 4000))
		for what, r := range map[string]response{
			"a third import":    s.importRows(t, "", inNDJSON, bodyOf(9000)),
			"a third dry run":   s.importRows(t, "?dry_run=true", inNDJSON, bodyOf(9000)),
			"an export":         s.call(t, "GET", "/plants/export", ""),
			"an export to HEAD": s.call(t, "HEAD", "/plants/export", ""),
		} {
			t.Run(what, func(t *testing.T) {
				checkHas(t, r, "Retry-After")
				if what == "an export to HEAD" {
					checkEmpty(t, r, 503)
				} else {
					checkError(t, r, 50301)
				}
			})
		}
		begin := time.Now()
		for id := range int64(20) {
			checkStatus(t, s.post(t, bodyOf(5000+id)), 200)
		}
		checkStored(t, s.call(t, "PUT", "/plants/1", `{"name":"plant 1"}`), `{"id":1,"name":"plant 1"}`) // PUT while imports go on
		if r := s.call(t, "GET", "/plants?limit=1000", ""); len(r.plants(t)) != 21 {
			t.Errorf("%d plants are listed while imports go on, want 21", len(r.plants(t)))
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("writing while imports go on took %v", took)
		}
		checkReport(t, first.end(), 0, "2000: 1999 new, 1 unchanged, 0 refused, stored")
		checkStatus(t, s.importRows(t, "", inNDJSON, bodyOf(9000)), 200)
		checkReport(t, second.end(), 0, "2000: 2000 new, 0 unchanged, 0 refused, stored")
		if got := s.export(t, inNDJSON); got != numbered(1, 4000)+numbered(5000, 5019)+numbered(9000, 9000) {
			t.Errorf("after all of them: %d bytes are stored", len(got))
		}
	})
}

// TestImportBreaksOff sends imports that end before they are whole.
func TestImportBreaksOff(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		rows := numbered(1, 1500)
		for _, test := range []struct{ name, header, body string }{
			{"a body that is shorter than announced", fmt.Sprintf("Content-Length: %d", len(rows)+1), rows},
			{"a body that ends in the middle of a row", fmt.Sprintf("Content-Length: %d", len(rows)), rows[:len(rows)-10]},
			{"chunks without an end", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(rows), rows)},
			{"a chunk without an end", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s", len(rows)+5, rows)},
			{"a chunk of no size", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\nx\r\n", len(rows), rows)},
		} {
			t.Run(test.name, func(t *testing.T) {
				for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
					t.Run("import"+query, func(t *testing.T) {
						conn := s.dial(t)
						fmt.Fprintf(conn, "POST /plants/import%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%s\r\n\r\n%s",
							query, token, inNDJSON, test.header, test.body)
						if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
							t.Fatal(err)
						}
						resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
						if err != nil {
							t.Fatal(err)
						}
						r, err := readResponse(resp)
						if err != nil {
							t.Error(err)
						}
						checkError(t, r, 40001)
					})
				}
			})
		}
		// A client that is gone gets no answer.
		for round, query := range []string{"", "?mode=partial", "?dry_run=true"} {
			i := s.beginImport(t, query)
			i.write(rows)
			i.leave()
			checkStatus(t, receive(t, i.responses), 0)
			s.awaitRequests(t, "/plants/import", 15+round+1)
		}
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("%d rows are stored", strings.Count(got, "\n"))
		}
		checkReport(t, s.importRows(t, "", inNDJSON, rows), 0, "1500: 1500 new, 0 unchanged, 0 refused, stored")
	})
}

// awaitRequests waits until n requests for path have ended.
func (s *service) awaitRequests(t *testing.T, path string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the end of %d requests for %s", n, path), func() bool {
		return strings.Count(s.stderr.String(), `"path":"`+path+`"`) >= n
	})
}

// TestImportKilled kills the service in the middle of an import, while it
// arrives and while it is stored, or the client while it is stored.
func TestImportKilled(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const rows = 10_000
		long := strings.Repeat("x", 200)
		body := strings.ReplaceAll(numbered(1, rows), `"}`, `","tag":"`+long+`"}`)

		s := start(t, "DATABASE_URL="+url)
		i := s.beginImport(t, "")
		i.write(body)
		kill := func() {
			t.Helper()
			if err := s.process.Kill(); err != nil {
				t.Fatal(err)
			}
			i.leave()
			checkStatus(t, receive(t, i.responses), 0)
			_ = s.wait(t)
		}
		kill()
		s = start(t, "DATABASE_URL="+url)
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("killed while an import arrived: %d rows are stored", strings.Count(got, "\n"))
		}

		i = s.beginImport(t, "")
		i.write(body)
		stored, release := awaitStoring(t, url, rows/2)
		if err := i.body.Close(); err != nil {
			t.Fatal(err)
		}
		stored()
		i.leave()
		checkStatus(t, receive(t, i.responses), 0)
		release()
		s.awaitRequests(t, "/plants/import", 1)
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("left while an import was stored: %d rows are stored", strings.Count(got, "\n"))
		}

		i = s.beginImport(t, "")
		i.write(body)
		stored, release = awaitStoring(t, url, rows/2)
		if err := i.body.Close(); err != nil {
			t.Fatal(err)
		}
		stored()
		kill()
		release()
		s = start(t, "DATABASE_URL="+url)
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("killed while an import was stored: %d rows are stored", strings.Count(got, "\n"))
		}
		checkReport(t, s.importRows(t, "", inNDJSON, body), 0, fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 refused, stored", rows))
	})
}

// awaitStoring returns stored, which waits until an import has stored some of its
// rows, and not yet that of id, and release, which lets it go on.
func awaitStoring(t *testing.T, databaseURL string, id int64) (stored, release func()) {
	t.Helper()
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		// What does not fit into SQLite's cache goes into the WAL.
		size := func() int64 {
			info, err := os.Stat(path + "-wal")
			if err != nil {
				return 0
			}
			return info.Size()
		}
		if _, err := openTable(t, databaseURL).ExecContext(t.Context(), "PRAGMA wal_checkpoint(TRUNCATE)"); err != nil {
			t.Fatal(err)
		}
		return func() { eventually(t, "rows in the WAL", func() bool { return size() > 100_000 }) }, func() {}
	}
	// Another transaction has the id, and holds up who wants it.
	table := openTable(t, databaseURL)
	tx, err := table.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.ExecContext(t.Context(), "INSERT INTO plants VALUES ($1, 'x', NULL, now(), now())", id); err != nil {
		t.Fatal(err)
	}
	stored = func() {
		eventually(t, "a row that waits", func() bool {
			var waiting int
			err := table.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks WHERE NOT granted").Scan(&waiting)
			return err == nil && waiting > 0
		})
	}
	return stored, func() {
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
}

// cells returns the rows of an export in CSV.
func cells(t *testing.T, text string) [][]string {
	t.Helper()
	rows, err := csv.NewReader(strings.NewReader(text)).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

func TestExportFormats(t *testing.T) {
	t.Parallel()
	s := start(t)
	if got := s.export(t, inNDJSON) + s.export(t, inCSV); got != "id,name,tag\n" {
		t.Errorf("an export of nothing has %q", got)
	}
	requireStatus(t, s.importRows(t, "", inNDJSON, `{"id":2,"name":"=b","tag":""}`+"\n"+`{"id":-1,"name":"a \"<\", c","tag":"-t"}`+"\n"+`{"id":3,"name":"c"}`), 200)
	const ndjson = `{"id":-1,"name":"a \"<\", c","tag":"-t"}` + "\n" + `{"id":2,"name":"=b","tag":""}` + "\n" + `{"id":3,"name":"c"}` + "\n"
	const inCells = "id,name,tag\n-1,\"a \"\"<\"\", c\",'-t\n2,'=b,'\n3,c,\n"
	for _, test := range []struct {
		accept string
		csv    bool
	}{
		{"", false},
		{"*/*", false},
		{"application/*", false},
		{"application/x-ndjson", false},
		{"application/x-ndjson, text/csv", false},
		{"application/x-ndjson, text/csv;q=0.5", false},
		{"application/json", false},
		{"image/png", false},
		{"text/csv", true},
		{"text/*", true},
		{"text/csv;charset=utf-8", true},
		{"image/png, text/csv", true},
		{"text/csv, application/x-ndjson;q=0.5", true},
		{"text/csv, */*;q=0.1", true},
	} {
		t.Run("Accept: "+test.accept, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD"} {
				t.Run(method, func(t *testing.T) {
					r := s.call(t, method, "/plants/export", "", "Accept", test.accept)
					want, contentType, disposition := ndjson, "application/x-ndjson", ""
					if test.csv {
						want, contentType, disposition = inCells, "text/csv; charset=utf-8; header=present", `attachment; filename="plants.csv"`
					}
					if method == "HEAD" {
						want = ""
					}
					if r.status != 200 || r.body != want || r.header.Get("Content-Type") != contentType ||
						r.header.Get("Content-Disposition") != disposition || r.header.Get("Vary") != "Accept" {
						t.Errorf("%s with Accept: %s: got %d %q with %v, want %q", method, test.accept, r.status, r.body, r.header, want)
					}
					checkHeaders(t, r)
				})
			}
		})
	}
}

// TestExportRoundTrip moves plants with odd texts from one store to others, in
// both formats.
func TestExportRoundTrip(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		var rows strings.Builder
		fmt.Fprintln(&rows, `{"id":-9223372036854775808,"name":"the first"}`)
		id := -len(oddTexts)
		for i, text := range oddTexts {
			for _, plant := range []string{
				`"name":` + quote(text),
				`"name":` + quote(text) + `,"tag":""`,
				`"name":"x","tag":` + quote(text),
				`"name":` + quote(text) + `,"tag":` + quote(oddTexts[(i+5)%len(oddTexts)]),
			} {
				fmt.Fprintf(&rows, `{"id":%d,%s}`+"\n", id, plant)
				id++
			}
		}
		fmt.Fprintln(&rows, `{"id":9223372036854775807,"name":"the last","tag":"t"}`)

		checkReport(t, s.importRows(t, "", inNDJSON, rows.String()), 0, fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 refused, stored", id+len(oddTexts)+2))
		inLines, inCells := s.export(t, inNDJSON), s.export(t, inCSV)
		if inLines != rows.String() {
			t.Errorf("exported %s\nand imported %s", inLines, rows.String())
		}
		for _, row := range cells(t, inCells) {
			for _, cell := range row[1:] {
				if cell != "" && strings.ContainsAny(cell[:1], "=+-@\t\r") {
					t.Errorf("a spreadsheet runs the cell %q", cell)
				}
			}
		}
		for contentType, body := range map[string]string{inNDJSON: inLines, inCSV: inCells} {
			t.Run(contentType, func(t *testing.T) {
				other := start(t)
				if r := other.importRows(t, "", contentType, body); r.status != 200 || !strings.Contains(r.summary(), " 0 unchanged, 0 refused, stored") {
					t.Errorf("got %v", r)
				}
				if r := s.importRows(t, "", contentType, body); r.status != 200 || !strings.Contains(r.summary(), " 0 new, ") {
					t.Errorf("%s into where it came from: %v", contentType, r)
				}
				if got := other.export(t, inNDJSON); got != inLines {
					t.Errorf("through %s, there is\n%s\nof\n%s", contentType, got, inLines)
				}
				if got := other.export(t, inCSV); got != inCells {
					t.Errorf("through %s, there is\n%s\nof\n%s", contentType, got, inCells)
				}
			})
		}
	})
}

// TestExportIsOneMoment exports while whole imports come: each must be seen
// whole, or not at all.
func TestExportIsOneMoment(t *testing.T) {
	const size = 10
	eachService(t, func(t *testing.T, s *service) {
		stop, begun := make(chan struct{}), make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for n := 1; ; n++ {
				var rows strings.Builder
				for i := range size { // all over the table
					fmt.Fprintf(&rows, `{"id":%d,"name":"%d"}`+"\n", (i-size/2)*1_000_000+n, n)
				}
				r, err := s.try("POST", "/plants/import", strings.NewReader(rows.String()), "Authorization", "Bearer "+token, "Content-Type", inNDJSON)
				if err != nil || r.status != 200 {
					t.Errorf("%v, %v", r, err)
				}
				if n == 20 {
					close(begun)
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		receive(t, begun)
		last := 0
		for range 20 {
			seen := make(map[string]int)
			for _, row := range cells(t, s.export(t, inCSV))[1:] {
				seen[row[1]]++
			}
			for n, rows := range seen {
				if rows != size {
					t.Errorf("an export has %d rows of import %s, want %d", rows, n, size)
				}
			}
			if len(seen) < last {
				t.Errorf("an export has %d imports, and the one before %d", len(seen), last)
			}
			last = len(seen)
		}
		close(stop)
		group.Wait()
	})
}

// beginExport begins an export and returns its first bytes, and what comes then.
func (s *service) beginExport(t *testing.T) (rest io.ReadCloser, first string) {
	t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.url+"/plants/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	start := make([]byte, 1000)
	if _, err := io.ReadFull(resp.Body, start); err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s, %v", resp.Status, err)
	}
	return resp.Body, string(start)
}

// TestExportWithoutDatabase takes the database away in the middle of an export,
// which must not look whole then.
func TestExportWithoutDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := start(t, "DATABASE_URL="+url)
	dbtest.Exec(t, url, "INSERT INTO plants SELECT i, repeat('🌵', 255), repeat('🌵', 255), now(), now() FROM generate_series(1, 20000) AS i")
	rest, first := s.beginExport(t)
	dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT id, name, tag%' AND pid <> pg_backend_pid()")
	text, err := io.ReadAll(rest)
	if rows := strings.Count(first+string(text), "\n"); err == nil || rows >= 20000 {
		t.Errorf("an export that was broken off has %d rows: %v", rows, err)
	}
	_ = rest.Close()
	s.awaitLog(t, "answer broken off")
	if got := s.export(t, inNDJSON); strings.Count(got, "\n") != 20000 {
		t.Errorf("the next export has %d rows", strings.Count(got, "\n"))
	}
}

// TestExportSlowly reads exports that are larger than what is on its way:
// meanwhile others write, leave, and the service is killed.
func TestExportSlowly(t *testing.T) {
	const rows = 5_000
	long := strings.Repeat("🌵", 255)
	eachService(t, func(t *testing.T, s *service) {
		var body strings.Builder
		for id := range rows {
			fmt.Fprintf(&body, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
		}
		requireStatus(t, s.importRows(t, "", inNDJSON, body.String()), 200)
		slow, first := s.beginExport(t)
		last := fmt.Sprintf("/plants/%d", rows-1)
		checkEmpty(t, s.call(t, "DELETE", last, ""), 204)                                                       // DELETE while an export goes on
		checkStored(t, s.call(t, "PUT", last, `{"name":"new"}`), fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1)) // PUT while an export goes on
		checkStatus(t, s.post(t, bodyOf(rows)), 200)
		// Clients that leave, more of them than may be there at once.
		for round := range 3 {
			left, _ := s.beginExport(t)
			if err := left.Close(); err != nil {
				t.Fatal(err)
			}
			s.awaitRequests(t, "/plants/export", round+1)
		}
		rest, err := io.ReadAll(slow)
		if got := first + string(rest); err != nil || got != body.String() {
			t.Errorf("the slow client got %d bytes of what there was when it began, which are %d: %v", len(got), body.Len(), err)
		}
		_ = slow.Close()
		if got := s.export(t, inNDJSON); strings.Count(got, "\n") != rows+1 || !strings.HasSuffix(got, fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1)+"\n"+bodyOf(rows)+"\n") {
			t.Errorf("after all of them, an export has %d rows", strings.Count(got, "\n"))
		}
		if strings.Contains(s.stderr.String(), `"level":"error"`) {
			t.Error("a client that left is logged as an error")
		}

		broken, _ := s.beginExport(t)
		if err := s.process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(broken); err == nil {
			t.Error("an export that was broken off looks whole")
		}
		_ = broken.Close()
		_ = s.wait(t)
	})
}
