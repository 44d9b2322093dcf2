package tests

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"plantstore/database/dbtest"
)

const (
	inNDJSON = "application/x-ndjson"
	inCSV    = "text/csv"
)

func (s *service) importRows(t *testing.T, query, contentType, body string) response {
	t.Helper()
	return s.call(t, "POST", "/plants/import"+query, body, "Content-Type", contentType)
}

// summary returns the report of an import in one line, with the line and the code of each
// rejected row.
func (r response) summary() string {
	type report struct {
		Rows, Created, Replaced, Unchanged, Refused *int
		Stored                                      *bool
		Errors                                      []struct {
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
	if rep.Rows == nil || rep.Created == nil || rep.Replaced == nil || rep.Unchanged == nil || rep.Refused == nil || rep.Stored == nil || rep.Errors == nil {
		return "no report"
	}
	var text strings.Builder
	fmt.Fprintf(&text, "%d: %d new, ", *rep.Rows, *rep.Created)
	if *rep.Replaced > 0 {
		fmt.Fprintf(&text, "%d replaced, ", *rep.Replaced)
	}
	fmt.Fprintf(&text, "%d unchanged, %d rejected", *rep.Unchanged, *rep.Refused)
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

// emptyTable deletes all plants from the database.
func emptyTable(t *testing.T, databaseURL string) {
	t.Helper()
	if _, err := openTable(t, databaseURL).ExecContext(t.Context(), "DELETE FROM plants"); err != nil {
		t.Fatal(err)
	}
}

// numbered returns rows of NDJSON with the ids from first to last.
func numbered(first, last int64) string {
	var rows strings.Builder
	for id := first; id <= last; id++ {
		rows.WriteString(bodyOf(id) + "\n")
	}
	return rows.String()
}

// TestImportModes imports five rows in each mode. If bad, the third is invalid.
func TestImportModes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, query, before string // before is stored at the start
			bad                 bool
			code                int
			want, stored        string
		}{
			{name: "good rows", want: "5: 5 new, 0 unchanged, 0 rejected, stored", stored: "12345"},
			{name: "good rows in mode=all", query: "?mode=all&dry_run=false", want: "5: 5 new, 0 unchanged, 0 rejected, stored", stored: "12345"},
			{name: "good rows in mode=partial", query: "?mode=partial", want: "5: 5 new, 0 unchanged, 0 rejected, stored", stored: "12345"},
			{name: "good rows in a dry run", query: "?dry_run=true", want: "5: 5 new, 0 unchanged, 0 rejected"},
			{name: "good rows in a dry run of mode=partial", query: "?dry_run=true&mode=partial", want: "5: 5 new, 0 unchanged, 0 rejected"},
			{name: "a bad row", bad: true, code: 40006, want: "5: 4 new, 0 unchanged, 1 rejected; LINE3 40006"},
			{name: "a bad row in mode=partial", query: "?mode=partial", bad: true, want: "5: 4 new, 0 unchanged, 1 rejected, stored; LINE3 40006", stored: "1245"},
			{name: "a bad row in a dry run", query: "?dry_run=true", bad: true, code: 40006, want: "5: 4 new, 0 unchanged, 1 rejected; LINE3 40006"},
			{name: "a bad row in a dry run of mode=partial", query: "?dry_run=true&mode=partial", bad: true, want: "5: 4 new, 0 unchanged, 1 rejected; LINE3 40006"},
			{name: "stored rows", before: "12345", want: "5: 0 new, 5 unchanged, 0 rejected, stored", stored: "12345"},
			{name: "some stored rows", before: "15", want: "5: 3 new, 2 unchanged, 0 rejected, stored", stored: "12345"},
			{name: "some stored rows in a dry run", query: "?dry_run=true", before: "15", want: "5: 3 new, 2 unchanged, 0 rejected", stored: "15"},
			{name: "conflicts", before: "aB", code: 40901, want: "5: 3 new, 0 unchanged, 2 rejected; LINE1 40901; LINE2 40901", stored: "aB"},
			{name: "conflicts, in mode=partial", query: "?mode=partial", before: "5a", want: "5: 3 new, 1 unchanged, 1 rejected, stored; LINE1 40901", stored: "a2345"},
			{name: "conflicts, in a dry run", query: "?dry_run=true", before: "a", code: 40901, want: "5: 4 new, 0 unchanged, 1 rejected; LINE1 40901", stored: "a"},
			{name: "conflicts, in a dry run of mode=partial", query: "?mode=partial&dry_run=true", before: "a", want: "5: 4 new, 0 unchanged, 1 rejected; LINE1 40901", stored: "a"},
			{name: "conflicts, and a bad row", before: "aB", bad: true, code: 40901, want: "5: 2 new, 0 unchanged, 3 rejected; LINE1 40901; LINE2 40901; LINE3 40006", stored: "aB"},
			{name: "conflicts, and a bad row, in mode=partial", query: "?mode=partial", before: "a5", bad: true, want: "5: 2 new, 1 unchanged, 2 rejected, stored; LINE1 40901; LINE3 40006", stored: "a245"},
		} {
			t.Run(test.name, func(t *testing.T) {
				for _, contentType := range []string{inNDJSON, inCSV} {
					t.Run(contentType, func(t *testing.T) {
						// Each letter is a plant: a digit has the imported content,
						// another letter other content.
						for _, c := range test.before {
							id := strings.IndexRune("12345abcdeABCDE", c)%5 + 1
							requireOK(t, s.call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%c"}`, c)))
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
						checkReport(t, r, test.code, want)
						after := s.call(t, "GET", "/plants", "")
						var names []string
						for _, p := range after.plants(t) {
							names = append(names, p.Name)
						}
						if stored := strings.Join(names, ""); stored != test.stored {
							t.Errorf("stored %s, want %s", stored, test.stored)
						}
						// Stored plants keep their version.
						for _, p := range before.plants(t) {
							if !strings.Contains(after.body, p.UpdatedAt.Format("2006-01-02T15:04:05.000000Z")) {
								t.Errorf("got %v, want %+v unchanged", after, p)
							}
						}
						emptyTable(t, url)
					})
				}
			})
		}
	})
}

// TestImportManyRows imports more rows than one batch or one report has room for.
func TestImportManyRows(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)

		repeated := numbered(1, 2500) + numbered(1, 1) + `{"id":2,"name":"x"}` + "\n" + numbered(2500, 2500)
		checkReport(t, s.importRows(t, "", inNDJSON, repeated), 40901, "2503: 2500 new, 2 unchanged, 1 rejected; 2502 40901")
		if got := s.export(t, inNDJSON); got != "" {
			t.Errorf("got %d bytes of plants, want no plants", len(got))
		}
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, repeated), 0, "2503: 2500 new, 2 unchanged, 1 rejected, stored; 2502 40901")
		if got := s.export(t, inNDJSON); got != numbered(1, 2500) {
			t.Errorf("got %d bytes of plants, want 2500 plants", len(got))
		}
		checkReport(t, s.importRows(t, "", inNDJSON, numbered(1, 3000)), 0, "3000: 500 new, 2500 unchanged, 0 rejected, stored")

		// A report lists 1000 rows and counts the others.
		listed := func(code, shift int) string {
			var lines strings.Builder
			for line := 1; line <= 1000; line++ {
				fmt.Fprintf(&lines, "; %d %d", line+shift, code)
			}
			return lines.String()
		}
		bad := strings.Repeat("{}\n", 1500)
		checkReport(t, s.importRows(t, "", inNDJSON, bad), 40004, "1500: 0 new, 0 unchanged, 1500 rejected"+listed(40004, 0))
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, numbered(5001, 5002)+bad+numbered(5003, 5003)), 0, "1503: 3 new, 0 unchanged, 1500 rejected, stored"+listed(40004, 2))
		conflicts := strings.ReplaceAll(numbered(1, 2000), "plant", "pot")
		checkReport(t, s.importRows(t, "?mode=partial", inNDJSON, conflicts+numbered(6001, 6001)), 0, "2001: 1 new, 0 unchanged, 2000 rejected, stored"+listed(40901, 0))
		if got := s.export(t, inNDJSON); got != numbered(1, 3000)+numbered(5001, 5003)+numbered(6001, 6001) {
			t.Errorf("got %d bytes of plants, want all new ones", len(got))
		}
	})
}

// TestImportRepeatsAnID: the id belongs to its first valid row, even if that is rejected.
func TestImportRepeatsAnID(t *testing.T) {
	t.Parallel()
	const a, b = `{"id":1,"name":"a"}` + "\n", `{"id":1,"name":"b"}` + "\n"
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		for _, test := range []struct{ name, stored, body, want, replaced string }{
			{"the same", "", a + a, "2: 1 new, 1 unchanged, 0 rejected", "2: 1 new, 1 unchanged, 0 rejected"},
			{"another", "", a + b + a, "3: 1 new, 1 unchanged, 1 rejected; 2 40901", "3: 1 new, 1 unchanged, 1 rejected; 2 40901"},
			{"many rows apart", "", a + numbered(2, 1500) + a + b, "1502: 1500 new, 1 unchanged, 1 rejected; 1502 40901", "1502: 1500 new, 1 unchanged, 1 rejected; 1502 40901"},
			{"many times", "", strings.Repeat(a, 2500), "2500: 1 new, 2499 unchanged, 0 rejected", "2500: 1 new, 2499 unchanged, 0 rejected"},
			{"an invalid one first", "", `{"id":1,"name":""}` + "\n" + b, "2: 1 new, 0 unchanged, 1 rejected; 1 40006", "2: 1 new, 0 unchanged, 1 rejected; 1 40006"},
			{"as stored", "a", a + b + a, "3: 0 new, 2 unchanged, 1 rejected; 2 40901", "3: 0 new, 2 unchanged, 1 rejected; 2 40901"},
			{"other than stored", "b", a + b + a, "3: 0 new, 0 unchanged, 3 rejected; 1 40901; 2 40901; 3 40901", "3: 0 new, 1 replaced, 1 unchanged, 1 rejected; 2 40901"},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.stored != "" {
					requireOK(t, s.call(t, "PUT", "/plants/1", fmt.Sprintf(`{"name":%q}`, test.stored)))
				}
				checkReport(t, s.importRows(t, "?mode=partial&dry_run=true", inNDJSON, test.body), 0, test.want)
				r := s.importRows(t, "?mode=partial&dry_run=true&on_conflict=replace", inNDJSON, test.body)
				checkReport(t, r, 0, test.replaced)
				if strings.Contains(test.replaced, "40901") && !strings.Contains(r.body, "plant 1 occurs twice with different content") {
					t.Errorf("got %s, want the reason", r.body)
				}
			})
		}
		t.Run("many times, other than stored", func(t *testing.T) {
			requireOK(t, s.call(t, "PUT", "/plants/1", `{"name":"b"}`))
			r := s.importRows(t, "?mode=partial", inNDJSON, strings.Repeat(a, 2500))
			var report struct {
				Refused int
				Errors  []struct{ Line int }
			}
			must(t, json.Unmarshal([]byte(r.body), &report))
			if n := len(report.Errors); report.Refused != 2500 || n != 1000 || report.Errors[n-1].Line != n {
				t.Errorf("got %d refused rows and %d errors", report.Refused, n)
			}
		})
	})
}

// TestImportReportsTheFirstRows imports more rejected rows than a report lists. Whether an id is
// taken turns out after the other faults.
func TestImportReportsTheFirstRows(t *testing.T) {
	t.Parallel()
	s := start(t)
	requireOK(t, s.post(t, bodyOf(1)))
	for query, taken := range map[string]string{"": `{"id":1,"name":"another"}`, "?on_conflict=replace": `{"id":2,"name":"x"}` + "\n" + `{"id":2,"name":"y"}`} {
		t.Run("import"+query, func(t *testing.T) {
			r := s.importRows(t, query, "application/x-ndjson", taken+strings.Repeat("\n{}", 3000))
			checkStatus(t, r, 409)
			var rejected struct {
				Report struct{ Errors []struct{ Line, Error int } }
			}
			must(t, json.Unmarshal([]byte(r.body), &rejected))
			got, first := rejected.Report.Errors, strings.Count(taken, "\n")+1
			if n := len(got); n != 1000 || got[0].Line != first || got[0].Error != 40901 || got[n-1].Line != first+n-1 {
				t.Errorf("got %d errors: %v", n, got)
			}
		})
	}
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
		{"on_conflict=", "on_conflict"},
		{"on_conflict=Replace", "on_conflict"},
		{"on_conflict=refuse&on_conflict=replace", "on_conflict"},
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
			checkError(t, s.importRows(t, "?"+test.query, inNDJSON, bodyOf(1)), 40007, test.mentions)
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
		{"Content-Encoding", "identity", 41501},
		{"Content-Encoding", "gzip, gzip", 41501},
		{"Content-Encoding", "br", 41501},
		{"Content-Type", "", 0},
		{"Content-Type", "application/x-ndjson", 0},
		{"Content-Type", "Application/X-NDJSON; Charset=UTF-8", 0},
	} {
		t.Run(test.header+": "+test.value, func(t *testing.T) {
			r := s.call(t, "POST", "/plants/import", bodyOf(1)+"\n", "Content-Type", inNDJSON, test.header, test.value)
			if test.code != 0 {
				checkError(t, r, test.code)
				checkHeader(t, r, "Accept-Encoding", map[string]string{"Content-Encoding": "gzip"}[test.header])
			} else if !strings.HasPrefix(r.summary(), "1: ") || r.status != 200 {
				t.Errorf("got %v, want a report of 1 row", r)
			}
			if stored := s.export(t, inNDJSON) != ""; test.code != 0 && stored {
				t.Error("stored a plant of a rejected import")
			}
		})
	}
	for _, contentType := range []string{"text/csv; charset=utf-8; header=present", `Text/CSV;charset="UTF-8"`} {
		t.Run(contentType, func(t *testing.T) {
			if r := s.importRows(t, "", contentType, "id,name\n2,a\n"); r.status != 200 || !strings.HasPrefix(r.summary(), "1: ") {
				t.Errorf("got %v, want a report of 1 row", r)
			}
		})
	}
}

// TestImportTooLarge imports more than the limit, with and without Content-Length.
func TestImportTooLarge(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_BULK_MAX_BODY_BYTES=70000")
	if r := s.importRows(t, "", inNDJSON, strings.Repeat("\n", 70000-len(bodyOf(0)))+bodyOf(0)); r.status != 200 || !strings.HasPrefix(r.summary(), "1: 1 new") {
		t.Errorf("got %v, want 1 new plant from a body at the limit", r)
	}
	for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
		for _, contentType := range []string{inNDJSON, inCSV} {
			t.Run(contentType+query, func(t *testing.T) {
				body := numbered(1, 2500)
				if contentType == inCSV {
					body = "id,name\n" + strings.Repeat("1,a\n", 20000)
				}
				checkError(t, s.importRows(t, query, contentType, body), 41301)
				checkError(t, s.send(t, "POST", "/plants/import"+query, io.MultiReader(strings.NewReader(body)), as(token, "Content-Type", contentType)...), 41301)
				if got := s.export(t, inNDJSON); strings.Count(got, "\n") != 1 {
					t.Errorf("stored %s, want 1 plant", got)
				}
			})
		}
	}
}

// TestImportWithoutABody: it is a mistake, unlike an empty file.
func TestImportWithoutABody(t *testing.T) {
	t.Parallel()
	s := start(t)
	checkError(t, s.send(t, "POST", "/plants/import", nil, as(token)...), 40001, "absent")
	requireOK(t, s.send(t, "POST", "/plants/import", nil, as(token, "Content-Type", inNDJSON)...))
}
