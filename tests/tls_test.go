package tests

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	s := startTLS(t, folder)
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": own.over(t, false), "HTTP/2.0": own.over(t, true)} {
		t.Run(name, func(t *testing.T) {
			if r := s.on(t, transport, "PUT", "/plants/1", "application/json", strings.NewReader(`{"name":"x"}`)); r.status != 200 || r.header.Get("Strict-Transport-Security") != "max-age=31536000" {
				t.Errorf("%v %v", r, r.header)
			}
			checkError(t, s.on(t, transport, "GET", "/plants/2", "", nil), 40401)
			if r := s.on(t, transport, "GET", "/nothing", "", nil); r.status != 404 || r.header.Get("Strict-Transport-Security") == "" {
				t.Errorf("no such path over %s: %d %v", name, r.status, r.header)
			}
		})
	}
	if r, err := s.tryOn(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: own.trust().RootCAs, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}, "GET", "/healthz", nil); err == nil {
		t.Errorf("TLS 1.1: %d", r.status)
	}
	s.url = "http" + strings.TrimPrefix(s.url, "https")
	checkStatus(t, s.get(t, "/healthz"), 400)
	if r := start(t).get(t, "/healthz"); r.header.Get("Strict-Transport-Security") != "" {
		t.Errorf("plain HTTP has %v", r.header)
	}
}

// TestTLSBulk moves many plants over HTTP/2, where deadlines and answers that break
// off are those of a stream, and its connection goes on.
func TestTLSBulk(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	url := dbtest.Postgres(t)
	s := startTLS(t, folder, "DATABASE_URL="+url, "PLANTSTORE_BULK_MAX_BODY_BYTES=4000000", "PLANTSTORE_BULK_TIMEOUT=2s",
		"PLANTSTORE_SERVER_READ_TIMEOUT=300ms", "PLANTSTORE_SERVER_WRITE_TIMEOUT=300ms")
	transport := own.over(t, true)
	rows := numbered(1, 50_000)
	checkReport(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, strings.NewReader(rows)), 0, "50000: 50000 new, 0 unchanged, 0 refused, stored")
	if r := s.on(t, transport, "GET", "/plants/export", "", nil); r.status != 200 || r.body != rows {
		t.Errorf("export: %d, %d bytes, want %d", r.status, len(r.body), len(rows))
	}
	checkError(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, strings.NewReader(strings.Repeat(rows, 3))), 41301)                 // too large an import
	checkError(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, io.MultiReader(strings.NewReader(strings.Repeat(rows, 3)))), 41301) // too large an import of no announced length

	// Longer than others may take, and not for ever.
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": own.over(t, false), "HTTP/2.0": transport} {
		t.Run(name, func(t *testing.T) {
			slow, in := io.Pipe()
			go func() {
				defer in.Close()
				for id := range int64(1000) {
					if _, err := io.WriteString(in, bodyOf(100_000+id)+"\n"); err != nil {
						return // the service has had enough
					}
					time.Sleep(10 * time.Millisecond) // as a client does that is slow
				}
			}()
			begin := time.Now()
			checkError(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, slow), 40001)
			if took := time.Since(begin); took < 2*time.Second || took > 8*time.Second {
				t.Errorf("a slow import over %s took %v", name, took)
			}
		})
	}

	// A stream that breaks off, and its connection, which must not.
	dbtest.Exec(t, url, "UPDATE plants SET name = repeat('x', 255), tag = repeat('x', 255)")
	request, err := http.NewRequest(http.MethodGet, s.url+"/plants/export", nil)
	if err != nil {
		t.Fatal(err)
	}
	request.Header.Set("Authorization", "Bearer "+token)
	resp, err := transport.RoundTrip(request)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("%s, %v", resp.Proto, err)
	}
	dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT id, name, tag%' AND pid <> pg_backend_pid()")
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || !strings.Contains(err.Error(), "stream") {
		t.Errorf("an export that was broken off goes on for %d bytes: %v", n, err)
	}
	s.awaitLog(t, "answer broken off")
	checkStatus(t, s.on(t, transport, "GET", "/plants/1", "", nil), 200)
	if n := strings.Count(s.stderr.String(), `"logger":"http"`); n != 0 {
		t.Errorf("net/http has logged %d lines", n)
	}
}

// TestTLSCommands runs the commands that talk to the service on the same machine.
func TestTLSCommands(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	s := startTLS(t, folder)
	settings := append(pairFiles(folder), "PORT="+s.url[strings.LastIndex(s.url, ":")+1:], "PLANTSTORE_CLIENT_TOKEN="+token)
	plants := write(t, "plants.csv", "id,name\n1,one\n2,two\n")
	checkCLI(t, settings, []string{"healthcheck", "--ready"}, 0, "")                                            // healthcheck
	checkCLI(t, settings, []string{"import", plants}, 0, "2 rows: 2 created, 0 unchanged, 0 refused; stored\n") // import
	target := filepath.Join(t.TempDir(), "plants.ndjson")
	if _, stderr, status := runToEnd(t, settings, "export", "-o", target); status != 0 {
		t.Errorf("export: exit status %d, %q", status, stderr)
	}
	if text, err := os.ReadFile(target); err != nil || bytes.Count(text, []byte("\n")) != 2 {
		t.Errorf("the export has %d lines, %v", bytes.Count(text, []byte("\n")), err)
	}

	// The token goes to nobody with another certificate.
	impostor, elsewhere := newPair(t), t.TempDir()
	impostor.in(t, elsewhere)
	checkCLI(t, append(settings, pairFiles(elsewhere)...), []string{"import", plants}, 1, "", "another certificate") // import to another service
	if n := strings.Count(s.stderr.String(), `"path":"/plants/import"`); n != 1 {
		t.Errorf("the service has had %d imports, want 1", n)
	}
	checkCLI(t, append(settings, "PLANTSTORE_CLIENT_URL="+s.url), []string{"import", plants}, 1, "", "certificate") // import by a URL
}

// TestTLSWelcome follows what a developer is told.
func TestTLSWelcome(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	s := launch(t, command(t, append(pairFiles(folder), "PORT=0")))
	s.stdout.await(s.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	welcome := s.stdout.String()
	printed := regexp.MustCompile(`Swagger UI  (https://localhost:\d+)/swagger/index.html\n`).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("printed %q", welcome)
	}
	want := fmt.Sprintf("curl -i --cacert '%s' %s/plants -H 'Authorization: Bearer ", filepath.Join(folder, "cert.pem"), printed[1])
	if !strings.Contains(welcome, want) {
		t.Errorf("printed %q, want %q in it", welcome, want)
	}
	s.url = printed[1]
	checkStatus(t, s.on(t, own.over(t, true), "GET", "/swagger/index.html", "", nil), 200)
}
