package postgres

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/jackc/pgx/v5"
	"gorm.io/gorm"

	"plantstore/database/dialect"
	"plantstore/database/table"
)

// lastPosition is the position of the last change that is visible, or at least of the last change
// that is forgotten. Of the rows, only those after the last deletion matter: an old snapshot keeps the
// index entries of deleted rows, and to read past millions takes a second.
const lastPosition = `GREATEST(
	(SELECT max(changed) FROM {rows} WHERE changed > 0 AND changed > (SELECT COALESCE(max(changed), 0) FROM {row}_deletions)),
	(SELECT max(changed) FROM {row}_deletions), (SELECT max(position) FROM {row}_imports), (SELECT kept - 1 FROM {feed}), 0)`

// nextPosition is the position of the next transaction.
const nextPosition = "feed_position(txid_snapshot_xmax(txid_current_snapshot()))"

// moved is true on a server that was promoted, or recovered to a point in time, since the epoch began.
const moved = "feed_timeline() > timeline"

// maxChanges limits how many changes a query returns.
const maxChanges = 1001

// Feed returns the statements of the feed of changes to t.
func (*Dialect) Feed(t *table.Table) *dialect.Feed {
	last := t.FeedSQL(lastPosition)
	// It differs in another cluster, in another database, and after the table was created again, as by a restore.
	origin := t.FeedSQL("(SELECT concat_ws('/', (SELECT system_identifier FROM pg_control_system()), " +
		"(SELECT oid FROM pg_database WHERE datname = current_database()), to_regclass('{rows}')::oid))")
	isCopy := "origin <> " + origin + " OR " + moved + " OR " + last + " >= " + nextPosition
	return &dialect.Feed{
		Changes:    changes(t),
		Origin:     origin,
		IsCopy:     isCopy,
		Renew:      t.FeedSQL("UPDATE {feed} SET epoch = ?, timeline = feed_timeline(), origin = " + origin + " WHERE " + isCopy),
		LockWrites: t.FeedSQL("LOCK TABLE {rows} IN SHARE ROW EXCLUSIVE MODE"),
		Raise: func(tx *gorm.DB, followed []*table.Table) error { // changes the function feed_position, and the number in the triggers
			var missing, offset int64
			err := tx.Raw("SELECT "+last+" - "+nextPosition+" + 1, feed_position(0)").Row().Scan(&missing, &offset)
			if err != nil || missing <= 0 {
				return err
			}
			texts := []string{"CREATE OR REPLACE FUNCTION feed_position(transaction bigint) RETURNS bigint LANGUAGE sql STABLE AS 'SELECT transaction + %[1]d'"}
			for _, t := range followed {
				texts = append(texts, t.FeedSQL("CREATE OR REPLACE TRIGGER {rows}_insert AFTER INSERT ON {rows} FOR EACH ROW "+
					"WHEN (abs(NEW.changed) <> txid_current() + %[1]d) EXECUTE FUNCTION {rows}_insert()"))
			}
			return tx.Exec(fmt.Sprintf(strings.Join(texts, "; "), offset+missing)).Error
		},
		// They pass over changes that a write is renewing. A part of an import has up to importPart ids, so
		// fewer parts are forgotten at a time.
		Purge: []string{
			t.FeedSQL(`DELETE FROM {row}_deletions WHERE id IN (
				SELECT id FROM {row}_deletions WHERE changed < (SELECT kept FROM {feed}) LIMIT $1 FOR UPDATE SKIP LOCKED)`),
			t.FeedSQL(`DELETE FROM {row}_imports WHERE (position, last) IN (
				SELECT position, last FROM {row}_imports WHERE position < (SELECT kept FROM {feed}) LIMIT $1 / 10 FOR UPDATE SKIP LOCKED)`),
		},
	}
}

// changes reads up to the oldest transaction that is running, in any database of the server.
// The rows of a part of an import come in their order, as unnest runs once for each part.
//
// The ranges are of pairs, and the limit in the text, so that the planner expects to need
// few of many rows: otherwise it would sort all that follow, rather than read them in the order of
// the index. Where $1 first occurs, its type is named, which the literal would make an integer.
func changes(t *table.Table) string {
	const inRange = "(changed, id) >= ($1, $2) AND (changed, id) < (s.settled, %d)"
	return fmt.Sprintf(t.FeedSQL(`WITH state AS (
			SELECT epoch, kept, feed_position(txid_snapshot_xmin(x)) AS settled, feed_position(txid_snapshot_xmax(x)) AS newest, %[4]s AS moved
			FROM {feed}, txid_current_snapshot() x WHERE NOT pg_is_in_recovery() LIMIT 1) -- so that the planner expects one row, and compiles nothing
		SELECT s.epoch, s.kept, LEAST(s.settled, %[1]s + 1), s.settled, s.newest, s.moved, c.*
		FROM state s LEFT JOIN LATERAL (
			SELECT * FROM (
				(SELECT 0, id, id FROM {rows} WHERE $1::bigint = 0 AND id >= $2 ORDER BY id LIMIT %[3]d)
				UNION ALL
				(SELECT changed, id, id FROM {rows} WHERE $1 > 0 AND changed > 0 AND %[2]s ORDER BY changed, id LIMIT %[3]d)
				UNION ALL
				(SELECT changed, id, id FROM {row}_deletions WHERE $1 > 0 AND %[2]s ORDER BY changed, id LIMIT %[3]d)
				UNION ALL
				(SELECT i.position, i.first + u.n - 1, u.id
					FROM (SELECT * FROM {row}_imports
						WHERE $1 > 0 AND (position, last) >= ($1, $2) AND position < s.settled ORDER BY position, last) i,
					LATERAL unnest(i.ids) WITH ORDINALITY u (id, n)
					WHERE i.position > $1 OR i.first + u.n - 1 >= $2 LIMIT %[3]d)
			) u (position, number, id) ORDER BY 1, 2 LIMIT $3
		) c ON true ORDER BY c.position, c.number`), t.FeedSQL(lastPosition), fmt.Sprintf(inRange, math.MinInt64), maxChanges, moved)
}

// importPart is how many rows are copied before their ids, which share a row of the table of imports.
const importPart = 10_000

// copyFollowed copies rows into t, and their ids into the table of imports of its feed: an
// entry in the index of changes for each row would make the copy a third slower. The negative position
// is not in that index, and tells the trigger of inserted rows that the ids are known.
func copyFollowed(ctx context.Context, tx pgx.Tx, t *table.Table, columns []string, next func() ([]any, error)) (stored int64, err error) {
	columns, values := append(columns, "changed"), make([]any, 0, len(columns)+1)
	var rows, position int64 // rows of the import
	if err := tx.QueryRow(ctx, "SELECT feed_position(txid_current())").Scan(&position); err != nil {
		return 0, err
	}
	for more := true; more; {
		ids := make([]int64, 0, importPart)
		copied, err := tx.CopyFrom(ctx, pgx.Identifier{t.Name}, columns, pgx.CopyFromFunc(func() ([]any, error) {
			if len(ids) == importPart {
				return nil, nil
			}
			row, err := next()
			if more = row != nil; !more || err != nil {
				return nil, err
			}
			ids = append(ids, row[0].(int64))
			values = append(append(values[:0], row...), -position)
			return values, nil
		}))
		if stored += copied; err != nil {
			return stored, err
		}
		if len(ids) == 0 {
			break
		}
		first := rows + 1
		rows += int64(len(ids))
		if _, err := tx.Exec(ctx, t.FeedSQL("INSERT INTO {row}_imports VALUES ($1, $2, $3, $4)"), position, first, rows, ids); err != nil {
			return stored, err
		}
	}
	return stored, nil
}
