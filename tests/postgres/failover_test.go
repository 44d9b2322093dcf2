package postgres

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

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
			primary, standby := service.OwnServers(t)
			// From now on, the primary acknowledges what the standby has, too.
			dbtest.Exec(t, primary.URL, "ALTER SYSTEM SET synchronous_standby_names = '*'")
			dbtest.Exec(t, primary.URL, "SELECT pg_reload_conf()")
			u, err := url.Parse(primary.URL)
			service.Must(t, err)
			network := dbtest.NewLink(t, u.Host)
			other, err := url.Parse(standby.URL)
			service.Must(t, err)
			u.Host = network.Address + "," + other.Host
			s := service.Start(t, "DATABASE_URL="+u.String(), "DATABASE_REPLICA_URLS="+standby.URL)

			known := service.Ledger{}
			l := s.StartLoad(t, known)
			l.Await(200, 200)
			service.Must(t, test.end(primary, network))
			l.Await(service.Clients, 503)
			service.Must(t, standby.Promote())
			promoted := time.Now()
			l.Await(1, 200)
			took := time.Since(promoted)
			service.Record(t, "## Promotion: %s\n\n`TestPromotion`: writes resumed %v after the promotion of a standby, under load.", test.name, took.Round(time.Millisecond))
			if took > 5*time.Second {
				t.Errorf("writes resumed after %v, want at most 5s", took)
			}
			l.Await(200, 200)
			if broken := l.End(); broken != 0 {
				t.Errorf("got %d broken connections to the service, want 0", broken)
			}
			service.Eventually(t, "ready", func() bool { return s.Get(t, "/readyz").Status == 200 })
			s.Stop(t)
			known.Check(t, standby.URL)
		})
	}
}

// TestReadyzSaysWhy makes PostgreSQL read-only while the service runs.
func TestReadyzSaysWhy(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s, admin := service.StartAdmin(t, "DATABASE_URL="+server.URL)
	s.Get(t, "/readyz").CheckStatus(t, 200)
	dbtest.Exec(t, server.URL, "ALTER SYSTEM SET default_transaction_read_only = on")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
	for _, r := range []service.Response{s.Get(t, "/readyz"), s.Post(t, service.BodyOf(1))} {
		r.CheckError(t, 50302, "not writable", "read-only")
	}
	metric := `plantstore_ready{reason="the database is not writable: it is read-only"} 0`
	if got := admin.Get(t, "/metrics").Body; !strings.Contains(got, "\n"+metric+"\n") {
		t.Errorf("got no line %s in\n%s", metric, got)
	}
	s.Call(t, "GET", "/plants", "").CheckStatus(t, 200)
	dbtest.Exec(t, server.URL+"&default_transaction_read_only=off", "ALTER SYSTEM RESET default_transaction_read_only")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	s.AwaitLog(t, "requests fail with error 50302")

	dbtest.Exec(t, server.URL, "ALTER TABLE plants RENAME TO plants_old")
	for _, path := range []string{"/plants/1", "/plants"} {
		s.Call(t, "GET", path, "").CheckError(t, 50302, "its schema is not the one")
	}
	service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
	dbtest.Exec(t, server.URL, "ALTER TABLE plants_old RENAME TO plants")
	service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })

	service.Must(t, server.Stop())
	service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
	s.Get(t, "/readyz").CheckError(t, 50302, "cannot be reached")
	service.CheckCLI(t, []string{"PORT=" + s.Port()}, []string{"healthcheck", "--ready"}, 1, "", "/readyz: 50302 the database cannot be reached")
}

// TestReadyWithoutSynchronousStandby: commits wait for a standby that is not there, so no write
// succeeds, although queries do.
func TestReadyWithoutSynchronousStandby(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := service.Start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	dbtest.Exec(t, server.URL, "ALTER SYSTEM SET synchronous_standby_names = 'missing'")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	service.Eventually(t, "a write that does not end", func() bool { return s.Post(t, service.BodyOf(service.IDs.Add(1))).Code() == 50302 })
	service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
	s.Get(t, "/plants/1", service.As(service.Token)...).CheckStatus(t, 200)
	dbtest.Exec(t, server.URL, "ALTER SYSTEM RESET synchronous_standby_names")
	dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
	service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
	s.Post(t, service.BodyOf(service.IDs.Add(1))).RequireOK(t)
}

// TestOlderProgram starts the program on a schema that a newer version has migrated.
func TestOlderProgram(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		settings := []string{"DATABASE_URL=" + url, "PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + service.Token}
		_, stderr, status := service.RunToEnd(t, settings, "migrate", "up")
		if status != 0 {
			t.Fatal(stderr)
		}
		exec := func(statement string) {
			t.Helper()
			_, err := service.OpenTable(t, url).ExecContext(t.Context(), statement)
			service.Must(t, err)
		}
		exec("INSERT INTO goose_db_version (version_id, is_applied) VALUES (9999, TRUE)")
		_, stderr, status = service.RunToEnd(t, settings)
		if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "migration 9999 is unknown") {
			t.Errorf("got exit status %d and %q, want 1 and a line about migration 9999", status, stderr)
		}
		stdout, _, status := service.RunToEnd(t, settings, "migrate", "status")
		if status != 0 || !strings.Contains(stdout, "09999 (unknown: applied by a newer version)") {
			t.Errorf("migrate status: got exit status %d and %q", status, stdout)
		}
		exec("INSERT INTO compatible_migrations (version) VALUES (9999)")
		s := service.Start(t, settings...)
		s.Post(t, service.BodyOf(1)).RequireOK(t)
		s.Get(t, "/readyz").CheckStatus(t, 200)
		exec("DELETE FROM compatible_migrations")
		service.Eventually(t, "an unready service", func() bool { return s.Get(t, "/readyz").Status == 503 })
		s.Get(t, "/readyz").CheckError(t, 50302, "schema")
	})
}
