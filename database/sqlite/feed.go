package sqlite

import (
	"gorm.io/gorm"

	"plantstore/database/dialect"
	"plantstore/database/table"
)

// Feed returns the statements of the feed of changes to t: the log that triggers write, which no copy
// continues. A transaction keeps out all writers.
func (*Dialect) Feed(t *table.Table) *dialect.Feed {
	return &dialect.Feed{
		Changes: t.FeedSQL(`WITH state AS (SELECT epoch, kept, (SELECT COALESCE(max(position), 0) + 1 FROM {row}_changes) AS settled FROM {feed})
			SELECT s.epoch, s.kept, s.settled, s.settled, s.settled, FALSE, c.*
			FROM state s LEFT JOIN (
				SELECT * FROM (SELECT 0 AS position, id AS number, id FROM {rows} WHERE $1 = 0 AND id >= $2 ORDER BY id LIMIT $3)
				UNION ALL
				SELECT * FROM (SELECT position, id, id FROM {row}_changes
					WHERE $1 > 0 AND position >= $1 AND (position > $1 OR id >= $2) ORDER BY position LIMIT $3)
			) c ON true ORDER BY c.position, c.number`),
		Origin:     "'file'", // a backup has another origin
		IsCopy:     "origin <> 'file'",
		Renew:      t.FeedSQL("UPDATE {feed} SET epoch = ?, origin = 'file' WHERE origin <> 'file'"),
		LockWrites: "SELECT 1",                                          // the transaction has
		Raise:      func(*gorm.DB, []*table.Table) error { return nil }, // the positions are in the copy
		// All but the last change, which the log counts on from.
		Purge: []string{t.FeedSQL(`DELETE FROM {row}_changes WHERE position IN (SELECT position FROM {row}_changes
			WHERE position < (SELECT kept FROM {feed}) AND position < (SELECT max(position) FROM {row}_changes) LIMIT ?)`)},
	}
}
