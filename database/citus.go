package database

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// Citus distributes the rows of a table over other PostgreSQL servers, its nodes. What is
// different there: Citus rejects STABLE functions of columns in an UPDATE and locks of
// several rows in a SELECT; INSERT … SELECT and COPY have internalError instead of the code
// of an error; several statements are one transaction only between BEGIN and COMMIT;
// settings reach the nodes only by SET LOCAL; and a node can fail alone, see nodes.go.

// durably lets no node acknowledge a commit that is not on its disk.
const durably = "SET LOCAL synchronous_commit = 'on'"

// detectCitus finds out whether conn leads to a node of a Citus cluster, and prepares it.
func (d *postgresDialect) detectCitus(ctx context.Context, conn *pgx.Conn) error {
	var citus bool
	err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_extension WHERE extname = 'citus')").Scan(&citus)
	if err != nil || !citus {
		return err
	}
	if !d.citus.Swap(true) {
		d.discardAll() // this connection does not have the mode of the later ones
	}
	// A batch has rows in most shards: a connection for each would cost far more than the
	// rows. SET LOCAL is sent with the BEGIN that a node needs anyway.
	_, err = conn.Exec(ctx, "SET citus.max_adaptive_executor_pool_size = 1; SET citus.propagate_set_commands = 'local'")
	return err
}

// choosesMode prepares no statements on Citus: they would save no time, as Citus plans them
// again for each shard, and an INSERT has a text for each number of rows.
func (d *postgresDialect) choosesMode(_ context.Context, config *pgx.ConnConfig) error {
	if d.citus.Load() && config.DefaultQueryExecMode == pgx.QueryExecModeCacheStatement {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
	}
	return nil
}

// warning is the key of the last warning on a connection.
const warning = "plantstore.warning"

// watchWarnings remembers warnings. A node that fails after all of them have agreed to
// commit is one: the transaction is committed there later.
func watchWarnings(config *pgx.ConnConfig) {
	config.OnNotice = func(conn *pgconn.PgConn, n *pgconn.Notice) {
		if n.SeverityUnlocalized == "WARNING" {
			conn.CustomData()[warning] = (*pgconn.PgError)(n)
		}
	}
}

// transactionSettings are the statements after BEGIN. Citus sends the nodes each of them with the
// whole text that it is in, so each must be a statement of its own: a BEGIN in that text would be a
// warning in their logs.
var transactionSettings = []string{"SET LOCAL lock_timeout = " + milliseconds(lockWait), durably}

// sendFramed is [postgresDialect.send] on Citus.
func sendFramed(ctx context.Context, conn *pgx.Conn, batch *pgx.Batch, read func(pgx.BatchResults) error) error {
	framed := &pgx.Batch{}
	for _, text := range append([]string{"BEGIN"}, transactionSettings...) {
		framed.Queue(text)
	}
	before := framed.Len()
	framed.QueuedQueries = append(framed.QueuedQueries, batch.QueuedQueries...)
	framed.Queue("COMMIT")
	delete(conn.PgConn().CustomData(), warning)
	results := conn.SendBatch(ctx, framed)
	for range before {
		_, _ = results.Exec() // Close returns its error
	}
	unread := read(results)
	err := results.Close()
	if err != nil && !conn.IsClosed() && conn.PgConn().TxStatus() != 'I' {
		_, rollback := conn.Exec(ctx, "ROLLBACK")
		return errors.Join(err, rollback)
	}
	if err = cmp.Or(err, unread); err != nil {
		return err
	}
	return lostNode(conn)
}

// copyNew copies rows, if no key is taken and none is locked: Citus takes a third of the
// time of an INSERT for that.
func (*postgresDialect) copyNew(ctx context.Context, pool *sql.DB, table *Table, rows []reflect.Value) (copied bool, err error) {
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		rows, err := copyText(conn.TypeMap(), table.Columns, rows)
		if err != nil {
			return err
		}
		// All in one message, as each round trip holds up the next batch. In a DO, each setting is
		// a statement of its own.
		text := fmt.Sprintf("BEGIN; DO $$ BEGIN %s; END $$; COPY %s (%s) FROM STDIN; COMMIT",
			strings.Join(transactionSettings, "; "), table.Name, Names(table.Columns))
		delete(conn.PgConn().CustomData(), warning)
		_, err = conn.PgConn().CopyFrom(ctx, bytes.NewReader(rows), text)
		switch {
		case err == nil:
			copied = true
			return lostNode(conn)
		case conn.IsClosed() || conn.PgConn().TxStatus() == 'I': // nothing to roll back: the COMMIT failed, or the connection is lost
			return err
		}
		if _, rollback := conn.Exec(ctx, "ROLLBACK"); rollback != nil {
			return errors.Join(err, rollback)
		}
		if sqlState(err) == internalError || IsDuplicate(err) || isRowFault(err) {
			return nil // an INSERT tells which row it is, or that a node is down
		}
		return err
	})
	return copied && err == nil, err
}

// copyText returns rows in the text format of COPY.
func copyText(types *pgtype.Map, columns []*Column, rows []reflect.Value) (text []byte, err error) {
	buffer := make([]byte, 0, 1024) // not nil, which Encode returns for NULL
	for _, row := range rows {
		for i, c := range columns {
			if i > 0 {
				text = append(text, '\t')
			}
			value, err := types.Encode(0, pgtype.TextFormatCode, c.Of(row).Interface(), buffer)
			switch {
			case err != nil:
				return nil, err
			case value == nil:
				text = append(text, `\N`...)
			default:
				text = append(text, copyEscapes.Replace(string(value))...)
			}
		}
		text = append(text, '\n')
	}
	return text, nil
}

// copyEscapes escapes the characters that COPY would not take for themselves in its text format.
var copyEscapes = strings.NewReplacer(`\`, `\\`, "\t", `\t`, "\n", `\n`, "\r", `\r`)

// lostNode returns the warning of a node that failed when all had agreed to commit, or nil.
func lostNode(conn *pgx.Conn) error {
	if w, ok := conn.PgConn().CustomData()[warning].(*pgconn.PgError); ok {
		return &nodeError{w} // the rows will appear, but may not have yet
	}
	return nil
}

// insertValues is changeRows for an INSERT on Citus.
func (*postgresDialect) insertValues(c *Change, rows []reflect.Value) (text string, args []any) {
	stamps := make(map[*Column]int) // the numbers of their parameters
	tuples := make([]string, len(rows))
	for i, row := range rows {
		tuples[i] = "(" + join(c.Table.Columns, func(column *Column) string {
			n := stamps[column]
			if n == 0 {
				args = append(args, column.Of(row).Interface())
				n = len(args)
			}
			if c.Table.isTimestamp(column) {
				stamps[column] = n
			}
			return fmt.Sprintf("$%d::%s", n, postgresType(column))
		}) + ")"
	}
	return c.text(" VALUES "+strings.Join(tuples, ", "), ""), args
}

// withoutManyVersions returns groups in which each change with versions is alone: reading the
// versions of several is STABLE, which Citus rejects in an UPDATE.
func withoutManyVersions(groups []*group) (parts []*group) {
	for _, g := range groups {
		if !slices.Contains(g.changes[0].names(), versions) {
			parts = append(parts, g)
			continue
		}
		for _, c := range g.changes {
			parts = append(parts, grouped([]*Change{c})...)
		}
	}
	return parts
}

// downNodes returns the nodes with rows that cannot be reached.
func (*postgresDialect) downNodes(ctx context.Context, pool *sql.DB) (down map[int]bool, err error) {
	down = make(map[int]bool)
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SET citus.node_connection_timeout = '"+nodeTimeout+"'"); err != nil {
			return err
		}
		rows, err := conn.Query(ctx, "SELECT groupid FROM pg_dist_node WHERE noderole = 'primary' AND shouldhaveshards"+
			" AND NOT citus_check_connection_to_node(nodename, nodeport)")
		if err != nil {
			return err
		}
		groups, err := pgx.CollectRows(rows, pgx.RowTo[int])
		for _, group := range groups {
			down[group] = true
		}
		_, reset := conn.Exec(ctx, "RESET citus.node_connection_timeout")
		return errors.Join(err, reset)
	})
	return down, err
}

// nodesOf returns the node of each key: 0, the coordinator, for a table that is on all nodes.
func (*postgresDialect) nodesOf(ctx context.Context, pool *sql.DB, table *Table, keys []any) (nodes []int, err error) {
	texts := make([]string, len(keys))
	for i, key := range keys {
		texts[i] = fmt.Sprint(key)
	}
	err = withConn(ctx, pool, func(ctx context.Context, conn *pgx.Conn) error {
		// OFFSET 0: the shard of a key is found once, and not again for each placement.
		rows, err := conn.Query(ctx, `SELECT CASE count(p.groupid) WHEN 1 THEN min(p.groupid) ELSE 0 END
			FROM unnest($2::text[]) WITH ORDINALITY AS k(key, n)
			CROSS JOIN LATERAL (SELECT get_shard_id_for_distribution_column($1::text::regclass, k.key) AS shardid OFFSET 0) AS s
			LEFT JOIN pg_dist_placement p USING (shardid) GROUP BY k.n ORDER BY k.n`, table.Name, texts)
		if err == nil {
			nodes, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		return err
	})
	return nodes, err
}

// CheckNodes fails if a node of a distributed database may acknowledge a commit that is not
// on its disk. Batches and imports commit durably nevertheless: see durably.
func (db *DB) CheckNodes(ctx context.Context) error {
	if db.nodes == nil {
		return nil
	}
	var faults []string
	err := db.WithContext(ctx).Raw(`SELECT format('%s:%s', n.nodename, n.nodeport)
		FROM run_command_on_all_nodes('SHOW synchronous_commit') r JOIN pg_dist_node n ON n.nodeid = r.nodeid
		WHERE n.groupid <> 0 AND r.success AND r.result = 'off' ORDER BY 1`).Scan(&faults).Error
	var role string
	if err == nil && len(faults) > 0 {
		err = db.WithContext(ctx).Raw("SELECT quote_ident(current_user)").Scan(&role).Error
	}
	if err != nil || len(faults) == 0 {
		return Failed("check the settings of the nodes", err)
	}
	return fmt.Errorf("synchronous_commit is off on the nodes %s, which may lose what they acknowledge: "+
		"run ALTER ROLE %s SET synchronous_commit = 'on' on the coordinator", strings.Join(faults, ", "), role)
}
