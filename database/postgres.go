package database

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
)

type postgresDialect struct {
	waryUntil atomic.Int64 // in nanoseconds since 1970: see insertNew
}

func (*postgresDialect) open(o Options) (pool, readPool *sql.DB, err error) {
	config, err := pgx.ParseConfig(o.URL)
	if err != nil {
		// The parser's own message repeats parts of the URL.
		return nil, nil, errors.New("the database URL is not a valid PostgreSQL URL: " +
			"postgres://user:password@host:5432/name?sslmode=…, with special characters percent-encoded")
	}
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = o.Timeout
	}
	if config.RuntimeParams["application_name"] == "" {
		config.RuntimeParams["application_name"] = "plantstore"
	}
	config.RuntimeParams["client_encoding"] = "UTF8"

	pool = stdlib.OpenDB(*config, stdlib.OptionAfterConnect(prepareConnection(o.Timeout/lockShare)))
	pool.SetMaxOpenConns(o.MaxConnections)
	pool.SetMaxIdleConns(o.MaxConnections)
	pool.SetConnMaxIdleTime(5 * time.Minute)
	return pool, pool, nil
}

func (*postgresDialect) dialector(pool *sql.DB) gorm.Dialector {
	return postgresDialector{&postgres.Dialector{Config: &postgres.Config{Conn: pool}}}
}

// postgresDialector is GORM's, but that it keeps values out of the log: it shows
// statements as they were prepared.
type postgresDialector struct{ *postgres.Dialector }

func (postgresDialector) Explain(statement string, _ ...any) string { return statement }

// lockShare is which part of an operation's time it may wait for a lock: what is
// left is for those that it was to share a statement with.
const lockShare = 6

// prepareConnection returns what makes sure of what the service promises: that a
// committed row is on disk, whatever default the server, the database or the role
// has, that a text comes back as it was sent, and that a row which somebody has
// locked harms no other.
func prepareConnection(lockTimeout time.Duration) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		if err := checkEncoding(conn); err != nil {
			return err
		}
		_, err := conn.Exec(ctx, fmt.Sprintf(`SELECT set_config('lock_timeout', '%d', false),
			CASE current_setting('synchronous_commit') WHEN 'off' THEN set_config('synchronous_commit', 'on', false) END`,
			max(lockTimeout.Milliseconds(), 1)))
		return err
	}
}

func checkEncoding(conn *pgx.Conn) error {
	switch encoding := conn.PgConn().ParameterStatus("server_encoding"); encoding {
	// SQL_ASCII stores whatever bytes it is sent. It is what initdb picks
	// where no locale is set.
	case "UTF8", "SQL_ASCII":
	default:
		return fmt.Errorf("the database has the encoding %q and cannot hold every text: "+
			"create it with ENCODING 'UTF8' TEMPLATE template0", encoding)
	}
	return nil
}

func (*postgresDialect) migrations() migrationSettings {
	// Ten minutes for another process that is migrating, asked every second.
	locker, err := lock.NewPostgresSessionLocker(lock.WithLockTimeout(1, 600))
	return migrationSettings{dialect: goose.DialectPostgres, folder: "postgres", locker: locker, err: err}
}

// wary is for how long insertNew expects keys to be taken after one was.
const wary = time.Second

// insertNew sends each column as an array: one statement text, which pgx prepares
// once on each connection, serves any number of rows.
//
// As a rule all keys are free. Then, an INSERT without ON CONFLICT, which fails
// where one is not, takes two thirds of the time. Where that has happened, the
// clause comes first for a while: a failure costs a transaction, and a line in the
// server's log.
func (d *postgresDialect) insertNew(ctx context.Context, conn connection, table string, columns []Column) ([]int64, error) {
	insert, values := insertStatement(table, columns)
	if _, alone := conn.(*sql.DB); alone && time.Now().UnixNano() >= d.waryUntil.Load() {
		_, err := conn.ExecContext(ctx, insert, values...)
		if err == nil {
			return columns[0].value.([]int64), nil
		}
		if !IsDuplicate(err) {
			return nil, err
		}
		d.waryUntil.Store(time.Now().Add(wary).UnixNano())
	}
	key := columns[0].name
	return queryKeys(ctx, conn, fmt.Sprintf("%s ON CONFLICT (%s) DO NOTHING RETURNING %[2]s", insert, key), values)
}

// insertStatement returns the statement that inserts columns into table, and its
// arguments.
func insertStatement(table string, columns []Column) (statement string, values []any) {
	var names, selected, arrays, aliases []string
	values = make([]any, len(columns))
	for i, c := range columns {
		names, values[i] = append(names, c.name), c.value
		parameter := fmt.Sprintf("$%d::%s", i+1, c.kind)
		if c.each {
			selected, arrays, aliases = append(selected, c.name), append(arrays, parameter+"[]"), append(aliases, c.name)
		} else {
			selected = append(selected, parameter)
		}
	}
	list := func(of []string) string { return strings.Join(of, ", ") }
	return fmt.Sprintf("INSERT INTO %s (%s) SELECT %s FROM unnest(%s) AS r(%s)",
		table, list(names), list(selected), list(arrays), list(aliases)), values
}

// queryKeys returns the one column of the rows that a statement returns.
func queryKeys(ctx context.Context, conn connection, statement string, values []any) (keys []int64, err error) {
	rows, err := conn.QueryContext(ctx, statement, values...)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	for rows.Next() {
		var key int64
		if err := rows.Scan(&key); err != nil {
			return nil, err
		}
		keys = append(keys, key)
	}
	return keys, rows.Err()
}

// load copies the rows in PostgreSQL's binary format.
func (d *postgresDialect) load(
	ctx context.Context, pool *sql.DB, table string, columns []string, keep bool, next func() ([]any, error),
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
		defer tx.Rollback(context.WithoutCancel(ctx)) //nolint:errcheck // after the commit, it does nothing
		if _, err := tx.Exec(ctx, d.patience()); err != nil {
			return err
		}
		rows, err = tx.CopyFrom(ctx, pgx.Identifier{table}, columns, pgx.CopyFromFunc(next))
		if err != nil || !keep {
			return err
		}
		return tx.Commit(ctx)
	})
	return rows, err
}

func (*postgresDialect) patience() string { return "SET LOCAL lock_timeout = 0" }

func (*postgresDialect) after(column, value string) string {
	return fmt.Sprintf("GREATEST(CAST(%s AS timestamptz), %s + interval '1 microsecond')", value, column)
}

func (*postgresDialect) contains(column string) string { return column + " ILIKE ?" }

func (*postgresDialect) searchIndexes() (create, drop []string) {
	create = []string{
		"SET lock_timeout = 0", // transactions that are under way are waited for
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS plants_tag ON plants (tag, id)",
		"CREATE EXTENSION IF NOT EXISTS pg_trgm", // which may fail, hence not first
		"CREATE INDEX CONCURRENTLY IF NOT EXISTS plants_name_trgm ON plants USING gin (name gin_trgm_ops)",
		"ANALYZE plants", // or the planner may not yet think much of them
	}
	drop = []string{
		"SET lock_timeout = 0",
		"DROP INDEX CONCURRENTLY IF EXISTS plants_name_trgm",
		"DROP INDEX CONCURRENTLY IF EXISTS plants_tag",
	}
	return create, drop
}
