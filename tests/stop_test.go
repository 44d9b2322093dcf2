package tests

import (
	"bufio"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"syscall"
	"testing"
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
	s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1s")
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
