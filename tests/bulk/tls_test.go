package bulk

import (
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestTLSBulk imports and exports over HTTP/2. Deadlines and aborted responses apply to
// the stream; the connection continues.
func TestTLSBulk(t *testing.T) {
	t.Parallel()
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	url := dbtest.Postgres(t)
	timeouts := []string{"PLANTSTORE_SERVER_READ_TIMEOUT=1s", "PLANTSTORE_SERVER_WRITE_TIMEOUT=1s"}
	s := service.StartTLS(t, folder, append(timeouts, "DATABASE_URL="+url, "PLANTSTORE_BULK_MAX_BODY_BYTES=4000000")...)
	transport := own.Over(t, true)
	rows := service.Numbered(1, 50_000)
	s.On(t, transport, "POST", "/plants/import", service.InNDJSON, strings.NewReader(rows)).CheckReport(t, 0, "50000: 50000 new, 0 unchanged, 0 rejected, stored")
	if r := s.On(t, transport, "GET", "/plants/export", "", nil); r.Status != 200 || r.Body != rows {
		t.Errorf("got %d with %d bytes, want 200 with %d", r.Status, len(r.Body), len(rows))
	}
	s.On(t, transport, "POST", "/plants/import", service.InNDJSON, strings.NewReader(strings.Repeat(rows, 3))).CheckError(t, 41301)
	s.On(t, transport, "POST", "/plants/import", service.InNDJSON, io.MultiReader(strings.NewReader(strings.Repeat(rows, 3)))).CheckError(t, 41301)

	// Imports may take longer than other requests, up to their own timeout.
	impatient := service.StartTLS(t, folder, append(timeouts, "PLANTSTORE_BULK_TIMEOUT=2s")...)
	for name, transport := range map[string]*http.Transport{"HTTP/1.1": own.Over(t, false), "HTTP/2.0": transport} {
		t.Run(name, func(t *testing.T) {
			// The service waits a second for the rest of a body that it rejects.
			stalled, rest := io.Pipe()
			// If there is no response, the client waits for the end of the body, too.
			defer time.AfterFunc(service.Patience, func() { _ = rest.Close() }).Stop()
			impatient.On(t, transport, "POST", "/plants", "text/plain", stalled).CheckError(t, 41501)

			slow, in := io.Pipe()
			defer in.Close()
			begin := time.Now()
			go func() {
				// What arrives after the end would reset the connection, perhaps before the client
				// has read the response.
				for id := int64(100_000); time.Since(begin) < 1500*time.Millisecond; id++ {
					if _, err := io.WriteString(in, service.BodyOf(id)+"\n"); err != nil {
						return
					}
					time.Sleep(10 * time.Millisecond) // a slow client
				}
			}()
			impatient.On(t, transport, "POST", "/plants/import", service.InNDJSON, slow).CheckError(t, 41301)
			if took := time.Since(begin); took < 2*time.Second || took > 9*time.Second {
				t.Errorf("a slow import took %v, want 2s to 9s", took)
			}
		})
	}

	// An aborted response ends the stream but not the connection.
	dbtest.Exec(t, url, "UPDATE plants SET name = repeat('x', 255), tag = repeat('x', 255)")
	request, err := http.NewRequest(http.MethodGet, s.URL+"/plants/export", nil)
	service.Must(t, err)
	request.Header.Set("Authorization", "Bearer "+service.Token)
	resp, err := transport.RoundTrip(request)
	service.Must(t, err)
	defer resp.Body.Close()
	if _, err := io.ReadFull(resp.Body, make([]byte, 1000)); err != nil || resp.ProtoMajor != 2 {
		t.Fatalf("got %s, %v, want HTTP/2", resp.Proto, err)
	}
	breakConnections(t, url)
	if n, err := io.Copy(io.Discard, resp.Body); err == nil || !strings.Contains(err.Error(), "stream") {
		t.Errorf("got %d more bytes, %v, want a stream error", n, err)
	}
	s.AwaitError(t)
	s.On(t, transport, "GET", "/plants/1", "", nil).CheckStatus(t, 200)
	if n := strings.Count(s.Stderr.String(), `"logger":"http"`); n != 0 {
		t.Errorf("got %d log lines of net/http, want 0", n)
	}
}
