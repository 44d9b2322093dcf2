package tests

import (
	"bufio"
	"crypto/ed25519"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
)

// stop ends the service by SIGTERM.
func (s *service) stop(t *testing.T) {
	t.Helper()
	must(t, s.process.Signal(syscall.SIGTERM))
	if err := s.wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// TestStopFinishesRequests stops the service while a request is in flight.
func TestStopFinishesRequests(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=5s") // ample for two requests
	body, send := io.Pipe()
	type result struct {
		response response
		err      error
	}
	results := make(chan result)
	go func() {
		r, err := s.try("POST", "/plants", body, as(token)...)
		results <- result{r, err}
	}()
	if _, err := io.WriteString(send, `{"id":1,`); err != nil {
		t.Fatal(err)
	}
	must(t, s.process.Signal(syscall.SIGTERM))
	s.awaitLog(t, "stopping")
	checkError(t, s.get(t, "/readyz"), 50302)
	conn := s.dial(t)
	askHealth(t, conn)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %v, want 200 and the end of the connection", response)
	}
	if _, err := io.WriteString(send, `"name":"x"}`); err != nil {
		t.Fatal(err)
	}
	must(t, send.Close())
	if r := <-results; r.err != nil || r.response.status != 200 {
		t.Errorf("got %v, %v, want 200", r.response, r.err)
	}
	if err := s.wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
	if _, err := os.Stat(filepath.Join(s.folder, "data", "plantstore.db-wal")); err == nil {
		t.Error("got a WAL, want a closed database")
	}
}

// TestStopFetchesKeys: the first token of a new key may come while the service stops.
func TestStopFetchesKeys(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	must(t, err)
	var kid atomic.Value
	kid.Store("old")
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, kid.Load(), base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(keys.Close)
	s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h", "PLANTSTORE_AUTH_JWT_ISSUER=i", "PLANTSTORE_AUTH_JWT_AUDIENCE=a",
		"PLANTSTORE_AUTH_JWT_JWKS_URL="+keys.URL)
	must(t, s.process.Signal(syscall.SIGTERM))
	s.awaitLog(t, "stopping")
	kid.Store("new")
	checkStatus(t, s.get(t, "/plants", as(signJWT(t, private, "x", "kid", "new"))...), 200)
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h")
			must(t, s.process.Signal(syscall.SIGTERM))
			s.awaitLog(t, "stopping")
			must(t, s.process.Signal(signal))
			if err := s.wait(t); err == nil || err.Error() != "exit status 1" {
				t.Errorf("got %v, want exit status 1", err)
			}
		})
	}
}

// TestInterruptSkipsTheDelay: nobody waits for it after Ctrl-C.
func TestInterruptSkipsTheDelay(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h")
	must(t, s.process.Signal(syscall.SIGINT))
	if err := s.wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// signJWT returns a JWT of the issuer i for the audience a, with names and values for its header.
func signJWT(t *testing.T, key ed25519.PrivateKey, subject string, header ...string) string {
	t.Helper()
	token := jwt.NewWithClaims(jwt.SigningMethodEdDSA, jwt.MapClaims{
		"iss": "i", "aud": "a", "sub": subject, "scope": "plants:read", "exp": time.Now().Add(time.Hour).Unix(),
	})
	for i := 0; i < len(header); i += 2 {
		token.Header[header[i]] = header[i+1]
	}
	text, err := token.SignedString(key)
	must(t, err)
	return text
}
