package api

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestReusedConnections ends requests by the end of their token or of their time, and sends
// another one over the same transport, as a proxy does for another client.
func TestReusedConnections(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	patient := service.Start(t, "DATABASE_URL="+url)
	hasty := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_BULK_TIMEOUT=1s")
	dbtest.Exec(t, url, "CREATE FUNCTION wait() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(60); RETURN NULL; END'")
	dbtest.Exec(t, url, "CREATE TRIGGER wait BEFORE INSERT ON plants FOR EACH STATEMENT EXECUTE FUNCTION wait()")
	for _, test := range []struct {
		name         string
		service      *service.Service
		method, path string
		body         string
		code         int
	}{
		{"a token that ends while it waits for changes", patient, "GET", "/plants/changes?wait=30s", "", 40102},
		{"a token that ends while an import is stored", patient, "POST", "/plants/import", "id,name\n1,Aloe\n", 40102},
		{"an import that is stored for too long", hasty, "POST", "/plants/import", "id,name\n1,Aloe\n", 50302},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			issued := issueShort(t, url)
			transport := &http.Transport{MaxConnsPerHost: 1}
			defer transport.CloseIdleConnections()
			var dialed atomic.Int32
			transport.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
				dialed.Add(1)
				return new(net.Dialer).DialContext(ctx, network, address)
			}
			test.service.Over(t, transport, test.method, test.path, test.body, service.As(issued, "Content-Type", "text/csv")...).CheckError(t, test.code)
			for range 3 { // which the transport does not repeat
				test.service.Over(t, transport, "PATCH", "/plants/1", `{"tag":"x"}`, service.As(service.Token, "Content-Type", "application/merge-patch+json")...).CheckError(t, 40401)
			}
			if n := dialed.Load(); n != 1 {
				t.Errorf("got %d connections, want 1 for all requests", n)
			}
		})
	}
}

// issueShort returns a token that ends soon, but not before the request that uses it next begins.
func issueShort(t *testing.T, url string) string {
	t.Helper()
	begin := time.Now()
	issued := service.Issue(t, url, "--expires", "5s")
	if took := time.Since(begin); took > 4*time.Second {
		t.Fatalf("it took %v to issue a token", took)
	}
	return issued
}

// TestTokenEndsOverHTTP2 ends a request that waits: the stream has its response, as the
// connection of HTTP/1.1 has.
func TestTokenEndsOverHTTP2(t *testing.T) {
	t.Parallel()
	own, folder, url := service.NewPair(t), t.TempDir(), dbtest.SQLite(t)
	own.In(t, folder)
	s := service.StartTLS(t, folder, "DATABASE_URL="+url)
	s.Over(t, own.Over(t, true), "GET", "/plants/changes?wait=30s", "", service.As(issueShort(t, url))...).CheckError(t, 40102)
}

// TestExpectContinue sends the heads of requests that are rejected: their clients wait for that
// before they send a body.
func TestExpectContinue(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct {
		line, token string
		check       func(*testing.T, service.Response)
	}{
		{"POST /plants/import", "x", func(t *testing.T, r service.Response) { r.CheckError(t, 40102) }},
		{"POST /plants", service.Token, func(t *testing.T, r service.Response) { r.CheckError(t, 41501) }},
		// It is longer than what net/http buffers.
		{"GET /openapi.json", "x", func(t *testing.T, r service.Response) { r.CheckStatus(t, 200) }},
	} {
		t.Run(test.line, func(t *testing.T) {
			conn := s.Dial(t)
			begin := time.Now()
			_, err := fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: text/plain\r\nExpect: 100-continue\r\nContent-Length: 1000\r\n\r\n", test.line, test.token)
			service.Must(t, err)
			test.check(t, service.ReadConn(t, conn))
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the response took %v", took)
			}
		})
	}
}
