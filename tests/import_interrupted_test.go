package tests

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// openImport is an import with an open body.
type openImport struct {
	t         *testing.T
	body      *io.PipeWriter
	leave     func()        // disconnects the client
	responses chan response // closed if there is no response
}

// beginImport starts an import and returns when the service reads it.
func (s *service) beginImport(t *testing.T, query string) *openImport {
	t.Helper()
	return s.beginImportAs(t, token, query)
}

// beginImportAs is beginImport with a token.
func (s *service) beginImportAs(t *testing.T, bearer, query string) *openImport {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	i := &openImport{t: t, body: in, responses: make(chan response, 1)}
	i.leave = func() {
		cancel()
		_ = in.CloseWithError(context.Canceled) // ends the transport
	}
	// With Expect, the client sends the body when the service asks for it.
	begun := make(chan struct{})
	body := &watchedReader{out, sync.OnceFunc(func() { close(begun) })}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.url+"/plants/import"+query, body)
	must(t, err)
	for header, value := range map[string]string{"Authorization": "Bearer " + bearer, "Content-Type": inNDJSON, "Expect": "100-continue"} {
		request.Header.Set(header, value)
	}
	go func() {
		defer close(i.responses)
		defer cancel()
		transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * patience}
		resp, err := transport.RoundTrip(request)
		if err != nil {
			return
		}
		if r, err := readResponse(resp); err == nil {
			i.responses <- r
		}
	}()
	receive(t, begun)
	return i
}

func (i *openImport) write(rows string) {
	i.t.Helper()
	if _, err := io.WriteString(i.body, rows); err != nil {
		i.t.Fatal(err)
	}
}

// end ends the body and returns the response.
func (i *openImport) end() response {
	i.t.Helper()
	must(i.t, i.body.Close())
	return receive(i.t, i.responses)
}

// TestImportSlowly holds as many imports open as a token may: it may not send another, but
// the other operations and tokens do not notice.
func TestImportSlowly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		const each = 4
		var open [each]*openImport
		for i := range open {
			open[i] = s.beginImport(t, "?mode=partial")
			open[i].write(numbered(1000*int64(i)+1, 1000*int64(i)+1000))
		}
		for name, query := range map[string]string{"one more import": "", "one more dry run": "?dry_run=true"} {
			t.Run(name, func(t *testing.T) {
				r := s.importRows(t, query, inNDJSON, bodyOf(9000))
				checkError(t, r, 50301)
			})
		}
		begin := time.Now()
		for id := range int64(20) {
			checkStatus(t, s.post(t, bodyOf(5000+id)), 200)
		}
		requireOK(t, s.call(t, "PUT", "/plants/1", `{"name":"plant 1"}`))
		another := as(issue(t, url))
		checkStatus(t, s.get(t, "/plants/export", another...), 200)
		other := s.send(t, "POST", "/plants/import", strings.NewReader(bodyOf(9000)), append(another, "Content-Type", inNDJSON)...)
		checkReport(t, other, 0, "1: 1 new, 0 unchanged, 0 rejected, stored")
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("requests during the imports took %v, want at most 10s", took)
		}
		checkReport(t, open[0].end(), 0, "1000: 999 new, 1 unchanged, 0 rejected, stored")
		for _, i := range open[1:] {
			checkReport(t, i.end(), 0, "1000: 1000 new, 0 unchanged, 0 rejected, stored")
		}
		if got := s.export(t, inNDJSON); got != numbered(1, 1000*each)+numbered(5000, 5019)+numbered(9000, 9000) {
			t.Errorf("got %d bytes of plants, want all new ones", len(got))
		}
	})
}

// TestImportBreaksOff sends incomplete imports.
func TestImportBreaksOff(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		rows := numbered(1, 1500)
		for _, test := range []struct{ name, header, body string }{
			{"a body shorter than Content-Length", fmt.Sprintf("Content-Length: %d", len(rows)+1), rows},
			{"half a row", fmt.Sprintf("Content-Length: %d", len(rows)), rows[:len(rows)-10]},
			{"no last chunk", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\n", len(rows), rows)},
			{"half a chunk", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s", len(rows)+5, rows)},
			{"a chunk without a size", "Transfer-Encoding: chunked", fmt.Sprintf("%x\r\n%s\r\nx\r\n", len(rows), rows)},
		} {
			t.Run(test.name, func(t *testing.T) {
				for _, query := range []string{"", "?mode=partial", "?dry_run=true"} {
					t.Run("import"+query, func(t *testing.T) {
						conn := s.dial(t)
						fmt.Fprintf(conn, "POST /plants/import%s HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%s\r\n\r\n%s",
							query, token, inNDJSON, test.header, test.body)
						must(t, conn.(*net.TCPConn).CloseWrite())
						checkError(t, readConn(t, conn), 40001)
					})
				}
			})
		}
		// Clients disconnect.
		for round, query := range []string{"", "?mode=partial", "?dry_run=true"} {
			i := s.beginImport(t, query)
			i.write(rows)
			i.leave()
			checkStatus(t, receive(t, i.responses), 0)
			s.awaitRequests(t, "/plants/import", 15+round+1)
		}
		s.checkNoPlants(t)
		checkReport(t, s.importRows(t, "", inNDJSON, rows), 0, "1500: 1500 new, 0 unchanged, 0 rejected, stored")
	})
}

// checkNoPlants checks that no plants are stored.
func (s *service) checkNoPlants(t *testing.T) {
	t.Helper()
	if got := s.export(t, inNDJSON); got != "" {
		t.Errorf("got %d plants, want no plants", strings.Count(got, "\n"))
	}
}

// awaitRequests waits until n requests for path are in the access log.
func (s *service) awaitRequests(t *testing.T, path string, n int) {
	t.Helper()
	eventually(t, fmt.Sprintf("the end of %d requests for %s", n, path), func() bool {
		return strings.Count(s.stderr.String(), `"path":"`+path+`"`) >= n
	})
}

// TestImportKilled kills the service while an import arrives and while it is stored, and
// disconnects the client while it is stored.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const rows = 10_000
		long := strings.Repeat("x", 200)
		body := strings.ReplaceAll(numbered(1, rows), `"}`, `","tag":"`+long+`"}`)

		s := start(t, "DATABASE_URL="+url)
		i := s.beginImport(t, "")
		i.write(body)
		kill := func() {
			t.Helper()
			must(t, s.process.Kill())
			i.leave()
			checkStatus(t, receive(t, i.responses), 0)
			_ = s.wait(t)
		}
		kill()
		s = start(t, "DATABASE_URL="+url)
		s.checkNoPlants(t)

		i = s.beginImport(t, "")
		i.write(body)
		stored, release := awaitStoring(t, url, rows/2)
		must(t, i.body.Close())
		stored()
		i.leave()
		checkStatus(t, receive(t, i.responses), 0)
		s.awaitRequests(t, "/plants/import", 1)
		release()
		s.checkNoPlants(t)

		i = s.beginImport(t, "")
		i.write(body)
		stored, release = awaitStoring(t, url, rows/2)
		must(t, i.body.Close())
		stored()
		kill()
		release()
		s = start(t, "DATABASE_URL="+url)
		s.checkNoPlants(t)
		checkReport(t, s.importRows(t, "", inNDJSON, body), 0, fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 rejected, stored", rows))
	})
}

// awaitStoring returns stored, which waits until some rows of an import are written but
// not that of id, which is new, and release, which lets it continue.
func awaitStoring(t *testing.T, databaseURL string, id int64) (stored, release func()) {
	t.Helper()
	return awaitWriting(t, databaseURL, "INSERT INTO plants (id, name, tag, created_at, updated_at) VALUES ($1, 'x', NULL, now(), now())", id)
}

// awaitReplacing is awaitStoring for an id that exists.
func awaitReplacing(t *testing.T, databaseURL string, id int64) (stored, release func()) {
	t.Helper()
	return awaitWriting(t, databaseURL, "UPDATE plants SET name = 'x' WHERE id = $1", id)
}

// awaitWriting is awaitStoring with the statement that locks the row of id on PostgreSQL.
func awaitWriting(t *testing.T, databaseURL, lock string, id int64) (stored, release func()) {
	t.Helper()
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		// Rows beyond the cache of SQLite go to the WAL.
		size := func() int64 {
			info, err := os.Stat(path + "-wal")
			if err != nil {
				return 0
			}
			return info.Size()
		}
		table := openTable(t, databaseURL)
		exec := func(statement string) {
			t.Helper()
			_, err := table.ExecContext(t.Context(), statement)
			must(t, err)
		}
		// The rows after id take seconds, so that the import does not end first.
		exec("CREATE VIEW thousands AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 5000) SELECT count(*) AS n FROM n")
		exec(fmt.Sprintf("CREATE TRIGGER slow BEFORE INSERT ON plants WHEN NEW.id > %d BEGIN SELECT n FROM thousands; END", id))
		exec("PRAGMA wal_checkpoint(TRUNCATE)")
		return func() { eventually(t, "rows in the WAL", func() bool { return size() > 100_000 }) }, func() { exec("DROP TRIGGER slow; DROP VIEW thousands") }
	}
	// Another transaction holds the id, and the import waits for it.
	table := openTable(t, databaseURL)
	tx, err := table.BeginTx(t.Context(), nil)
	must(t, err)
	if _, err := tx.ExecContext(t.Context(), lock, id); err != nil {
		t.Fatal(err)
	}
	return func() { awaitWaiting(t, table) }, func() {
		must(t, tx.Rollback())
	}
}

// awaitWaiting waits until a transaction on the server waits for a lock.
func awaitWaiting(t *testing.T, table *sql.DB) {
	t.Helper()
	eventually(t, "a row that waits", func() bool {
		var waiting int
		err := table.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND a.datname = current_database()").Scan(&waiting)
		return err == nil && waiting > 0
	})
}
