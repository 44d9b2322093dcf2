package clients

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
	"plantstore/tests/service"
)

// samplePlants is the catalogue in this repository.
const samplePlants = "../../configs/sample-plants.csv"

// TestCLIRoundTrip imports the sample catalogue, exports it, and imports it into another
// service.
func TestCLIRoundTrip(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		sample, folder := service.Absolute(t, samplePlants), t.TempDir()
		first := service.ClientOf(service.Start(t, "DATABASE_URL="+url).URL)
		second := service.ClientOf(service.Start(t).URL)
		service.CheckCLI(t, first, []string{"import", sample, "--dry-run"}, 0,
			service.Counts(625, 0, 0, "dry run, nothing stored"))
		service.CheckCLI(t, first, []string{"import", sample}, 0, service.Counts(625, 0, 0, "stored"))
		service.CheckCLI(t, first, []string{"import", sample}, 0, service.Counts(0, 625, 0, "stored"))
		for _, name := range []string{"plants.csv", "plants.ndjson"} {
			from, back := filepath.Join(folder, name), filepath.Join(folder, "back-"+name)
			service.CheckCLI(t, first, []string{"export", "-o", from}, 0, "625 plants written to "+from+"\n")
			created, unchanged := 625, 0
			if name != "plants.csv" {
				created, unchanged = 0, 625
			}
			service.CheckCLI(t, second, []string{"import", from}, 0,
				service.Counts(created, unchanged, 0, "stored"))
			service.CheckCLI(t, second, []string{"export", "-o", back}, 0, "625 plants written to "+back+"\n")
			text, err := os.ReadFile(from)
			service.Must(t, err)
			again, err := os.ReadFile(back)
			service.Must(t, err)
			if string(text) != string(again) {
				t.Errorf("%s: got %d bytes after an import and an export, want the %d before", name, len(again), len(text))
			}
			service.CheckCLI(t, second, []string{"export", "--format", strings.TrimPrefix(filepath.Ext(name), ".")}, 0, string(text))
		}
		service.CheckCLI(t, first, []string{"export", "--resource", "plants", "--created-after", "2100-01-01T00:00:00Z"}, 0, "")
		entries, err := os.ReadDir(folder)
		if err != nil || len(entries) != 4 {
			t.Errorf("got %d files, %v, want 4", len(entries), err)
		}
	})
}

func TestCLIRejectedRows(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	settings := service.ClientOf(s.URL)
	s.Post(t, `{"id":1,"name":"Monstera"}`).RequireOK(t)
	file := service.Write(t, "bad.csv", "id,name,tag\n2,Ficus,\n3.5,Aloe,\n1,Other,x\n")
	rejected := []string{file + ":3: 40005 id ", file + ":4: 40901 plant 1 ", "plantstore: 2 of 3 rows "}
	service.CheckCLI(t, settings, []string{"import", file}, 3, service.Counts(1, 0, 2, "nothing stored"), rejected...)
	service.CheckCLI(t, settings, []string{"import", file, "--partial", "--dry-run"}, 3,
		service.Counts(1, 0, 2, "dry run, nothing stored"), rejected...)
	s.Get(t, "/plants/2", service.As(service.Token)...).CheckStatus(t, 404)
	service.CheckCLI(t, settings, []string{"import", file, "--partial"}, 3, service.Counts(1, 0, 2, "stored"), rejected...)
	s.Get(t, "/plants/2", service.As(service.Token)...).CheckStatus(t, 200)

	// Reports list fewer rows than are rejected.
	many := service.Write(t, "many.jsonl", strings.Repeat(`{"id":"x","name":"x"}`+"\n", 1200))
	service.CheckCLI(t, settings, []string{"import", many}, 3,
		service.Counts(0, 0, 1200, "nothing stored"), many+":1000: 40005", many+": and 200 more")

	// An invalid header or token stops the import before the first row.
	service.CheckCLI(t, settings, []string{"import", service.Write(t, "x.csv", "id,nam\n")}, 1, "", "40002 line 1: unknown column nam")
	large := service.Write(t, "large.csv", "id,nam\n"+strings.Repeat("1,x\n", 3<<20))
	service.CheckCLI(t, settings, []string{"import", large}, 1, "", "40002 line 1: unknown column nam")
	service.CheckCLI(t, settings, []string{"import", large, "--token-file", service.Write(t, "token", "wrong")}, 1, "", "40102")
}

func TestCLIStandardInput(t *testing.T) {
	t.Parallel()
	cmd := service.Command(t, service.ClientOf(service.Start(t).URL), "import", "-", "--format", "ndjson", "--partial")
	cmd.Stdin = strings.NewReader(`{"id":1,"name":"x"}` + "\n\n" + `{"id":2}`)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	stdout, _ := cmd.Output() // ExitCode has its result
	if string(stdout) != service.Counts(1, 0, 1, "stored") || !strings.HasPrefix(stderr.String(), "stdin:3: 40004 name ") ||
		cmd.ProcessState.ExitCode() != 3 {
		t.Errorf("got exit status %d, %q, %q, want 3", cmd.ProcessState.ExitCode(), stdout, &stderr)
	}
}

// TestCLIFailures checks the exit status and message of each failure.
func TestCLIFailures(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	settings, file := service.ClientOf(s.URL), service.Write(t, "one.csv", "id,name\n1,x\n")
	target := filepath.Join(t.TempDir(), "plants.csv")
	wrongToken := service.Write(t, "token", "wrong-"+service.Token+"\n")
	for _, test := range []struct {
		name     string
		args     string
		status   int
		mentions string
	}{
		{"no such file", "import nothing.csv", 1, "nothing.csv"},
		{"a folder", "import /tmp --format csv", 1, "/tmp is a folder"},
		{"no such folder", "export -o nowhere/plants.csv", 1, "nowhere/plants.csv: the folder nowhere does not exist: no such file"},
		{"no such token file", "export --token-file nothing", 2, "--token-file"},
		{"an empty token file", "export --token-file " + os.DevNull, 2, "must have one token"},
		{"a token file of two lines", "export --token-file " + service.Write(t, "tokens", service.Token+"\nx"), 2, "must have one token"},
		{"no folder of the cursor", "follow --after 0 --cursor-file nowhere/cursor", 1, "nowhere/cursor: the folder nowhere does not exist"},
		{"a wrong token", "export -o " + target + " --token-file " + wrongToken, 1, "40102"},
		{"a wrong token for an import", "import " + file + " --token-file " + wrongToken, 1, "--token-file or client.token (PLANTSTORE_CLIENT_TOKEN)"},
		{"no service", "import " + file + " --url http://127.0.0.1:1", 1, "http://127.0.0.1:1"},
		{"no URL", "export --url ftp://localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"a user in the URL", "export --url http://u:" + service.Token + "@localhost", 2, "client.url (PLANTSTORE_CLIENT_URL)"},
		{"another path", "export --url " + s.URL + "/prefix", 1, "40402 no such path; see /swagger/index.html: is the path of " + s.URL + "/prefix right?"},
	} {
		t.Run(test.name, func(t *testing.T) {
			service.CheckCLI(t, settings, strings.Fields(test.args), test.status, "", test.mentions)
		})
	}
	if _, err := os.Stat(target); err == nil {
		t.Error("got a file from a failed export")
	}
	for _, url := range []string{"http://plants.example.org", "https://localhost.example.org", "http://10.0.0.1:8080"} {
		t.Run(url, func(t *testing.T) {
			service.CheckCLI(t, nil, []string{"export", "--url", url}, 2, "", "development token")
		})
	}
	// There is no development token, and port 0 is any port.
	service.CheckCLI(t, []string{"PORT=1"}, []string{"export"}, 2, "", "data/dev-token")
	service.CheckCLI(t, []string{"PORT=0"}, []string{"export"}, 2, "", "client.url (PLANTSTORE_CLIENT_URL)")
}

// TestCLIDevelopmentToken runs the commands in the folder of a development service, with
// only the port configured.
func TestCLIDevelopmentToken(t *testing.T) {
	t.Parallel()
	s := service.Launch(t, service.Command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json"}))
	s.AwaitServing(t)
	port := s.Port()
	for _, args := range [][]string{
		{"import", service.Absolute(t, samplePlants)},
		{"export", "-o", "plants.csv", "--url", "http://localhost:" + port},
		{"export", "--url", "http://LOCALHOST:" + port},
	} {
		cmd := service.Command(t, []string{"PORT=" + port}, args...)
		cmd.Dir = s.Folder
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
	return service.ClientOf(server.URL)
}

// TestCLIProxy: requests to the service on this machine have the token, so no proxy sees them.
func TestCLIProxy(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	host := "Localhost" // Go itself does not use a proxy for localhost and loopback addresses
	settings := []string{"PLANTSTORE_CLIENT_TOKEN=" + service.Token, "HTTP_PROXY=http://127.0.0.1:1"}
	t.Run("the service on this machine", func(t *testing.T) {
		service.CheckCLI(t, append(settings, "PLANTSTORE_SERVER_HOST="+host, "PORT="+s.Port()), []string{"export"}, 0, "")
	})
	t.Run("a URL", func(t *testing.T) {
		service.CheckCLI(t, append(settings, "PLANTSTORE_CLIENT_URL=http://"+host+":"+s.Port()), []string{"export"}, 1, "", "proxyconnect")
	})
}

// TestCLIStrangeServices sends requests to broken services and to servers that are not the
// service.
func TestCLIStrangeServices(t *testing.T) {
	t.Parallel()
	file := service.Write(t, "one.csv", "id,name\n1,x\n")
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the client followed a redirect") }))
	defer elsewhere.Close()
	html := func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "<html>Welcome</html>") }
	for name, test := range map[string]struct {
		handler  http.HandlerFunc
		mentions []string
	}{
		"a redirect":    {http.RedirectHandler(elsewhere.URL, http.StatusTemporaryRedirect).ServeHTTP, []string{"307 Temporary Redirect"}},
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
			service.CheckCLI(t, fake(t, test.handler), []string{"import", file}, 1, "", mentions...)
			stdout := ""
			if name == "half a response" {
				stdout = `{"rows":` // only the exit status shows the error
			}
			service.CheckCLI(t, fake(t, test.handler), []string{"export"}, 1, stdout, test.mentions...)

			target := service.Write(t, "plants.ndjson", "before")
			service.CheckCLI(t, fake(t, test.handler), []string{"export", "-o", target}, 1, "", test.mentions...)
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
	service.CheckCLI(t, settings, []string{"import", service.Write(t, "x.CSV", rows), "--partial", "--dry-run"}, 0,
		service.Counts(0, 0, 0, "dry run, nothing stored"))
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
	p := service.Launch(t, service.Command(t, settings, "import", service.Write(t, "one.csv", "id,name\n1,x\n")))
	<-waiting
	service.Must(t, p.Process.Signal(syscall.SIGINT))
	err := p.Wait(t)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok || exit.ExitCode() != 1 || !strings.Contains(p.Stderr.String(), "interrupted") {
		t.Errorf("got %v and %q, want exit status 1", err, p.Stderr)
	}
}

// TestCLIDevices exports to a pipe and to a link, which must not be replaced.
func TestCLIDevices(t *testing.T) {
	t.Parallel()
	settings := service.ClientOf(service.Start(t).URL)
	folder := t.TempDir()
	pipe := filepath.Join(folder, "pipe")
	service.Must(t, syscall.Mkfifo(pipe, 0o600))
	read := make(chan string)
	go func() {
		text, _ := os.ReadFile(pipe)
		read <- string(text)
	}()
	service.CheckCLI(t, settings, []string{"export", "--format", "csv", "-o", pipe}, 0, "0 plants written to "+pipe+"\n")
	if got := <-read; got != service.CSVHeader {
		t.Errorf("got %q from the pipe, want a header", got)
	}
	target, link := service.Write(t, "plants.csv", "before"), filepath.Join(folder, "link")
	service.Must(t, os.Symlink(target, link))
	service.CheckCLI(t, settings, []string{"export", "--format", "csv", "-o", link}, 0, "0 plants written to "+link+"\n")
	if now, err := os.Readlink(link); err != nil || now != target {
		t.Errorf("got %q, %v, want a link to %s", now, err, target)
	}
	if text, err := os.ReadFile(target); err != nil || string(text) != service.CSVHeader {
		t.Errorf("got %q, %v, want a header", text, err)
	}
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
			p := service.Launch(t, service.Command(t, settings, "export", "-o", filepath.Join(folder, "plants.ndjson")))
			files := func() int {
				entries, err := os.ReadDir(folder)
				service.Must(t, err)
				return len(entries)
			}
			service.Eventually(t, "a part of the file", func() bool { return files() == 1 })
			service.Must(t, p.Process.Signal(end))
			err := p.Wait(t)
			if exit, ok := errors.AsType[*exec.ExitError](err); !ok || exit.ExitCode() != 1 || files() != 0 {
				t.Errorf("got %v and %d files, want exit status 1 and none", err, files())
			}
		})
	}
}

// TestCLIExcel exports a file for Excel, and imports what Excel has made of a file without a byte order mark.
func TestCLIExcel(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	settings := service.ClientOf(s.URL)
	s.ImportRows(t, "", service.InCSV, "id,name\n1,sémiplena\n").RequireOK(t)
	service.CheckCLI(t, settings, []string{"export", "--excel"}, 0, "\ufeffid,name,tag\n1,sémiplena,\n")
	service.CheckCLI(t, settings, []string{"import", "--dry-run", service.Write(t, "garbled.csv", "id,name\n2,sÃ©miplena\n")}, 0,
		"1 rows: 1 created, 0 replaced, 0 unchanged, 0 refused; dry run, nothing stored\n", "garbled.csv:2: warning: the text looks as if UTF-8 had been read as Windows 1252")
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
