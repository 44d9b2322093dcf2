// Package dbtest gives each test its own database, on SQLite and on PostgreSQL.
//
// The PostgreSQL server is the one that TEST_DATABASE_URL names, as a user who may create
// databases, or a temporary one that is started from the binaries on this machine. A test
// that cannot get its database fails.
//
// If TEST_CITUS_URL names the coordinator of a Citus cluster, a test has a schema there
// instead of these databases.
package dbtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
)

// Main runs the tests of a package and stops the PostgreSQL server that they shared:
// func TestMain(m *testing.M) { os.Exit(dbtest.Main(m)) }.
func Main(m *testing.M) int {
	for _, entry := range os.Environ() {
		// libpq's variables would change each connection.
		if name, _, _ := strings.Cut(entry, "="); strings.HasPrefix(name, "PG") {
			_ = os.Unsetenv(name)
		}
	}
	code := m.Run()
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server != nil {
		if err := shared.server.Close(); err != nil {
			fmt.Fprintln(os.Stderr, "dbtest:", err)
			return max(code, 1)
		}
	}
	return code
}

// Each runs test as a subtest on each kind of database, with the URL of a new, empty one.
func Each(t *testing.T, test func(t *testing.T, databaseURL string)) {
	if os.Getenv("TEST_CITUS_URL") != "" {
		t.Run("Citus", func(t *testing.T) { test(t, Citus(t)) })
		return
	}
	t.Run("SQLite", func(t *testing.T) { test(t, SQLite(t)) })
	t.Run("PostgreSQL", func(t *testing.T) { test(t, Postgres(t)) })
}

// SQLite returns the URL of a SQLite database that does not exist yet.
func SQLite(t testing.TB) string {
	return "sqlite:" + filepath.Join(t.TempDir(), "plantstore.db")
}

// Postgres returns the URL of a new, empty PostgreSQL database, which is dropped when the
// test ends.
func Postgres(t testing.TB) string { return PostgresWith(t, "ENCODING 'UTF8'") }

// PostgresWith is Postgres with options for CREATE DATABASE.
func PostgresWith(t testing.TB, options string) string {
	t.Helper()
	server := serverURL(t)
	name := "test_" + strings.ToLower(rand.Text())
	Exec(t, server, fmt.Sprintf("CREATE DATABASE %s TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C' %s", name, options))
	t.Cleanup(func() { Exec(t, server, fmt.Sprintf("DROP DATABASE %s WITH (FORCE)", name)) })
	u, err := url.Parse(server)
	if err != nil {
		t.Fatal("TEST_DATABASE_URL is not a URL")
	}
	u.Path = "/" + name
	return u.String()
}

// Citus returns the URL of a new, empty schema of the database that TEST_CITUS_URL names,
// which is dropped when the test ends.
func Citus(t testing.TB) string {
	t.Helper()
	databaseURL := os.Getenv("TEST_CITUS_URL")
	if databaseURL == "" {
		t.Fatal("TEST_CITUS_URL must name a database on the coordinator of a Citus cluster")
	}
	name := "test_" + strings.ToLower(rand.Text())
	Exec(t, databaseURL, "CREATE SCHEMA "+name)
	t.Cleanup(func() { Exec(t, databaseURL, "DROP SCHEMA "+name+" CASCADE") })
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal("TEST_CITUS_URL is not a URL")
	}
	query := u.Query()
	query.Set("search_path", name)
	u.RawQuery = query.Encode()
	return u.String()
}

// Exec runs statement in the PostgreSQL database at databaseURL, on a new connection.
func Exec(t testing.TB, databaseURL, statement string) {
	t.Helper()
	ctx := context.Background() // the test's context has ended when it cleans up
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		t.Fatalf("%s: %v", statement, err)
	}
}

// shared is the server of this test binary, started by the first test that needs it.
var shared struct {
	mu     sync.Mutex
	server *Server
}

// AsRole creates a role with statements, in which NAME stands for its own, and returns that and
// owner's URL with it.
func AsRole(t testing.TB, owner string, statements ...string) (role, as string) {
	t.Helper()
	role = "role_" + strings.ToLower(rand.Text())
	for _, statement := range append([]string{"CREATE ROLE NAME LOGIN"}, statements...) {
		Exec(t, owner, strings.ReplaceAll(statement, "NAME", role))
	}
	t.Cleanup(func() { Exec(t, owner, "DROP OWNED BY "+role+"; DROP ROLE "+role) })
	u, err := url.Parse(owner)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	return role, u.String()
}

func serverURL(t testing.TB) string {
	t.Helper()
	if given := os.Getenv("TEST_DATABASE_URL"); given != "" {
		return given
	}
	shared.mu.Lock()
	defer shared.mu.Unlock()
	if shared.server == nil {
		server, err := StartServer()
		if err != nil {
			t.Fatal(err)
		}
		shared.server = server
	}
	return shared.server.URL
}
