// Package postgres is the dialect of PostgreSQL. Databases that resemble it are dialects which embed
// [Dialect].
package postgres

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"plantstore/database/dialect"
	"plantstore/database/fault"
	"plantstore/database/table"
)

// Options says which database to open, and how.
type Options struct {
	URL            string
	MaxConnections int
	Timeout        time.Duration // of an operation, and of an attempt to connect
	ConnectTimeout time.Duration // of an attempt to connect, if it is less than Timeout; or 0
	// Accept prepares a new connection, or fails if it must not be used. It may be nil.
	Accept func(context.Context, *pgx.Conn) error
	// Configure changes the configuration of connections. It may be nil.
	Configure func(*pgx.ConnConfig)
	// Send runs a batch in a single transaction. It may be nil.
	Send func(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch) error
	// Commit calls do, which commits a transaction on conn, and fails if the commit may not be visible. It may be nil.
	Commit func(conn *sql.Conn, do func() error) error
	// Settings are more statements with which each transaction begins, each after "; ". They may be empty.
	Settings string
	// InsertRows returns the INSERT of several rows, and its arguments. It may be nil.
	InsertRows func(s *table.Statement, inserts []*table.Change) (text string, args []any)
}

// Dialect is a PostgreSQL database. It is safe for concurrent use.
type Dialect struct {
	Options
	pool        *sql.DB
	target      string                    // hosts and database
	staleBefore atomic.Pointer[time.Time] // not nil: connections opened before are discarded
	open        sync.Map                  // the connections to the server, those with a request to cancel a statement included
}

// connectionLifetime bounds how long a connection stays on a server that a load balancer
// or a DNS name no longer leads to.
const connectionLifetime = 30 * time.Minute

// Open returns the database that o.URL names. It does not connect. It fails with fault.ErrURL if a
// part of the URL is not valid.
func Open(o Options) (*Dialect, error) {
	d := &Dialect{Options: o}
	d.staleBefore.Store(&time.Time{})
	config, err := parseURL(o.URL)
	if err != nil {
		return nil, err
	}
	var hosts []string // a host can have several configurations, for example with and without TLS
	for _, c := range append([]*pgconn.FallbackConfig{{Host: config.Host, Port: config.Port}}, config.Fallbacks...) {
		if host := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port))); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	d.target = strings.Join(hosts, ",") + "/" + config.Database
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, o.Timeout)
	if len(hosts) > 1 {
		// A host that hangs leaves time for the other hosts and for the operation itself.
		config.ConnectTimeout = min(config.ConnectTimeout, o.Timeout/time.Duration(len(hosts)+1))
		if config.ValidateConnect == nil {
			config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // the primary
		}
	}
	if o.ConnectTimeout > 0 {
		config.ConnectTimeout = min(config.ConnectTimeout, o.ConnectTimeout)
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "plantstore"
	}
	maps.Copy(config.RuntimeParams, startupSettings)
	d.watch(config)
	config.DialFunc = d.dial(config.DialFunc)
	if o.Configure != nil {
		o.Configure(config)
	}
	d.pool = stdlib.OpenDB(*config,
		stdlib.OptionAfterConnect(d.prepareConnection),
		stdlib.OptionShouldPing(d.pingIdle),
		stdlib.OptionResetSession(d.checkConnection))
	d.pool.SetMaxOpenConns(o.MaxConnections)
	d.pool.SetMaxIdleConns(o.MaxConnections)
	d.pool.SetConnMaxIdleTime(5 * time.Minute)
	d.pool.SetConnMaxLifetime(connectionLifetime)
	return d, nil
}

// CheckURL fails with fault.ErrURL, as Open does, if a part of url is not valid. Files that it names
// need not exist.
func CheckURL(url string) error {
	_, err := parseURL(url)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil
	}
	return err
}

// parseURL parses the URL of a PostgreSQL database. Its errors do not have the parser's message, which
// repeats parts of the URL.
func parseURL(text string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(text)
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of sslrootcert, sslcert or sslkey
		return nil, fmt.Errorf("%w: %w", fault.ErrURL, file)
	}
	if err != nil {
		return nil, fault.ErrURL
	}
	return config, nil
}

// Standby opens a standby of the database with o.
func (*Dialect) Standby(o Options, _ *zap.Logger) (dialect.Dialect, error) { return Open(o) }

// Migrate implements dialect.Dialect.
func (*Dialect) Migrate(_ context.Context, _ bool, up func() error) error { return up() }

// Pools returns the same pool for writes and for reads.
func (d *Dialect) Pools() (writes, reads *sql.DB) { return d.pool, d.pool }

// Dialector returns GORM's dialector for pool.
func (*Dialect) Dialector(pool *sql.DB) gorm.Dialector {
	return gormDialector{&postgres.Dialector{Config: &postgres.Config{Conn: pool}}}
}

// gormDialector keeps values out of the log: it shows statements as prepared.
type gormDialector struct{ *postgres.Dialector }

func (gormDialector) Explain(statement string, _ ...any) string { return statement }

// Facts returns what is constant.
func (d *Dialect) Facts() dialect.Facts {
	return dialect.Facts{
		Name: d.target, System: "postgresql", Goose: goose.DialectPostgres, Migrations: "postgres",
		ReadOnly:  "current_setting('transaction_read_only') = 'on'",
		MayWrite:  "has_any_column_privilege('{table}', 'INSERT') AND has_any_column_privilege('{table}', 'UPDATE') AND has_table_privilege('{table}', 'DELETE')",
		IsStandby: "pg_is_in_recovery()",
		KeyValue:  "?",
		LockedBy:  lockedBy + "relkind = 'r'" + oldest,
		KeptOutBy: lockedBy + "mode IN ('ShareLock', 'ShareRowExclusiveLock', 'ExclusiveLock', 'AccessExclusiveLock') AND relname IN ({tables})" + oldest,
		// A megabyte, which does not fit into space that is already allocated.
		WriteTest: "CREATE TEMPORARY TABLE plantstore_write_test ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)",
	}
}

// lockedBy, a condition on locks, and oldest name up to five transactions. Only a superuser, or a member of pg_read_all_stats, sees how old the transactions
// of other roles are. A prepared transaction has no pid.
const (
	lockedBy = `SELECT COALESCE(string_agg(who, '; '), '') FROM (
	SELECT format('pid %s, application %s, role %s, in a transaction for %s', COALESCE(l.pid::text, 'none: see pg_prepared_xacts'), application_name, usename,
		COALESCE(date_trunc('second', clock_timestamp() - xact_start)::text, 'an unknown time'))
		|| CASE WHEN granted THEN '' ELSE ', waits for pid ' || array_to_string(pg_blocking_pids(l.pid), ', ') END AS who
	FROM pg_locks l JOIN pg_class c ON c.oid = relation LEFT JOIN pg_stat_activity a ON a.pid = l.pid
	WHERE database = (SELECT oid FROM pg_database WHERE datname = current_database())
		AND relnamespace = current_schema()::regnamespace AND l.pid IS DISTINCT FROM pg_backend_pid() AND `
	oldest = ` GROUP BY 1 ORDER BY min(xact_start) LIMIT 5) l`
)

// Check returns nil: a restart would use the same server.
func (*Dialect) Check() error { return nil }

// Cut closes all connections: what waits for a response fails now, rather than when its time is up.
func (d *Dialect) Cut() {
	for conn := range d.open.Range {
		_ = conn.(*connection).Close()
	}
}

// cancelTimeout bounds how long Close waits until the server has taken requests to cancel
// statements.
const cancelTimeout = time.Second

// Close closes the connections. pgx cancels an interrupted statement in the background: if Close did
// not wait for that, a process that ends would leave it to run, and pgbouncer 1.18 crashes if a request to
// cancel is cut off (its issue 801).
func (d *Dialect) Close() error {
	err := d.pool.Close()
	for end := time.Now().Add(cancelTimeout); !d.isClosed() && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	return err
}

// SetLockTimeout implements dialect.Dialect.
func (d *Dialect) SetLockTimeout(wait time.Duration) string {
	set := "SET LOCAL lock_timeout = 0" // until the context ends
	if wait > 0 {
		set = "SET LOCAL lock_timeout = " + milliseconds(wait)
	}
	return set + d.Settings
}

// After adds without a time zone, which might change the length of a day: timestamptz + interval is
// STABLE, and Citus rejects that in an UPDATE.
func (*Dialect) After(column, value string) string {
	return fmt.Sprintf("GREATEST(CAST(%s AS timestamptz), (%s AT TIME ZONE 'UTC' + interval '1 microsecond') AT TIME ZONE 'UTC')", value, column)
}

// Among uses an array.
func (*Dialect) Among(column, argument string) string {
	return fmt.Sprintf("%s = ANY(CAST(%s AS timestamptz[]))", column, argument)
}

// listOf writes times as an array.
func listOf(times []time.Time) string {
	texts := make([]string, len(times))
	for i, t := range times {
		texts[i] = t.UTC().Format(time.RFC3339Nano)
	}
	return "{" + strings.Join(texts, ",") + "}"
}

// Contains lets letters match in any case, according to the locale.
func (*Dialect) Contains(column, part string) (condition, argument string) {
	return column + " ILIKE ?", "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}
