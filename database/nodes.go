package database

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
)

// nodeError is the error of a database that is distributed over nodes, one of which cannot
// be reached. What a transaction wrote on several nodes is then stored on none of them,
// unless err is a warning: then it is, but may not be visible yet.
type nodeError struct{ err error }

func (e *nodeError) Error() string { return "a node of the database: " + e.err.Error() }
func (e *nodeError) Unwrap() error { return e.err }

// asNodeError returns err, of a distributed database, as a *nodeError if it is one. The
// FATAL errors are those of the server that the connection leads to.
func asNodeError(err error) error {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	if !ok || isNodeError(err) || errors.Is(err, errors.ErrUnsupported) || pg.SeverityUnlocalized != "ERROR" {
		return err
	}
	if pg.Code == internalError || strings.HasPrefix(pg.Code, "08") || strings.HasPrefix(pg.Code, "57P") { // connection_exception, operator_intervention
		return &nodeError{err}
	}
	return err
}

func isNodeError(err error) bool {
	_, ok := errors.AsType[*nodeError](err)
	return ok
}

// isCommitted reports whether err, a nodeError, means that the node was lost when all had
// agreed to commit: the rows will appear, see lostNode, and must not be written again.
func isCommitted(err error) bool {
	pg, ok := errors.AsType[*pgconn.PgError](err)
	return ok && pg.SeverityUnlocalized == "WARNING"
}

// nodes knows which nodes of a distributed database are down.
type nodes struct {
	citus *postgresDialect
	db    *DB
	turn  slots                        // the only one, which a check takes
	down  atomic.Pointer[map[int]bool] // nil before the first check

	suspecting atomic.Bool // suspect is running
	work       sync.WaitGroup
}

// nodeCheck is the time between two checks of a node that is down.
const nodeCheck = 500 * time.Millisecond

// nodeTimeout is how long a check waits for one node.
const nodeTimeout = "500ms"

// start begins to check the nodes of Citus, as long as some are down.
func (d *postgresDialect) start(db *DB) {
	if !d.citus.Load() {
		return
	}
	n := &nodes{citus: d, db: db, turn: make(slots, 1)}
	db.nodes = n
	db.every(nodeCheck, func(context.Context) {
		if len(n.downNow()) > 0 {
			n.checkNow()
		}
	})
}

// check finds out which nodes are down.
func (n *nodes) check(ctx context.Context) error {
	if err := n.turn.take(ctx, untilDone); err != nil {
		return err
	}
	defer n.turn.free()
	found, err := n.citus.downNodes(ctx, n.db.pool)
	if err != nil {
		return err
	}
	before := n.downNow()
	if !maps.Equal(before, found) {
		n.db.log.Warn("the unreachable nodes of the database have changed", zap.Ints("down", slices.Sorted(maps.Keys(found))))
	}
	returned := slices.ContainsFunc(slices.Collect(maps.Keys(before)), func(node int) bool { return !found[node] })
	if returned || len(found) == 0 {
		// What a returning node had agreed to commit becomes visible before it is used.
		if _, err := n.db.pool.ExecContext(ctx, "SELECT recover_prepared_transactions()"); err != nil {
			n.db.log.Warn("cannot finish the transactions of a node that was down; citus.recover_2pc_interval tells when Citus does", zap.Error(err))
		}
	}
	n.down.Store(&found)
	return nil
}

// suspect checks the nodes in the background, after a statement that did not end in time: a
// node that hangs reports no error.
func (n *nodes) suspect() {
	if n.suspecting.Swap(true) {
		return
	}
	n.work.Go(func() {
		defer n.suspecting.Store(false)
		n.citus.discardAll() // a session's connection to the node would hang, too
		n.checkNow()
	})
}

// checkNow is check for the background.
func (n *nodes) checkNow() {
	ctx, cancel := context.WithTimeout(context.Background(), n.db.options.Timeout)
	defer cancel()
	if err := n.check(ctx); err != nil {
		n.db.log.Warn("cannot check the nodes of the database", zap.Error(err))
	}
}

// downNow returns the nodes that are down.
func (n *nodes) downNow() map[int]bool {
	if down := n.down.Load(); down != nil {
		return *down
	}
	return nil
}

// PerNode returns flush for batches that may have rows on several nodes, of which one can
// fail: then the rows on the others are written without it. keyOf returns the key of an
// item in table.
func PerNode[T any](db *DB, table *Table, keyOf func(T) any, flush func(context.Context, []T) []error) func(context.Context, []T) []error {
	return func(ctx context.Context, batch []T) []error {
		n := db.nodes
		if n == nil {
			return flush(ctx, batch)
		}
		outcomes, up := make([]error, len(batch)), make([]int, len(batch))
		for i := range batch {
			up[i] = i
		}
		nodesOf := func() ([]int, error) {
			keys := make([]any, len(batch))
			for i, item := range batch {
				keys[i] = keyOf(item)
			}
			return n.citus.nodesOf(ctx, db.pool, table, keys)
		}
		run := func(items []int) {
			part := make([]T, len(items))
			for i, item := range items {
				part[i] = batch[item]
			}
			for i, err := range flush(ctx, part) {
				outcomes[items[i]] = err
			}
		}
		if down := n.downNow(); len(down) > 0 {
			on, err := nodesOf()
			if err != nil {
				return slices.Repeat([]error{err}, len(batch))
			}
			up = slices.DeleteFunc(up, func(i int) bool { return down[on[i]] })
			for i, node := range on {
				if down[node] {
					outcomes[i] = errDown
				}
			}
			if len(up) == 0 {
				return outcomes
			}
		}
		run(up)
		if slices.ContainsFunc(up, func(i int) bool { return outcomes[i] != nil && isTimeout(outcomes[i]) }) {
			n.suspect() // this batch has no time left to wait for it
		}
		failed := slices.DeleteFunc(up, func(i int) bool { return !isNodeError(outcomes[i]) || isCommitted(outcomes[i]) })
		if len(failed) == 0 || n.check(ctx) != nil || len(failed) == 1 {
			return outcomes
		}
		on, err := nodesOf()
		if err != nil || !slices.ContainsFunc(failed, func(i int) bool { return on[i] != on[failed[0]] }) {
			return outcomes // of rows on one node, some may be stored
		}
		down := n.downNow()
		if again := slices.DeleteFunc(failed, func(i int) bool { return down[on[i]] }); len(again) > 0 {
			run(again)
		}
		return outcomes
	}
}

// errDown is the outcome of a row on a node that is down. Nothing was stored.
var errDown = &nodeError{&pgconn.PgError{Severity: "ERROR", Code: "08006", Message: "the node of the row is down"}}
