// Package citus is the dialect of Citus, which distributes the rows of a table over other PostgreSQL
// servers, its nodes. What differs from PostgreSQL: Citus rejects STABLE functions of columns in an
// UPDATE and locks of several rows in a SELECT; INSERT … SELECT and COPY have fault.InternalError instead
// of the code of an error; several statements are one transaction only between BEGIN and COMMIT; settings
// reach the nodes only by SET LOCAL; and a node can fail alone.
package citus

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database/background"
	"plantstore/database/dialect"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
	"plantstore/database/table"
)

// Dialect is a database on Citus. It is safe for concurrent use.
type Dialect struct {
	*postgres.Dialect
	pool      *sql.DB
	log       *zap.Logger
	turn      *limit.Turns          // the only turn, which a check of the nodes takes
	down      atomic.Pointer[[]int] // the nodes that are down, in ascending order; not nil
	suspected atomic.Bool           // whether a node may be down, since the last check
	stop      func()                // of the checks
}

// Detect reports whether pool leads to a node of a Citus cluster.
func Detect(ctx context.Context, pool *sql.DB) (is bool, err error) {
	err = pool.QueryRowContext(ctx, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')").Scan(&is)
	return is, err
}

// Open returns the database that o.URL names. It does not connect. It fails like postgres.Open.
func Open(o postgres.Options, log *zap.Logger) (*Dialect, error) {
	accept := o.Accept
	o.Accept = func(ctx context.Context, conn *pgx.Conn) error {
		// A batch has rows in most shards: a connection for each would cost far more than the
		// rows. SET LOCAL is sent with the BEGIN that a node needs anyway.
		_, err := conn.Exec(ctx, "SET citus.max_adaptive_executor_pool_size = 1; SET citus.propagate_set_commands = 'local'")
		if err == nil && accept != nil {
			err = accept(ctx, conn)
		}
		return err
	}
	o.Configure = func(config *pgx.ConnConfig) {
		// A node that fails after all nodes have agreed to commit is a warning: the transaction is committed
		// there later.
		config.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
			if n.SeverityUnlocalized == "WARNING" {
				n.Code = fault.InternalError // its own code may mean nothing
				conn.CustomData()[warning] = (*pgconn.PgError)(n)
			}
		}
		// Prepared statements would save no time, as Citus plans them again for each shard, and an INSERT
		// has a text for each number of rows.
		if config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
			config.DefaultQueryExecMode = pgx.QueryExecModeExec
		}
	}
	o.Send, o.Commit, o.InsertRows, o.Settings = send, commit, insertRows, "; "+durably
	base, err := postgres.Open(o)
	if err != nil {
		return nil, err
	}
	d := &Dialect{Dialect: base, log: log, turn: limit.NewTurns(1, 0)}
	d.pool, _ = base.Pools()
	d.down.Store(new([]int))
	d.stop = background.Start(nodeCheck, d.watchNodes)
	return d, nil
}

// Feed returns nil: a distributed table has no triggers.
func (*Dialect) Feed(*table.Table) *dialect.Feed { return nil }

// Close closes the connections.
func (d *Dialect) Close() error {
	d.stop()
	return d.Dialect.Close()
}

// Get locks a row at a time. The outcome of a row on a node that is down is an error.
func (d *Dialect) Get(ctx context.Context, conn gorm.ConnPool, t *table.Table, keys any, lock bool, next func() reflect.Value) (outcomes []error, err error) {
	list := reflect.ValueOf(keys)
	if _, own := conn.(*sql.DB); own {
		all := make([]reflect.Value, list.Len())
		for i := range all {
			all[i] = list.Index(i)
		}
		return onNodes(ctx, d, t, all, reflect.Value.Interface, func(some []reflect.Value) ([]error, error) {
			return d.Dialect.Get(ctx, conn, t, reflect.Append(reflect.MakeSlice(list.Type(), 0, len(some)), some...).Interface(), lock, next)
		})
	}
	if !lock {
		return d.Dialect.Get(ctx, conn, t, keys, lock, next)
	}
	for i := range list.Len() {
		if _, err := d.Dialect.Get(ctx, conn, t, list.Slice(i, i+1).Interface(), lock, next); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// Run runs each change with versions alone: reading the versions of several changes is STABLE, which
// Citus rejects in an UPDATE. It copies new rows, if no key is taken: that takes a third of the time of an INSERT.
func (d *Dialect) Run(ctx context.Context, conn gorm.ConnPool, groups []*table.Group) error {
	pool, own := conn.(*sql.DB)
	if !own {
		return d.Dialect.Run(ctx, conn, groups)
	}
	changes := table.All(groups)
	keyOf := func(c *table.Change) any { return c.Table.Key.Of(c.Row).Interface() }
	outcomes, err := onNodes(ctx, d, changes[0].Table, changes, keyOf, func(some []*table.Change) ([]error, error) {
		errs, groups := make([]error, len(some)), table.Groups(some)
		if g := groups[0]; len(groups) == 1 && g.Plain != nil && !g.Taken.Load() && len(some) > 1 {
			if copied, err := copyNew(ctx, pool, g); copied || err != nil {
				return errs, err
			}
		}
		err := d.Dialect.Run(ctx, conn, withoutManyVersions(groups))
		for i, c := range some {
			errs[i] = c.Err
		}
		return errs, err
	})
	for i, err := range outcomes {
		changes[i].Err = err
	}
	return err
}

// withoutManyVersions returns groups in which each change with versions is alone.
func withoutManyVersions(groups []*table.Group) (parts []*table.Group) {
	for _, g := range groups {
		if !slices.Contains(g.Names(), table.VersionsName) {
			parts = append(parts, g)
			continue
		}
		for _, c := range g.Changes {
			parts = append(parts, table.Groups([]*table.Change{c})...)
		}
	}
	return parts
}

// Load copies the rows. A taken key has no code of its own here: Run tells it.
func (d *Dialect) Load(ctx context.Context, t *table.Table, next func() ([]any, error)) (rows int64, err error) {
	rows, err = d.Dialect.Load(ctx, t, next)
	if fault.SQLState(err) == fault.InternalError {
		err = fmt.Errorf("%w: %w", errors.ErrUnsupported, err)
	}
	return rows, err
}

// Standby opens a standby of the database with o.
func (*Dialect) Standby(o postgres.Options, log *zap.Logger) (dialect.Dialect, error) {
	return Open(o, log)
}

// Inspect fails if a node may acknowledge a commit that is not on its disk. Batches and imports commit
// durably nevertheless: see durably.
func (d *Dialect) Inspect(ctx context.Context, log *zap.Logger) error {
	if err := d.Dialect.Inspect(ctx, log); err != nil {
		return err
	}
	var nodes, role sql.NullString
	err := d.pool.QueryRowContext(ctx, `SELECT string_agg(format('%s:%s', n.nodename, n.nodeport), ', ' ORDER BY n.nodename, n.nodeport), quote_ident(current_user)
		FROM run_command_on_all_nodes('SHOW synchronous_commit') r JOIN pg_dist_node n ON n.nodeid = r.nodeid
		WHERE n.groupid <> 0 AND r.success AND r.result = 'off'`).Scan(&nodes, &role)
	if err != nil {
		return fmt.Errorf("check the settings of the nodes: %w", err)
	}
	if nodes.Valid {
		return fmt.Errorf("synchronous_commit is off on the nodes %s, which may lose what they acknowledge: "+
			"run ALTER ROLE %s SET synchronous_commit = 'on' on the coordinator", nodes.String, role.String)
	}
	return nil
}

// durably lets no node acknowledge a commit that is not on its disk.
const durably = "SET LOCAL synchronous_commit = 'on'"

// warning is the key of the last warning on a connection.
const warning = "plantstore.warning"

// transactionSettings are the statements after BEGIN. Citus sends the nodes each of them with the
// whole text that it is in, so each must be a statement of its own: a BEGIN in that text would be a
// warning in their logs.
var transactionSettings = []string{fmt.Sprintf("SET LOCAL lock_timeout = %d", postgres.LockWait.Milliseconds()), durably}

// insertRows returns an INSERT with VALUES, and its arguments.
func insertRows(s *table.Statement, inserts []*table.Change) (text string, args []any) {
	stamps := make(map[*table.Column]int) // the numbers of their parameters
	tuples := make([]string, len(inserts))
	for i, c := range inserts {
		values := make([]string, len(s.Table.Columns))
		for j, column := range s.Table.Columns {
			n := stamps[column]
			if n == 0 {
				args = append(args, column.Of(c.Row).Interface())
				n = len(args)
			}
			if s.Table.IsTimestamp(column) {
				stamps[column] = n
			}
			values[j] = fmt.Sprintf("$%d::%s", n, column.Type.Postgres)
		}
		tuples[i] = "(" + strings.Join(values, ", ") + ")"
	}
	return s.TextFrom(" VALUES "+strings.Join(tuples, ", "), ""), args
}
