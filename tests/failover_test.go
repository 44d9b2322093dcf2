package tests

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// ownServers returns a PostgreSQL server and a standby of it, for one test.
func ownServers(t *testing.T) (primary, standby *dbtest.Server) {
	t.Helper()
	primary = dbtest.OwnServer(t)
	return primary, primary.OwnStandby(t)
}

// TestPromotion replaces the primary of two servers under load. Writes resume within
// 5 seconds of the promotion, and no acknowledged plant is missing.
func TestPromotion(t *testing.T) {
	for _, test := range []struct {
		name string
		end  func(*dbtest.Server, *dbtest.Link) error
	}{
		{"the primary dies", func(primary *dbtest.Server, _ *dbtest.Link) error { return primary.Kill() }},
		{"the primary does not respond", func(_ *dbtest.Server, network *dbtest.Link) error {
			network.Cut()
			return nil
		}},
	} {
		t.Run(test.name, func(t *testing.T) {
			primary, standby := ownServers(t)
			// From now on, the primary acknowledges what the standby has, too.
			dbtest.Exec(t, primary.URL, "ALTER SYSTEM SET synchronous_standby_names = '*'")
			dbtest.Exec(t, primary.URL, "SELECT pg_reload_conf()")
			u, err := url.Parse(primary.URL)
			must(t, err)
			network := dbtest.NewLink(t, u.Host)
			other, err := url.Parse(standby.URL)
			must(t, err)
			u.Host = network.Address + "," + other.Host
			s := start(t, "DATABASE_URL="+u.String(), "DATABASE_REPLICA_URLS="+standby.URL)

			known := ledger{}
			l := s.startLoad(t, known)
			l.await(200, 200)
			must(t, test.end(primary, network))
			l.await(clients, 503)
			must(t, standby.Promote())
			promoted := time.Now()
			l.await(1, 200)
			took := time.Since(promoted)
			record(t, "## Promotion: %s\n\n`TestPromotion`: writes resumed %v after the promotion of a standby, under load.", test.name, took.Round(time.Millisecond))
			if took > 5*time.Second {
				t.Errorf("writes resumed after %v, want at most 5s", took)
			}
			l.await(200, 200)
			if broken := l.end(); broken != 0 {
				t.Errorf("got %d broken connections to the service, want 0", broken)
			}
			eventually(t, "ready", func() bool { return s.get(t, "/readyz").status == 200 })
			s.stop(t)
			known.check(t, standby.URL)
		})
	}
}

// TestReadyzSaysWhy makes PostgreSQL read-only while the service runs.
func TestReadyzSaysWhy(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s, admin := startAdmin(t, "DATABASE_URL="+server.URL)
	checkStatus(t, s.get(t, "/readyz"), 200)
	dbtest.Exec(t, server.URL, "ALTER SYSTEM SET default_transaction_read_only = on")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	eventually(t, "an unready service", func() bool { return s.get(t, "/readyz").status == 503 })
	for _, r := range []response{s.get(t, "/readyz"), s.post(t, bodyOf(1))} {
		checkError(t, r, 50302, "not writable", "read-only")
	}
	metric := `plantstore_ready{reason="the database is not writable: it is read-only"} 0`
	if got := admin.get(t, "/metrics").body; !strings.Contains(got, "\n"+metric+"\n") {
		t.Errorf("got no line %s in\n%s", metric, got)
	}
	checkStatus(t, s.call(t, "GET", "/plants", ""), 200)
	dbtest.Exec(t, server.URL+"&default_transaction_read_only=off", "ALTER SYSTEM RESET default_transaction_read_only")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	eventually(t, "a ready service", func() bool { return s.get(t, "/readyz").status == 200 })
	requireOK(t, s.post(t, bodyOf(1)))
	for _, message := range []string{"requests begin to fail", "requests no longer fail"} {
		if s.awaitLog(t, message); len(s.logged(t, message)) != 1 {
			t.Errorf("logged %q %d times, want once", message, len(s.logged(t, message)))
		}
	}

	dbtest.Exec(t, server.URL, "ALTER TABLE plants RENAME TO plants_old")
	for _, path := range []string{"/plants/1", "/plants"} {
		checkError(t, s.call(t, "GET", path, ""), 50302, "its schema is not the one")
	}
	eventually(t, "an unready service", func() bool { return s.get(t, "/readyz").status == 503 })
	dbtest.Exec(t, server.URL, "ALTER TABLE plants_old RENAME TO plants")
	eventually(t, "a ready service", func() bool { return s.get(t, "/readyz").status == 200 })

	must(t, server.Stop())
	eventually(t, "an unready service", func() bool { return s.get(t, "/readyz").status == 503 })
	checkError(t, s.get(t, "/readyz"), 50302, "cannot be reached")
	checkCLI(t, []string{"PORT=" + s.port()}, []string{"healthcheck", "--ready"}, 1, "", "/readyz: 50302 the database cannot be reached")
}

// TestReadyWithoutSynchronousStandby: commits wait for a standby that is not there, so no write
// succeeds, although queries do.
func TestReadyWithoutSynchronousStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	requireOK(t, s.post(t, bodyOf(1)))
	dbtest.Exec(t, server.URL, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	eventually(t, "a write that does not end", func() bool { return s.post(t, bodyOf(ids.Add(1))).code() == 50302 })
	eventually(t, "an unready service", func() bool { return s.get(t, "/readyz").status == 503 })
	checkStatus(t, s.get(t, "/plants/1", as(token)...), 200)
	dbtest.Exec(t, server.URL, "ALTER SYSTEM RESET synchronous_standby_names")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	eventually(t, "a ready service", func() bool { return s.get(t, "/readyz").status == 200 })
	requireOK(t, s.post(t, bodyOf(ids.Add(1))))
}

// TestOlderProgram starts the program on a schema that a newer version has migrated.
func TestOlderProgram(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		settings := []string{"DATABASE_URL=" + url, "PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + token}
		_, stderr, status := runToEnd(t, settings, "migrate", "up")
		if status != 0 {
			t.Fatal(stderr)
		}
		exec := func(statement string) {
			t.Helper()
			_, err := openTable(t, url).ExecContext(t.Context(), statement)
			must(t, err)
		}
		exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)")
		_, stderr, status = runToEnd(t, settings)
		if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "migration 9999 is unknown") {
			t.Errorf("got exit status %d and %q, want 1 and a line about migration 9999", status, stderr)
		}
		stdout, _, status := runToEnd(t, settings, "migrate", "status")
		if status != 0 || !strings.Contains(stdout, "09999 (unknown: applied by a newer version)") {
			t.Errorf("migrate status: got exit status %d and %q", status, stdout)
		}
		isFile, backup := !strings.HasPrefix(url, "postgres"), filepath.Join(t.TempDir(), "backup.db")
		if isFile {
			checkCLI(t, settings, []string{"backup", backup}, 1, "", "newer plantstore")
			if left, err := os.ReadDir(filepath.Dir(backup)); err != nil || len(left) > 0 {
				t.Errorf("the failed backup left %v (%v)", left, err)
			}
		}
		exec("INSERT INTO compatible_migrations (version) VALUES (9999)")
		if isFile {
			checkCLI(t, settings, []string{"backup", backup}, 0, "wrote a backup to "+backup+"\n")
		}
		s := start(t, settings...)
		requireOK(t, s.post(t, bodyOf(1)))
		checkStatus(t, s.get(t, "/readyz"), 200)
		exec("DELETE FROM compatible_migrations")
		eventually(t, "an unready service", func() bool { return s.get(t, "/readyz").status == 503 })
		checkError(t, s.get(t, "/readyz"), 50302, "schema")
	})
}
