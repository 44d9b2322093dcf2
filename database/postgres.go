package database

import (
	"cmp"
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
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
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type postgresDialect struct {
	conflictsUntil atomic.Int64  // nanoseconds since 1970; see insertNew
	staleBefore    atomic.Int64  // nanoseconds since 1970; connections opened before are discarded
	share          time.Duration // of an operation's time limit that it may spend waiting
	target         string        // hosts and database
	forms          forms
}

// connectionLifetime bounds how long a connection stays on a server that a load balancer
// or a DNS name no longer leads to.
const connectionLifetime = 30 * time.Minute

func (d *postgresDialect) open(_ context.Context, o Options, _ *zap.Logger) (pool, readPool *sql.DB, err error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, nil, ErrURL // without the parser's message, which repeats parts of the URL
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
	d.share = o.Timeout / waitShare
	d.watch(config)

	pool = stdlib.OpenDB(*config,
		stdlib.OptionAfterConnect(d.prepareConnection(config.ConnectTimeout)),
		stdlib.OptionShouldPing(d.pingIdle),
		stdlib.OptionResetSession(d.checkConnection))
	pool.SetMaxOpenConns(o.MaxConnections)
	pool.SetMaxIdleConns(o.MaxConnections)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	pool.SetConnMaxLifetime(connectionLifetime)
	return pool, pool, nil
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

// sessionSettings returns the settings that decide how values look, and how transactions
// see each other.
func sessionSettings() [][2]string {
	return [][2]string{
		{"DateStyle", "ISO"},
		{"IntervalStyle", "postgres"},
		{"TimeZone", "UTC"},
		{"extra_float_digits", "1"},
		{"bytea_output", "hex"},
		{"array_nulls", "on"},
		{"standard_conforming_strings", "on"},
		{"default_transaction_isolation", "read committed"},
	}
}

// lockWait is how long a statement waits for a lock, so that a locked row delays the
// others of its batch by no more. What needs longer waits apart: see [DB.WaitForLock] and
// [DB.Retry].
const lockWait = 2 * time.Millisecond

// opened is the key of the time at which a connection was opened.
const opened = "plantstore.opened"

// prepareConnection returns the set-up of a new connection. It keeps the service's promises
// despite any defaults of the server, the database or the role: a committed
// row is on disk, text is returned as it was sent, and a locked row delays no other.
func (d *postgresDialect) prepareConnection(timeout time.Duration) func(context.Context, *pgx.Conn) error {
	settings := []string{"CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END"}
	for _, s := range append(sessionSettings(), [2]string{"lock_timeout", milliseconds(lockWait)}) {
		settings = append(settings, fmt.Sprintf("set_config('%s', '%s', false)", s[0], s[1]))
	}
	set := "SELECT " + strings.Join(settings, ", ")
	return func(ctx context.Context, conn *pgx.Conn) error {
		ctx, cancel := context.WithTimeout(ctx, timeout) // the pool connects in the background, too
		defer cancel()
		begin := time.Now()
		err := checkEncoding(conn)
		if err == nil {
			_, err = conn.Exec(ctx, set)
		}
		if err != nil {
			return errors.Join(err, conn.Close(ctx))
		}
		conn.PgConn().CustomData()[opened] = begin
		return nil
	}
}

// milliseconds returns d for a setting such as lock_timeout, where 0 would mean no limit.
func milliseconds(d time.Duration) string {
	return strconv.FormatInt(max(d.Milliseconds(), 1), 10)
}

// watch closes a connection whose server turned out to be read-only, as a primary that was
// demoted, or whose cached plans are obsolete after a migration. The others, which
// are probably like it, are discarded before their next use.
func (d *postgresDialect) watch(config *pgx.ConnConfig) {
	closeIfFatal := config.OnPgError
	config.OnPgError = func(conn *pgconn.PgConn, err *pgconn.PgError) bool {
		switch err.Code {
		case "25006": // read_only_sql_transaction
			// While a database stays read-only, not every write may cost all connections.
			if time.Since(time.Unix(0, d.staleBefore.Load())) > time.Second {
				d.discardAll()
			}
			return false
		case "0A000": // feature_not_supported
			if err.Routine == "RevalidateCachedQuery" { // "cached plan must not change result type"
				d.discardAll()
			}
			return false
		}
		return closeIfFatal(conn, err)
	}
}

func (d *postgresDialect) discardAll() { d.staleBefore.Store(time.Now().UnixNano()) }

// pingIdle pings a connection that was idle, in a part of the time that the
// operation has, and closes it if there is no response. It leaves nothing to the driver.
func (d *postgresDialect) pingIdle(ctx context.Context, p stdlib.ShouldPingParams) bool {
	if p.IdleDuration < time.Second {
		return false
	}
	short, cancel := context.WithTimeout(ctx, d.share)
	defer cancel()
	if err := p.Conn.Ping(short); err != nil {
		if ctx.Err() == nil && short.Err() != nil {
			d.discardAll() // the server hangs, or is gone without closing its connections
		}
		_ = p.Conn.Close(short) // usually closed by now
	}
	return false
}

// checkConnection rejects a connection from the pool that was discarded, or that the server
// has closed: nothing has been sent yet, so the operation gets another one.
func (d *postgresDialect) checkConnection(_ context.Context, conn *pgx.Conn) error {
	begin, _ := conn.PgConn().CustomData()[opened].(time.Time)
	if conn.IsClosed() || begin.UnixNano() < d.staleBefore.Load() || hasInput(conn.PgConn().Conn()) {
		return driver.ErrBadConn
	}
	return nil
}

func checkEncoding(conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding == "UTF8" || encoding == "SQL_ASCII" { // the latter stores any bytes; initdb picks it without a locale
		return nil
	}
	return fmt.Errorf("the database has the encoding %q, which cannot store every text: "+
		"create it with ENCODING 'UTF8' TEMPLATE template0", encoding)
}

func (d *postgresDialect) migrations(log *zap.Logger) migrationSettings {
	return migrationSettings{dialect: goose.DialectPostgres, folder: "postgres", locker: &postgresLocker{d.share / 2, log}}
}

// postgresLocker is goose's lock on a PostgreSQL database. While it is held, the
// connection waits for the lock of a table no longer than the operations that queue behind
// it can wait. See [DB.whileLocked].
type postgresLocker struct {
	wait time.Duration
	log  *zap.Logger
}

func (l *postgresLocker) SessionLock(ctx context.Context, conn *sql.Conn) error {
	for logged := false; ; logged = true {
		var locked bool
		row := conn.QueryRowContext(ctx, "SELECT pg_try_advisory_lock($1), set_config('lock_timeout', $2, false)",
			lock.DefaultLockID, milliseconds(l.wait))
		if err := row.Scan(&locked, new(string)); err != nil || locked {
			return err
		}
		if !logged {
			l.log.Info("waiting for another process that migrates the database")
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (l *postgresLocker) SessionUnlock(ctx context.Context, conn *sql.Conn) error {
	_, err := conn.ExecContext(ctx, "SELECT pg_advisory_unlock($1), set_config('lock_timeout', $2, false)",
		lock.DefaultLockID, milliseconds(lockWait))
	return err
}

// lockHolders shows the kind of a statement and not its text, which may have values.
func (*postgresDialect) lockHolders() string {
	return `SELECT format('process %s (%s), %s for %s s, last statement %s', pid, application_name, state,
			round(extract(epoch FROM clock_timestamp() - xact_start)), upper(substring(ltrim(query) FROM '^[A-Za-z]*')))
		FROM pg_stat_activity WHERE pid IN (SELECT l.pid FROM pg_locks l JOIN pg_database d ON d.oid = l.database
			WHERE d.datname = current_database() AND l.relation >= 16384 AND l.granted) -- not of the system
		ORDER BY xact_start LIMIT 3`
}

func (*postgresDialect) readOnly() string { return "current_setting('transaction_read_only') = 'on'" }

// writeTest takes a megabyte, which does not fit into space that is already allocated.
func (*postgresDialect) writeTest() string {
	return "CREATE TEMPORARY TABLE plantstore_write_test ON COMMIT DROP AS SELECT repeat('x', 1000) FROM generate_series(1, 1000)"
}

// conflictPeriod is how long insertNew expects keys to be taken after one was.
const conflictPeriod = time.Second

// insertNew sends each column as an array: one statement, which pgx prepares once on
// each connection, serves any number of rows.
//
// Usually all keys are free. Then an INSERT without ON CONFLICT, which fails if a key
// is taken, takes two thirds of the time. After such a failure the clause is used at
// once for a while: each failure costs a transaction and a line in the server's log.
func (d *postgresDialect) insertNew(ctx context.Context, conn connection, table *Table, rows []reflect.Value) (o insertOutcome, err error) {
	insert := &Change{Table: table, Write: table.Insert}
	insertFree := &Change{Table: table, Write: insert.Write, Conflict: table.Keep, Returns: 1}
	pool, ownTransaction := conn.(*sql.DB)
	expectConflicts := !ownTransaction || time.Now().UnixNano() < d.conflictsUntil.Load()
	if !expectConflicts {
		text, args := d.changeRows(insert, rows, nil)
		err = d.query(ctx, conn, text, args, func(none result) error {
			none.Next()
			return none.Err()
		})
		if err == nil {
			return insertOutcome{all: true}, nil
		}
		if expectConflicts = IsDuplicate(err); expectConflicts {
			d.conflictsUntil.Store(time.Now().Add(conflictPeriod).UnixNano())
		}
	}
	if expectConflicts {
		text, args := d.changeRows(insertFree, rows, nil)
		err = d.query(ctx, conn, text, args, func(inserted result) error {
			keys, err := scanAll(inserted, table.Columns[:1], rows[0].Type())
			for _, row := range keys {
				o.inserted = append(o.inserted, table.Key.Of(row).Interface())
			}
			return err
		})
		o.all = len(o.inserted) == len(rows)
	}
	if ownTransaction && isRowFault(err) {
		return d.insertEach(ctx, pool, insertFree, rows)
	}
	return o, err
}

// insertEach inserts the rows in one transaction, with a statement for each.
func (d *postgresDialect) insertEach(ctx context.Context, pool *sql.DB, insertFree *Change, rows []reflect.Value) (insertOutcome, error) {
	inserted := make([]bool, len(rows))
	outcomes, err := d.runEach(ctx, pool, len(rows), func(batch *pgx.Batch, i int) {
		text, args := d.changeRows(insertFree, rows[i:i+1], nil)
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error {
		result, err := results.Exec()
		inserted[i] = err == nil && result.RowsAffected() > 0
		return err
	})
	o := insertOutcome{failed: make(map[any]error)}
	for i := range outcomes {
		key := insertFree.Table.Key.Of(rows[i]).Interface()
		switch {
		case outcomes[i] != nil:
			o.failed[key] = outcomes[i]
		case inserted[i]:
			o.inserted = append(o.inserted, key)
		}
	}
	return o, err
}

// query uses a connection of a pool without database/sql, which converts each value twice.
func (*postgresDialect) query(ctx context.Context, conn connection, text string, args []any, read func(result) error) error {
	pool, ok := conn.(*sql.DB)
	if !ok {
		return query(ctx, conn, text, args, read)
	}
	return withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := conn.Query(ctx, text, args...)
		if err != nil {
			return err
		}
		defer rows.Close()
		return read(rows)
	})
}

// run sends all changes at once, with a statement for each group.
func (d *postgresDialect) run(ctx context.Context, pool *sql.DB, groups []*group) error {
	changes := all(groups)
	if c := changes[0]; len(changes) == 1 {
		text, args := d.change(c)
		err := d.query(ctx, pool, text, args, c.scan)
		if isRowFault(err) {
			c.Err, err = err, nil
		}
		return err
	}
	batch := &pgx.Batch{}
	for _, g := range groups {
		text, args := d.changeGroup(g)
		batch.Queue(text, args...)
	}
	err := withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		results := conn.SendBatch(ctx, batch)
		for _, g := range groups {
			if readResult(results, g.scan) != nil {
				break
			}
		}
		return results.Close() // the first error, also of a Scan, or that of the commit
	})
	if !isRowFault(err) {
		return err
	}
	outcomes, err := d.runEach(ctx, pool, len(changes), func(batch *pgx.Batch, i int) {
		text, args := d.change(changes[i])
		batch.Queue(text, args...)
	}, func(results pgx.BatchResults, i int) error { return readResult(results, changes[i].scan) })
	for i, c := range changes {
		c.Err = outcomes[i]
	}
	return err
}

// runIn runs a statement for all changes.
func (d *postgresDialect) runIn(ctx context.Context, tx connection, g *group) error {
	text, args := d.changeGroup(g)
	return d.query(ctx, tx, text, args, g.scan)
}

func (d *postgresDialect) changeGroup(g *group) (text string, args []any) {
	rows := make([]reflect.Value, len(g.changes))
	for i, c := range g.changes {
		rows[i] = c.row()
	}
	return d.changeRows(g.changes[0], rows, func(i int) string { return g.changes[i].Versions })
}

// readResult calls read with the next result of a batch.
func readResult(results pgx.BatchResults, read func(result) error) error {
	rows, err := results.Query()
	if err != nil {
		return err
	}
	defer rows.Close()
	return read(rows)
}

func (d *postgresDialect) change(c *Change) (text string, args []any) {
	f := d.forms.of(c, false, d.newForm)
	return f.text, c.values(f.names)
}

// changeRows is change for rows, structs of the model, with one time. If they are many,
// the arguments are an array for each column, but one value for a timestamp. versionsOf
// returns the versions of the i-th one.
func (d *postgresDialect) changeRows(c *Change, rows []reflect.Value, versionsOf func(i int) string) (text string, args []any) {
	if len(rows) == 1 { // PostgreSQL takes less time for a value than for an array of one
		one := *c
		one.Row = rows[0].Addr().Interface()
		return d.change(&one)
	}
	f := d.forms.of(c, true, d.newForm)
	for _, name := range f.names {
		column := c.Table.column(name)
		switch {
		case column == nil:
			values := make([]string, len(rows))
			for i := range rows {
				values[i] = versionsOf(i)
			}
			args = append(args, values)
		case c.Table.isTimestamp(column):
			args = append(args, column.Of(rows[0]).Interface())
		default:
			values := reflect.MakeSlice(reflect.SliceOf(column.FieldType), len(rows), len(rows))
			for i, row := range rows {
				values.Index(i).Set(column.Of(row))
			}
			args = append(args, values.Interface())
		}
	}
	return f.text, args
}

// newForm numbers the parameters. If there are many rows, they come from arrays. The keys
// in the condition let PostgreSQL use the index even if it planned the statement when the
// table was empty.
func (*postgresDialect) newForm(c *Change, many bool) form {
	names, stands := c.names(), make(map[string]string)
	var arrays, columns []string
	keys := ""
	for i, name := range names {
		kind, column := "text", c.Table.column(name)
		if column != nil {
			kind = (postgres.Dialector{}).DataTypeOf(column.Field)
		}
		stands["@"+name] = fmt.Sprintf("$%d::%s", i+1, kind)
		if !many || column != nil && c.Table.isTimestamp(column) {
			continue
		}
		array := stands["@"+name] + "[]"
		arrays, columns = append(arrays, array), append(columns, name)
		stands["@"+name] = "r." + name
		if column == c.Table.Key {
			keys = fmt.Sprintf("%s = ANY(%s) AND ", c.Table.qualified(column), array)
		}
	}
	from := ""
	if many {
		from = fmt.Sprintf(" FROM unnest(%s) AS r(%s)", strings.Join(arrays, ", "), strings.Join(columns, ", "))
		if strings.HasPrefix(c.Write, "DELETE") {
			from = strings.Replace(from, "FROM", "USING", 1)
		}
	}
	text := parameter.ReplaceAllStringFunc(c.text(from, keys), func(name string) string { return stands[name] })
	return form{text, names}
}

// maxSplit is how long runEach tells the rows of a batch that are locked from the others.
const maxSplit = 50 * time.Millisecond

// runEach runs n statements in one transaction: queue adds the i-th one to a batch, and read
// reads its result. A statement whose row is locked or rejected costs another attempt
// without it. Rows that are locked are often neighbors, as those of an import are: after
// each one, runEach takes twice as many of those that follow for locked, and after maxSplit
// all of them. It returns the outcome of each statement, or fails as a whole.
func (*postgresDialect) runEach(
	ctx context.Context, pool *sql.DB, n int, queue func(batch *pgx.Batch, i int), read func(results pgx.BatchResults, i int) error,
) (outcomes []error, err error) {
	begin, last, skip := time.Now(), -1, 1
	outcomes = make([]error, n)
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		for {
			batch, queued := &pgx.Batch{}, make([]int, 0, n)
			for i, outcome := range outcomes {
				if outcome == nil {
					queue(batch, i)
					queued = append(queued, i)
				}
			}
			results, done := conn.SendBatch(ctx, batch), 0
			for done < len(queued) && read(results, queued[done]) == nil {
				done++
			}
			err := results.Close() // the first error, also of a Scan, or that of the commit
			if done == len(queued) || !isRowFault(err) {
				return err
			}
			switch {
			case !IsLocked(err):
				skip = 1
			case time.Since(begin) > maxSplit:
				skip = n
			case done == last:
				skip *= 2
			default:
				skip = 1
			}
			last = done
			for _, i := range queued[done:min(done+skip, len(queued))] {
				outcomes[i] = err
			}
		}
	})
	return outcomes, err
}

// withConn calls do with a connection of pool. The deadline of a batch is the connection's
// for as long, which costs less than waiting for ctx beside the operation.
func withConn(ctx context.Context, pool *sql.DB, do func(context.Context, *pgx.Conn) error) (err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	return conn.Raw(func(driver any) error {
		conn := driver.(*stdlib.Conn).Conn()
		if _, ok := ctx.(batchContext); !ok {
			return do(ctx, conn)
		}
		deadline, _ := ctx.Deadline()
		network := conn.PgConn().Conn()
		if err := network.SetDeadline(deadline); err != nil {
			return err
		}
		err := do(context.WithoutCancel(ctx), conn)
		if !conn.IsClosed() {
			err = errors.Join(err, network.SetDeadline(time.Time{}))
		}
		return err
	})
}

func (*postgresDialect) lookup(table *Table, keys any) (query string, argument any) {
	query, argument = table.Select+" WHERE "+table.Key.DBName, keys
	if list := reflect.ValueOf(keys); list.Len() == 1 { // takes less time than an array of one
		return query + " = $1", list.Index(0).Interface()
	}
	return query + " = ANY($1)", argument
}

func (*postgresDialect) lockRows() string { return " ORDER BY 1 FOR NO KEY UPDATE" } // by key, or two could deadlock

// load copies the rows in PostgreSQL's binary format.
func (d *postgresDialect) load(
	ctx context.Context, pool *sql.DB, table *Table, keep bool, next func() ([]any, error),
) (rows int64, err error) {
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		tx, err := conn.Begin(ctx)
		if err != nil {
			return err
		}
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // does nothing after the commit
		if _, err := tx.Exec(ctx, d.patience(0)); err != nil {
			return err
		}
		rows, err = tx.CopyFrom(ctx, pgx.Identifier{table.Name}, strings.Split(Names(table.Columns), ", "), pgx.CopyFromFunc(next))
		if err != nil || !keep {
			return err
		}
		return tx.Commit(ctx)
	})
	return rows, err
}

func (*postgresDialect) check() error { return nil }

func (*postgresDialect) fault() error { return nil }

func (*postgresDialect) close() error { return nil }

func (*postgresDialect) patience(wait time.Duration) string {
	return fmt.Sprintf("SET LOCAL lock_timeout = %d", wait.Milliseconds())
}

func (*postgresDialect) after(column, value string) string {
	return fmt.Sprintf("GREATEST(CAST(%s AS timestamptz), %s + interval '1 microsecond')", value, column)
}

func (*postgresDialect) among(column, argument string) string {
	return fmt.Sprintf("%s = ANY(CAST(%s AS timestamptz[]))", column, argument)
}

func (*postgresDialect) timeList() (layout, start, end string) { return time.RFC3339Nano, "{", "}" }

func (*postgresDialect) contains(column string) string { return column + " ILIKE ?" }

func (*postgresDialect) searchIndexes() (create, drop []string) {
	create = []string{
		"SET lock_timeout = 0", // waits for running transactions
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS plants_tag ON plants (tag, id)",
		"CREATE EXTENSION IF NOT EXISTS pg_trgm", // may fail, so not first
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS plants_name_trgm ON plants USING gin (name gin_trgm_ops)",
		"ANALYZE plants", // lets the planner use them at once
	}
	drop = []string{
		"SET lock_timeout = 0",
		"DROP INDEX CONCURRENTLY IF EXISTS plants_name_trgm",
		"DROP INDEX CONCURRENTLY IF EXISTS plants_tag",
	}
	return create, drop
}
