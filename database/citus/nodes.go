package citus

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
	"plantstore/database/table"
)

// isNodeError reports whether err is about a node. FATAL errors are of the server that the
// connection leads to. Unless isCommitted holds, what a transaction wrote is then stored on no node.
func isNodeError(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || pg.SeverityUnlocalized != "ERROR" {
		return isCommitted(err)
	}
	return pg.Code == fault.InternalError || strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P") // connection_exception, operator_intervention
}

// isCommitted reports whether err, of a node, means that the node was lost when all nodes had
// agreed to commit: the rows will appear, see lostNode, and must not be written again.
func isCommitted(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "WARNING"
}

// nodeCheck is the time between two checks of a node that is down, and nodeTimeout how long a check waits for
// a node.
const (
	nodeCheck   = 500 * time.Millisecond
	nodeTimeout = "500ms"
)

// watchNodes checks the nodes, as long as some are down, or are suspected to be.
func (d *Dialect) watchNodes(ctx context.Context) {
	suspected := d.suspected.Swap(false)
	if suspected {
		d.Discard() // a session's connection to the node would also hang
	}
	if !suspected && len(*d.down.Load()) == 0 {
		return
	}
	limited, cancel := context.WithTimeout(ctx, d.Timeout)
	defer cancel()
	if err := d.checkNodes(limited); err != nil && ctx.Err() == nil {
		d.log.Warn("cannot check the nodes of the database", zap.Error(err))
	}
}

// checkNodes finds out which nodes are down.
func (d *Dialect) checkNodes(ctx context.Context) error {
	ctx, cancel := batch.Attach(ctx)
	defer cancel()
	free, err := d.turn.Take(ctx, limit.UntilDone)
	if err != nil {
		return err
	}
	defer free()
	found, err := d.findDown(ctx)
	if err != nil {
		return err
	}
	before := *d.down.Load()
	if !slices.Equal(before, found) {
		d.log.Warn("the unreachable nodes of the database have changed", zap.Ints("down", found))
	}
	returned := slices.ContainsFunc(before, func(node int) bool { return !slices.Contains(found, node) })
	if returned || len(found) == 0 {
		// What a returning node had agreed to commit becomes visible before it is used.
		if _, err := d.pool.ExecContext(ctx, "SELECT recover_prepared_transactions()"); err != nil {
			d.log.Warn("cannot finish the transactions of a node that was down; citus.recover_2pc_interval tells when Citus does", zap.Error(err))
		}
	}
	d.down.Store(&found)
	return nil
}

// onNodes calls do with the items of a batch. If a node is down, the items with rows on the other nodes
// run without it. It returns the outcome of each item, or nil if all succeeded. keyOf returns the key of
// an item's row in t.
func onNodes[T any](ctx context.Context, d *Dialect, t *table.Table, items []T, keyOf func(T) any, do func([]T) ([]error, error)) ([]error, error) {
	outcomes, up := make([]error, len(items)), make([]int, len(items))
	for i := range up {
		up[i] = i
	}
	nodesOf := func() ([]int, error) {
		keys := make([]string, len(items))
		for i, item := range items {
			keys[i] = fmt.Sprint(keyOf(item))
		}
		return d.nodesOf(ctx, t, keys)
	}
	run := func(indices []int) error {
		some := make([]T, len(indices))
		for n, i := range indices {
			some[n] = items[i]
		}
		errs, err := do(some)
		for n, i := range indices {
			outcomes[i] = err
			if err == nil && errs != nil {
				outcomes[i] = errs[n]
			}
		}
		return err
	}
	if down := *d.down.Load(); len(down) > 0 {
		on, err := nodesOf()
		if err != nil {
			return nil, err
		}
		up = slices.DeleteFunc(up, func(i int) bool { return slices.Contains(down, on[i]) })
		for i, node := range on {
			if slices.Contains(down, node) {
				outcomes[i] = errDown
			}
		}
		if len(up) == 0 {
			return outcomes, nil
		}
	}
	if err := run(up); err != nil && !isNodeError(err) && !fault.IsTimeout(err) {
		return nil, err
	}
	if slices.ContainsFunc(up, func(i int) bool { return outcomes[i] != nil && fault.IsTimeout(outcomes[i]) }) {
		d.suspected.Store(true) // a node that hangs reports no error, and this batch has no time left
	}
	failed := slices.DeleteFunc(up, func(i int) bool { return !isNodeError(outcomes[i]) || isCommitted(outcomes[i]) })
	if len(failed) == 0 || d.checkNodes(ctx) != nil || len(failed) == 1 {
		return outcomes, nil
	}
	on, err := nodesOf()
	if err != nil || !slices.ContainsFunc(failed, func(i int) bool { return on[i] != on[failed[0]] }) {
		return outcomes, nil // of rows on one node, some may be stored
	}
	down := *d.down.Load()
	if again := slices.DeleteFunc(failed, func(i int) bool { return slices.Contains(down, on[i]) }); len(again) > 0 {
		_ = run(again) // their outcomes have its error
	}
	return outcomes, nil
}

// errDown is the outcome of a row on a node that is down. Nothing was stored.
var errDown = &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "08006", Message: "the node of the row is down"}

// findDown returns the nodes with rows that cannot be reached, in ascending order.
func (d *Dialect) findDown(ctx context.Context) (down []int, err error) {
	err = postgres.WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		if _, err := conn.Exec(ctx, "SET citus.node_connection_timeout = '"+nodeTimeout+"'"); err != nil {
			return err
		}
		rows, _ := conn.Query(ctx, "SELECT groupid FROM pg_dist_node WHERE noderole = 'primary' AND shouldhaveshards"+
			" AND NOT citus_check_connection_to_node(nodename, nodeport) ORDER BY groupid")
		down, err = pgx.CollectRows(rows, pgx.RowTo[int])
		_, reset := conn.Exec(ctx, "RESET citus.node_connection_timeout")
		return errors.Join(err, reset)
	})
	return down, err
}

// nodesOf returns the node of each key: 0, the coordinator, for a table that is on all nodes.
func (d *Dialect) nodesOf(ctx context.Context, t *table.Table, keys []string) (nodes []int, err error) {
	err = postgres.WithConn(ctx, d.pool, func(ctx context.Context, conn *pgx.Conn) error {
		// OFFSET 0: the shard of a key is found once, and not again for each placement.
		rows, _ := conn.Query(ctx, `SELECT CASE count(p.groupid) WHEN 1 THEN min(p.groupid) ELSE 0 END
			FROM unnest($2::text[]) WITH ORDINALITY AS k(key, n)
			CROSS JOIN LATERAL (SELECT get_shard_id_for_distribution_column($1::text::regclass, k.key) AS shardid OFFSET 0) AS s
			LEFT JOIN pg_dist_placement p USING (shardid) GROUP BY k.n ORDER BY k.n`, t.Name, keys)
		nodes, err = pgx.CollectRows(rows, pgx.RowTo[int])
		return err
	})
	return nodes, err
}
