package database

import (
	"context"
	"math"
	"regexp"
	"strconv"

	"plantstore/database/batch"
)

// Position is a place in the write-ahead log of PostgreSQL, and so the writes up to there.
// 0 means no write, and unknownPosition any.
type Position uint64

// String returns p in a form for clients, which they need not understand.
func (p Position) String() string { return strconv.FormatUint(uint64(p), 36) }

// PositionPattern matches what [Position.String] returns: PostgreSQL is far from writing
// more.
var PositionPattern = regexp.MustCompile(`^(0|[1-9a-z][0-9a-z]{0,11})$`)

// ParsePosition parses what String has returned.
func ParsePosition(text string) (at Position, ok bool) {
	n, err := strconv.ParseUint(text, 36, 64)
	return Position(n), err == nil && PositionPattern.MatchString(text)
}

// unknownPosition is the position of a write if the primary did not tell it: only the
// primary certainly has that write.
const unknownPosition Position = math.MaxUint64

// positionKey is the key of a position in a context.
type positionKey struct{}

// WithPosition returns a context for reads that must see the writes up to position.
func WithPosition(ctx context.Context, position Position) context.Context {
	return context.WithValue(ctx, positionKey{}, position)
}

// positionQuery is the query for how far a primary, or a standby, is, and whether it is a standby.
const positionQuery = "SELECT (CASE WHEN pg_is_in_recovery() THEN pg_last_wal_replay_lsn() ELSE pg_current_wal_lsn() END - '0/0')::bigint, pg_is_in_recovery()"

func position(ctx context.Context, db *DB) (at Position, isStandby bool, err error) {
	ctx, cancel := batch.Attach(ctx)
	defer cancel()
	err = db.primary().QueryRowContext(ctx, positionQuery).Scan(&at, &isStandby)
	return at, isStandby, err
}

// state is what a server says of itself.
type state struct {
	position  Position
	isStandby bool
	origin    string // of its database: see [dialect.Feed]
	err       error
}

// ask returns the state of the server of db.
func ask(ctx context.Context, db *DB) (is state) {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	origin := "''" // a database on Citus has no feeds
	if len(db.feeds) > 0 {
		origin = db.feeds[0].sql.Origin
	}
	is.err = db.primary().QueryRowContext(ctx, positionQuery+", "+origin).Scan(&is.position, &is.isStandby, &is.origin)
	return is
}
