package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"go.uber.org/zap"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type postgresDialect struct {
	conflictsUntil atomic.Int64 // nanoseconds since 1970; see insertNew
	target         string       // hosts and database
}

func (d *postgresDialect) open(_ context.Context, o Options, _ *zap.Logger) (pool, readPool *sql.DB, err error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		return nil, nil, ErrURL // without the parser's message, which repeats parts of the URL
	}
	d.target = net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port))) + "/" + config.Database
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = o.Timeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "plantstore"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"

	pool = stdlib.OpenDB(*config, stdlib.OptionAfterConnect(prepareConnection))
	pool.SetMaxOpenConns(o.MaxConnections)
	pool.SetMaxIdleConns(o.MaxConnections)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool, pool, nil
}

func (d *postgresDialect) name() string { return d.target }

func (*postgresDialect) dialector(pool *sql.DB) gorm.Dialector {
	return postgresDialector{&postgres.Dialector{Config: &postgres.Config{Conn: pool}}}
}

// postgresDialector keeps values out of the log: it shows statements as prepared.
type postgresDialector struct{ *postgres.Dialector }

func (postgresDialector) Explain(statement string, _ ...any) string { return statement }

// lockWait is how long a statement waits for a lock, so that a locked row delays the
// others of its batch by no more. What needs longer waits apart: see [DB.WaitForLock].
const lockWait = 2 * time.Millisecond

// prepareConnection sets up a new connection. It keeps the service's promises despite any
// defaults of the server, the database or the role: a committed row is on disk, text is
// returned as it was sent, and a locked row delays no other.
func prepareConnection(ctx context.Context, conn *pgx.Conn) error {
	if err := checkEncoding(conn); err != nil {
		return err
	}
	_, err := conn.Exec(ctx, fmt.Sprintf(`SELECT set_config('lock_timeout', '%d', false),
		CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END`,
		lockWait.Milliseconds()))
	return err
}

func checkEncoding(conn *pgx.Conn) error {
	encoding := conn.PgConn().ParameterStatus("server_encoding")
	if encoding == "UTF8" || encoding == "SQL_ASCII" { // the latter stores any bytes; initdb picks it without a locale
		return nil
	}
	return fmt.Errorf("the database has the encoding %q, which cannot store every text: "+
		"create it with ENCODING 'UTF8' TEMPLATE template0", encoding)
}

func (*postgresDialect) migrations() migrationSettings {
	// Polls every second, for ten minutes, while another process migrates.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600))
	return migrationSettings{dialect: goose.DialectPostgres, folder: "postgres", locker: locker, err: err}
}

// conflictPeriod is how long insertNew expects keys to be taken after one was.
const conflictPeriod = time.Second

// insertNew sends each column as an array: one statement, which pgx prepares once on
// each connection, serves any number of rows.
//
// Usually all keys are free. Then an INSERT without ON CONFLICT, which fails if a key
// is taken, takes two thirds of the time. After such a failure the clause is used at
// once for a while: each failure costs a transaction and a line in the server's log.
func (d *postgresDialect) insertNew(ctx context.Context, conn connection, table *Table, rows reflect.Value) (o insertOutcome, err error) {
	insert, values := d.insertStatement(table, rows)
	insertFree := fmt.Sprintf("%s ON CONFLICT (%s) DO NOTHING RETURNING %[2]s", insert, table.Key.DBName)
	pool, ownTransaction := conn.(*sql.DB)
	expectConflicts := !ownTransaction || time.Now().UnixNano() < d.conflictsUntil.Load()
	if !expectConflicts {
		if _, err = conn.ExecContext(ctx, insert, values...); err == nil {
			return insertOutcome{all: true}, nil
		}
		if expectConflicts = IsDuplicate(err); expectConflicts {
			d.conflictsUntil.Store(time.Now().Add(conflictPeriod).UnixNano())
		}
	}
	if expectConflicts {
		o.inserted, err = queryKeys(ctx, conn, insertFree, values)
		o.all = len(o.inserted) == rows.Len()
	}
	switch {
	case !ownTransaction:
	case isTableLocked(err): // all rows need this lock
		o.inserted, err = d.queryKeysPatiently(ctx, pool, insertFree, values)
	case IsLocked(err) || isRowRejected(err):
		return d.insertEach(ctx, pool, table, rows, insertFree)
	}
	return o, err
}

// queryKeysPatiently is queryKeys in a transaction that waits for locks for most of the
// time that ctx leaves.
func (d *postgresDialect) queryKeysPatiently(ctx context.Context, pool *sql.DB, statement string, values []any) (keys []any, err error) {
	tx, err := pool.BeginTx(ctx, nil)
	if err != nil {
		return nil, err
	}
	defer tx.Rollback() //nolint:errcheck // does nothing after the commit
	due, _ := ctx.Deadline()
	if _, err := tx.ExecContext(ctx, d.patience(time.Until(due)*(waitShare-1)/waitShare)); err != nil {
		return nil, err
	}
	if keys, err = queryKeys(ctx, tx, statement, values); err != nil {
		return nil, err
	}
	return keys, tx.Commit()
}

// insertEach inserts the rows in one transaction, with a statement for each, which tells
// which of them are locked or rejected. After each of these it starts again without it.
func (d *postgresDialect) insertEach(ctx context.Context, pool *sql.DB, table *Table, rows reflect.Value, insertFree string) (o insertOutcome, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return o, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	due, _ := ctx.Deadline()
	half := time.Now().Add(time.Until(due) / 2)
	o.failed = make(map[any]error)
	return o, conn.Raw(func(driver any) error {
		for {
			batch, keys := &pgx.Batch{}, []any(nil)
			for i := range rows.Len() {
				if key := table.Key.Of(rows.Index(i).Elem()).Interface(); o.failed[key] == nil {
					_, values := d.insertStatement(table, rows.Slice(i, i+1))
					batch.Queue(insertFree, values...)
					keys = append(keys, key)
				}
			}
			o.inserted = nil
			results, done := driver.(*stdlib.Conn).Conn().SendBatch(ctx, batch), 0
			for ; done < len(keys); done++ {
				result, err := results.Exec()
				if err != nil {
					break
				}
				if result.RowsAffected() > 0 {
					o.inserted = append(o.inserted, keys[done])
				}
			}
			err := results.Close()
			if done == len(keys) || isTableLocked(err) || !IsLocked(err) && !isRowRejected(err) {
				return err
			}
			o.failed[keys[done]] = err
			if time.Now().After(half) { // too many are locked to try them all
				for _, key := range keys[done:] {
					o.failed[key] = err
				}
			}
		}
	})
}

// insertStatement returns the statement that inserts rows into table, and its
// arguments: an array for each column, but one value for a timestamp.
func (*postgresDialect) insertStatement(table *Table, rows reflect.Value) (statement string, values []any) {
	var selected, arrays []string
	for _, c := range table.Columns {
		parameter := fmt.Sprintf("$%d::%s", len(values)+1, postgres.Dialector{}.DataTypeOf(c.Field))
		if table.isTimestamp(c) {
			selected = append(selected, parameter)
			values = append(values, c.Of(rows.Index(0).Elem()).Interface())
			continue
		}
		array := reflect.MakeSlice(reflect.SliceOf(c.FieldType), rows.Len(), rows.Len())
		for i := range rows.Len() {
			array.Index(i).Set(c.Of(rows.Index(i).Elem()))
		}
		selected, arrays = append(selected, c.DBName), append(arrays, parameter+"[]")
		values = append(values, array.Interface())
	}
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) AS r(%s)", table.Name,
		Names(table.Columns), strings.Join(selected, ", "), strings.Join(arrays, ", "), Names(table.Data)), values
}

// queryKeys returns the keys that a statement returns.
func queryKeys(ctx context.Context, conn connection, statement string, values []any) (keys []any, err error) {
	rows, err := conn.QueryContext(ctx, statement, values...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key any
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// load copies the rows in PostgreSQL's binary format.
func (d *postgresDialect) load(
	ctx context.Context, pool *sql.DB, table *Table, keep bool, next func() ([]any, error),
) (rows int64, err error) {
	conn, err := pool.Conn(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	err = conn.Raw(func(driver any) error {
		tx, err := driver.(*stdlib.Conn).Conn().Begin(ctx)
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
