package service

import (
	"database/sql"
	"net/url"
	"strings"
	"testing"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/libtnb/sqlite"

	"plantstore/database/dbtest"
)

// NameOfDatabase returns the name by which commands call the database at databaseURL.
func NameOfDatabase(databaseURL string) string {
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		return path
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return err.Error()
	}
	return u.Host + u.Path
}

// OwnServers returns a PostgreSQL server and a standby of it, for one test.
func OwnServers(t *testing.T) (primary, standby *dbtest.Server) {
	t.Helper()
	primary = dbtest.OwnServer(t)
	return primary, primary.OwnStandby(t)
}

// OtherToken is accepted by the services of StartWithStandby, like Token.
const OtherToken = "another-token-for-tests-of-32-characters"

// StartWithStandby starts a service that reads from a standby, and waits until it does.
func StartWithStandby(t *testing.T, settings ...string) (s *Service, standby *dbtest.Server) {
	t.Helper()
	primary, standby := OwnServers(t)
	return StartOn(t, primary, standby, settings...), standby
}

// StartOn is StartWithStandby with servers that are there.
func StartOn(t *testing.T, primary, standby *dbtest.Server, settings ...string) *Service {
	t.Helper()
	s := Start(t, append([]string{
		"DATABASE_URL=" + primary.URL, "DATABASE_REPLICA_URLS=" + standby.URL,
		"PLANTSTORE_AUTH_TOKENS=" + Token + "," + OtherToken, "PLANTSTORE_DATABASE_MAX_REPLICA_LAG=1h",
	}, settings...)...)
	s.AwaitLog(t, "a standby is in use")
	return s
}

// OpenTable opens the database of a service.
func OpenTable(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	driver, name := "pgx", databaseURL
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		driver, name = sqlite.DriverName, "file:"+path+"?_pragma=busy_timeout(5000)&_pragma=foreign_keys(1)" // the service marks the feed
	}
	db, err := sql.Open(driver, name)
	Must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// LockTable blocks writes of plants until unlock is called.
func LockTable(t *testing.T, databaseURL string) (unlock func()) {
	t.Helper()
	conn, err := OpenTable(t, databaseURL).Conn(t.Context())
	Must(t, err)
	exec := func(statement string) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasPrefix(databaseURL, "sqlite:") {
		exec("BEGIN IMMEDIATE")
	} else {
		exec("BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE")
	}
	return func() {
		exec("ROLLBACK")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
