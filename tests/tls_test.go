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
			r := s.on(t, transport, "PUT", "/plants/1", "application/json", strings.NewReader(`{"name":"x"}`))
			requireOK(t, r)
			checkHeader(t, r, "Strict-Transport-Security", "max-age=31536000")
			checkError(t, s.on(t, transport, "GET", "/plants/2", "", nil), 40401)
			r = s.on(t, transport, "GET", "/nothing", "", nil)
			checkStatus(t, r, 404)
			checkHas(t, r, "Strict-Transport-Security")
		})
	}
	if r, err := s.tryOn(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: own.trust().RootCAs, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}, "GET", "/healthz", nil); err == nil {
		t.Errorf("got %v over TLS 1.1, want an error", r)
	}
	s.url = "http" + strings.TrimPrefix(s.url, "https")
	checkStatus(t, s.get(t, "/healthz"), 400)
	checkHeader(t, start(t).get(t, "/healthz"), "Strict-Transport-Security", "")
}

// TestTLSBulk imports and exports over HTTP/2. Deadlines and aborted responses apply to
// the stream; the connection continues.
func TestTLSBulk(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	url := dbtest.Postgres(t)
	timeouts := []string{"PLANTSTORE_SERVER_READ_TIMEOUT=1s", "PLANTSTORE_SERVER_WRITE_TIMEOUT=1s"}
	s := startTLS(t, folder, append(timeouts, "DATABASE_URL="+url, "PLANTSTORE_BULK_MAX_BODY_BYTES=4000000")...)
	transport := own.over(t, true)
	rows := numbered(1, 50_000)
	checkReport(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, strings.NewReader(rows)), 0, "50000: 50000 new, 0 unchanged, 0 rejected, stored")
	if r := s.on(t, transport, "GET", "/plants/export", "", nil); r.status != 200 || r.body != rows {
		t.Errorf("got %d with %d bytes, want 200 with %d", r.status, len(r.body), len(rows))
	}
	checkError(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, strings.NewReader(strings.Repeat(rows, 3))), 41301)
	checkError(t, s.on(t, transport, "POST", "/plants/import", inNDJSON, io.MultiReader(strings.NewReader(strings.Repeat(rows, 3)))), 41301)

	// Imports may take longer than other requests, up to their own timeout.
	impatient := startTLS(t, folder, append(timeouts, "PLANTSTORE_BULK_TIMEOUT=2s")...)
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": own.over(t, false), "HTTP/2.0": transport} {
		t.Run(name, func(t *testing.T) {
			// The service waits a second for the rest of a body that it rejects.
			stalled, rest := io.Pipe()
			// If there is no response, the client waits for the end of the body, too.
			defer time.AfterFunc(patience, func() { _ = rest.Close() }).Stop()
			checkError(t, impatient.on(t, transport, "POST", "/plants", "text/plain", stalled), 41501)

			slow, in := io.Pipe()
			defer in.Close()
			begin := time.Now()
			go func() {
				// What arrives after the end would reset the connection, perhaps before the client
				// has read the response.
				for id := int64(100_000); time.Since(begin) < 1500*time.Millisecond; id++ {
					if _, err := io.WriteString(in, bodyOf(id)+"\n"); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond) // a slow client
				}
			}()
			checkError(t, impatient.on(t, transport, "POST", "/plants/import", inNDJSON, slow), 41301)
			if took := time.Since(begin); took < 2*time.Second || took > 9*time.Second {
				t.Errorf("a slow import took %v, want 2s to 9s", took)
			}
		})
	}

	// An aborted response ends the stream but not the connection.
	dbtest.Exec(t, url, "UPDATE plants SET name = repeat('x', 255), tag = repeat('x', 255)")
	request, err := http.NewRequest(http.MethodGet, s.url+"/plants/export", nil)
	must(t, err)
	request.Header.Set("Authorization", "Bearer "+token)
	resp, err := transport.RoundTrip(request)
	must(t, err)
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("got %s, %v, want HTTP/2", resp.Proto, err)
	}
	breakConnections(t, url)
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || !strings.Contains(err.Error(), "stream") {
		t.Errorf("got %d more bytes, %v, want a stream error", n, err)
	}
	s.awaitError(t)
	checkStatus(t, s.on(t, transport, "GET", "/plants/1", "", nil), 200)
	if n := strings.Count(s.stderr.String(), `"logger":"http"`); n != 0 {
		t.Errorf("got %d log lines of net/http, want 0", n)
	}
}

// TestTLSCommands runs the commands that use the service on the same machine.
func TestTLSCommands(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	s := startTLS(t, folder)
	settings := append(pairFiles(folder), "PORT="+s.port(), "PLANTSTORE_CLIENT_TOKEN="+token)
	plants := write(t, "plants.csv", "id,name\n1,one\n2,two\n")
	checkCLI(t, settings, []string{"healthcheck", "--ready"}, 0, "")
	checkCLI(t, settings, []string{"import", plants}, 0, counts(2, 0, 0, "stored"))
	target := filepath.Join(t.TempDir(), "plants.ndjson")
	if _, stderr, status := runToEnd(t, settings, "export", "-o", target); status != 0 {
		t.Errorf("export: got exit status %d, %q, want 0", status, stderr)
	}
	if text, err := os.ReadFile(target); err != nil || bytes.Count(text, []byte("\n")) != 2 {
		t.Errorf("got %d lines, %v, want 2", bytes.Count(text, []byte("\n")), err)
	}

	// The token is not sent to a service with another certificate.
	impostor, elsewhere := newPair(t), t.TempDir()
	impostor.in(t, elsewhere)
	checkCLI(t, append(settings, pairFiles(elsewhere)...), []string{"import", plants}, 1, "", "certificate")
	if n := strings.Count(s.stderr.String(), `"path":"/plants/import"`); n != 1 {
		t.Errorf("got %d imports, want 1", n)
	}
	checkCLI(t, append(settings, "PLANTSTORE_CLIENT_URL="+s.url), []string{"import", plants}, 1, "", "certificate")
}

// TestTLSCommandsSayWhatIsWrong: with a URL, commands trust only what the system trusts.
func TestTLSCommandsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	plants := write(t, "plants.csv", "id,name\n1,one\n")
	private, expired := newPair(t), newPairUntil(t, time.Now().Add(-time.Minute))
	folder, elsewhere := t.TempDir(), t.TempDir()
	private.in(t, folder)
	expired.in(t, elsewhere)
	s, old := startTLS(t, folder), startTLS(t, elsewhere)
	plain := "http" + strings.TrimPrefix(s.url, "https")
	for _, test := range []struct {
		name, url string
		trusted   string // a file
		status    int
		mentions  []string
	}{
		{"unknown authority", s.url, "", 1, []string{"the certificate of " + s.url + " is not valid: ", "unknown authority", "in SSL_CERT_FILE\n"}},
		{"the advice", s.url, filepath.Join(folder, "cert.pem"), 0, nil},
		{"expired", old.url, filepath.Join(elsewhere, "cert.pem"), 1, []string{"is not valid: ", "has expired", "replace it there"}},
		{"without TLS", plain, "", 1, []string{"is " + plain + " a Plant Store with TLS? Then set its URL, with https, with --url"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, args := range [][]string{{"import", plants}, {"export"}} {
				_, stderr, status := runToEnd(t, []string{"SSL_CERT_FILE=" + test.trusted, "PLANTSTORE_CLIENT_TOKEN=" + token}, append(args, "--url", test.url)...)
				if status != test.status || strings.Contains(stderr, "is the service running there") {
					t.Errorf("%s: got exit status %d and %q, want %d", args[0], status, stderr, test.status)
				}
				for _, text := range test.mentions {
					if !strings.Contains(stderr, text) {
						t.Errorf("%s: got %q, want %q in it", args[0], stderr, text)
					}
				}
			}
		})
	}
}

// TestTLSWelcome uses the URL that a development service prints.
func TestTLSWelcome(t *testing.T) {
	t.Parallel()
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	s := launch(t, command(t, append(pairFiles(folder), "PORT=0")))
	welcome := s.awaitWelcome()
	printed := regexp.MustCompile(`Swagger UI  (https://localhost:\d+)/swagger/index.html\n`).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("got output %q, want a URL", welcome)
	}
	want := fmt.Sprintf("curl -i --cacert '%s' %s/plants -H 'Authorization: Bearer ", filepath.Join(folder, "cert.pem"), printed[1])
	if !strings.Contains(welcome, want) {
		t.Errorf("got output %q, want %q in it", welcome, want)
	}
	s.url = printed[1]
	checkStatus(t, s.on(t, own.over(t, true), "GET", "/swagger/index.html", "", nil), 200)
}
