package database_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/dbtest"
	"plantstore/database/fault"
)

// silent returns the address of a host that accepts connections and never responds.
func silent(t *testing.T) string {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = listener.Close() })
	return listener.Addr().String() // the system accepts
}

// blackHole returns the address of a host that does not even accept connections, as its
// backlog is full.
func blackHole(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := errors.Join(syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}), syscall.Listen(fd, 0)); err != nil {
		t.Fatal(err)
	}
	name, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	address := fmt.Sprintf("127.0.0.1:%d", name.(*syscall.SockaddrInet4).Port)
	for {
		conn, err := net.DialTimeout("tcp", address, 300*time.Millisecond)
		if err != nil {
			return address
		}
		t.Cleanup(func() { _ = conn.Close() })
	}
}

// withHosts returns databaseURL with more hosts before its own, and with parameters.
func withHosts(t *testing.T, databaseURL, parameters string, hosts ...string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = strings.Join(append(hosts, u.Host), ",")
	u.RawQuery += parameters
	return u.String()
}

// TestFirstHostHangs: a host that hangs takes only its share of an operation's time.
func TestFirstHostHangs(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name, parameters string
		hosts            []string
	}{
		{"a host that never responds", "", []string{silent(t)}},
		{"a host that does not accept connections", "", []string{blackHole(t)}},
		{"two hosts", "", []string{silent(t), blackHole(t)}},
		{"with a connect_timeout in the URL", "&connect_timeout=30", []string{silent(t)}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			o := dbtest.Options(withHosts(t, dbtest.Postgres(t), test.parameters, test.hosts...))
			o.Timeout = 4 * time.Second
			begin := time.Now()
			db := dbtest.Open(t, o)
			if _, err := db.Write(t.Context(), "write", func(tx *database.DB) error { return tx.Exec("CREATE TABLE x ()").Error }); err != nil {
				t.Error(err)
			}
			if took := time.Since(begin); took > 2*o.Timeout {
				t.Errorf("took %v", took)
			}
			// As many connections at once as the pool has need the host that works.
			var group sync.WaitGroup
			for range 3 {
				group.Go(func() {
					err := db.Read(t.Context(), "read", database.Few, func(tx *gorm.DB) error { return tx.Exec("SELECT pg_sleep(0.1)").Error })
					if err != nil {
						t.Error(err)
					}
				})
			}
			group.Wait()
		})
	}
}

// TestStandbyFirst: of several hosts, the primary is the one to write to.
func TestStandbyFirst(t *testing.T) {
	t.Parallel()
	primary := dbtest.OwnServer(t)
	standby := primary.OwnStandby(t)
	u, _ := url.Parse(standby.URL)
	db := dbtest.Migrated(t, withHosts(t, primary.URL, "", u.Host))
	if err := db.Ready(t.Context()); err != nil {
		t.Error(err)
	}

	t.Run("a standby alone is not ready", func(t *testing.T) {
		if err := eventually(t, func() error { // its replay may be behind
			return dbtest.Open(t, dbtest.Options(standby.URL)).Ready(t.Context())
		}, readOnly); err != nil {
			t.Error(err)
		}
	})
}

// eventually calls do until want accepts its result, and returns nil or the last result.
func eventually(t *testing.T, do func() error, want func(error) bool) error {
	t.Helper()
	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(50 * time.Millisecond) {
		err := do()
		if want(err) {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("still: %w", err)
		}
	}
}

func readOnly(err error) bool {
	fault, ok := errors.AsType[*fault.NotWritableError](err)
	return ok && strings.Contains(fault.Reason, "read-only")
}

// inParallel runs statement three times at once, each on a connection of its own as it takes no
// slot, and returns the errors.
func inParallel(ctx context.Context, db *database.DB, statement string) error {
	errs := make([]error, 3)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			errs[i] = db.Read(ctx, "write", database.AtOnce, func(tx *gorm.DB) error { return tx.Exec(statement).Error })
		})
	}
	group.Wait()
	return errors.Join(errs...)
}

// databaseOf returns the name of the database at databaseURL.
func databaseOf(databaseURL string) string {
	u, _ := url.Parse(databaseURL)
	return strings.TrimPrefix(u.Path, "/")
}

// set changes a default of the database, for new connections.
func set(t *testing.T, databaseURL, setting, value string) {
	t.Helper()
	u := databaseURL + "&default_transaction_read_only=off"
	dbtest.Exec(t, u, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", databaseOf(databaseURL), setting, value))
}

// TestDemotedPrimary: a server turned read-only without closing its connections. One write
// fails; then there are new connections, which lead to the new primary.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	databaseURL := dbtest.Postgres(t)
	dbtest.Exec(t, databaseURL, "CREATE TABLE x ()")
	set(t, databaseURL, "default_transaction_read_only", "on")
	db := dbtest.Open(t, dbtest.Options(databaseURL))
	if err := inParallel(t.Context(), db, "SELECT pg_sleep(0.2)"); err != nil { // opens connections
		t.Fatal(err)
	}
	set(t, databaseURL, "default_transaction_read_only", "off")
	write := func(tx *database.DB) error { return tx.Exec("INSERT INTO x DEFAULT VALUES").Error }
	if _, err := db.Write(t.Context(), "write", write); !readOnly(err) || !errors.Is(err, fault.ErrUnavailable) {
		t.Fatalf("got %v, want the old connection", err)
	}
	for range 10 {
		if _, err := db.Write(t.Context(), "write", write); err != nil {
			t.Error(err)
		}
	}
}

// backends is how many connections a database has besides the one that asks.
const backends = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"

// TestServerClosesIdleConnections: nothing was sent, so the operation gets another one.
func TestServerClosesIdleConnections(t *testing.T) {
	t.Parallel()
	for _, test := range []struct{ name, setting, value, statement string }{
		{
			"pg_terminate_backend", "application_name", "x",
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()",
		},
		{"idle_session_timeout", "idle_session_timeout", "300", "SELECT"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			databaseURL := dbtest.Postgres(t)
			dbtest.Exec(t, databaseURL, "CREATE TABLE x ()")
			set(t, databaseURL, test.setting, test.value)
			db := dbtest.Open(t, dbtest.Options(databaseURL))
			observer := dbtest.Open(t, dbtest.Options(databaseURL)) // has a lone connection
			if err := observer.Exec("SET idle_session_timeout = 0").Error; err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if err := inParallel(t.Context(), db, "SELECT pg_sleep(0.1)"); err != nil { // opens connections
					t.Fatal(err)
				}
				if err := observer.Exec(test.statement).Error; err != nil {
					t.Fatal(err)
				}
				awaitValue(t, observer, backends, "0") // none is left
				if err := inParallel(t.Context(), db, "INSERT INTO x DEFAULT VALUES"); err != nil {
					t.Error(err)
				}
			}
		})
	}
}

// TestIdleConnectionsToALostHost: a host is lost without closing its connections. The next
// operation finds out in a part of its time, and the others do not repeat that.
func TestIdleConnectionsToALostHost(t *testing.T) {
	t.Parallel()
	databaseURL := dbtest.Postgres(t)
	dbtest.Exec(t, databaseURL, "CREATE TABLE x ()")
	u, _ := url.Parse(databaseURL)
	network := dbtest.NewLink(t, u.Host)
	o := dbtest.Options(withHosts(t, databaseURL, "", network.Address))
	o.Timeout = 6 * time.Second
	db := dbtest.Open(t, o)
	if err := inParallel(t.Context(), db, "SELECT pg_sleep(0.2)"); err != nil { // opens connections
		t.Fatal(err)
	}
	time.Sleep(1100 * time.Millisecond) // so that they count as idle
	network.Cut()
	for range 3 {
		_, err := db.Write(t.Context(), "write", func(tx *database.DB) error { return tx.Exec("INSERT INTO x DEFAULT VALUES").Error })
		if err != nil {
			t.Error(err)
		}
	}
}

// TestCloseAwaitsCancellation: a statement was interrupted, and the server hears of it late.
func TestCloseAwaitsCancellation(t *testing.T) {
	t.Parallel()
	databaseURL := dbtest.Postgres(t)
	observer := dbtest.Open(t, dbtest.Options(databaseURL))
	u, _ := url.Parse(databaseURL)
	network := dbtest.NewLink(t, u.Host)
	db, err := database.Open(t.Context(), dbtest.Options(withHosts(t, databaseURL, "", network.Address)), dbtest.Batches, dbtest.Tables, zap.NewNop())
	if err != nil {
		t.Fatal(err)
	}
	ctx, interrupt := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- db.WithContext(ctx).Exec("SELECT pg_sleep(3600)").Error }()
	const sleeping = backends + " AND state = 'active' AND query LIKE '%pg_sleep%'"
	awaitValue(t, observer, sleeping, "1")
	network.Cut()
	interrupt()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v, want that it was canceled", err)
	}
	closed := make(chan error)
	go func() { closed <- db.Close() }()
	select {
	case err := <-closed:
		t.Errorf("closed (%v) before the server knew that nobody waits for the statement", err)
		network.Mend()
	case <-time.After(100 * time.Millisecond):
		network.Mend()
		if err := <-closed; err != nil {
			t.Error(err)
		}
		if got := value(t, observer, sleeping); got != "0" {
			t.Errorf("got %s statements that run after Close, want none", got)
		}
	}
}

// TestDurableAfterReload: the server's default, changed while connections are open, does not
// become theirs.
func TestDurableAfterReload(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	plain, err := pgx.Connect(t.Context(), server.URL)
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close(t.Context())
	err = dbtest.Open(t, dbtest.Options(server.URL)).Connection(func(tx *gorm.DB) error {
		show := func() (value string) {
			if err := tx.Raw("SHOW synchronous_commit").Scan(&value).Error; err != nil {
				t.Fatal(err)
			}
			return value
		}
		before := show()
		dbtest.Exec(t, server.URL, "ALTER SYSTEM SET synchronous_commit = off")
		dbtest.Exec(t, server.URL, "SELECT pg_reload_conf()")
		now := ""
		err := eventually(t, func() error { return plain.QueryRow(t.Context(), "SHOW synchronous_commit").Scan(&now) }, func(error) bool { return now == "off" })
		if after := show(); before != "on" || after != "on" {
			t.Errorf("got %s, and %s after the reload", before, after)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
