package bulk

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// startBulk starts a service with more plants than the buffers of a connection take, and
// returns it with a token.
func startBulk(t *testing.T, url string, settings ...string) (s *service.Service, issued string) {
	t.Helper()
	s = service.Start(t, append(settings, "DATABASE_URL="+url)...)
	long := strings.Repeat("🌵", 255)
	var rows strings.Builder
	for id := range int64(8_000) {
		fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
	}
	s.ImportRows(t, "", service.InNDJSON, rows.String()).RequireOK(t)
	return s, service.Issue(t, url)
}

// TestStalledClients: clients that stall in an import or an export harm no others, and lose
// their turn.
func TestStalledClients(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s, issued := startBulk(t, url, "PLANTSTORE_BULK_GRACE=3s", "PLANTSTORE_BULK_MIN_BYTES_PER_SECOND=1000")
		t.Run("exports that are never read", func(t *testing.T) {
			for range 2 {
				stalled, _ := beginExport(t, s)
				defer stalled.Close()
			}
			s.Call(t, "GET", "/plants/export", "").CheckError(t, 50301) // this token has its share
			s.Get(t, "/plants/export", service.As(issued)...).CheckStatus(t, 200)
			service.Eventually(t, "the end of the stalled exports", func() bool {
				return strings.Count(s.Stderr.String(), `"msg":"response aborted"`) == 2
			})
			s.Call(t, "GET", "/plants/export", "").CheckStatus(t, 200)
		})
		t.Run("an import that stalls", func(t *testing.T) {
			i := beginImport(t, s, "")
			i.Write(service.BodyOf(10_001) + "\n")
			service.Receive(t, i.Responses).CheckError(t, 40001)
			s.Get(t, "/plants/10001", service.As(issued)...).CheckStatus(t, 404)
		})
		t.Run("the connection of an import that stalls", func(t *testing.T) {
			conn := s.Dial(t)
			fmt.Fprintf(conn, "POST /plants/import HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\nContent-Length: 2000\r\n\r\n{", service.Token, service.InNDJSON)
			response, err := io.ReadAll(conn) // it is closed long before bulk.timeout
			if err != nil || !strings.Contains(string(response), `"error":40001`) {
				t.Errorf("got %s and %v, want 40001 and the end", response, err)
			}
		})
		t.Run("an import at one byte per second", func(t *testing.T) {
			out, in := io.Pipe()
			go func() {
				for range 60 {
					if _, err := in.Write([]byte("\n")); err != nil {
						return
					}
					time.Sleep(time.Second) // a slow client
				}
				_ = in.Close()
			}()
			begin := time.Now()
			s.On(t, &http.Transport{}, "POST", "/plants/import", service.InNDJSON, out).CheckError(t, 40001)
			if took := time.Since(begin); took > 30*time.Second {
				t.Errorf("it took %v", took)
			}
		})
		t.Run("a slow import that is fast enough", func(t *testing.T) {
			i := beginImport(t, s, "")
			for id := range 80 { // of some 1,000 bytes each, in more than the time of grace
				i.Write(fmt.Sprintf(`{"id":%d,"name":"x"}%s`+"\n", 20_000+id, strings.Repeat(" ", 1000)))
				time.Sleep(50 * time.Millisecond) // a slow client
			}
			end(i).CheckReport(t, 0, "80: 80 new, 0 unchanged, 0 rejected, stored")
		})
	})
}

// TestSlowExportIsLogged: the log says which limit ended an export that its client does not read.
func TestSlowExportIsLogged(t *testing.T) {
	t.Parallel()
	url, own, folder := dbtest.Postgres(t), service.NewPair(t), t.TempDir()
	own.In(t, folder)
	startBulk(t, url)
	for limit, want := range map[string]struct{ level, reason string }{
		"PLANTSTORE_BULK_GRACE=2s":    {"info", "the client reads too slowly: "},
		"PLANTSTORE_BULK_TIMEOUT=10s": {"warn", "the request took longer than bulk.timeout allows"},
	} {
		for protocol, isHTTP2 := range map[string]bool{"HTTP/1.1": false, "HTTP/2": true} {
			t.Run(limit+" over "+protocol, func(t *testing.T) {
				t.Parallel()
				s := service.StartTLS(t, folder, "DATABASE_URL="+url, limit)
				export, _ := s.BeginExportOver(t, own.Over(t, isHTTP2), service.Token)
				defer export.Close()
				line := s.AwaitLog(t, "response aborted")
				if reason := fmt.Sprint(line["error"]); line["level"] != want.level || !strings.Contains(reason, want.reason) {
					t.Errorf("got %v, want %+v", line, want)
				}
			})
		}
	}
}

// TestBulkEndsWithItsToken revokes the tokens of a running import and a running export.
func TestBulkEndsWithItsToken(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s, issued := startBulk(t, url) // with its default of 30s of grace
		i := s.BeginImportAs(t, issued, "")
		i.Write(service.BodyOf(10_001) + "\n")
		export, _ := s.BeginExportAs(t, issued)
		defer export.Close()

		s.Call(t, "DELETE", "/tokens/"+service.PrefixOf(issued), "").CheckEmpty(t, 204)
		begin := time.Now()
		r := service.Receive(t, i.Responses)
		r.CheckError(t, 40102)
		service.Eventually(t, "the end of the export", func() bool { return strings.Contains(s.Stderr.String(), `"msg":"response aborted"`) })
		if took := time.Since(begin); took > service.RevocationTime {
			t.Errorf("they ended after %v, want at most %v", took, service.RevocationTime)
		}
		if _, err := io.Copy(io.Discard, export); err == nil {
			t.Error("the export looks complete")
		}
		s.Call(t, "GET", "/plants/10001", "").CheckError(t, 40401)
	})
}

// TestImportMayOutliveItsToken: a response says so if rows may be stored, although the token has
// ended meanwhile.
func TestImportMayOutliveItsToken(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	s := service.Start(t, "DATABASE_URL="+url)
	issued := service.Issue(t, url)
	stored, release := awaitStoring(t, url, 1)
	i := s.BeginImportAs(t, issued, "")
	i.Write(service.BodyOf(1))
	service.Must(t, i.Body.Close())
	stored()
	s.Call(t, "DELETE", "/tokens/"+service.PrefixOf(issued), "").CheckEmpty(t, 204)
	service.Receive(t, i.Responses).CheckError(t, 40102, "no longer valid", "outcome of the write is unknown: retry with the same id")
	release()
}
