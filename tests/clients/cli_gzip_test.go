package clients

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestCLIGzipFiles exports to compressed files and imports them.
func TestCLIGzipFiles(t *testing.T) {
	t.Parallel()
	first, second := service.Start(t), service.Start(t)
	rows := service.Numbered(1, 3000)
	first.ImportRows(t, "", service.InNDJSON, rows).RequireOK(t)
	for _, name := range []string{"plants.ndjson.gz", "plants.CSV.GZ"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			service.CheckCLI(t, service.ClientOf(first.URL), []string{"export", "-o", path}, 0, "3000 plants written to "+path+"\n")
			text, err := os.ReadFile(path)
			service.Must(t, err)
			content, err := service.Unzip(string(text))
			want := rows
			if name == "plants.CSV.GZ" {
				want = first.Export(t, service.InCSV)
			}
			if err != nil || content != want || len(text) > len(content)/3 {
				t.Errorf("got a file of %d bytes, %v, want %d bytes compressed", len(text), err, len(want))
			}
			service.CheckCLI(t, service.ClientOf(second.URL), []string{"import", path}, 0, map[string]string{
				"plants.ndjson.gz": service.Counts(3000, 0, 0, "stored"), "plants.CSV.GZ": service.Counts(0, 3000, 0, "stored"),
			}[name])
			service.CheckCLI(t, service.ClientOf(second.URL), []string{"import", path, "--format", "ndjson", "--dry-run"}, map[string]int{"plants.CSV.GZ": 3}[name],
				map[string]string{
					"plants.ndjson.gz": service.Counts(0, 3000, 0, "dry run, nothing stored"), "plants.CSV.GZ": service.Counts(0, 0, 3001, "dry run, nothing stored"),
				}[name], map[string][]string{"plants.CSV.GZ": {"and 2001 more"}}[name]...)
		})
	}
	cut := service.Write(t, "cut.ndjson.gz", service.Gzipped(t, rows)[:3000])
	service.CheckCLI(t, service.ClientOf(second.URL), []string{"import", cut, "--dry-run"}, 1, "", "40001 the gzip data of the body ends early")
	service.CheckCLI(t, service.ClientOf(second.URL), []string{"import", service.Write(t, "plain.csv.gz", "id,name\n1,plant 1\n"), "--dry-run"}, 1, "", "40001 the body is damaged, or is not gzip")
	service.CheckCLI(t, service.ClientOf(second.URL), []string{"import", service.Write(t, "plants.gz", "")}, 2, "", "--format")
}

// TestCLIGzipWithoutAName: what is compressed, but not in a file whose name says so, gets the advice of
// the command, which cannot follow that of the service.
func TestCLIGzipWithoutAName(t *testing.T) {
	t.Parallel()
	const advice = "name their file with .gz at the end, or decompress them with zcat\n"
	settings := service.ClientOf(service.Start(t).URL)
	small := service.Gzipped(t, service.Numbered(1, 10))
	for _, format := range []string{"csv", "ndjson"} {
		cmd := service.Command(t, settings, "import", "-", "--format", format)
		cmd.Stdin = strings.NewReader(small)
		output, _ := cmd.CombinedOutput() // ExitCode has its result
		if cmd.ProcessState.ExitCode() != 2 || !strings.HasSuffix(string(output), advice) {
			t.Errorf("%s: got exit status %d and %q, want 2 and %q", format, cmd.ProcessState.ExitCode(), output, advice)
		}
	}
	for name, text := range map[string]string{"small.csv": small, "large.csv": small + strings.Repeat("x", 2<<20)} {
		service.CheckCLI(t, settings, []string{"import", service.Write(t, name, text)}, 2, "", advice)
	}
}

// TestCLIGzipRequests checks which bodies the commands compress, and that they read compressed
// responses up to their end.
func TestCLIGzipRequests(t *testing.T) {
	t.Parallel()
	small, large := service.Numbered(1, 10), service.Numbered(1, 50_000)
	file := service.Gzipped(t, small)
	got := make(chan string, 1)
	settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %d", r.Header.Get("Content-Encoding"), r.ContentLength)
		want := map[string]string{"gzip -1": large, "gzip " + strconv.Itoa(len(file)): small, " " + strconv.Itoa(len(small)): small, " -1": large}
		text, encoding := string(body), r.Header.Get("Content-Encoding")
		if encoding == "gzip" {
			if len(text) > len(large)/3 {
				t.Errorf("got a body of %d bytes, want it compressed", len(text))
			}
			text, _ = service.Unzip(text)
		}
		if text != want[fmt.Sprintf("%s %d", encoding, r.ContentLength)] {
			t.Errorf("got another body of %d bytes", len(text))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"stored":true}`)
	})
	for _, test := range []struct{ name, path, want string }{
		{"a small file", service.Write(t, "small.ndjson", small), fmt.Sprintf(" %d", len(small))},
		{"a large file", service.Write(t, "large.ndjson", large), "gzip -1"},
		{"a compressed file", service.Write(t, "small.ndjson.gz", file), fmt.Sprintf("gzip %d", len(file))},
	} {
		t.Run(test.name, func(t *testing.T) {
			service.CheckCLI(t, settings, []string{"import", test.path}, 0, service.Counts(0, 0, 0, "stored"))
			if got := service.Receive(t, got); got != test.want {
				t.Errorf("got Content-Encoding and Content-Length %q, want %q", got, test.want)
			}
		})
	}
	t.Run("standard input", func(t *testing.T) {
		cmd := service.Command(t, settings, "import", "-", "--format", "ndjson")
		cmd.Stdin = strings.NewReader(large)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("got %v, %s", err, out)
		}
		if got := service.Receive(t, got); got != " -1" {
			t.Errorf("got Content-Encoding and Content-Length %q, want none", got)
		}
	})

	export := service.Gzipped(t, large)
	for _, whole := range []bool{true, false} {
		t.Run(fmt.Sprintf("an export that is whole: %v", whole), func(t *testing.T) {
			exporting := fake(t, func(w http.ResponseWriter, r *http.Request) {
				if r.Header.Get("Accept-Encoding") != "gzip" {
					t.Errorf("got Accept-Encoding %q", r.Header.Get("Accept-Encoding"))
				}
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
				w.Header().Set("Content-Encoding", "gzip")
				if !whole {
					export = export[:len(export)-1]
				}
				_, _ = io.WriteString(w, export)
			})
			path := filepath.Join(t.TempDir(), "plants.ndjson")
			if !whole {
				service.CheckCLI(t, exporting, []string{"export", "-o", path}, 1, "", "run the export again")
				return
			}
			service.CheckCLI(t, exporting, []string{"export", "-o", path}, 0, "50000 plants written to "+path+"\n")
			if text, err := os.ReadFile(path); err != nil || string(text) != large {
				t.Errorf("got %d bytes, %v, want the content", len(text), err)
			}
		})
	}
}

// TestCLIReplace imports an edited spreadsheet.
func TestCLIReplace(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	settings := service.ClientOf(s.URL)
	s.ImportRows(t, "", service.InNDJSON, service.Numbered(1, 3)).RequireOK(t)
	file := service.Write(t, "plants.csv", strings.Replace(s.Export(t, service.InCSV), "plant 2", "edited", 1)+"4,new,"+service.CSVRest)
	service.CheckCLI(t, settings, []string{"import", file}, 3, service.Counts(1, 2, 1, "nothing stored"), ":3: 40901 plant 2 ")
	service.CheckCLI(t, settings, []string{"import", "--replace", "--dry-run", file}, 0, "4 rows: 1 created, 1 replaced, 2 unchanged, 0 refused; dry run, nothing stored\n")
	service.CheckCLI(t, settings, []string{"import", "--replace", file}, 0, "4 rows: 1 created, 1 replaced, 2 unchanged, 0 refused; stored\n")
	service.CheckCLI(t, settings, []string{"import", "--replace", file}, 0, service.Counts(0, 4, 0, "stored"))
	service.CheckCLI(t, settings, []string{"import", "--replace", "--partial", service.Write(t, "bad.csv", "id,name\n1,one\n2,\n")}, 3,
		"2 rows: 0 created, 1 replaced, 0 unchanged, 1 refused; stored\n", "bad.csv:3: 40004")
	s.Call(t, "GET", "/plants/1", "").CheckStored(t, `{"id":1,"name":"one"}`)
	s.Call(t, "GET", "/plants/2", "").CheckStored(t, `{"id":2,"name":"edited"}`)
}
