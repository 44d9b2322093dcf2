package operate

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/tests/service"
)

func TestTLS(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder)
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": own.Over(t, false), "HTTP/2.0": own.Over(t, true)} {
		t.Run(name, func(t *testing.T) {
			r := s.On(t, transport, "PUT", "/plants/1", "application/json", strings.NewReader(`{"name":"x"}`))
			r.RequireOK(t)
			r.CheckHeader(t, "Strict-Transport-Security", "max-age=31536000")
			s.On(t, transport, "GET", "/plants/2", "", nil).CheckError(t, 40401)
			r = s.On(t, transport, "GET", "/nothing", "", nil)
			r.CheckStatus(t, 404)
			r.CheckHas(t, "Strict-Transport-Security")
		})
	}
	if r, err := s.TryOn(&http.Transport{TLSClientConfig: &tls.Config{RootCAs: own.Trust().RootCAs, MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}}, "GET", "/healthz", nil); err == nil {
		t.Errorf("got %v over TLS 1.1, want an error", r)
	}
	s.URL = "http" + strings.TrimPrefix(s.URL, "https")
	s.Get(t, "/healthz").CheckStatus(t, 400)
	service.Start(t).Get(t, "/healthz").CheckHeader(t, "Strict-Transport-Security", "")
}

// TestTLSCommands runs the commands that use the service on the same machine.
func TestTLSCommands(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder)
	settings := append(service.PairFiles(folder), "PORT="+s.Port(), "PLANTSTORE_CLIENT_TOKEN="+service.Token)
	plants := service.Write(t, "plants.csv", "id,name\n1,one\n2,two\n")
	service.CheckCLI(t, settings, []string{"healthcheck", "--ready"}, 0, "")
	service.CheckCLI(t, settings, []string{"import", plants}, 0, service.Counts(2, 0, 0, "stored"))
	target := filepath.Join(t.TempDir(), "plants.ndjson")
	if _, stderr, status := service.RunToEnd(t, settings, "export", "-o", target); status != 0 {
		t.Errorf("export: got exit status %d, %q, want 0", status, stderr)
	}
	if text, err := os.ReadFile(target); err != nil || bytes.Count(text, []byte("\n")) != 2 {
		t.Errorf("got %d lines, %v, want 2", bytes.Count(text, []byte("\n")), err)
	}

	// The token is not sent to a service with another certificate.
	impostor, elsewhere := service.NewPair(t), t.TempDir()
	impostor.In(t, elsewhere)
	service.CheckCLI(t, append(settings, service.PairFiles(elsewhere)...), []string{"import", plants}, 1, "", "certificate")
	if n := strings.Count(s.Stderr.String(), `"path":"/plants/import"`); n != 1 {
		t.Errorf("got %d imports, want 1", n)
	}
	service.CheckCLI(t, append(settings, "PLANTSTORE_CLIENT_URL="+s.URL), []string{"import", plants}, 1, "", "certificate")
}

// TestTLSCommandsSayWhatIsWrong: with a URL, commands trust only what the system trusts.
func TestTLSCommandsSayWhatIsWrong(t *testing.T) {
	t.Parallel()
	plants := service.Write(t, "plants.csv", "id,name\n1,one\n")
	private, expired := service.NewPair(t), service.NewPairUntil(t, time.Now().Add(-time.Minute))
	folder, elsewhere := t.TempDir(), t.TempDir()
	private.In(t, folder)
	expired.In(t, elsewhere)
	s, old := service.StartTLS(t, folder), service.StartTLS(t, elsewhere)
	plain := "http" + strings.TrimPrefix(s.URL, "https")
	for _, test := range []struct {
		name, url string
		trusted   string // a file
		status    int
		mentions  []string
	}{
		{"unknown authority", s.URL, "", 1, []string{"the certificate of " + s.URL + " is not valid: ", "unknown authority", "in SSL_CERT_FILE\n"}},
		{"the advice", s.URL, filepath.Join(folder, "cert.pem"), 0, nil},
		{"expired", old.URL, filepath.Join(elsewhere, "cert.pem"), 1, []string{"is not valid: ", "has expired", "replace it there"}},
		{"without TLS", plain, "", 1, []string{"is " + plain + " a Plant Store with TLS? Then set its URL, with https, with --url"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			for _, args := range [][]string{{"import", plants}, {"export"}} {
				_, stderr, status := service.RunToEnd(t, []string{"SSL_CERT_FILE=" + test.trusted, "PLANTSTORE_CLIENT_TOKEN=" + service.Token}, append(args, "--url", test.url)...)
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
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.Launch(t, service.Command(t, append(service.PairFiles(folder), "PORT=0")))
	welcome := awaitWelcome(s)
	printed := regexp.MustCompile(`Swagger UI  (https://localhost:\d+)/swagger/index.html\n`).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("got output %q, want a URL", welcome)
	}
	want := fmt.Sprintf("curl -i --cacert '%s' %s/plants -H 'Authorization: Bearer ", filepath.Join(folder, "cert.pem"), printed[1])
	if !strings.Contains(welcome, want) {
		t.Errorf("got output %q, want %q in it", welcome, want)
	}
	s.URL = printed[1]
	s.On(t, own.Over(t, true), "GET", "/swagger/index.html", "", nil).CheckStatus(t, 200)
}
