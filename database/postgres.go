package database

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"net"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type postgresDialect struct {
	conflictsUntil atomic.Int64              // nanoseconds since 1970; see insertNew
	staleBefore    atomic.Pointer[time.Time] // connections opened before are discarded; see staleSince
	share          time.Duration             // of an operation's time limit that it may spend waiting
	target         string                    // hosts and database
	forms          forms
	network        network
	accept         func(context.Context, *pgx.Conn) error // of a standby: fails if a new connection must not be used
	citus          atomic.Bool                            // the database is a node of a Citus cluster: see citus.go
}

// connectionLifetime bounds how long a connection stays on a server that a load balancer
// or a DNS name no longer leads to.
const connectionLifetime = 30 * time.Minute

func (d *postgresDialect) open(_ context.Context, o Options, _ *zap.Logger) (pool, readPool *sql.DB, err error) {
	config, err := parseURL(o.URL)
	if err != nil {
		return nil, nil, err
	}
	hosts := []string{hostAndPort(config.Host, config.Port)}
	for _, f := range config.Fallbacks { // one host can have several, such as with and without TLS
		if host := hostAndPort(f.Host, f.Port); !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
	}
	d.target = strings.Join(hosts, ",") + "/" + config.Database
	config.ConnectTimeout = cmp.Or(config.ConnectTimeout, o.Timeout)
	if len(hosts) > 1 {
		// A host that hangs leaves time for the others and for the operation itself.
		config.ConnectTimeout = min(config.ConnectTimeout, o.Timeout/time.Duration(len(hosts)+1))
		if config.ValidateConnect == nil {
			config.ValidateConnect = pgconn.ValidateConnectTargetSessionAttrsReadWrite // the primary
		}
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "plantstore"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"
	d.share = o.Timeout / WaitShare
	d.watch(config)
	config.DialFunc = d.network.dial(config.DialFunc)
	if d.accept != nil { // reads fall back to the primary
		config.ConnectTimeout = min(config.ConnectTimeout, standbyTimeout)
	}
	watchWarnings(config)

	pool = stdlib.OpenDB(*config,
		stdlib.OptionBeforeConnect(d.choosesMode),
		stdlib.OptionAfterConnect(d.prepareConnection(config.ConnectTimeout)),
		stdlib.OptionShouldPing(d.pingIdle),
		stdlib.OptionResetSession(d.checkConnection))
	pool.SetMaxOpenConns(o.MaxConnections)
	pool.SetMaxIdleConns(o.MaxConnections)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	pool.SetConnMaxLifetime(connectionLifetime)
	return pool, pool, nil
}

// CheckURL fails with ErrURL, as Open does, if a part of url is not valid. Files that it names need
// not exist.
func CheckURL(url string) error {
	if _, err := sqliteOf(url); err == nil {
		return nil
	}
	_, err := parseURL(url)
	if _, ok := errors.AsType[*fs.PathError](err); ok {
		return nil
	}
	return err
}

// parseURL parses the URL of a PostgreSQL database. Its errors name a parameter that is not valid,
// but do not have the parser's message, which repeats parts of the URL.
func parseURL(text string) (*pgx.ConnConfig, error) {
	config, err := pgx.ParseConfig(text)
	if file, ok := errors.AsType[*fs.PathError](err); ok { // of sslrootcert, sslcert or sslkey
		return nil, fmt.Errorf("%w: %w", ErrURL, file)
	}
	if err == nil {
		return config, nil
	}
	if u, err := url.Parse(text); err == nil {
		query := u.Query()
		for _, key := range slices.Sorted(maps.Keys(query)) {
			query.Del(key) // helps only if the parser knows it, so what is named below is no misplaced secret
			u.RawQuery = query.Encode()
			_, err := pgx.ParseConfig(u.String())
			if _, ok := errors.AsType[*fs.PathError](err); ok || err == nil {
				return nil, fmt.Errorf("%w: see the parameter %s", ErrURL, key)
			}
		}
	}
	return nil, ErrURL
}

func hostAndPort(host string, port uint16) string {
	return net.JoinHostPort(host, strconv.Itoa(int(port)))
}

func (d *postgresDialect) name() string { return d.target }

func (*postgresDialect) system() string { return "postgresql" }

func (*postgresDialect) dialector(pool *sql.DB) gorm.Dialector {
	return postgresDialector{&postgres.Dialector{Config: &postgres.Config{Conn: pool}}}
}

// postgresDialector keeps values out of the log: it shows statements as prepared.
type postgresDialector struct{ *postgres.Dialector }

func (postgresDialector) Explain(statement string, _ ...any) string { return statement }

func (d *postgresDialect) migrations(pool *sql.DB, log *zap.Logger) (*migrations, error) {
	locker, err := d.newLocker(pool, log)
	if err != nil {
		return nil, err
	}
	return newMigrations(goose.DialectPostgres, "postgres", pool, locker)
}

// lockHolders shows the kind of a statement and not its text, which may have values. Of other
// roles' processes, only members of pg_monitor see more than that they exist.
func (*postgresDialect) lockHolders() string {
	return `SELECT format('process %s (%s)', pid, application_name) || CASE WHEN state IS NULL THEN '' ELSE format(', %s for %s s, last statement %s', state,
			round(extract(epoch FROM clock_timestamp() - xact_start)), upper(substring(ltrim(query) FROM '^[A-Za-z]*'))) END
		FROM pg_stat_activity WHERE pid IN (SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.relation >= 16384 AND l.granted) -- not of the system
		ORDER BY xact_start LIMIT 3`
}

func (*postgresDialect) readOnly() string { return "current_setting('transaction_read_only') = 'on'" }

func (*postgresDialect) mayWrite(table string) string {
	return fmt.Sprintf("has_any_column_privilege('%[1]s', 'INSERT') AND has_any_column_privilege('%[1]s', 'UPDATE') "+
		"AND has_table_privilege('%[1]s', 'DELETE')", table)
}

func (*postgresDialect) isStandby() string { return "pg_is_in_recovery()" }

// writeTest takes a megabyte, which does not fit into space that is already allocated.
func (*postgresDialect) writeTest() string {
	return "CREATE TEMPORARY TABLE plantstore_write_test ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)"
}

func (*postgresDialect) lookup(table *Table, keys any) (query string, argument any) {
	query, argument = table.Select+" WHERE "+table.Key.DBName, keys
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes less time than an array of one
		return query + " = $1", list.Index(0).Interface()
	}
	return query + " = ANY($1)", argument
}

func (d *postgresDialect) lockRows() (clause string, oneByOne bool) {
	return " ORDER BY 1 FOR NO KEY UPDATE", d.citus.Load() // by key, or two could deadlock
}

func (*postgresDialect) check() error { return nil }

func (*postgresDialect) fault() error { return nil }

// cancelTimeout bounds how long Close waits until the server has taken requests to cancel
// statements.
const cancelTimeout = time.Second

func (d *postgresDialect) close() error {
	d.network.drain(cancelTimeout)
	return nil
}

func (d *postgresDialect) lockTimeout(wait time.Duration) string {
	limit := "0" // none
	if wait > 0 {
		limit = milliseconds(wait)
	}
	set := "SET LOCAL lock_timeout = " + limit
	if d.citus.Load() {
		set += "; " + durably
	}
	return set
}

// after adds without a time zone, which might change the length of a day: timestamptz +
// interval is STABLE, and Citus rejects that in an UPDATE.
func (*postgresDialect) after(column, value string) string {
	return fmt.Sprintf("GREATEST(CAST(%s AS timestamptz), (%s AT TIME ZONE 'UTC' + interval '1 microsecond') AT TIME ZONE 'UTC')", value, column)
}

func (*postgresDialect) among(column, argument string) string {
	return fmt.Sprintf("%s = ANY(CAST(%s AS timestamptz[]))", column, argument)
}

func (*postgresDialect) timeList() (layout, start, end string) { return time.RFC3339Nano, "{", "}" }

func (*postgresDialect) contains(column, part string) (condition, argument string) {
	return column + " ILIKE ?", "%" + strings.NewReplacer(`\`, `\\`, `%`, `\%`, `_`, `\_`).Replace(part) + "%"
}
