package bulk

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// emptyTable deletes all plants from the database.
func emptyTable(t *testing.T, databaseURL string) {
	t.Helper()
	if _, err := service.OpenTable(t, databaseURL).ExecContext(t.Context(), "DELETE FROM plants"); err != nil {
		t.Fatal(err)
	}
}

// TestImportModes imports five rows in each mode. If bad, the third is invalid.
func TestImportModes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
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
				for _, contentType := range []string{service.InNDJSON, service.InCSV} {
					t.Run(contentType, func(t *testing.T) {
						// Each letter is a plant: a digit has the imported content,
						// another letter other content.
						for _, c := range test.before {
							id := strings.IndexRune("12345abcdeABCDE", c)%5 + 1
							s.Call(t, "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%c"}`, c)).RequireOK(t)
						}
						before := s.Call(t, "GET", "/plants", "")
						var body strings.Builder
						first := 1
						if contentType == service.InCSV {
							body.WriteString("id,name\n")
							first = 2
						}
						for id := 1; id <= 5; id++ {
							name := strconv.Itoa(id)
							if test.bad && id == 3 {
								name = " "
							}
							if contentType == service.InCSV {
								fmt.Fprintf(&body, "%d,%s\n", id, name)
							} else {
								fmt.Fprintf(&body, `{"id":%d,"name":"%s"}`+"\n", id, name)
							}
						}
						want := test.want
						for i := range 3 {
							want = strings.ReplaceAll(want, fmt.Sprintf("LINE%d", i+1), strconv.Itoa(i+first))
						}
						r := s.ImportRows(t, test.query, contentType, body.String())
						r.CheckReport(t, test.code, want)
						after := s.Call(t, "GET", "/plants", "")
						var names []string
						for _, p := range after.Plants(t) {
							names = append(names, p.Name)
						}
						if stored := strings.Join(names, ""); stored != test.stored {
							t.Errorf("stored %s, want %s", stored, test.stored)
						}
						// Stored plants keep their version.
						for _, p := range before.Plants(t) {
							if !strings.Contains(after.Body, p.UpdatedAt.Format("2006-01-02T15:04:05.000000Z")) {
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
		s := service.Start(t, "DATABASE_URL="+url)

		repeated := service.Numbered(1, 2500) + service.Numbered(1, 1) + `{"id":2,"name":"x"}` + "\n" + service.Numbered(2500, 2500)
		s.ImportRows(t, "", service.InNDJSON, repeated).CheckReport(t, 40901, "2503: 2500 new, 2 unchanged, 1 rejected; 2502 40901")
		if got := s.Export(t, service.InNDJSON); got != "" {
			t.Errorf("got %d bytes of plants, want no plants", len(got))
		}
		s.ImportRows(t, "?mode=partial", service.InNDJSON, repeated).CheckReport(t, 0, "2503: 2500 new, 2 unchanged, 1 rejected, stored; 2502 40901")
		if got := s.Export(t, service.InNDJSON); got != service.Numbered(1, 2500) {
			t.Errorf("got %d bytes of plants, want 2500 plants", len(got))
		}
		s.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 3000)).CheckReport(t, 0, "3000: 500 new, 2500 unchanged, 0 rejected, stored")

		// A report lists 1000 rows and counts the others.
		listed := func(code, shift int) string {
			var lines strings.Builder
			for line := 1; line <= 1000; line++ {
				fmt.Fprintf(&lines, "; %d %d", line+shift, code)
			}
			return lines.String()
		}
		bad := strings.Repeat("{}\n", 1500)
		s.ImportRows(t, "", service.InNDJSON, bad).CheckReport(t, 40004, "1500: 0 new, 0 unchanged, 1500 rejected"+listed(40004, 0))
		s.ImportRows(t, "?mode=partial", service.InNDJSON, service.Numbered(5001, 5002)+bad+service.Numbered(5003, 5003)).CheckReport(t, 0, "1503: 3 new, 0 unchanged, 1500 rejected, stored"+listed(40004, 2))
		conflicts := strings.ReplaceAll(service.Numbered(1, 2000), "plant", "pot")
		s.ImportRows(t, "?mode=partial", service.InNDJSON, conflicts+service.Numbered(6001, 6001)).CheckReport(t, 0, "2001: 1 new, 0 unchanged, 2000 rejected, stored"+listed(40901, 0))
		if got := s.Export(t, service.InNDJSON); got != service.Numbered(1, 3000)+service.Numbered(5001, 5003)+service.Numbered(6001, 6001) {
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
		s := service.Start(t, "DATABASE_URL="+url)
		for _, test := range []struct{ name, stored, body, want, replaced string }{
			{"the same", "", a + a, "2: 1 new, 1 unchanged, 0 rejected", "2: 1 new, 1 unchanged, 0 rejected"},
			{"another", "", a + b + a, "3: 1 new, 1 unchanged, 1 rejected; 2 40901", "3: 1 new, 1 unchanged, 1 rejected; 2 40901"},
			{"many rows apart", "", a + service.Numbered(2, 1500) + a + b, "1502: 1500 new, 1 unchanged, 1 rejected; 1502 40901", "1502: 1500 new, 1 unchanged, 1 rejected; 1502 40901"},
			{"many times", "", strings.Repeat(a, 2500), "2500: 1 new, 2499 unchanged, 0 rejected", "2500: 1 new, 2499 unchanged, 0 rejected"},
			{"an invalid one first", "", `{"id":1,"name":""}` + "\n" + b, "2: 1 new, 0 unchanged, 1 rejected; 1 40006", "2: 1 new, 0 unchanged, 1 rejected; 1 40006"},
			{"as stored", "a", a + b + a, "3: 0 new, 2 unchanged, 1 rejected; 2 40901", "3: 0 new, 2 unchanged, 1 rejected; 2 40901"},
			{"other than stored", "b", a + b + a, "3: 0 new, 0 unchanged, 3 rejected; 1 40901; 2 40901; 3 40901", "3: 0 new, 1 replaced, 1 unchanged, 1 rejected; 2 40901"},
		} {
			t.Run(test.name, func(t *testing.T) {
				if test.stored != "" {
					s.Call(t, "PUT", "/plants/1", fmt.Sprintf(`{"name":%q}`, test.stored)).RequireOK(t)
				}
				s.ImportRows(t, "?mode=partial&dry_run=true", service.InNDJSON, test.body).CheckReport(t, 0, test.want)
				r := s.ImportRows(t, "?mode=partial&dry_run=true&on_conflict=replace", service.InNDJSON, test.body)
				r.CheckReport(t, 0, test.replaced)
				if strings.Contains(test.replaced, "40901") && !strings.Contains(r.Body, "plant 1 occurs twice with different content") {
					t.Errorf("got %s, want the reason", r.Body)
				}
			})
		}
		t.Run("many times, other than stored", func(t *testing.T) {
			s.Call(t, "PUT", "/plants/1", `{"name":"b"}`).RequireOK(t)
			r := s.ImportRows(t, "?mode=partial", service.InNDJSON, strings.Repeat(a, 2500))
			var report struct {
				Refused int
				Errors  []struct{ Line int }
			}
			service.Must(t, json.Unmarshal([]byte(r.Body), &report))
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
	s := service.Start(t)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	for query, taken := range map[string]string{"": `{"id":1,"name":"another"}`, "?on_conflict=replace": `{"id":2,"name":"x"}` + "\n" + `{"id":2,"name":"y"}`} {
		t.Run("import"+query, func(t *testing.T) {
			r := s.ImportRows(t, query, "application/x-ndjson", taken+strings.Repeat("\n{}", 3000))
			r.CheckStatus(t, 409)
			var rejected struct {
				Report struct{ Errors []struct{ Line, Error int } }
			}
			service.Must(t, json.Unmarshal([]byte(r.Body), &rejected))
			got, first := rejected.Report.Errors, strings.Count(taken, "\n")+1
			if n := len(got); n != 1000 || got[0].Line != first || got[0].Error != 40901 || got[n-1].Line != first+n-1 {
				t.Errorf("got %d errors: %v", n, got)
			}
		})
	}
}

func TestImportParameters(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
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
			s.ImportRows(t, "?"+test.query, service.InNDJSON, service.BodyOf(1)).CheckError(t, 40007, test.mentions)
		})
	}
	for _, test := range []struct {
		header, value string
		code          int // 0: accepted
	}{
		{"Content-Type", "application/json", 41501},
		{"Content-Type", "application/x-ndjson; charset=iso-8859-1", 41501},
		{"Content-Type", "text/csv; charset=utf-16", 41501},
		{"Content-Type", "text/plain", 41501},
		{"Content-Type", "text/*", 41501},
		{"Content-Type", "multipart/form-data; boundary=x", 41501},
		{"Content-Type", ";", 41501},
		{"Content-Encoding", "gzip, gzip", 41501},
		{"Content-Encoding", "br", 41501},
		{"Content-Type", "", 0},
		{"Content-Type", "application/x-ndjson", 0},
		{"Content-Type", "Application/X-NDJSON; Charset=UTF-8", 0},
		{"Content-Type", "application/ndjson; charset=utf8", 0},
		{"Content-Type", "application/jsonl", 0},
		{"Content-Type", "application/x-jsonlines", 0},
		{"Content-Encoding", "identity", 0},
	} {
		t.Run(test.header+": "+test.value, func(t *testing.T) {
			r := s.Call(t, "POST", "/plants/import", service.BodyOf(1)+"\n", "Content-Type", service.InNDJSON, test.header, test.value)
			if test.code != 0 {
				r.CheckError(t, test.code)
				r.CheckHeader(t, "Accept-Encoding", map[string]string{"Content-Encoding": "gzip"}[test.header])
			} else if !strings.HasPrefix(r.Summary(), "1: ") || r.Status != 200 {
				t.Errorf("got %v, want a report of 1 row", r)
			}
			if stored := s.Export(t, service.InNDJSON) != ""; test.code != 0 && stored {
				t.Error("stored a plant of a rejected import")
			}
		})
	}
	for _, contentType := range []string{"text/csv; charset=utf-8; header=present", `Text/CSV;charset="UTF-8"`, "application/vnd.ms-excel", "application/csv", "text/x-csv; charset=utf8"} {
		t.Run(contentType, func(t *testing.T) {
			if r := s.ImportRows(t, "", contentType, "id,name\n2,a\n"); r.Status != 200 || !strings.HasPrefix(r.Summary(), "1: ") {
				t.Errorf("got %v, want a report of 1 row", r)
			}
		})
	}
}

// TestImportTooLarge imports more than the limit, with and without Content-Length.
func TestImportTooLarge(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_BULK_MAX_BODY_BYTES=70000")
	if r := s.ImportRows(t, "", service.InNDJSON, strings.Repeat("\n", 70000-len(service.BodyOf(0)))+service.BodyOf(0)); r.Status != 200 || !strings.HasPrefix(r.Summary(), "1: 1 new") {
		t.Errorf("got %v, want 1 new plant from a body at the limit", r)
	}
	for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
		for _, contentType := range []string{service.InNDJSON, service.InCSV} {
			t.Run(contentType+query, func(t *testing.T) {
				body := service.Numbered(1, 2500)
				if contentType == service.InCSV {
					body = "id,name\n" + strings.Repeat("1,a\n", 20000)
				}
				s.ImportRows(t, query, contentType, body).CheckError(t, 41301)
				s.Send(t, "POST", "/plants/import"+query, io.MultiReader(strings.NewReader(body)), service.As(service.Token, "Content-Type", contentType)...).CheckError(t, 41301)
				if got := s.Export(t, service.InNDJSON); strings.Count(got, "\n") != 1 {
					t.Errorf("stored %s, want 1 plant", got)
				}
			})
		}
	}
}

// TestImportWithoutABody: it is a mistake, unlike an empty file.
func TestImportWithoutABody(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Send(t, "POST", "/plants/import", nil, service.As(service.Token)...).CheckError(t, 40001, "absent")
	s.Send(t, "POST", "/plants/import", nil, service.As(service.Token, "Content-Type", service.InNDJSON)...).RequireOK(t)
}
