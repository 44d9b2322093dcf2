package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
)

// samplePlants is the catalogue in this repository.
const samplePlants = "../configs/sample-plants.csv"

// clientOf returns the settings of a client of the service at url.
func clientOf(url string) []string {
	return []string{"PLANTSTORE_CLIENT_URL=" + url, "PLANTSTORE_CLIENT_TOKEN=" + token}
}

// write writes text to a new file and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// counts returns the summary of an import.
func counts(created, unchanged, rejected int, outcome string) string {
	return fmt.Sprintf("%d rows: %d created, 0 replaced, %d unchanged, %d refused; %s\n", created+unchanged+rejected, created, unchanged, rejected, outcome)
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	must(t, err)
	return path
}

// checkCLI runs the program and checks its exit status, its standard output, and parts of
// its standard error. Neither may have a token.
func checkCLI(t *testing.T, settings, args []string, status int, stdout string, stderr ...string) {
	t.Helper()
	gotOut, gotErr, gotStatus := runToEnd(t, settings, args...)
	if gotStatus != status || gotOut != stdout {
		t.Errorf("plantstore %v: got exit status %d and %q, want %d and %q; standard error %q", args, gotStatus, gotOut, status, stdout, gotErr)
	}
	for _, part := range stderr {
		if !strings.Contains(gotErr, part) {
			t.Errorf("plantstore %v: got standard error %q, want %q in it", args, gotErr, part)
		}
	}
	if stderr == nil && gotErr != "" {
		t.Errorf("plantstore %v: got standard error %q, want no output", args, gotErr)
	}
	if strings.Contains(gotOut+gotErr, token) || strings.Contains(gotErr, "\r") {
		t.Errorf("plantstore %v: got the token or a progress bar in %q, %q", args, gotOut, gotErr)
	}
}

// TestCLIRoundTrip imports the sample catalogue, exports it, and imports it into another
// service.
func TestCLIRoundTrip(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		sample, folder := absolute(t, samplePlants), t.TempDir()
		first := clientOf(start(t, "DATABASE_URL="+url).url)
		second := clientOf(start(t).url)
		checkCLI(t, first, []string{"import", sample, "--dry-run"}, 0,
			counts(625, 0, 0, "dry run, nothing stored"))
		checkCLI(t, first, []string{"import", sample}, 0, counts(625, 0, 0, "stored"))
		checkCLI(t, first, []string{"import", sample}, 0, counts(0, 625, 0, "stored"))
		for _, name := range []string{"plants.csv", "plants.ndjson"} {
			from, back := filepath.Join(folder, name), filepath.Join(folder, "back-"+name)
			checkCLI(t, first, []string{"export", "-o", from}, 0, "625 plants written to "+from+"\n")
			created, unchanged := 625, 0
			if name != "plants.csv" {
				created, unchanged = 0, 625
			}
			checkCLI(t, second, []string{"import", from}, 0,
				counts(created, unchanged, 0, "stored"))
			checkCLI(t, second, []string{"export", "-o", back}, 0, "625 plants written to "+back+"\n")
			text, err := os.ReadFile(from)
			must(t, err)
			again, err := os.ReadFile(back)
			must(t, err)
			if string(text) != string(again) {
				t.Errorf("%s: got %d bytes after an import and an export, want the %d before", name, len(again), len(text))
			}
			checkCLI(t, second, []string{"export", "--format", strings.TrimPrefix(filepath.Ext(name), ".")}, 0, string(text))
		}
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 4 {
			t.Errorf("got %d files, %v, want 4", len(entries), err)
		}
	})
}

func TestCLIRejectedRows(t *testing.T) {
	t.Parallel()
	s := start(t)
	settings := clientOf(s.url)
	requireOK(t, s.post(t, `{"id":1,"name":"Monstera"}`))
	file := write(t, "bad.csv", "id,name,tag\n2,Ficus,\n3.5,Aloe,\n1,Other,x\n")
	rejected := []string{file + ":3: 40005 id ", file + ":4: 40901 plant 1 ", "plantstore: 2 of 3 rows "}
	checkCLI(t, settings, []string{"import", file}, 3, counts(1, 0, 2, "nothing stored"), append(rejected, "nothing was stored")...)
	checkCLI(t, settings, []string{"import", file, "--partial", "--dry-run"}, 3,
		counts(1, 0, 2, "dry run, nothing stored"), append(rejected, "nothing was stored")...)
	checkStatus(t, s.get(t, "/plants/2", as(token)...), 404)
	checkCLI(t, settings, []string{"import", file, "--partial"}, 3, counts(1, 0, 2, "stored"), rejected...)
	checkStatus(t, s.get(t, "/plants/2", as(token)...), 200)

	// Reports list fewer rows than are rejected.
	many := write(t, "many.jsonl", strings.Repeat(`{"id":"x","name":"x"}`+"\n", 1200))
	checkCLI(t, settings, []string{"import", many}, 3,
		counts(0, 0, 1200, "nothing stored"), many+":1000: 40005", many+": and 200 more")

	// An invalid header or token stops the import before the first row.
	checkCLI(t, settings, []string{"import", write(t, "x.csv", "id,nam\n")}, 1, "", "40002 line 1: unknown column nam")
	large := write(t, "large.csv", "id,nam\n"+strings.Repeat("1,x\n", 8<<20))
	checkCLI(t, settings, []string{"import", large}, 1, "", "40002 line 1: unknown column nam")
	checkCLI(t, settings, []string{"import", large, "--token-file", write(t, "token", "wrong")}, 1, "", "40102")
}

func TestCLIStandardInput(t *testing.T) {
	t.Parallel()
	cmd := command(t, clientOf(start(t).url), "import", "-", "--format", "ndjson", "--partial")
	cmd.Stdin = strings.NewReader(`{"id":1,"name":"x"}` + "\n\n" + `{"id":2}`)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, _ := cmd.Output() // ExitCode has its result
	if string(stdout) != counts(1, 0, 1, "stored") || !strings.HasPrefix(stderr.String(), "stdin:3: 40004 name ") ||
		cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("got exit status %d, %q, %q, want 3", cmd.ProcessState.ExitCode(), stdout, &stderr)
	}
}

// TestCLIFailures checks the exit status and message of each failure.
func TestCLIFailures(t *testing.T) {
	t.Parallel()
	s := start(t)
	settings, file := clientOf(s.url), write(t, "one.csv", "id,name\n1,x\n")
	target := filepath.Join(t.TempDir(), "plants.csv")
	wrongToken := write(t, "token", "wrong-"+token+"\n")
	for _, test := range []struct {
		name     string
		args     string
		status   int
		mentions string
	}{
		{"no such file", "import nothing.csv", 1, "nothing.csv"},
		{"a folder", "import /tmp --format csv", 1, "is a directory; nothing was stored"},
		{"no such folder", "export -o nowhere/plants.csv", 1, "nowhere/plants.csv: the folder nowhere does not exist: no such file"},
		{"no such token file", "export --token-file nothing", 2, "--token-file"},
		{"an empty token file", "export --token-file " + os.DevNull, 2, "empty"},
		{"a wrong token", "export -o " + target + " --token-file " + wrongToken, 1, "40102"},
		{"a wrong token for an import", "import " + file + " --token-file " + wrongToken, 1, "--token-file or client.token (PLANTSTORE_CLIENT_TOKEN)"},
		{"no service", "import " + file + " --url http://127.0.0.1:1", 1, "http://127.0.0.1:1"},
		{"no URL", "export --url ftp://localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"a user in the URL", "export --url http://u:" + token + "@localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"another path", "export --url " + s.url + "/prefix", 1, "40402"},
	} {
		t.Run(test.name, func(t *testing.T) { checkCLI(t, settings, strings.Fields(test.args), test.status, "", test.mentions) })
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("got a file from a failed export")
	}
	for _, url := range []string{"http://plants.example.org", "https://localhost.example.org", "http://10.0.0.1:8080"} {
		t.Run(url, func(t *testing.T) { checkCLI(t, nil, []string{"export", "--url", url}, 2, "", "development token") })
	}
	// There is no development token, and port 0 is any port.
	checkCLI(t, []string{"PORT=1"}, []string{"export"}, 2, "", "data/dev-token")
	checkCLI(t, []string{"PORT=0"}, []string{"export"}, 2, "", "client.url (PLANTSTORE_CLIENT_URL)")
}

// TestCLIDevelopmentToken runs the commands in the folder of a development service, with
// only the port configured.
func TestCLIDevelopmentToken(t *testing.T) {
	t.Parallel()
	s := launch(t, command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json"}))
	s.awaitServing(t)
	port := s.port()
	for _, args := range [][]string{
		{"import", absolute(t, samplePlants)},
		{"export", "-o", "plants.csv", "--url", "http://localhost:" + port},
		{"export", "--url", "http://LOCALHOST:" + port},
	} {
		cmd := command(t, []string{"PORT=" + port}, args...)
		cmd.Dir = s.folder
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "625") {
			t.Errorf("plantstore %v: got %v and %s, want 625 plants", args, err, out)
		}
	}
}

// fake serves handler in place of the service.
func fake(t *testing.T, handler http.HandlerFunc) []string {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return clientOf(server.URL)
}

// TestCLIProxy: requests to the service on this machine have the token, so no proxy sees them.
func TestCLIProxy(t *testing.T) {
	t.Parallel()
	s := start(t)
	host := "Localhost" // Go itself does not use a proxy for localhost and loopback addresses
	settings := []string{"PLANTSTORE_CLIENT_TOKEN=" + token, "HTTP_PROXY=http://127.0.0.1:1"}
	t.Run("the service on this machine", func(t *testing.T) {
		checkCLI(t, append(settings, "PLANTSTORE_SERVER_HOST="+host, "PORT="+s.port()), []string{"export"}, 0, "")
	})
	t.Run("a URL", func(t *testing.T) {
		checkCLI(t, append(settings, "PLANTSTORE_CLIENT_URL=http://"+host+":"+s.port()), []string{"export"}, 1, "", "proxyconnect")
	})
}

// TestCLIStrangeServices sends requests to broken services and to servers that are not the
// service.
func TestCLIStrangeServices(t *testing.T) {
	t.Parallel()
	file := write(t, "one.csv", "id,name\n1,x\n")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the client followed a redirect") }))
	defer elsewhere.Close()
	html := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") }
	for name, test := range map[string]struct {
		handler  http.HandlerFunc
		mentions []string
	}{
		"a redirect":    {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, []string{"not followed"}},
		"a web site":    {html, []string{`"text/html"`, "is it a Plant Store?"}},
		"a bad gateway": {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, []string{"502 Bad Gateway"}},
		"no response":   {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, []string{"plantstore: "}},
		"half a response": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
			}
			_, _ = io.WriteString(w, `{"rows":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, []string{"plantstore: "}},
	} {
		t.Run(name, func(t *testing.T) {
			mentions := test.mentions
			if name != "a redirect" && name != "a web site" {
				mentions = append(mentions, "safe to run the import again")
			}
			checkCLI(t, fake(t, test.handler), []string{"import", file}, 1, "", mentions...)
			stdout := ""
			if name == "half a response" {
				stdout = `{"rows":` // only the exit status shows the error
			}
			checkCLI(t, fake(t, test.handler), []string{"export"}, 1, stdout, test.mentions...)

			target := write(t, "plants.ndjson", "before")
			checkCLI(t, fake(t, test.handler), []string{"export", "-o", target}, 1, "", test.mentions...)
			text, err := os.ReadFile(target)
			if err != nil || string(text) != "before" {
				t.Errorf("got the file %q, %v, want it unchanged", text, err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(target)); len(entries) != 1 {
				t.Errorf("got the files %v, want 1", entries)
			}
		})
	}
}

// TestCLIRequests checks the request of an import.
func TestCLIRequests(t *testing.T) {
	t.Parallel()
	const rows = "id,name\n1,x\n"
	got := make(chan string, 1)
	settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got <- fmt.Sprintf("%s %s %s %d %s", r.Method, r.URL, r.Header.Get("Content-Type"), r.ContentLength, body)
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"stored":true}`)
	})
	settings[0] += "/base/"
	checkCLI(t, settings, []string{"import", write(t, "x.CSV", rows), "--partial", "--dry-run"}, 0,
		counts(0, 0, 0, "dry run, nothing stored"))
	if want := "POST /base/plants/import?dry_run=true&mode=partial text/csv 12 " + rows; <-got != want {
		t.Errorf("got another request, want %q", want)
	}
}

// TestCLIInterrupt interrupts an import that waits for its response.
func TestCLIInterrupt(t *testing.T) {
	t.Parallel()
	waiting, done := make(chan struct{}), make(chan struct{})
	settings := fake(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		close(waiting)
		<-done
	})
	defer close(done)
	p := launch(t, command(t, settings, "import", write(t, "one.csv", "id,name\n1,x\n")))
	<-waiting
	must(t, p.process.Signal(syscall.SIGINT))
	err := p.wait(t)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !strings.Contains(p.stderr.String(), "interrupted") {
		t.Errorf("got %v and %q, want exit status 1", err, p.stderr)
	}
}

// TestCLIDevices exports to a pipe and to links, which must not be replaced.
func TestCLIDevices(t *testing.T) {
	t.Parallel()
	settings := clientOf(start(t).url)
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	must(t, syscall.Mkfifo(pipe, 0o600))
	read := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe)
		read <- string(text)
	}()
	checkCLI(t, settings, []string{"export", "--format", "csv", "-o", pipe}, 0, "0 plants written to "+pipe+"\n")
	if got := <-read; got != csvHeader {
		t.Errorf("got %q from the pipe, want a header", got)
	}
	for name, target := range map[string]string{
		"a link to a file": write(t, "plants.csv", "before"), "a link to nothing": filepath.Join(folder, "none"), "a relative link to nothing": "other",
	} {
		t.Run(name, func(t *testing.T) {
			link := filepath.Join(folder, name)
			must(t, os.Symlink(target, link))
			checkCLI(t, settings, []string{"export", "--format", "csv", "-o", link}, 0, "0 plants written to "+link+"\n")
			if now, err := os.Readlink(link); err != nil || now != target {
				t.Errorf("got %q, %v, want a link to %s", now, err, target)
			}
			if text, err := os.ReadFile(link); err != nil || string(text) != csvHeader {
				t.Errorf("got %q, %v, want a header", text, err)
			}
		})
	}
	loop := filepath.Join(folder, "loop")
	must(t, os.Symlink("loop", loop))
	checkCLI(t, settings, []string{"export", "--format", "csv", "-o", loop}, 1, "", loop)
}

// TestCLISignals ends an export that has written a part of its file.
func TestCLISignals(t *testing.T) {
	t.Parallel()
	signal.Notify(make(chan os.Signal, 1), syscall.SIGHUP) // or the programs would ignore it under nohup, too
	for _, end := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP} {
		t.Run(end.String(), func(t *testing.T) {
			t.Parallel()
			done := make(chan struct{})
			settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
				_, _ = io.WriteString(w, `{"id":1,"name":"x"}`+"\n")
				_ = http.NewResponseController(w).Flush()
				<-done
			})
			defer close(done)
			folder := t.TempDir()
			p := launch(t, command(t, settings, "export", "-o", filepath.Join(folder, "plants.ndjson")))
			files := func() int {
				entries, err := os.ReadDir(folder)
				must(t, err)
				return len(entries)
			}
			eventually(t, "a part of the file", func() bool { return files() == 1 })
			must(t, p.process.Signal(end))
			err := p.wait(t)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || files() != 0 {
				t.Errorf("got %v and %d files, want exit status 1 and none", err, files())
			}
		})
	}
}
