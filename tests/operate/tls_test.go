package operate

import (
	"crypto/tls"
	"fmt"
	"net/http"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

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

// TestTLSCommands runs the commands that use a service with TLS: those that send a token trust only
// what the system trusts.
func TestTLSCommands(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	s := service.StartTLS(t, folder)
	settings := append(service.PairFiles(folder), "PORT="+s.Port(), "PLANTSTORE_CLIENT_TOKEN="+service.Token)
	trusted, url := "SSL_CERT_FILE="+filepath.Join(folder, "cert.pem"), "PLANTSTORE_CLIENT_URL="+s.URL
	plants := service.Write(t, "plants.csv", "id,name\n1,one\n2,two\n")
	service.CheckCLI(t, settings, []string{"healthcheck", "--ready"}, 0, "")
	service.CheckCLI(t, settings, []string{"import", plants}, 2, "", "--url or client.url (PLANTSTORE_CLIENT_URL) is required")
	service.CheckCLI(t, append(settings, url), []string{"import", plants}, 1, "", "unknown authority")
	service.CheckCLI(t, append(settings, "PLANTSTORE_CLIENT_URL=http"+strings.TrimPrefix(s.URL, "https")), []string{"import", plants}, 1, "", "400 Bad Request")
	service.CheckCLI(t, append(settings, url, trusted), []string{"import", plants}, 0, service.Counts(2, 0, 0, "stored"))
	target := filepath.Join(t.TempDir(), "plants.ndjson")
	service.CheckCLI(t, append(settings, url, trusted), []string{"export", "-o", target}, 0, "2 plants written to "+target+"\n")
	if n := strings.Count(s.Stderr.String(), `"path":"/plants/import"`); n != 1 {
		t.Errorf("got %d imports, want 1", n)
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
