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
func (s *service) importRows(query, contentType, body string) answer {
	s.t.Helper()
	return s.call("POST", "/plants/import"+query, body, "Content-Type", contentType)
}

// summary returns the report of an import in one line, with the line and the code
// of each row that was refused.
func (a answer) summary() string {
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
	r := new(report)
	_ = json.Unmarshal([]byte(a.body), r)
	if _ = json.Unmarshal([]byte(a.body), &refused); refused.Report != nil {
		r = refused.Report
	}
	if r.Rows == nil || r.Created == nil || r.Unchanged == nil || r.Refused == nil || r.Stored == nil || r.Errors == nil {
		return "no report"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d: %d new, %d unchanged, %d refused", *r.Rows, *r.Created, *r.Unchanged, *r.Refused)
	if *r.Stored {
		text.WriteString(", stored")
	}
	for _, e := range r.Errors {
		fmt.Fprintf(&text, "; %d %d", e.Line, e.Error)
		if e.Message == "" {
			text.WriteString(" without a message")
		}
	}
	return text.String()
}

// export returns the plants that are stored, as an export has them.
func (s *service) export(accept string) string {
	s.t.Helper()
	a := s.call("GET", "/plants/export", "", "Accept", accept)
	if a.status != 200 {
		s.t.Fatalf("export: %d %s", a.status, a.body)
	}
	return a.body
}

// emptyTable removes every plant beside the service.
func emptyTable(t *testing.T, databaseURL string) {
	t.Helper()
	if _, err := openTable(t, databaseURL).ExecContext(t.Context(), "DELETE FROM plants"); err != nil {
		t.Fatal(err)
	}
}

// eventually waits until holds does.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	ticker := time.NewTicker(2 * time.Millisecond)
	defer ticker.Stop()
	for deadline := time.Now().Add(patience); !holds(); <-ticker.C {
		if time.Now().After(deadline) {
			t.Fatalf("waited in vain for %s", what)
		}
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

// statusOf returns the status of an answer with an error code.
func statusOf(code int) int {
	if status := code / 100; status != 413 && status != 415 {
		return status
	}
	return 400
}

// TestImportRows walks what an import can have in its body, into an empty store.
func TestImportRows(t *testing.T) {
	long, longest := strings.Repeat("é", 256), strings.Repeat("🌵", 255)
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			what, contentType, body string
			code                    int    // or 0
			want                    string // the report, or what the message names where there is none
			stored                  string // the export then
		}{
			{"nothing", inNDJSON, "", 0, "0: 0 new, 0 unchanged, 0 refused, stored", ""},
			{"only blank lines", inNDJSON, "\n \r\n\t\n", 0, "0: 0 new, 0 unchanged, 0 refused, stored", ""},
			{"two plants in no order", inNDJSON, `{"id":2,"name":"b","tag":""}` + "\n" + `{"tag":"t","id":1,"name":"a"}` + "\n", 0, "2: 2 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
			{"no last line end", inNDJSON, `{"id":1,"name":"a"}`, 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a"}` + "\n"},
			{"CRLF, blank lines and blanks", inNDJSON, "\r\n {\"id\":1,\"name\":\"a\"} \r\n\r\n{\"id\" : 2,\"name\":\"b\"}\r\n", 0, "2: 2 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a"}` + "\n" + `{"id":2,"name":"b"}` + "\n"},
			{"the edges of int64", inNDJSON, `{"id":9223372036854775807,"name":"a"}` + "\n" + `{"id":-9223372036854775808,"name":"b"}`, 0, "2: 2 new, 0 unchanged, 0 refused, stored", `{"id":-9223372036854775808,"name":"b"}` + "\n" + `{"id":9223372036854775807,"name":"a"}` + "\n"},
			{"a bad third of five", inNDJSON, numbered(1, 2) + `{"id":3.0,"name":"x"}` + "\n" + numbered(4, 5), 40005, "5: 4 new, 0 unchanged, 1 refused; 3 40005", ""},
			{"blank lines are counted as lines", inNDJSON, "\n\n" + numbered(1, 1) + "\r\n\n" + `{"id":true,"name":"x"}`, 40004, "2: 1 new, 0 unchanged, 1 refused; 6 40004", ""},
			{"a row of each fault", inNDJSON, strings.Join([]string{
				`{"id":1,"name":"x"`, `[]`, "null", "x", "{\"id\":1,\"name\":\"\xff\"}", `{"id":1,"name":"x"} {"id":2,"name":"x"}`,
				`{"id":1,"name":"x","colour":1}`, `{"ID":1,"name":"x"}`, `{"id":1,"id":1,"name":"x"}`,
				`{"name":"x"}`, `{"id":1}`, `{"id":1,"name":"x","tag":null}`, `{"id":1,"name":2}`,
				`{"id":"1","name":"x"}`, `{"id":9223372036854775808,"name":"x"}`, `{"id":1,"name":""}`, `{"id":1,"name":"` + long + `"}`, `{"id":1,"name":"x","tag":"\n"}`,
			}, "\n"), 40001, "18: 0 new, 0 unchanged, 18 refused; 1 40001; 2 40001; 3 40001; 4 40001; 5 40001; 6 40001" +
				"; 7 40002; 8 40002; 9 40003; 10 40004; 11 40004; 12 40004; 13 40004; 14 40005; 15 40005; 16 40006; 17 40006; 18 40006", ""},
			{"a byte order mark", inNDJSON, "\ufeff" + numbered(1, 1), 40001, "1: 0 new, 0 unchanged, 1 refused; 1 40001", ""},
			{"an array of plants", inNDJSON, `[{"id":1,"name":"x"}]`, 40001, "1: 0 new, 0 unchanged, 1 refused; 1 40001", ""},
			{"twins", inNDJSON, numbered(1, 2) + numbered(1, 1), 0, "3: 2 new, 1 unchanged, 0 refused, stored", numbered(1, 2)},
			{"twins that differ", inNDJSON, numbered(1, 2) + `{"id":1,"name":"x"}`, 40901, "3: 2 new, 0 unchanged, 1 refused; 3 40901", ""},
			{"twins that differ in their tag", inNDJSON, numbered(1, 1) + `{"id":1,"name":"plant 1","tag":""}`, 40901, "2: 1 new, 0 unchanged, 1 refused; 2 40901", ""},
			{"a long line", inNDJSON, numbered(1, 1) + `{"id":2,"name":"` + strings.Repeat("x", 70_000) + `"}`, 41301, "line 2", ""},
			{"a long line of blanks", inNDJSON, numbered(1, 2) + strings.Repeat(" ", 70_000), 41301, "line 3", ""},

			{"nothing", inCSV, "", 40001, "empty", ""},
			{"only a byte order mark", inCSV, "\ufeff", 40001, "empty", ""},
			{"only a header", inCSV, "id,name,tag\n", 0, "0: 0 new, 0 unchanged, 0 refused, stored", ""},
			{"only a header without an end", inCSV, "id,name", 0, "0: 0 new, 0 unchanged, 0 refused, stored", ""},
			{"two plants", inCSV, "id,name,tag\n1,a,t\n-2,b,\n", 0, "2: 2 new, 0 unchanged, 0 refused, stored", `{"id":-2,"name":"b"}` + "\n" + `{"id":1,"name":"a","tag":"t"}` + "\n"},
			{"a byte order mark and CRLF", inCSV, "\ufeffid,name,tag\r\n1,a,t\r\n2,b,'\r\n", 0, "2: 2 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a","tag":"t"}` + "\n" + `{"id":2,"name":"b","tag":""}` + "\n"},
			{"a quoted header behind a byte order mark", inCSV, "\ufeff\"id\",\"name\"\n\"1\",\"a\"\n", 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a"}` + "\n"},
			{"another order, without a last line end", inCSV, "tag,name,id\nt,a,1", 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a","tag":"t"}` + "\n"},
			{"no column for tags", inCSV, "name,id\na,1\n", 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a"}` + "\n"},
			{"quoted cells", inCSV, "id,name,tag\n\"1\",\"a \"\"b\"\", c\",\"\"\n", 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"a \"b\", c"}` + "\n"},
			{"blanks stay", inCSV, "id,name,tag\n1, a , \n", 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":" a ","tag":" "}` + "\n"},
			{"the longest texts", inCSV, "id,name,tag\n1," + longest + "," + longest, 0, "1: 1 new, 0 unchanged, 0 refused, stored", `{"id":1,"name":"` + longest + `","tag":"` + longest + `"}` + "\n"},
			{
				"formulas, with and without a ' before them", inCSV, "id,name,tag\n1,'=a,'-b\n2,=a,-b\n3,''=a,'@\n4,'a,''\n", 0, "4: 4 new, 0 unchanged, 0 refused, stored",
				`{"id":1,"name":"=a","tag":"-b"}` + "\n" + `{"id":2,"name":"=a","tag":"-b"}` + "\n" + `{"id":3,"name":"'=a","tag":"@"}` + "\n" + `{"id":4,"name":"'a","tag":"'"}` + "\n",
			},
			{
				"bad ids", inCSV, "id,name\n+1,a\n01,a\n 1,a\n1.0,a\n,a\nabc,a\n9223372036854775808,a\n-0,a\n1_0,a\n'1,a\n", 40005,
				"10: 0 new, 0 unchanged, 10 refused; 2 40005; 3 40005; 4 40005; 5 40005; 6 40005; 7 40005; 8 40005; 9 40005; 10 40005; 11 40005", "",
			},
			{
				"bad texts", inCSV, "id,name,tag\n1,,\n2,  ,\n3," + long + ",\n4,a\tb,\n5,a," + long + "\n6,a,b\u0085\n7,',\n8,'',\n", 40006,
				"8: 1 new, 0 unchanged, 7 refused; 2 40006; 3 40006; 4 40006; 5 40006; 6 40006; 7 40006; 8 40006", "",
			},
			{
				"line ends in cells", inCSV, "id,name,tag\n1,\"a\n\nb\",\n2,b,\n3,\"c\r\nd\",\"e\nf\"\n4,,\n", 40006,
				"4: 1 new, 0 unchanged, 3 refused; 2 40006; 6 40006; 9 40006", "",
			},
			{"blank lines between rows", inCSV, "\n\nid,name\n\n1,a\n\r\n\n2,\n", 40006, "2: 1 new, 0 unchanged, 1 refused; 8 40006", ""},
			{"too few and too many cells", inCSV, "id,name,tag\n1,a\n2,a,b,c\n3\n \n5,a,b\n", 40001, "5: 1 new, 0 unchanged, 4 refused; 2 40001; 3 40001; 4 40001; 5 40001", ""},
			{"quotes out of place", inCSV, "id,name,tag\n1,a\"b,\n2,\"a\"b,\n3,a,b\n", 40001, "3: 1 new, 0 unchanged, 2 refused; 2 40001; 3 40001", ""},
			{"a quote that is not closed", inCSV, "id,name,tag\n1,a,b\n2,\"a,b\n3,a,b\n4,a,b\n", 40001, "2: 1 new, 0 unchanged, 1 refused; 3 40001", ""},
			{"bad UTF-8", inCSV, "id,name,tag\n1,a\xff,b\n2,a,b\xed\xa0\x80\n3,a,\n", 40001, "3: 1 new, 0 unchanged, 2 refused; 2 40001; 3 40001", ""},
			{"NUL", inCSV, "id,name\n1,a\x00\n", 40006, "1: 0 new, 0 unchanged, 1 refused; 2 40006", ""},
			{"twins that differ", inCSV, "id,name\n1,a\n1,a\n1,b\n", 40901, "3: 1 new, 1 unchanged, 1 refused; 4 40901", ""},
			{"an unknown column", inCSV, "id,name,colour\n1,a,b\n", 40002, "colour", ""},
			{"another case", inCSV, "ID,name\n1,a\n", 40002, "ID", ""},
			{"a blank before a column", inCSV, "id, name\n1,a\n", 40002, `" name"`, ""},
			{"an unnamed column", inCSV, "id,name,\n1,a,\n", 40002, `""`, ""},
			{"a column twice", inCSV, "id,name,id\n1,a,1\n", 40003, "id", ""},
			{"no column for names", inCSV, "id,tag\n1,a\n", 40004, "name", ""},
			{"no column for ids", inCSV, "name\na\n", 40004, "id", ""},
			{"another separator", inCSV, "id;name;tag\n1;a;b\n", 40002, "id;name;tag", ""},
			{"a malformed header", inCSV, "id,na\"me\n", 40001, "line 1", ""},
			{"a row that is too long", inCSV, "id,name\n1,a\n2," + strings.Repeat("x", 200_000) + "\n3,a\n", 41301, "line 3", ""},
			{"a row that is too long, with a quote out of place", inCSV, "id,name\n1,a\n2,x\"" + strings.Repeat("x", 200_000) + "\n3,a\n", 41301, "line 3", ""},
			{"a row that is too long after a cell of two lines", inCSV, "id,name\n1,\"a\nb\"\n2," + strings.Repeat("x", 200_000) + "\n", 41301, "line 4", ""},
			{"a quote that is not closed before too much", inCSV, "id,name\n1,\"a\n" + strings.Repeat("2,b\n", 50_000), 41301, "line 2", ""},
			{"a header that is too long", inCSV, strings.Repeat("x", 200_000) + "\n", 41301, "line 1", ""},
		} {
			what := test.contentType + ": " + test.what
			a := s.importRows("", test.contentType, test.body)
			switch {
			case test.code == 0 && a.status != 200:
				t.Errorf("%s: got %d %s", what, a.status, a.body)
			case test.code != 0 && (a.status != statusOf(test.code) || a.code() != test.code):
				t.Errorf("%s: got %d %s, want error %d", what, a.status, a.body, test.code)
			}
			checkHeaders(t, what, a)
			switch got := a.summary(); {
			case !strings.Contains(test.want, "refused"):
				checkError(t, what, a, 400, test.code)
				checkNames(t, what, a, test.want)
			case got != test.want:
				t.Errorf("%s: got the report %s, want %s\n%s", what, got, test.want, a.body)
			case test.code != 0:
				// The error is that of the first row.
				_, rest, _ := strings.Cut(got, "; ")
				line, _, _ := strings.Cut(rest, " ")
				checkNames(t, what, a, "line "+line+": ")
			}
			if got := s.export(inNDJSON); got != test.stored {
				t.Errorf("%s: stored %q, want %q", what, got, test.stored)
			}
			if test.stored != "" {
				emptyTable(t, url)
			}
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
			what, query, before string // before is stored already
			bad                 bool   // whether the third row is
			code                int
			want, stored        string
		}{
			{"good rows", "", "", false, 0, "5: 5 new, 0 unchanged, 0 refused, stored", "12345"},
			{"good rows in mode=all", "?mode=all&dry_run=false", "", false, 0, "5: 5 new, 0 unchanged, 0 refused, stored", "12345"},
			{"good rows in mode=partial", "?mode=partial", "", false, 0, "5: 5 new, 0 unchanged, 0 refused, stored", "12345"},
			{"good rows in a dry run", "?dry_run=true", "", false, 0, "5: 5 new, 0 unchanged, 0 refused", ""},
			{"good rows in a dry run of mode=partial", "?dry_run=true&mode=partial", "", false, 0, "5: 5 new, 0 unchanged, 0 refused", ""},
			{"a bad row", "", "", true, 40006, "5: 4 new, 0 unchanged, 1 refused; LINE3 40006", ""},
			{"a bad row in mode=partial", "?mode=partial", "", true, 0, "5: 4 new, 0 unchanged, 1 refused, stored; LINE3 40006", "1245"},
			{"a bad row in a dry run", "?dry_run=true", "", true, 40006, "5: 4 new, 0 unchanged, 1 refused; LINE3 40006", ""},
			{"a bad row in a dry run of mode=partial", "?dry_run=true&mode=partial", "", true, 0, "5: 4 new, 0 unchanged, 1 refused; LINE3 40006", ""},
			{"what is stored already", "", "12345", false, 0, "5: 0 new, 5 unchanged, 0 refused, stored", "12345"},
			{"what is stored in part", "", "15", false, 0, "5: 3 new, 2 unchanged, 0 refused, stored", "12345"},
			{"what is stored in part, in a dry run", "?dry_run=true", "15", false, 0, "5: 3 new, 2 unchanged, 0 refused", "15"},
			{"ids that others have", "", "aB", false, 40901, "5: 3 new, 0 unchanged, 2 refused; LINE1 40901; LINE2 40901", "aB"},
			{"ids that others have, in mode=partial", "?mode=partial", "5a", false, 0, "5: 3 new, 1 unchanged, 1 refused, stored; LINE1 40901", "a2345"},
			{"ids that others have, in a dry run", "?dry_run=true", "a", false, 40901, "5: 4 new, 0 unchanged, 1 refused; LINE1 40901", "a"},
			{"ids that others have, in a dry run of mode=partial", "?mode=partial&dry_run=true", "a", false, 0, "5: 4 new, 0 unchanged, 1 refused; LINE1 40901", "a"},
			{"ids that others have, and a bad row", "", "aB", true, 40901, "5: 2 new, 0 unchanged, 3 refused; LINE1 40901; LINE2 40901; LINE3 40006", "aB"},
			{"ids that others have, and a bad row, in mode=partial", "?mode=partial", "a5", true, 0, "5: 2 new, 1 unchanged, 2 refused, stored; LINE1 40901; LINE3 40006", "a245"},
		} {
			for _, contentType := range []string{inNDJSON, inCSV} {
				what := contentType + ": " + test.what
				// A plant is one letter: a digit as the import has it, a letter for another.
				for _, c := range test.before {
					id := strings.IndexRune("12345abcdeABCDE", c)%5 + 1
					if a := s.call("PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%c"}`, c)); a.status != 200 {
						t.Fatalf("%d %s", a.status, a.body)
					}
				}
				before := s.call("GET", "/plants", "")
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
				a := s.importRows(test.query, contentType, body.String())
				if got := a.summary(); got != want || a.code() != test.code || test.code == 0 && a.status != 200 || test.code != 0 && a.status != statusOf(test.code) {
					t.Errorf("%s: got %d %s, want error %d and the report %s", what, a.status, a.body, test.code, want)
				}
				after := s.call("GET", "/plants", "")
				var names []string
				for _, p := range after.plants(t) {
					names = append(names, p.Name)
				}
				if stored := strings.Join(names, ""); stored != test.stored {
					t.Errorf("%s: %s is stored, want %s", what, stored, test.stored)
				}
				// What was there stays as it was, to its version.
				for _, p := range before.plants(t) {
					if !strings.Contains(after.body, p.UpdatedAt.Format(time.RFC3339Nano)) {
						t.Errorf("%s: %+v was there, and then %s", what, p, after.body)
					}
				}
				emptyTable(t, url)
			}
		}
	})
}

// TestImportManyRows imports what does not fit into one batch, or one report.
func TestImportManyRows(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)

		twins := numbered(1, 2500) + numbered(1, 1) + `{"id":2,"name":"x"}` + "\n" + numbered(2500, 2500)
		if a := s.importRows("", inNDJSON, twins); a.status != 409 || a.summary() != "2503: 2500 new, 2 unchanged, 1 refused; 2502 40901" {
			t.Errorf("twins: %d %s", a.status, a.body)
		}
		if got := s.export(inNDJSON); got != "" {
			t.Errorf("twins: %d bytes are stored", len(got))
		}
		if a := s.importRows("?mode=partial", inNDJSON, twins); a.status != 200 || a.summary() != "2503: 2500 new, 2 unchanged, 1 refused, stored; 2502 40901" {
			t.Errorf("twins in mode=partial: %d %s", a.status, a.body)
		}
		if got := s.export(inNDJSON); got != numbered(1, 2500) {
			t.Errorf("twins in mode=partial: %d bytes are stored", len(got))
		}
		if a := s.importRows("", inNDJSON, numbered(1, 3000)); a.status != 200 || a.summary() != "3000: 500 new, 2500 unchanged, 0 refused, stored" {
			t.Errorf("again, and more: %d %s", a.status, a.body)
		}

		// All are told of that fit into a report, by their lines, and the rest counted.
		listed := func(code, shift int) string {
			var lines strings.Builder
			for line := 1; line <= 1000; line++ {
				fmt.Fprintf(&lines, "; %d %d", line+shift, code)
			}
			return lines.String()
		}
		bad := strings.Repeat("{}\n", 1500)
		if a := s.importRows("", inNDJSON, bad); a.status != 400 || a.code() != 40004 || a.summary() != "1500: 0 new, 0 unchanged, 1500 refused"+listed(40004, 0) {
			t.Errorf("1500 bad rows: %d %s", a.status, a.summary())
		}
		if a := s.importRows("?mode=partial", inNDJSON, numbered(5001, 5002)+bad+numbered(5003, 5003)); a.status != 200 ||
			a.summary() != "1503: 3 new, 0 unchanged, 1500 refused, stored"+listed(40004, 2) {
			t.Errorf("1500 bad rows of 1503: %d %s", a.status, a.summary())
		}
		conflicts := strings.ReplaceAll(numbered(1, 2000), "plant", "pot")
		if a := s.importRows("?mode=partial", inNDJSON, conflicts+numbered(6001, 6001)); a.status != 200 ||
			a.summary() != "2001: 1 new, 0 unchanged, 2000 refused, stored"+listed(40901, 0) {
			t.Errorf("2000 conflicts: %d %s", a.status, a.summary())
		}
		if got := s.export(inNDJSON); got != numbered(1, 3000)+numbered(5001, 5003)+numbered(6001, 6001) {
			t.Errorf("after all of them: %d bytes are stored", len(got))
		}
	})
}

func TestImportParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, test := range []struct{ query, names string }{
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
		a := s.importRows("?"+test.query, inNDJSON, bodyOf(1))
		checkError(t, test.query, a, 400, 40007)
		checkNames(t, test.query, a, test.names)
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
		what := test.header + ": " + test.value
		a := s.call("POST", "/plants/import", bodyOf(1)+"\n", "Content-Type", inNDJSON, test.header, test.value)
		if test.code != 0 {
			checkError(t, what, a, 400, test.code)
		} else if !strings.HasPrefix(a.summary(), "1: ") || a.status != 200 {
			t.Errorf("%s: got %d %s", what, a.status, a.body)
		}
		if stored := s.export(inNDJSON) != ""; test.code != 0 && stored {
			t.Errorf("%s: it was stored", what)
		}
	}
	for _, contentType := range []string{"text/csv; charset=utf-8; header=present", `Text/CSV;charset="UTF-8"`} {
		if a := s.importRows("", contentType, "id,name\n2,a\n"); a.status != 200 || !strings.HasPrefix(a.summary(), "1: ") {
			t.Errorf("%s: got %d %s", contentType, a.status, a.body)
		}
	}
}

// TestImportTooLarge imports more than is allowed, said before and not.
func TestImportTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_BULK_MAX_BODY_BYTES=70000")
	if a := s.importRows("", inNDJSON, strings.Repeat("\n", 70000-len(bodyOf(0)))+bodyOf(0)); a.status != 200 || !strings.HasPrefix(a.summary(), "1: 1 new") {
		t.Errorf("as much as is allowed: %d %s", a.status, a.body)
	}
	for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
		for _, contentType := range []string{inNDJSON, inCSV} {
			body := numbered(1, 2500)
			if contentType == inCSV {
				body = "id,name\n" + strings.Repeat("1,a\n", 20000)
			}
			headers := []string{"Authorization", "Bearer " + token, "Content-Type", contentType}
			checkError(t, contentType+" of an announced length"+query, s.importRows(query, contentType, body), 400, 41301)
			checkError(t, contentType+" of no announced length"+query, s.send("POST", "/plants/import"+query, io.MultiReader(strings.NewReader(body)), headers...), 400, 41301)
			if got := s.export(inNDJSON); strings.Count(got, "\n") != 1 {
				t.Errorf("%s%s: %s is stored", contentType, query, got)
			}
		}
	}
}

// openImport is an import whose body goes on.
type openImport struct {
	t       *testing.T
	body    *io.PipeWriter
	leave   func()      // as a client that is killed, or whose service is
	answers chan answer // closed where there is none
}

// beginImport begins an import, and returns when the service has begun to read
// it.
func (s *service) beginImport(query string) *openImport {
	s.t.Helper()
	ctx, cancel := context.WithCancel(s.t.Context())
	out, in := io.Pipe()
	i := &openImport{t: s.t, body: in, answers: make(chan answer, 1)}
	i.leave = func() {
		cancel()
		_ = in.CloseWithError(context.Canceled) // which the transport waits for
	}
	// The client sends the body when the service asks for it.
	begun := make(chan struct{})
	body := &watchedReader{out, sync.OnceFunc(func() { close(begun) })}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/plants/import"+query, body)
	if err != nil {
		s.t.Fatal(err)
	}
	for header, value := range map[string]string{"Authorization": "Bearer " + token, "Content-Type": inNDJSON, "Expect": "100-continue"} {
		request.Header.Set(header, value)
	}
	go func() {
		defer close(i.answers)
		defer cancel()
		transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * patience}
		response, err := transport.RoundTrip(request)
		if err != nil {
			return
		}
		defer response.Body.Close()
		if text, err := io.ReadAll(response.Body); err == nil {
			i.answers <- answer{response.StatusCode, response.Header, string(text)}
		}
	}()
	receive(s.t, begun)
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
func (i *openImport) end() answer {
	i.t.Helper()
	if err := i.body.Close(); err != nil {
		i.t.Fatal(err)
	}
	return receive(i.t, i.answers)
}

// TestImportSlowly holds two imports open: they are in nobody's way, but in that
// of a third.
func TestImportSlowly(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		first, second := s.beginImport(""), s.beginImport("?mode=partial")
		first.write(numbered(1, 2000))
		second.write(numbered(2001, 4000))
		for what, a := range map[string]answer{
			"a third import":    s.importRows("", inNDJSON, bodyOf(9000)),
			"a third dry run":   s.importRows("?dry_run=true", inNDJSON, bodyOf(9000)),
			"an export":         s.call("GET", "/plants/export", ""),
			"an export to HEAD": s.call("HEAD", "/plants/export", ""),
		} {
			if a.header.Get("Retry-After") == "" {
				t.Errorf("%s: no Retry-After", what)
			}
			if what == "an export to HEAD" {
				checkEmpty(t, what, a, 503)
			} else {
				checkError(t, what, a, 503, 50301)
			}
		}
		begin := time.Now()
		for id := range int64(20) {
			if a := s.post(bodyOf(5000 + id)); a.status != 200 {
				t.Errorf("POST while imports go on: %d %s", a.status, a.body)
			}
		}
		checkStored(t, "PUT while imports go on", s.call("PUT", "/plants/1", `{"name":"plant 1"}`), `{"id":1,"name":"plant 1"}`)
		if a := s.call("GET", "/plants?limit=1000", ""); len(a.plants(t)) != 21 {
			t.Errorf("%d plants are listed while imports go on, want 21", len(a.plants(t)))
		}
		if took := time.Since(begin); took > 5*time.Second {
			t.Errorf("writing while imports go on took %v", took)
		}
		if a := first.end(); a.status != 200 || a.summary() != "2000: 1999 new, 1 unchanged, 0 refused, stored" {
			t.Errorf("the first import: %d %s", a.status, a.body)
		}
		if a := s.importRows("", inNDJSON, bodyOf(9000)); a.status != 200 {
			t.Errorf("a third import after the first: %d %s", a.status, a.body)
		}
		if a := second.end(); a.status != 200 || a.summary() != "2000: 2000 new, 0 unchanged, 0 refused, stored" {
			t.Errorf("the second import: %d %s", a.status, a.body)
		}
		if got := s.export(inNDJSON); got != numbered(1, 4000)+numbered(5000, 5019)+numbered(9000, 9000) {
			t.Errorf("after all of them: %d bytes are stored", len(got))
		}
	})
}

// TestImportBreaksOff sends imports that end before they are whole.
func TestImportBreaksOff(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		address, _ := strings.CutPrefix(s.url, "http://")
		rows := numbered(1, 1500)
		for _, test := range []struct{ what, header, body string }{
			{"a body that is shorter than announced", fmt.Sprintf("Content-Length: %d", len(rows)+1), rows},
			{"a body that ends in the middle of a row", fmt.Sprintf("Content-Length: %d", len(rows)), rows[:len(rows)-10]},
			{"chunks without an end", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(rows), rows)},
			{"a chunk without an end", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s", len(rows)+5, rows)},
			{"a chunk of no size", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\nx\r\n", len(rows), rows)},
		} {
			for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
				conn, err := net.Dial("tcp", address)
				if err != nil {
					t.Fatal(err)
				}
				_ = conn.SetDeadline(time.Now().Add(patience))
				fmt.Fprintf(conn, "POST /plants/import%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%s\r\n\r\n%s",
					query, token, inNDJSON, test.header, test.body)
				if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
					t.Fatal(err)
				}
				response, err := http.ReadResponse(bufio.NewReader(conn), nil)
				if err != nil {
					t.Fatalf("%s%s: %v", test.what, query, err)
				}
				text, err := io.ReadAll(response.Body)
				if err != nil {
					t.Errorf("%s%s: %v", test.what, query, err)
				}
				_ = response.Body.Close()
				_ = conn.Close()
				checkError(t, test.what+query, answer{response.StatusCode, response.Header, string(text)}, 400, 40001)
			}
		}
		// A client that is gone gets no answer.
		for round, query := range []string{"", "?mode=partial", "?dry_run=true"} {
			i := s.beginImport(query)
			i.write(rows)
			i.leave()
			if a := receive(t, i.answers); a.status != 0 {
				t.Errorf("the client that left got %d %s", a.status, a.body)
			}
			s.awaitRequests("/plants/import", 15+round+1)
		}
		if got := s.export(inNDJSON); got != "" {
			t.Errorf("%d rows are stored", strings.Count(got, "\n"))
		}
		if a := s.importRows("", inNDJSON, rows); a.status != 200 || a.summary() != "1500: 1500 new, 0 unchanged, 0 refused, stored" {
			t.Errorf("the whole of it: %d %s", a.status, a.body)
		}
	})
}

// awaitRequests waits until n requests for path have ended.
func (s *service) awaitRequests(path string, n int) {
	s.t.Helper()
	eventually(s.t, fmt.Sprintf("the end of %d requests for %s", n, path), func() bool {
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
		i := s.beginImport("")
		i.write(body)
		kill := func() {
			t.Helper()
			if err := s.process.Kill(); err != nil {
				t.Fatal(err)
			}
			i.leave()
			if a := receive(t, i.answers); a.status != 0 {
				t.Errorf("the service that was killed answered %d %s", a.status, a.body)
			}
			_ = s.wait()
		}
		kill()
		s = start(t, "DATABASE_URL="+url)
		if got := s.export(inNDJSON); got != "" {
			t.Errorf("killed while an import arrived: %d rows are stored", strings.Count(got, "\n"))
		}

		i = s.beginImport("")
		i.write(body)
		stored, release := awaitStoring(t, url, rows/2)
		if err := i.body.Close(); err != nil {
			t.Fatal(err)
		}
		stored()
		i.leave()
		if a := receive(t, i.answers); a.status != 0 {
			t.Errorf("the client that was killed got %d %s", a.status, a.body)
		}
		release()
		s.awaitRequests("/plants/import", 1)
		if got := s.export(inNDJSON); got != "" {
			t.Errorf("left while an import was stored: %d rows are stored", strings.Count(got, "\n"))
		}

		i = s.beginImport("")
		i.write(body)
		stored, release = awaitStoring(t, url, rows/2)
		if err := i.body.Close(); err != nil {
			t.Fatal(err)
		}
		stored()
		kill()
		release()
		s = start(t, "DATABASE_URL="+url)
		if got := s.export(inNDJSON); got != "" {
			t.Errorf("killed while an import was stored: %d rows are stored", strings.Count(got, "\n"))
		}
		if a := s.importRows("", inNDJSON, body); a.status != 200 || a.summary() != fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 refused, stored", rows) {
			t.Errorf("at last: %d %s", a.status, a.body)
		}
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
	if got := s.export(inNDJSON) + s.export(inCSV); got != "id,name,tag\n" {
		t.Errorf("an export of nothing has %q", got)
	}
	if a := s.importRows("", inNDJSON, `{"id":2,"name":"=b","tag":""}`+"\n"+`{"id":-1,"name":"a \"<\", c","tag":"-t"}`+"\n"+`{"id":3,"name":"c"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
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
		for _, method := range []string{"GET", "HEAD"} {
			a := s.call(method, "/plants/export", "", "Accept", test.accept)
			want, contentType, disposition := ndjson, "application/x-ndjson", ""
			if test.csv {
				want, contentType, disposition = inCells, "text/csv; charset=utf-8; header=present", `attachment; filename="plants.csv"`
			}
			if method == "HEAD" {
				want = ""
			}
			if a.status != 200 || a.body != want || a.header.Get("Content-Type") != contentType ||
				a.header.Get("Content-Disposition") != disposition || a.header.Get("Vary") != "Accept" {
				t.Errorf("%s with Accept: %s: got %d %q with %v, want %q", method, test.accept, a.status, a.body, a.header, want)
			}
			checkHeaders(t, test.accept, a)
		}
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

		if a := s.importRows("", inNDJSON, rows.String()); a.status != 200 || a.summary() != fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 refused, stored", id+len(oddTexts)+2) {
			t.Fatalf("%d %s", a.status, a.body)
		}
		inLines, inCells := s.export(inNDJSON), s.export(inCSV)
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
			other := start(t)
			if a := other.importRows("", contentType, body); a.status != 200 || !strings.Contains(a.summary(), " 0 unchanged, 0 refused, stored") {
				t.Errorf("%s: %d %s", contentType, a.status, a.body)
			}
			if a := s.importRows("", contentType, body); a.status != 200 || !strings.Contains(a.summary(), " 0 new, ") {
				t.Errorf("%s into where it came from: %d %s", contentType, a.status, a.body)
			}
			if got := other.export(inNDJSON); got != inLines {
				t.Errorf("through %s, there is\n%s\nof\n%s", contentType, got, inLines)
			}
			if got := other.export(inCSV); got != inCells {
				t.Errorf("through %s, there is\n%s\nof\n%s", contentType, got, inCells)
			}
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
				a, err := s.try("POST", "/plants/import", strings.NewReader(rows.String()), "Authorization", "Bearer "+token, "Content-Type", inNDJSON)
				if err != nil || a.status != 200 {
					t.Errorf("%d %s, %v", a.status, a.body, err)
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
			for _, row := range cells(t, s.export(inCSV))[1:] {
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
func (s *service) beginExport() (rest io.ReadCloser, first string) {
	s.t.Helper()
	request, err := http.NewRequest(http.MethodGet, s.url+"/plants/export", nil)
	if err != nil {
		s.t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	response, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(request)
	if err != nil {
		s.t.Fatal(err)
	}
	start := make([]byte, 1000)
	if _, err := io.ReadFull(response.Body, start); err != nil || response.StatusCode != http.StatusOK {
		s.t.Fatalf("%s, %v", response.Status, err)
	}
	return response.Body, string(start)
}

// TestExportWithoutDatabase takes the database away in the middle of an export,
// which must not look whole then.
func TestExportWithoutDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := start(t, "DATABASE_URL="+url)
	dbtest.Exec(t, url, "INSERT INTO plants SELECT i, repeat('🌵', 255), repeat('🌵', 255), now(), now() FROM generate_series(1, 20000) AS i")
	rest, first := s.beginExport()
	dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT id, name, tag%' AND pid <> pg_backend_pid()")
	text, err := io.ReadAll(rest)
	if rows := strings.Count(first+string(text), "\n"); err == nil || rows >= 20000 {
		t.Errorf("an export that was broken off has %d rows: %v", rows, err)
	}
	_ = rest.Close()
	s.awaitLog("answer broken off")
	if got := s.export(inNDJSON); strings.Count(got, "\n") != 20000 {
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
		if a := s.importRows("", inNDJSON, body.String()); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		slow, first := s.beginExport()
		last := fmt.Sprintf("/plants/%d", rows-1)
		checkEmpty(t, "DELETE while an export goes on", s.call("DELETE", last, ""), 204)
		checkStored(t, "PUT while an export goes on", s.call("PUT", last, `{"name":"new"}`), fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1))
		if a := s.post(bodyOf(rows)); a.status != 200 {
			t.Errorf("POST while an export goes on: %d %s", a.status, a.body)
		}
		// Clients that leave, more of them than may be there at once.
		for round := range 3 {
			left, _ := s.beginExport()
			if err := left.Close(); err != nil {
				t.Fatal(err)
			}
			s.awaitRequests("/plants/export", round+1)
		}
		rest, err := io.ReadAll(slow)
		if got := first + string(rest); err != nil || got != body.String() {
			t.Errorf("the slow client got %d bytes of what there was when it began, which are %d: %v", len(got), body.Len(), err)
		}
		_ = slow.Close()
		if got := s.export(inNDJSON); strings.Count(got, "\n") != rows+1 || !strings.HasSuffix(got, fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1)+"\n"+bodyOf(rows)+"\n") {
			t.Errorf("after all of them, an export has %d rows", strings.Count(got, "\n"))
		}
		if strings.Contains(s.stderr.String(), `"level":"error"`) {
			t.Error("a client that left is logged as an error")
		}

		broken, _ := s.beginExport()
		if err := s.process.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadAll(broken); err == nil {
			t.Error("an export that was broken off looks whole")
		}
		_ = broken.Close()
		_ = s.wait()
	})
}
