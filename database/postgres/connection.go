package postgres

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/stdlib"
	"go.uber.org/zap"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/limit"
)

// startupSettings are settings of a session that poolers keep for each of their clients, because the
// server reports changes of them: see varcache.c of pgbouncer 1.18.
var startupSettings = map[string]string{
	"client_encoding": "UTF8", "datestyle": "ISO", "timezone": "UTC", "standard_conforming_strings": "on",
}

// sessionSettings decide how values look, how transactions see each other, and how long they wait for
// locks.
var sessionSettings = []struct{ name, value string }{
	{"IntervalStyle", "postgres"},
	{"extra_float_digits", "1"},
	{"bytea_output", "hex"},
	{"array_nulls", "on"},
	{"default_transaction_isolation", "read committed"},
	{"lock_timeout", milliseconds(LockWait)},
}

// LockWait is how long a statement waits for a lock, so that a locked row delays the other rows
// of its batch by no more. What needs longer waits apart.
const LockWait = 2 * time.Millisecond

// opened is the key of the time at which a connection was opened.
const opened = "plantstore.opened"

// prepareConnection sets up a new connection. It keeps the service's promises
// despite any defaults of the server, the database or the role: a committed
// row is on disk, text is returned as it was sent, and a locked row delays no other.
func (d *Dialect) prepareConnection(ctx context.Context, conn *pgx.Conn) error {
	ctx, cancel := context.WithTimeout(ctx, conn.Config().ConnectTimeout) // the pool also connects in the background
	defer cancel()
	begin := time.Now()
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding != "UTF8" && encoding != "SQL_ASCII" { // which stores any bytes; initdb picks it without a locale
		err := fmt.Errorf("the database has the encoding %q, which cannot store every text: create it with ENCODING 'UTF8' TEMPLATE template0", encoding)
		return errors.Join(err, conn.Close(ctx))
	}
	// Set in any case: what the session does not set would change when the server reads its configuration again.
	set := []string{"set_config('synchronous_commit', CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' ELSE current_setting('synchronous_commit') END, false)"}
	for _, s := range sessionSettings {
		set = append(set, fmt.Sprintf("set_config('%s', '%s', false)", s.name, s.value))
	}
	_, err := conn.Exec(ctx, "SELECT "+strings.Join(set, ", "))
	if err == nil && d.Accept != nil {
		err = d.Accept(ctx, conn)
	}
	if err != nil {
		return errors.Join(err, conn.Close(ctx))
	}
	conn.PgConn().CustomData()[opened] = begin
	return nil
}

// milliseconds returns d for a setting like lock_timeout, where 0 would mean no limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// watch closes a connection whose server turned out to be read-only, as a primary that was
// demoted, or whose cached plans are obsolete after a migration. The pool discards its other connections,
// which are probably like it, before their next use.
func (d *Dialect) watch(config *pgx.ConnConfig) {
	closeIfFatal := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		switch {
		case err.Code == fault.ReadOnlyTransaction:
			// While a database stays read-only, not every write may cost all connections.
			if time.Since(*d.staleBefore.Load()) > time.Second {
				d.Discard()
			}
			return false
		case err.Code == fault.FeatureNotSupported && err.Routine == "RevalidateCachedQuery": // "cached plan must not change result type"
			d.Discard()
			return false
		}
		return closeIfFatal(conn, err)
	}
}

// Discard closes each connection before its next use.
func (d *Dialect) Discard() { d.staleBefore.Store(new(time.Now())) }

// pingIdle pings a connection that was idle, in a part of the time that the
// operation has, and closes it if there is no response. It leaves nothing to the driver.
func (d *Dialect) pingIdle(ctx context.Context, p stdlib.ShouldPingParams) bool {
	if p.IdleDuration < time.Second {
		return false
	}
	short, cancel := context.WithTimeout(ctx, limit.Wait(d.Timeout))
	defer cancel()
	if err := p.Conn.Ping(short); err != nil {
		if ctx.Err() == nil && short.Err() != nil {
			d.Discard() // the server hangs, or is gone without closing its connections
		}
		_ = p.Conn.Close(short) // usually closed by now
	}
	return false
}

// checkConnection rejects a connection from the pool that was discarded, or that the server
// has closed: nothing has been sent yet, so the operation gets another connection.
func (d *Dialect) checkConnection(_ context.Context, conn *pgx.Conn) error {
	begin, _ := conn.PgConn().CustomData()[opened].(time.Time)
	if conn.IsClosed() || begin.Before(*d.staleBefore.Load()) || hasInput(conn.PgConn().Conn()) {
		return driver.ErrBadConn
	}
	return nil
}

// WithConn calls do with a connection of pool. The deadline of a batch is the connection's
// for as long, which costs less than waiting for ctx beside the operation.
func WithConn(ctx context.Context, pool *sql.DB, do func(context.Context, *pgx.Conn) error) (err error) {
	due, detached := batch.Detached(ctx)
	connecting, cancel := batch.Attach(ctx)
	defer cancel()
	conn, err := pool.Conn(connecting)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		if !detached {
			return do(ctx, conn)
		}
		network := conn.PgConn().Conn()
		if err := network.SetDeadline(due); err != nil {
			return err
		}
		err := do(ctx, conn)
		switch {
		case !conn.IsClosed():
			err = errors.Join(err, network.SetDeadline(time.Time{}))
		case !time.Now().Before(due) && !fault.IsTimeout(err): // pgx may say only that it is closed
			err = fmt.Errorf("%w: %w", context.DeadlineExceeded, err)
		}
		return err
	})
}

// roleFaults is a query for the settings, of those in $1 with the values in $2, with which
// sessions do not start, and the statements that change that. It returns nothing unless a
// pooler like pgbouncer is between the service and the server: it invents the process
// id, $3, that clients get. A statement for a role in a database overrides all other
// defaults, and every role may run it for itself.
const roleFaults = `SELECT name, reset_val, format('ALTER ROLE %I IN DATABASE %I SET %s = %L', session_user, current_database(), name, value)
	FROM unnest($1::text[], $2::text[]) AS wanted(name, value) JOIN pg_settings USING (name)
	WHERE pg_backend_pid() <> $3::bigint AND CASE name WHEN 'synchronous_commit' THEN reset_val = 'off' ELSE reset_val <> value END`

// Inspect checks the settings of prepareConnection, which do not last if
// a pooler gives each transaction another session: then the role must have them. The
// service does not start if it would lose acknowledged rows.
func (d *Dialect) Inspect(ctx context.Context, log *zap.Logger) error {
	names, values := []string{"synchronous_commit"}, []string{"on"}
	for _, s := range sessionSettings {
		names, values = append(names, s.name), append(values, s.value)
	}
	var lossy error
	err := WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		// Not prepared: the URL may lack the mode that an old pgbouncer needs.
		rows, err := conn.Query(ctx, roleFaults, pgx.QueryExecModeExec, names, values, int64(conn.PgConn().PID()))
		if err != nil {
			return err
		}
		var name, value, remedy string
		_, err = pgx.ForEachRow(rows, []any{&name, &value, &remedy}, func() error {
			if name == "synchronous_commit" {
				lossy = fmt.Errorf("synchronous_commit is off in the sessions of a pooler such as pgbouncer, "+
					"so acknowledged plants could be lost: run %s, and RECONNECT in its console", remedy)
				return nil
			}
			log.Warn("a setting is wrong, and sessions cannot keep it through a pooler such as pgbouncer: change it, and RECONNECT in its console",
				zap.String("setting", name), zap.String("value", value), zap.String("run", remedy))
			return nil
		})
		return err
	})
	if err != nil {
		return fmt.Errorf("read the settings of the database: %w", err)
	}
	return lossy
}

// connection is a connection to the server which d.open has until it is closed.
type connection struct {
	net.Conn
	open *sync.Map
}

func (c *connection) Close() error {
	c.open.Delete(c)
	return c.Conn.Close()
}

// dial returns dial for connections that d knows.
func (d *Dialect) dial(dial pgconn.DialFunc) pgconn.DialFunc {
	return func(ctx context.Context, protocol, address string) (net.Conn, error) {
		conn, err := dial(ctx, protocol, address)
		if err != nil {
			return nil, err
		}
		known := &connection{conn, &d.open}
		d.open.Store(known, nil)
		return known, nil
	}
}

// isClosed reports whether no connection is open.
func (d *Dialect) isClosed() bool {
	for range d.open.Range {
		return false
	}
	return true
}
