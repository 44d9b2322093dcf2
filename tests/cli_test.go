package tests

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
)

// samplePlants is the catalogue that comes with the program.
const samplePlants = "../configs/sample-plants.csv"

// clientOf returns the settings of a client of the service at url.
func clientOf(url string) []string {
	return []string{"PLANTSTORE_CLIENT_URL=" + url, "PLANTSTORE_CLIENT_TOKEN=" + token}
}

// write makes a file of text and returns its path.
func write(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func absolute(t *testing.T, path string) string {
	t.Helper()
	path, err := filepath.Abs(path)
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// checkCLI runs the program and checks its exit status, all of its standard
// output, and parts of its standard error. No token may be in either.
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

// TestCLIRoundTrip moves the sample catalogue in, out, and into another service.
func TestCLIRoundTrip(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		sample, folder := absolute(t, samplePlants), t.TempDir()
		first := clientOf(start(t, "DATABASE_URL="+url).url)
		second := clientOf(start(t).url)
		checkCLI(t, first, []string{"import", sample, "--dry-run"}, 0,
			"625 rows: 625 created, 0 unchanged, 0 refused; dry run, nothing stored\n") // a dry run
		checkCLI(t, first, []string{"import", sample}, 0, "625 rows: 625 created, 0 unchanged, 0 refused; stored\n") // the first import
		checkCLI(t, first, []string{"import", sample}, 0, "625 rows: 0 created, 625 unchanged, 0 refused; stored\n") // the same again
		for _, name := range []string{"plants.csv", "plants.ndjson"} {
			from, back := filepath.Join(folder, name), filepath.Join(folder, "back-"+name)
			checkCLI(t, first, []string{"export", "-o", from}, 0, "625 plants written to "+from+"\n")
			created, unchanged := 625, 0
			if name != "plants.csv" {
				created, unchanged = 0, 625
			}
			checkCLI(t, second, []string{"import", from}, 0,
				fmt.Sprintf("625 rows: %d created, %d unchanged, 0 refused; stored\n", created, unchanged))
			checkCLI(t, second, []string{"export", "-o", back}, 0, "625 plants written to "+back+"\n")
			text, err := os.ReadFile(from)
			if err != nil {
				t.Fatal(err)
			}
			again, err := os.ReadFile(back)
			if err != nil {
				t.Fatal(err)
			}
			if string(text) != string(again) {
				t.Errorf("%s is %d bytes, and %d after an import and an export, or others", name, len(text), len(again))
			}
			checkCLI(t, second, []string{"export", "--format", strings.TrimPrefix(filepath.Ext(name), ".")}, 0, string(text))
		}
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 4 {
			t.Errorf("%d files, %v: want 4", len(entries), err)
		}
	})
}

func TestCLIRefusedRows(t *testing.T) {
	t.Parallel()
	s := start(t)
	settings := clientOf(s.url)
	requireStatus(t, s.post(t, `{"id":1,"name":"Monstera"}`), 200)
	file := write(t, "bad.csv", "id,name,tag\n2,Ficus,\n3.5,Aloe,\n1,Other,x\n")
	refused := []string{file + ":3: 40005 id must be", file + ":4: 40901 id 1 is taken", "plantstore: 2 of 3 rows refused: "}
	const counts = "3 rows: 1 created, 0 unchanged, 2 refused; "
	checkCLI(t, settings, []string{"import", file}, 3, counts+"nothing stored\n", append(refused, "nothing was stored")...) // all or nothing
	checkCLI(t, settings, []string{"import", file, "--partial", "--dry-run"}, 3,
		counts+"dry run, nothing stored\n", append(refused, "nothing was stored")...) // a dry run of a partial import
	checkStatus(t, s.get(t, "/plants/2", "Authorization", "Bearer "+token), 404)
	checkCLI(t, settings, []string{"import", file, "--partial"}, 3, counts+"stored\n", append(refused, "the others are stored")...) // a partial import
	checkStatus(t, s.get(t, "/plants/2", "Authorization", "Bearer "+token), 200)

	// More rows than the service lists.
	many := write(t, "many.jsonl", strings.Repeat(`{"id":"x","name":"x"}`+"\n", 1200))
	checkCLI(t, settings, []string{"import", many}, 3,
		"1200 rows: 0 created, 0 unchanged, 1200 refused; nothing stored\n", many+":1000: 40005", many+": and 200 more") // many refused rows

	// What no row can be read from.
	checkCLI(t, settings, []string{"import", write(t, "x.csv", "id,nam\n")}, 1, "", "40002 line 1: nam") // an unknown column
	large := write(t, "large.csv", "id,nam\n"+strings.Repeat("1,x\n", 8<<20))
	checkCLI(t, settings, []string{"import", large}, 1, "", "40002 line 1: nam")                                 // an unknown column of a large file
	checkCLI(t, settings, []string{"import", large, "--token-file", write(t, "token", "wrong")}, 1, "", "40102") // a wrong token with a large file
}

func TestCLIStandardInput(t *testing.T) {
	t.Parallel()
	cmd := command(t, clientOf(start(t).url), "import", "-", "--format", "ndjson", "--partial")
	cmd.Stdin = strings.NewReader(`{"id":1,"name":"x"}` + "\n\n" + `{"id":2}`)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, _ := cmd.Output() // the exit status says it
	if string(stdout) != "2 rows: 1 created, 0 unchanged, 1 refused; stored\n" || !strings.HasPrefix(stderr.String(), "stdin:3: 40004 name is required\n") ||
		cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("exit status %d, %q, %q", cmd.ProcessState.ExitCode(), stdout, &stderr)
	}
}

// TestCLIFailures checks that each failure has its exit status, and says what to
// do.
func TestCLIFailures(t *testing.T) {
	t.Parallel()
	s := start(t)
	settings, file := clientOf(s.url), write(t, "one.csv", "id,name\n1,x\n")
	target := filepath.Join(t.TempDir(), "plants.csv")
	wrongToken := write(t, "token", "wrong-"+token+"\n")
	const notSent = "the development token is not sent to"
	for _, test := range []struct {
		name     string
		args     string
		status   int
		mentions string
	}{
		{"no file", "import", 2, "accepts 1 arg(s)"},
		{"an unknown flag", "import " + file + " --frob", 2, "--frob"},
		{"no format", "import -", 2, "--format must be csv or ndjson"},
		{"another format", "export --format xml", 2, "--format must be csv or ndjson"},
		{"a file that is not there", "import nothing.csv", 1, "nothing.csv"},
		{"a folder", "import /tmp --format csv", 1, "is a directory; nothing was stored"},
		{"a folder that is not there", "export -o nowhere/plants.csv", 1, "nowhere/plants.csv"},
		{"a token file that is not there", "export --token-file nothing", 2, "--token-file"},
		{"an empty token file", "export --token-file " + os.DevNull, 2, "empty"},
		{"a wrong token", "export -o " + target + " --token-file " + wrongToken, 1, "40102"},
		{"a wrong token for an import", "import " + file + " --token-file " + wrongToken, 1, "--token-file or client.token (PLANTSTORE_CLIENT_TOKEN)"},
		{"no service", "import " + file + " --url http://127.0.0.1:1", 1, "cannot connect to http://127.0.0.1:1"},
		{"no URL", "export --url ftp://localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"a user in the URL", "export --url http://u:" + token + "@localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"another path", "export --url " + s.url + "/prefix", 1, "40402"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkCLI(t, settings, strings.Fields(test.args), test.status, "", test.mentions)
		})
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("a failed export has left a file")
	}
	for _, url := range []string{"http://plants.example.org", "https://localhost.example.org", "http://10.0.0.1:8080"} {
		t.Run(url, func(t *testing.T) {
			checkCLI(t, nil, []string{"export", "--url", url}, 2, "", notSent)
		})
	}
	checkCLI(t, nil, []string{"export"}, 2, "", "data/dev-token")                                    // no development token
	checkCLI(t, []string{"PORT=0"}, []string{"export"}, 2, "", "client.url (PLANTSTORE_CLIENT_URL)") // any port
}

// TestCLIDevelopmentToken runs the commands in the folder of a development
// service, with nothing configured but its port.
func TestCLIDevelopmentToken(t *testing.T) {
	t.Parallel()
	s := launch(t, command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json"}))
	address := s.awaitLog(t, "serving")["address"].(string)
	port := address[strings.LastIndex(address, ":")+1:]
	for _, args := range [][]string{
		{"import", absolute(t, samplePlants)},
		{"export", "-o", "plants.csv", "--url", "http://localhost:" + port},
		{"export", "--url", "http://LOCALHOST:" + port},
	} {
		cmd := command(t, []string{"PORT=" + port}, args...)
		cmd.Dir = s.folder
		if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "625") {
			t.Errorf("%v: %v, %s", args, err, out)
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

// TestCLIStrangeServices talks to what is no service, or one that breaks.
func TestCLIStrangeServices(t *testing.T) {
	t.Parallel()
	file := write(t, "one.csv", "id,name\n1,x\n")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("a redirect was followed") }))
	defer elsewhere.Close()
	html := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") }
	for what, test := range map[string]struct {
		handler  http.HandlerFunc
		mentions []string
	}{
		"a redirect":      {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, []string{"not followed"}},
		"a web site":      {html, []string{`"text/html"`, "is it a Plant Store?"}},
		"a bad gateway":   {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusBadGateway) }, []string{"502 Bad Gateway"}},
		"a broken answer": {func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }, []string{"no whole answer"}},
		"half an answer": {func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Content-Type", "application/json")
			if r.Method == http.MethodGet {
				w.Header().Set("Content-Type", r.Header.Get("Accept"))
			}
			_, _ = io.WriteString(w, `{"rows":`)
			_ = http.NewResponseController(w).Flush()
			panic(http.ErrAbortHandler)
		}, []string{"no whole answer"}},
	} {
		t.Run(what, func(t *testing.T) {
			names := test.mentions
			if what != "a redirect" && what != "a web site" {
				names = append(names, "safe to run the import again")
			}
			checkCLI(t, fake(t, test.handler), []string{"import", file}, 1, "", names...)
			stdout := ""
			if what == "half an answer" {
				stdout = `{"rows":` // and the exit status
			}
			checkCLI(t, fake(t, test.handler), []string{"export"}, 1, stdout, test.mentions...)

			target := write(t, "plants.ndjson", "what was there before")
			checkCLI(t, fake(t, test.handler), []string{"export", "-o", target}, 1, "", test.mentions...)
			text, err := os.ReadFile(target)
			if err != nil || string(text) != "what was there before" {
				t.Errorf("the file has %q, %v", text, err)
			}
			if entries, _ := os.ReadDir(filepath.Dir(target)); len(entries) != 1 {
				t.Errorf("%s leaves %v", what, entries)
			}
		})
	}
}

// TestCLIRequests checks what is sent.
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
		"0 rows: 0 created, 0 unchanged, 0 refused; dry run, nothing stored\n") // import
	if want := "POST /base/plants/import?dry_run=true&mode=partial text/csv 12 " + rows; <-got != want {
		t.Errorf("want %q", want)
	}
}

// TestCLIInterrupt interrupts an import that waits for its answer.
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
	if err := p.process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	err := p.wait(t)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !strings.Contains(p.stderr.String(), "interrupted; it is safe to run the import again") {
		t.Errorf("%v, %q", err, p.stderr)
	}
}

// TestCLIDevices exports to what is no regular file, which must stay what it is.
func TestCLIDevices(t *testing.T) {
	t.Parallel()
	settings := clientOf(start(t).url)
	folder := t.TempDir()
	pipe, link := filepath.Join(folder, "pipe"), filepath.Join(folder, "link")
	if err := errors.Join(syscall.Mkfifo(pipe, 0o600), os.Symlink(write(t, "plants.csv", "before"), link)); err != nil {
		t.Fatal(err)
	}
	read := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe)
		read <- string(text)
	}()
	checkCLI(t, settings, []string{"export", "--format", "csv", "-o", pipe}, 0, "0 plants written to "+pipe+"\n") // export to a pipe
	if got := <-read; got != "id,name,tag\n" {
		t.Errorf("through the pipe came %q", got)
	}
	checkCLI(t, settings, []string{"export", "--format", "csv", "-o", link}, 0, "0 plants written to "+link+"\n") // export to a link
	target, err := os.Readlink(link)
	if err != nil {
		t.Fatal("the link was replaced")
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != "id,name,tag\n" {
		t.Errorf("%q, %v", text, err)
	}
}
