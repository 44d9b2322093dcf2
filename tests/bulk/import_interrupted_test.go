package bulk

import (
	"database/sql"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// beginImport starts an import and returns when the service reads it.
func beginImport(t *testing.T, s *service.Service, query string) *service.OpenImport {
	t.Helper()
	return s.BeginImportAs(t, service.Token, query)
}

// end ends the body and returns the response.
func end(i *service.OpenImport) service.Response {
	i.T.Helper()
	service.Must(i.T, i.Body.Close())
	return service.Receive(i.T, i.Responses)
}

// TestImportSlowly holds as many imports open as a token may: it may not send another, but
// the other operations and tokens do not notice.
func TestImportSlowly(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		const each = 4
		var open [each]*service.OpenImport
		for i := range open {
			open[i] = beginImport(t, s, "?mode=partial")
			open[i].Write(service.Numbered(1000*int64(i)+1, 1000*int64(i)+1000))
		}
		for name, query := range map[string]string{"one more import": "", "one more dry run": "?dry_run=true"} {
			t.Run(name, func(t *testing.T) {
				r := s.ImportRows(t, query, service.InNDJSON, service.BodyOf(9000))
				r.CheckError(t, 50301)
			})
		}
		begin := time.Now()
		for id := range int64(20) {
			s.Post(t, service.BodyOf(5000+id)).CheckStatus(t, 200)
		}
		s.Call(t, "PUT", "/plants/1", `{"name":"plant 1"}`).RequireOK(t)
		another := service.As(service.Issue(t, url))
		s.Get(t, "/plants/export", another...).CheckStatus(t, 200)
		other := s.Send(t, "POST", "/plants/import", strings.NewReader(service.BodyOf(9000)), append(another, "Content-Type", service.InNDJSON)...)
		other.CheckReport(t, 0, "1: 1 new, 0 unchanged, 0 rejected, stored")
		if took := time.Since(begin); took > 10*time.Second {
			t.Errorf("requests during the imports took %v, want at most 10s", took)
		}
		end(open[0]).CheckReport(t, 0, "1000: 999 new, 1 unchanged, 0 rejected, stored")
		for _, i := range open[1:] {
			end(i).CheckReport(t, 0, "1000: 1000 new, 0 unchanged, 0 rejected, stored")
		}
		if got := s.Export(t, service.InNDJSON); got != service.Numbered(1, 1000*each)+service.Numbered(5000, 5019)+service.Numbered(9000, 9000) {
			t.Errorf("got %d bytes of plants, want all new ones", len(got))
		}
	})
}

// TestImportBreaksOff sends incomplete imports.
func TestImportBreaksOff(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		rows := service.Numbered(1, 1500)
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
						conn := s.Dial(t)
						fmt.Fprintf(conn, "POST /plants/import%s HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nAuthorization: Bearer %s\r\nContent-Type: %s\r\n%s\r\n\r\n%s",
							query, service.Token, service.InNDJSON, test.header, test.body)
						service.Must(t, conn.(*net.TCPConn).CloseWrite())
						service.ReadConn(t, conn).CheckError(t, 40001)
					})
				}
			})
		}
		// Clients disconnect.
		for round, query := range []string{"", "?mode=partial", "?dry_run=true"} {
			i := beginImport(t, s, query)
			i.Write(rows)
			i.Leave()
			service.Receive(t, i.Responses).CheckStatus(t, 0)
			awaitRequests(t, s, "/plants/import", 15+round+1)
		}
		s.CheckNoPlants(t)
		s.ImportRows(t, "", service.InNDJSON, rows).CheckReport(t, 0, "1500: 1500 new, 0 unchanged, 0 rejected, stored")
	})
}

// awaitRequests waits until n requests for path are in the access log.
func awaitRequests(t *testing.T, s *service.Service, path string, n int) {
	t.Helper()
	service.Eventually(t, fmt.Sprintf("the end of %d requests for %s", n, path), func() bool {
		return strings.Count(s.Stderr.String(), `"path":"`+path+`"`) >= n
	})
}

// TestImportKilled kills the service while an import arrives and while it is stored, and
// disconnects the client while it is stored.
func TestImportKilled(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const rows = 10_000
		body := longRows(rows)

		s := service.Start(t, "DATABASE_URL="+url)
		i := beginImport(t, s, "")
		i.Write(body)
		kill := func() {
			t.Helper()
			service.Must(t, s.Process.Kill())
			i.Leave()
			service.Receive(t, i.Responses).CheckStatus(t, 0)
			_ = s.Wait(t)
		}
		kill()
		s = service.Start(t, "DATABASE_URL="+url)
		s.CheckNoPlants(t)

		i = beginImport(t, s, "")
		i.Write(body)
		stored, release := awaitStoring(t, url, rows/2)
		service.Must(t, i.Body.Close())
		stored()
		i.Leave()
		service.Receive(t, i.Responses).CheckStatus(t, 0)
		awaitRequests(t, s, "/plants/import", 1)
		release()
		s.CheckNoPlants(t)

		i = beginImport(t, s, "")
		i.Write(body)
		stored, release = awaitStoring(t, url, rows/2)
		service.Must(t, i.Body.Close())
		stored()
		kill()
		release()
		s = service.Start(t, "DATABASE_URL="+url)
		s.CheckNoPlants(t)
		s.ImportRows(t, "", service.InNDJSON, body).CheckReport(t, 0, fmt.Sprintf("%d: %[1]d new, 0 unchanged, 0 rejected, stored", rows))
	})
}

// longRows returns n rows, of which a half exceeds the cache of SQLite.
func longRows(n int64) string {
	return strings.ReplaceAll(service.Numbered(1, n), `"}`, `","tag":"`+strings.Repeat("🌵", 200)+`"}`)
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
		table := service.OpenTable(t, databaseURL)
		exec := func(statement string) {
			t.Helper()
			_, err := table.ExecContext(t.Context(), statement)
			service.Must(t, err)
		}
		// The rows after id take seconds, so that the import does not end first.
		exec("CREATE VIEW thousands AS WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i+1 FROM n LIMIT 5000) SELECT count(*) AS n FROM n")
		exec(fmt.Sprintf("CREATE TRIGGER slow BEFORE INSERT ON plants WHEN NEW.id > %d BEGIN SELECT n FROM thousands; END", id))
		exec("PRAGMA wal_checkpoint(TRUNCATE)")
		return func() { service.Eventually(t, "rows in the WAL", func() bool { return size() > 100_000 }) }, func() { exec("DROP TRIGGER slow; DROP VIEW thousands") }
	}
	// Another transaction holds the id, and the import waits for it.
	table := service.OpenTable(t, databaseURL)
	tx, err := table.BeginTx(t.Context(), nil)
	service.Must(t, err)
	if _, err := tx.ExecContext(t.Context(), lock, id); err != nil {
		t.Fatal(err)
	}
	return func() { awaitWaiting(t, table) }, func() {
		service.Must(t, tx.Rollback())
	}
}

// awaitWaiting waits until a transaction on the server waits for a lock.
func awaitWaiting(t *testing.T, table *sql.DB) {
	t.Helper()
	service.Eventually(t, "a row that waits", func() bool {
		var waiting int
		err := table.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity a USING (pid) WHERE NOT granted AND a.datname = current_database()").Scan(&waiting)
		return err == nil && waiting > 0
	})
}
