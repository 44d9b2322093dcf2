package operate

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestInterruptedCommand interrupts a statement that waits for a transaction. It must not run on.
func TestInterruptedCommand(t *testing.T) {
	t.Parallel()
	databaseURL := dbtest.Postgres(t)
	dbtest.Migrated(t, databaseURL)
	db := service.OpenTable(t, databaseURL)
	tx, err := db.BeginTx(t.Context(), nil)
	service.Must(t, err)
	defer func() { service.Must(t, tx.Rollback()) }()
	_, err = tx.ExecContext(t.Context(), "LOCK TABLE compatible_migrations IN EXCLUSIVE MODE")
	service.Must(t, err)
	running := func() (n int) {
		t.Helper()
		service.Must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND state = 'active' AND query LIKE 'DELETE FROM compatible_migrations%'").Scan(&n))
		return n
	}
	p := service.Launch(t, service.Command(t, []string{"DATABASE_URL=" + databaseURL}, "migrate", "down", "--yes"))
	service.Eventually(t, "the rollback", func() bool { return running() == 1 })
	service.Must(t, p.Process.Signal(syscall.SIGINT))
	err = p.Wait(t)
	exit, ok := errors.AsType[*exec.ExitError](err)
	if got := p.Stderr.String(); !ok || exit.ExitCode() != 1 || got != "plantstore: interrupted\n" {
		t.Errorf("got %v and %q, want exit status 1 and that it was interrupted", err, got)
	}
	service.Eventually(t, "the end of the statement", func() bool { return running() == 0 })
}

func TestMigrateCommand(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		settings := []string{"DATABASE_URL=" + url}
		migrate := func(args, want string) {
			t.Helper()
			stdout, stderr, status := service.RunToEnd(t, settings, append([]string{"migrate"}, strings.Fields(args)...)...)
			if status != 0 || !strings.Contains(stdout, want) {
				t.Errorf("migrate %s: got exit status %d, %q, %q, want 0 and %q", args, status, stdout, stderr, want)
			}
		}
		_, stderr, status := service.RunToEnd(t, append(settings, "PLANTSTORE_DATABASE_MIGRATE=false", "PORT=0"))
		if status != 1 || !strings.Contains(stderr, "plantstore migrate up") {
			t.Errorf("start with an old schema: got exit status %d, %q, want 1", status, stderr)
		}
		service.CheckCLI(t, settings, []string{"token", "list"}, 1, "", "migration 00001_plants.sql is pending: run `plantstore migrate up`")
		migrate("status", "pending")
		migrations, err := filepath.Glob("../../database/migrations/sqlite/*.sql")
		service.Must(t, err)
		var applied []string
		for _, m := range migrations {
			applied = append(applied, "applied "+filepath.Base(m)+"\n")
		}
		migrate("up", strings.Join(applied, "")+"migrated "+service.NameOfDatabase(url)+"\n")
		migrate("up", "no pending migrations")
		migrate("status", "Z  00001_plants.sql")
		s := service.Start(t, append(settings, "PLANTSTORE_DATABASE_MIGRATE=false")...)
		s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
		for _, m := range slices.Backward(migrations[3:]) { // with the feed
			migrate("down --yes", "rolled back "+filepath.Base(m))
		}
		migrate("up", "applied "+filepath.Base(migrations[3]))
		feed := s.Get(t, "/plants/changes?after=0", service.As(service.Token)...)
		if os.Getenv("TEST_CITUS_URL") != "" { // a database there has none
			feed.CheckError(t, 50101)
		} else if !strings.Contains(feed.Body, `"id":1,`) || strings.Contains(feed.Body, `"cursor":"0"`) {
			t.Errorf("a feed that was created while the service runs: got %s, want the plant and a cursor of its own", feed.Body)
		}
		s.Stop(t)
		for _, m := range slices.Backward(migrations) {
			migrate("down --yes", "rolled back "+filepath.Base(m))
		}
		migrate("status", "pending")
	})
}

// TestMigrateUpFails: the command prints which migrations it has applied before one that fails.
func TestMigrateUpFails(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	dbtest.Exec(t, url, "CREATE TABLE tokens ()")
	service.CheckCLI(t, []string{"DATABASE_URL=" + url}, []string{"migrate", "up"}, 1, "applied 00001_plants.sql\n", `"tokens" already exists`)
}

func TestHealthcheckAndVersionCommands(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	port := "PORT=" + s.Port()
	for _, args := range [][]string{{"healthcheck"}, {"healthcheck", "--ready"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if _, stderr, status := service.RunToEnd(t, []string{port}, args...); status != 0 {
				t.Errorf("got exit status %d, %q, want 0", status, stderr)
			}
		})
	}
	s.Stop(t)
	if _, stderr, status := service.RunToEnd(t, []string{port}, "healthcheck"); status != 1 || !strings.Contains(stderr, s.Port()) {
		t.Errorf("healthcheck without a service: got exit status %d, %q, want 1", status, stderr)
	}
	if stdout, _, status := service.RunToEnd(t, nil, "version"); status != 0 || !strings.HasPrefix(stdout, "plantstore dev (commit unknown, go1") {
		t.Errorf("version: got exit status %d, %q, want 0", status, stdout)
	}
	if _, stderr, status := service.RunToEnd(t, nil, "frobnicate"); status != 2 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("unknown command: got exit status %d, %q, want 2 and one line", status, stderr)
	}
}
