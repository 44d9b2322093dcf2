package sqlite

import (
	"strings"

	"plantstore/database/dialect"
)

// feedSQL returns a text with the names of the feed's tables: {rows} and {changes}.
func (d *Dialect) feedSQL(text string) string {
	return strings.NewReplacer("{rows}", d.Followed.Table, "{changes}", d.Followed.Noun+"_changes").Replace(text)
}

// newFeed returns the statements of the feed: the log that triggers write, which no copy continues. A
// transaction keeps out all writers.
func (d *Dialect) newFeed() *dialect.Feed {
	return &dialect.Feed{
		Changes: d.feedSQL(`WITH state AS (SELECT epoch, kept, (SELECT COALESCE(max(position), 0) + 1 FROM {changes}) AS settled FROM feed)
			SELECT s.epoch, s.kept, s.settled, s.settled, s.settled, c.*
			FROM state s LEFT JOIN (
				SELECT * FROM (SELECT 0 AS position, id AS number, id FROM {rows} WHERE $1 = 0 AND id >= $2 ORDER BY id LIMIT $3)
				UNION ALL
				SELECT * FROM (SELECT position, id, id FROM {changes}
					WHERE $1 > 0 AND position >= $1 AND (position > $1 OR id >= $2) ORDER BY position LIMIT $3)
			) c ON true ORDER BY c.position, c.number`),
		Origin: "'file'", // a backup has another origin
		IsCopy: "origin <> 'file'",
		// All but the last change, which the log counts on from.
		Purge: []string{d.feedSQL(`DELETE FROM {changes} WHERE position IN (SELECT position FROM {changes}
			WHERE position < ? AND position < (SELECT max(position) FROM {changes}) LIMIT ?)`)},
	}
}
