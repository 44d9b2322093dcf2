package tests

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestCLIGzipFiles exports to compressed files and imports them.
func TestCLIGzipFiles(t *testing.T) {
	t.Parallel()
	first, second := start(t), start(t)
	rows := numbered(1, 3000)
	requireOK(t, first.importRows(t, "", inNDJSON, rows))
	for _, name := range []string{"plants.ndjson.gz", "plants.CSV.GZ"} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), name)
			checkCLI(t, clientOf(first.url), []string{"export", "-o", path}, 0, "3000 plants written to "+path+"\n")
			text, err := os.ReadFile(path)
			must(t, err)
			content, err := unzip(string(text))
			want := rows
			if name == "plants.CSV.GZ" {
				want = first.export(t, inCSV)
			}
			if err != nil || content != want || len(text) > len(content)/3 {
				t.Errorf("got a file of %d bytes, %v, want %d bytes compressed", len(text), err, len(want))
			}
			checkCLI(t, clientOf(second.url), []string{"import", path}, 0, map[string]string{
				"plants.ndjson.gz": counts(3000, 0, 0, "stored"), "plants.CSV.GZ": counts(0, 3000, 0, "stored"),
			}[name])
			checkCLI(t, clientOf(second.url), []string{"import", path, "--format", "ndjson", "--dry-run"}, map[string]int{"plants.CSV.GZ": 3}[name],
				map[string]string{
					"plants.ndjson.gz": counts(0, 3000, 0, "dry run, nothing stored"), "plants.CSV.GZ": counts(0, 0, 3001, "dry run, nothing stored"),
				}[name], map[string][]string{"plants.CSV.GZ": {"and 2001 more"}}[name]...)
		})
	}
	cut := write(t, "cut.ndjson.gz", gzipped(t, rows)[:3000])
	checkCLI(t, clientOf(second.url), []string{"import", cut, "--dry-run"}, 1, "", "40001 the gzip data of the body ends early")
	checkCLI(t, clientOf(second.url), []string{"import", write(t, "plain.csv.gz", "id,name\n1,plant 1\n"), "--dry-run"}, 1, "", "40001 the body is damaged, or is not gzip")
	checkCLI(t, clientOf(second.url), []string{"import", write(t, "plants.gz", "")}, 2, "", "--format")
}

// TestCLIGzipWithoutAName: what is compressed, but not in a file whose name says so, gets the advice of
// the command, which cannot follow that of the service.
func TestCLIGzipWithoutAName(t *testing.T) {
	t.Parallel()
	const advice = "name their file with .gz at the end, or decompress them with zcat\n"
	settings := clientOf(start(t).url)
	small := gzipped(t, numbered(1, 10))
	for _, format := range []string{"csv", "ndjson"} {
		cmd := command(t, settings, "import", "-", "--format", format)
		cmd.Stdin = strings.NewReader(small)
		output, _ := cmd.CombinedOutput() // ExitCode has its result
		if cmd.ProcessState.ExitCode() != 2 || !strings.HasSuffix(string(output), advice) {
			t.Errorf("%s: got exit status %d and %q, want 2 and %q", format, cmd.ProcessState.ExitCode(), output, advice)
		}
	}
	for name, text := range map[string]string{"small.csv": small, "large.csv": small + strings.Repeat("x", 2<<20)} {
		checkCLI(t, settings, []string{"import", write(t, name, text)}, 2, "", advice)
	}
}

// TestCLIGzipRequests checks which bodies the commands compress, and that they read compressed
// responses up to their end.
func TestCLIGzipRequests(t *testing.T) {
	t.Parallel()
	small, large := numbered(1, 10), numbered(1, 50_000)
	file := gzipped(t, small)
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
			text, _ = unzip(text)
		}
		if text != want[fmt.Sprintf("%s %d", encoding, r.ContentLength)] {
			t.Errorf("got another body of %d bytes", len(text))
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"stored":true}`)
	})
	for _, test := range []struct{ name, path, want string }{
		{"a small file", write(t, "small.ndjson", small), fmt.Sprintf(" %d", len(small))},
		{"a large file", write(t, "large.ndjson", large), "gzip -1"},
		{"a compressed file", write(t, "small.ndjson.gz", file), fmt.Sprintf("gzip %d", len(file))},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkCLI(t, settings, []string{"import", test.path}, 0, counts(0, 0, 0, "stored"))
			if got := receive(t, got); got != test.want {
				t.Errorf("got Content-Encoding and Content-Length %q, want %q", got, test.want)
			}
		})
	}
	t.Run("standard input", func(t *testing.T) {
		cmd := command(t, settings, "import", "-", "--format", "ndjson")
		cmd.Stdin = strings.NewReader(large)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("got %v, %s", err, out)
		}
		if got := receive(t, got); got != " -1" {
			t.Errorf("got Content-Encoding and Content-Length %q, want none", got)
		}
	})

	export := gzipped(t, large)
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
				checkCLI(t, exporting, []string{"export", "-o", path}, 1, "", "run the export again")
				return
			}
			checkCLI(t, exporting, []string{"export", "-o", path}, 0, "50000 plants written to "+path+"\n")
			if text, err := os.ReadFile(path); err != nil || string(text) != large {
				t.Errorf("got %d bytes, %v, want the content", len(text), err)
			}
		})
	}
}

// TestCLIReplace imports an edited spreadsheet.
func TestCLIReplace(t *testing.T) {
	t.Parallel()
	s := start(t)
	settings := clientOf(s.url)
	requireOK(t, s.importRows(t, "", inNDJSON, numbered(1, 3)))
	file := write(t, "plants.csv", strings.Replace(s.export(t, inCSV), "plant 2", "edited", 1)+"4,new,"+csvRest)
	checkCLI(t, settings, []string{"import", file}, 3, counts(1, 2, 1, "nothing stored"), ":3: 40901 plant 2 ")
	checkCLI(t, settings, []string{"import", "--replace", "--dry-run", file}, 0, "4 rows: 1 created, 1 replaced, 2 unchanged, 0 refused; dry run, nothing stored\n")
	checkCLI(t, settings, []string{"import", "--replace", file}, 0, "4 rows: 1 created, 1 replaced, 2 unchanged, 0 refused; stored\n")
	checkCLI(t, settings, []string{"import", "--replace", file}, 0, counts(0, 4, 0, "stored"))
	checkCLI(t, settings, []string{"import", "--replace", "--partial", write(t, "bad.csv", "id,name\n1,one\n2,\n")}, 3,
		"2 rows: 0 created, 1 replaced, 0 unchanged, 1 refused; stored\n", "bad.csv:3: 40004")
	checkStored(t, s.call(t, "GET", "/plants/1", ""), `{"id":1,"name":"one"}`)
	checkStored(t, s.call(t, "GET", "/plants/2", ""), `{"id":2,"name":"edited"}`)
}
