package tests

import (
	"encoding/csv"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"plantstore/database/dbtest"
)

// export returns the plants that are stored, as an export has them.
func (s *service) export(t *testing.T, accept string) string {
	t.Helper()
	r := s.call(t, "GET", "/plants/export", "", "Accept", accept)
	if r.status != 200 {
		t.Fatalf("export: %v", r)
	}
	return r.body
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
