package tests

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plantstore/database/dbtest"
)

// TestUnknownParameters sends a parameter that an operation does not have, which must not
// do anything.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		requireOK(t, s.post(t, `{"id":1,"name":"x"}`))
		before := s.call(t, "GET", "/plants/1", "")
		for _, test := range []struct{ method, path, body, mentions string }{
			{"POST", "/plants?dry_run=true", `{"id":2,"name":"x"}`, "dry_run"},
			{"POST", "/plants?id=2", `{"id":2,"name":"x"}`, "id"},
			{"GET", "/plants?Tag=x", "", "Tag"},
			{"GET", "/plants/1?fields=name", "", "fields"},
			{"HEAD", "/plants/1?fields=name", "", ""},
			{"PUT", "/plants/1?dry_run=true", `{"name":"y"}`, "dry_run"},
			{"PUT", "/plants/2?", `{"name":"y"`, "byte 11"}, // an empty query has none
			{"PATCH", "/plants/1?dry_run=true", `{"name":"y"}`, "dry_run"},
			{"DELETE", "/plants/1?dry_run=true", "", "dry_run"},
			{"DELETE", "/plants/1?x", "", "x"},
			{"DELETE", "/plants/1?%zz", "", "malformed"},
			{"POST", "/plants/import?dryrun=true", bodyOf(2), "dryrun"},
			{"POST", "/plants/import?mode=all&mode=all", bodyOf(2), "more than once"},
			{"GET", "/plants/export?limit=1", "", "limit"},
			{"GET", "/plants/export?format=csv", "", "format"},
			{"HEAD", "/plants/export?format=csv", "", ""},
			{"GET", "/plants/export?tag=a&tag=b", "", "more than once"},
			{"GET", "/plants/export?after=-0", "", "after"},
			{"GET", "/plants/export?q=", "", "q"},
			{"GET", "/plants/export?tag=%07", "", "tag"},
			{"HEAD", "/plants/export?after=x", "", ""},
			{"POST", "/tokens?dry_run=true", `{"name":"x","scopes":["admin"]}`, "dry_run"},
			{"GET", "/tokens?name=x", "", "name"},
			{"DELETE", "/tokens/pst_abcdefgh?dry_run=true", "", "dry_run"},
		} {
			t.Run(test.method+" "+test.path, func(t *testing.T) {
				r := s.call(t, test.method, test.path, test.body)
				switch {
				case test.method == "HEAD":
					checkStatus(t, r, 400)
				case strings.HasSuffix(test.path, "?"):
					checkError(t, r, 40001, test.mentions)
				default:
					checkError(t, r, 40007, test.mentions)
				}
			})
		}
		checkSame(t, s.call(t, "GET", "/plants/1", ""), before)
		if got := s.export(t, inNDJSON); got != `{"id":1,"name":"x"}`+"\n" {
			t.Errorf("got the plants %s, want the one before", got)
		}
		if got := s.call(t, "GET", "/tokens", "").body; got != "[]" {
			t.Errorf("got the tokens %s, want none", got)
		}
		// Probes and pages have no such check: proxies and browsers add parameters.
		for _, path := range []string{"/healthz?x=1", "/readyz?x=1", "/openapi.json?x=1", "/swagger/index.html?x=1"} {
			t.Run(path, func(t *testing.T) { checkStatus(t, s.get(t, path), 200) })
		}
	})
}

// TestExportFilters exports with the parameters of a list.
func TestExportFilters(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		rows := strings.Split(`{"id":-5,"name":"Aloe vera","tag":"succulent"}
{"id":0,"name":"Aloe ferox"}
{"id":1,"name":"100% aloe","tag":""}
{"id":2,"name":"Ficus","tag":"succulent"}
{"id":3,"name":"Aloe arborescens","tag":"succulent"}
`, "\n")
		requireOK(t, s.importRows(t, "", inNDJSON, strings.Join(rows, "\n")))
		for query, want := range map[string][]int{
			"":                               {0, 1, 2, 3, 4},
			"?tag=succulent":                 {0, 3, 4},
			"?tag=":                          {2},
			"?tag=none":                      {},
			"?q=ALOE":                        {0, 1, 2, 4},
			"?q=%25":                         {2},
			"?after=0":                       {2, 3, 4},
			"?after=-9223372036854775808":    {0, 1, 2, 3, 4},
			"?after=9223372036854775807":     {},
			"?after=-5&q=aloe&tag=succulent": {4},
		} {
			t.Run(query, func(t *testing.T) {
				var lines, cells strings.Builder
				cells.WriteString(csvHeader)
				for _, i := range want {
					o := objects(t, rows[i])[0]
					tag, ok := o["tag"]
					if tag == "" {
						tag = "'"
					} else if !ok {
						tag = ""
					}
					fmt.Fprintln(&lines, rows[i])
					fmt.Fprintf(&cells, "%v,%v,%v%s", o["id"], o["name"], tag, csvRest)
				}
				for accept, want := range map[string]string{inNDJSON: lines.String(), inCSV: cells.String()} {
					if r := s.call(t, "GET", "/plants/export"+query, "", "Accept", accept); r.status != 200 || r.body != want {
						t.Errorf("got %v, want %s", r, want)
					}
				}
				list := withoutTimes(strings.ReplaceAll(strings.Trim(s.call(t, "GET", "/plants"+query, "").body, "[]"), "},", "}\n"))
				if got := strings.TrimSpace(lines.String()); list != got {
					t.Errorf("got %s in a list, want %s", list, got)
				}
			})
		}
		settings := clientOf(s.url)
		checkCLI(t, settings, []string{"export", "--tag", "succulent", "--q", "aloe", "--after", "-5"}, 0, rows[4]+"\n")
		checkCLI(t, settings, []string{"export", "--tag", "", "--format", "csv"}, 0, csvHeader+"1,100% aloe,'"+csvRest)
		checkCLI(t, settings, []string{"export", "--after", "01"}, 1, "", "40007", "after")
	})
}

// TestHEADOfAnExport: it takes no slot, of which the token has none left, and reads no
// table.
func TestHEADOfAnExport(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := start(t, "DATABASE_URL="+url)
	dbtest.Exec(t, url, "INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT i, repeat('🌵', 255), repeat('🌵', 255), now(), now() FROM generate_series(1, 20000) AS i")
	check := func(t *testing.T) {
		for accept, want := range map[string][]string{
			inNDJSON: {"application/x-ndjson", `attachment; filename="plants.ndjson"`},
			inCSV:    {"text/csv; charset=utf-8; header=present", `attachment; filename="plants.csv"`},
		} {
			r := s.call(t, "HEAD", "/plants/export", "", "Accept", accept)
			checkEmpty(t, r, 200)
			checkHeader(t, r, "Content-Type", want[0])
			checkHeader(t, r, "Content-Disposition", want[1])
			checkHeader(t, r, "Vary", "Accept")
		}
	}
	t.Run("without a slot", func(t *testing.T) {
		for range 2 { // not read to their end
			rest, _ := s.beginExport(t)
			defer rest.Close()
		}
		checkError(t, s.call(t, "GET", "/plants/export", ""), 50301)
		check(t)
	})
	t.Run("without the table", func(t *testing.T) {
		defer lockTable(t, url)()
		check(t)
	})
}

// TestPutCreatesOrReplaces: 201 with a Location if the plant is new (RFC 9110, section
// 9.3.4), and 200 otherwise.
func TestPutCreatesOrReplaces(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		for _, id := range []string{"0", "-9223372036854775808", "9223372036854775807"} {
			path := "/plants/" + id
			for round := range 2 { // also after a deletion
				for i, headers := range [][]string{nil, nil, {"If-Match", "*"}, {"If-Match", "LAST"}} {
					if headers != nil && headers[1] == "LAST" {
						headers = []string{"If-Match", s.call(t, "GET", path, "").etag()}
					}
					r := s.call(t, "PUT", path, `{"name":"x"}`, headers...)
					status, location := 200, ""
					if i == 0 {
						status, location = 201, path
					}
					if r.status != status || r.header.Get("Location") != location {
						t.Errorf("PUT %d of round %d: got %v with Location %q, want %d", i, round, r, r.header.Get("Location"), status)
					}
					checkStored(t, r, `{"id":`+id+`,"name":"x"}`)
				}
				checkEmpty(t, s.call(t, "DELETE", path, ""), 204)
			}
		}
		requireOK(t, s.post(t, `{"id":1,"name":"x"}`))
		checkStatus(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`), 200)
		r := s.call(t, "PUT", "/plants/2", `{"name":"x"}`, "If-None-Match", "*")
		checkStatus(t, r, 201)
		checkHeader(t, r, "Location", "/plants/2")

		const writers = 20
		for id := 10; id < 20; id++ {
			statuses := newTally()
			var group sync.WaitGroup
			for i := range writers {
				group.Go(func() {
					r, err := s.tryOn(connections, "PUT", fmt.Sprintf("/plants/%d", id), strings.NewReader(fmt.Sprintf(`{"name":"%d"}`, i)), as(token)...)
					if err != nil {
						t.Error(err)
					}
					statuses.add(r.status)
				})
			}
			group.Wait()
			if statuses.counts[201] != 1 || statuses.counts[200] != writers-1 {
				t.Errorf("%d concurrent PUTs of plant %d: got the responses %v, want one 201", writers, id, statuses.counts)
			}
		}
	})
}

// TestWhatWasReadCanBeWritten sends responses back as they are.
func TestWhatWasReadCanBeWritten(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		requireOK(t, s.post(t, `{"id":-3,"name":"a","tag":""}`))
		requireOK(t, s.post(t, `{"id":4,"name":"b"}`))
		read := s.call(t, "GET", "/plants/-3", "")
		written := s.call(t, "PUT", "/plants/-3", read.body)
		checkStored(t, written, withoutTimes(read.body))
		if p, q := read.plant(), written.plant(); !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
			t.Errorf("got %v after %v, want a later version", written, read)
		}
		checkError(t, s.call(t, "PUT", "/plants/4", read.body), 40006, "id must be 4")
		checkStatus(t, s.call(t, "PUT", "/plants/-3", written.body, "If-Match", written.etag()), 200)

		list := s.call(t, "GET", "/plants", "").body
		lines := strings.ReplaceAll(strings.Trim(list, "[]"), "},", "}\n")
		checkReport(t, s.importRows(t, "", inNDJSON, lines), 0, "2: 0 new, 2 unchanged, 0 rejected, stored")
		other := start(t)
		checkReport(t, other.importRows(t, "", inNDJSON, lines), 0, "2: 2 new, 0 unchanged, 0 rejected, stored")
		if got, want := other.export(t, inNDJSON), s.export(t, inNDJSON); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if old, got := objects(t, list)[0], objects(t, other.call(t, "GET", "/plants/-3", "").body)[0]; old["created_at"] == got["created_at"] {
			t.Errorf("got %v, want the time of the import", got)
		}
		// POST /plants is as strict as the specification.
		for field, body := range map[string]string{"created_at": read.body, "updated_at": `{"id":9,"name":"x","updated_at":"2026-01-01T00:00:00Z"}`} {
			checkError(t, s.post(t, body), 40002, field)
		}
	})
}
