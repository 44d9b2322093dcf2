package bulk

import (
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

func TestExportFormats(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	if got := s.Export(t, service.InNDJSON) + s.Export(t, service.InCSV); got != service.CSVHeader {
		t.Fatalf("got %q, want %q: a new column belongs in CSVHeader and CSVRest", got, service.CSVHeader)
	}
	s.ImportRows(t, "", service.InNDJSON, `{"id":2,"name":"=b","tag":""}`+"\n"+`{"id":-1,"name":"a \"<\", c","tag":"-t"}`+"\n"+`{"id":3,"name":"c"}`).RequireOK(t)
	const ndjson = `{"id":-1,"name":"a \"<\", c","tag":"-t"}` + "\n" + `{"id":2,"name":"=b","tag":""}` + "\n" + `{"id":3,"name":"c"}` + "\n"
	const inCells = service.CSVHeader + `-1,"a ""<"", c",'-t` + service.CSVRest + "2,'=b,'" + service.CSVRest + "3,c," + service.CSVRest
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
		{"text/csv;q=0.5, application/x-ndjson", false},
		{"text/csv;q=0.5, application/x-ndjson;q=0.6", false},
		{"application/x-ndjson;q=0.5, text/csv;q=0.51", true},
		{"application/x-ndjson;q=0.001, text/*;q=0.002", true},
		{"application/x-ndjson;q=0, text/csv;q=0.1", true},
		{"application/x-ndjson;q=0, */*", true},
		{"application/x-ndjson;q=0, */*;q=0.1", true},
		{"*/*, application/x-ndjson;q=0.0", true},
		{"text/csv;q=0", false},
		{"text/csv;q=0, */*", false},
		{"text/csv;q=0, text/*", false},
		{"text/*, text/csv;q=0.000", false},
		{"*/*, text/csv;q=0.9", false},
		{"*/*;q=0.1, text/csv;q=0.9", true},
		{"application/x-ndjson;q=0", false},
		{"application/x-ndjson;q=0, text/csv;q=0", false},
		{"TEXT/CSV ; Q=1 , application/x-ndjson ; q=0.9", true},
		{"text/csv;header=present;q=0.9, application/x-ndjson;q=0.8", true},
		{"text/csv, application/x-ndjson", true},
		{"text/csv;q=2, application/x-ndjson;q=0.1", false},
		{"text/csv;q=x, application/x-ndjson;q=0.1", false},
		{"text/csv;q=NaN, application/x-ndjson;q=0.1", false},
		{"text, /, ;, ,text/csv", true},
	} {
		t.Run("Accept: "+test.accept, func(t *testing.T) {
			for _, method := range []string{"GET", "HEAD"} {
				t.Run(method, func(t *testing.T) {
					r := s.Call(t, method, "/plants/export", "", "Accept", test.accept)
					want, contentType, disposition := ndjson, "application/x-ndjson", `attachment; filename="plants.ndjson"`
					if test.csv {
						want, contentType, disposition = inCells, "text/csv; charset=utf-8; header=present", `attachment; filename="plants.csv"`
					}
					if method == "HEAD" {
						want = ""
					}
					if r.Status != 200 || r.Body != want || r.Header.Get("Content-Type") != contentType ||
						r.Header.Get("Content-Disposition") != disposition || r.Header.Get("Vary") != "Accept" {
						t.Errorf("got %v with %v, want %q", r, r.Header, want)
					}
					r.CheckHeaders(t)
				})
			}
		})
	}
}

// formula matches a cell that a spreadsheet would run, or would split into such cells.
var formula = regexp.MustCompile(`(^|[;\t\r\n]"*)[=+\-@＝＋－＠]`)

// TestExportRoundTrip moves plants with odd texts between services, in both formats.
func TestExportRoundTrip(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		var rows strings.Builder
		fmt.Fprintln(&rows, `{"id":-9223372036854775808,"name":"the first"}`)
		id := -len(service.OddTexts)
		for i, text := range service.OddTexts {
			for _, plant := range []string{
				`"name":` + service.Quote(text),
				`"name":` + service.Quote(text) + `,"tag":""`,
				`"name":"x","tag":` + service.Quote(text),
				`"name":` + service.Quote(text) + `,"tag":` + service.Quote(service.OddTexts[(i+5)%len(service.OddTexts)]),
			} {
				fmt.Fprintf(&rows, `{"id":%d,%s}`+"\n", id, plant)
				id++
			}
		}
		fmt.Fprintln(&rows, `{"id":9223372036854775807,"name":"the last","tag":"t"}`)

		s.ImportRows(t, "", service.InNDJSON, rows.String()).CheckReport(t, 0, fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 rejected, stored", id+len(service.OddTexts)+2))
		inLines, inCells := s.Export(t, service.InNDJSON), s.Export(t, service.InCSV)
		if inLines != rows.String() {
			t.Errorf("got %s\nwant %s", inLines, rows.String())
		}
		for _, row := range service.Cells(t, inCells) {
			for _, cell := range row[1:] {
				if formula.MatchString(cell) {
					t.Errorf("got the formula %q, want it marked", cell)
				}
			}
		}
		for contentType, body := range map[string]string{service.InNDJSON: inLines, service.InCSV: inCells} {
			t.Run(contentType, func(t *testing.T) {
				other := service.Start(t)
				if r := other.ImportRows(t, "", contentType, body); r.Status != 200 || !strings.Contains(r.Summary(), " 0 unchanged, 0 rejected, stored") {
					t.Errorf("got %v, want only new plants", r)
				}
				if r := s.ImportRows(t, "", contentType, body); r.Status != 200 || !strings.Contains(r.Summary(), " 0 new, ") {
					t.Errorf("got %v, want no new plants in the first service", r)
				}
				if got := other.Export(t, service.InNDJSON); got != inLines {
					t.Errorf("got\n%s\nwant\n%s", got, inLines)
				}
				if got := other.Export(t, service.InCSV); got != inCells {
					t.Errorf("got\n%s\nwant\n%s", got, inCells)
				}
			})
		}
	})
}

// TestExportIsOneMoment exports during imports: an export has all rows of an import or no
// row.
func TestExportIsOneMoment(t *testing.T) {
	t.Parallel()
	const size = 10
	service.Each(t, func(t *testing.T, s *service.Service) {
		stop, begun := make(chan struct{}), make(chan struct{})
		var group sync.WaitGroup
		group.Go(func() {
			for n := 1; ; n++ {
				var rows strings.Builder
				for i := range size { // across the table
					fmt.Fprintf(&rows, `{"id":%d,"name":"%d"}`+"\n", (i-size/2)*1_000_000+n, n)
				}
				r, err := s.Try("POST", "/plants/import", strings.NewReader(rows.String()), service.As(service.Token, "Content-Type", service.InNDJSON)...)
				if err != nil || r.Status != 200 {
					t.Errorf("got %v, %v, want 200", r, err)
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
		service.Receive(t, begun)
		last := 0
		for range 20 {
			seen := make(map[string]int)
			for _, row := range service.Cells(t, s.Export(t, service.InCSV))[1:] {
				seen[row[1]]++
			}
			for n, rows := range seen {
				if rows != size {
					t.Errorf("got %d rows of import %s, want %d", rows, n, size)
				}
			}
			if len(seen) < last {
				t.Errorf("got %d imports, want at least %d as before", len(seen), last)
			}
			last = len(seen)
		}
		close(stop)
		group.Wait()
	})
}

// beginExport starts an export and returns its first bytes and the rest.
func beginExport(t *testing.T, s *service.Service) (rest io.ReadCloser, first string) {
	t.Helper()
	return s.BeginExportAs(t, service.Token)
}

// breakConnections ends the busy connections to a PostgreSQL database.
func breakConnections(t *testing.T, url string) {
	t.Helper()
	dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND state <> 'idle' AND pid <> pg_backend_pid()")
}

// TestExportWithoutDatabase ends the database connection during an export, which must not
// look complete.
func TestExportWithoutDatabase(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := service.Start(t, "DATABASE_URL="+url)
	dbtest.Exec(t, url, "INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT i, repeat('🌵', 255), repeat('🌵', 255), now(), now() FROM generate_series(1, 20000) AS i")
	rest, first := beginExport(t, s)
	breakConnections(t, url)
	text, err := io.ReadAll(rest)
	if rows := strings.Count(first+string(text), "\n"); err == nil || rows >= 20000 {
		t.Errorf("got %d rows and %v, want fewer and an error", rows, err)
	}
	_ = rest.Close()
	s.AwaitError(t)
	if got := s.Export(t, service.InNDJSON); strings.Count(got, "\n") != 20000 {
		t.Errorf("got %d rows, want 20000", strings.Count(got, "\n"))
	}
}

// TestExportSlowly reads exports larger than the buffers on the way while clients write
// and leave, and while the service is killed.
func TestExportSlowly(t *testing.T) {
	t.Parallel()
	const rows = 5_000
	long := strings.Repeat("🌵", 255)
	service.Each(t, func(t *testing.T, s *service.Service) {
		var body strings.Builder
		for id := range rows {
			fmt.Fprintf(&body, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
		}
		s.ImportRows(t, "", service.InNDJSON, body.String()).RequireOK(t)
		slow, first := beginExport(t, s)
		last := fmt.Sprintf("/plants/%d", rows-1)
		s.Call(t, "DELETE", last, "").CheckEmpty(t, 204)
		s.Call(t, "PUT", last, `{"name":"new"}`).CheckStored(t, fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1))
		s.Post(t, service.BodyOf(rows)).CheckStatus(t, 200)
		// Clients leave, more of them than may export at a time.
		for round := range 3 {
			left, _ := beginExport(t, s)
			service.Must(t, left.Close())
			awaitRequests(t, s, "/plants/export", round+1)
		}
		rest, err := io.ReadAll(slow)
		if got := first + string(rest); err != nil || got != body.String() {
			t.Errorf("got %d bytes, %v, want the %d of the start of the export", len(got), err, body.Len())
		}
		_ = slow.Close()
		if got := s.Export(t, service.InNDJSON); strings.Count(got, "\n") != rows+1 || !strings.HasSuffix(got, fmt.Sprintf(`{"id":%d,"name":"new"}`, rows-1)+"\n"+service.BodyOf(rows)+"\n") {
			t.Errorf("got %d rows, want %d with the new ones", strings.Count(got, "\n"), rows+1)
		}
		if strings.Contains(s.Stderr.String(), `"level":"error"`) {
			t.Error("got an error in the log, want no error for clients that left")
		}

		broken, _ := beginExport(t, s)
		service.Must(t, s.Process.Kill())
		if _, err := io.ReadAll(broken); err == nil {
			t.Error("got no error from an interrupted export")
		}
		_ = broken.Close()
		_ = s.Wait(t)
	})
}
