package operate

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

	"plantstore/tests/service"
)

// TestStopFinishesRequests stops the service while a request is in flight.
func TestStopFinishesRequests(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=5s") // ample for two requests
	body, send := io.Pipe()
	type result struct {
		response service.Response
		err      error
	}
	results := make(chan result)
	go func() {
		r, err := s.Try("POST", "/plants", body, service.As(service.Token)...)
		results <- result{r, err}
	}()
	if _, err := io.WriteString(send, `{"id":1,`); err != nil {
		t.Fatal(err)
	}
	service.Must(t, s.Process.Signal(syscall.SIGTERM))
	s.AwaitLog(t, "stopping")
	s.Get(t, "/readyz").CheckError(t, 50302)
	conn := s.Dial(t)
	askHealth(t, conn)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	service.Must(t, err)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK || !response.Close {
		t.Errorf("got %v, want 200 and the end of the connection", response)
	}
	if _, err := io.WriteString(send, `"name":"x"}`); err != nil {
		t.Fatal(err)
	}
	service.Must(t, send.Close())
	if r := <-results; r.err != nil || r.response.Status != 200 {
		t.Errorf("got %v, %v, want 200", r.response, r.err)
	}
	if err := s.Wait(t); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
	if _, err := os.Stat(filepath.Join(s.Folder, "data", "plantstore.db-wal")); err == nil {
		t.Error("got a WAL, want a closed database")
	}
}

// TestStopFetchesKeys: the first token of a new key may come while the service stops.
func TestStopFetchesKeys(t *testing.T) {
	t.Parallel()
	public, private, err := ed25519.GenerateKey(nil)
	service.Must(t, err)
	var kid atomic.Value
	kid.Store("old")
	keys := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","crv":"Ed25519","kid":%q,"x":%q}]}`, kid.Load(), base64.RawURLEncoding.EncodeToString(public))
	}))
	t.Cleanup(keys.Close)
	s := service.Start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h", "PLANTSTORE_AUTH_JWT_ISSUER=i", "PLANTSTORE_AUTH_JWT_AUDIENCE=a",
		"PLANTSTORE_AUTH_JWT_JWKS_URL="+keys.URL)
	service.Must(t, s.Process.Signal(syscall.SIGTERM))
	s.AwaitLog(t, "stopping")
	kid.Store("new")
	s.Get(t, "/plants", service.As(signJWT(t, private, "x", "kid", "new"))...).CheckStatus(t, 200)
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			s := service.Start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h")
			service.Must(t, s.Process.Signal(syscall.SIGTERM))
			s.AwaitLog(t, "stopping")
			service.Must(t, s.Process.Signal(signal))
			if err := s.Wait(t); err == nil || err.Error() != "exit status 1" {
				t.Errorf("got %v, want exit status 1", err)
			}
		})
	}
}

// TestInterruptSkipsTheDelay: nobody waits for it after Ctrl-C.
func TestInterruptSkipsTheDelay(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h")
	service.Must(t, s.Process.Signal(syscall.SIGINT))
	if err := s.Wait(t); err != nil {
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
	service.Must(t, err)
	return text
}
