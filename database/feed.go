package database

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"gorm.io/gorm"

	"plantstore/database/dialect"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/table"
)

// The feed of changes to the rows of a table.
//
// Every write gives its rows a position: on PostgreSQL that of its transaction, on SQLite the
// next position of a log. The feed has the ids of the rows by position, deleted rows included. It is
// a feed of states: a row is read when it is sent, and a row that is written again occurs at a
// later position. A reader that begins reads the rows by key, and then what has happened since.
// Each followed table has a feed with tables of its own: see migrations/feed.
//
// Transactions do not commit in the order of their positions. So the feed ends before the
// first position at which a transaction may still be running. All that is before that end stays
// as it is, except that rows move to after the end. The end is also right behind the last
// change: a crash of PostgreSQL forgets transactions that have written nothing, and uses their
// numbers again.

// Cursor is a place in the feed: all before it is known. The zero Cursor is the beginning.
type Cursor struct {
	epoch string // of the positions, or empty for the beginning and Now
	at    int64  // position of the first change that is not known; 0 while the rows are read by key
	order int64  // of that change
	since int64  // while at is 0: the position at which to continue; at timeAt: microseconds since 1970
}

const (
	nowAt  = -1 // the position of Now
	timeAt = -2 // the position of a time
)

// Now returns the cursor of a reader that needs no older changes.
func Now() Cursor { return Cursor{at: nowAt} }

// String returns the cursor for clients, which need not understand it.
func (c Cursor) String() string {
	if c.epoch == "" {
		return "0"
	}
	text := fmt.Sprintf("%s.%d", c.epoch, c.at)
	if c.order != math.MinInt64 || c.since != 0 {
		text += fmt.Sprintf(".%d", c.order)
	}
	if c.since != 0 {
		text += fmt.Sprintf(".%d", c.since)
	}
	return text
}

// CursorPattern matches what [Cursor.String] returns, and times of RFC 3339 in UTC, but no 29 February.
var CursorPattern = regexp.MustCompile(`^(0|[a-z0-9]{1,40}\.(0|[1-9][0-9]{0,17})(\.(0|-?[1-9][0-9]{0,18})(\.[1-9][0-9]{0,17})?)?` +
	`|[0-9]{4}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)|02-(0[1-9]|1[0-9]|2[0-8]))` +
	`T([01][0-9]|2[0-3])(:[0-5][0-9]){2}(\.[0-9]{1,9})?Z)$`)

// ParseCursor parses what String has returned, or a time of RFC 3339: the changes since then, and perhaps some before.
func ParseCursor(text string) (c Cursor, ok bool) {
	if text == "0" {
		return c, true
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return Cursor{at: timeAt, since: at.UnixMicro()}, true
	}
	if !CursorPattern.MatchString(text) || strings.Contains(text, "T") {
		return c, false
	}
	parts := strings.Split(text, ".")
	numbers := [3]int64{0, math.MinInt64, 0}
	for i, part := range parts[1:] {
		numbers[i], _ = strconv.ParseInt(part, 10, 64) // clamps numbers that no cursor of a service has
	}
	return Cursor{parts[0], numbers[0], numbers[1], numbers[2]}, true
}

// Before reports whether c is before other, in the same epoch.
func (c Cursor) Before(other Cursor) bool {
	return c.at < other.at || c.at == other.at && c.order < other.order
}

// SameEpoch reports whether the positions of two cursors can be compared.
func (c Cursor) SameEpoch(other Cursor) bool { return c.epoch == other.epoch }

// after returns the cursor behind a change.
func (c Cursor) after(position, order int64) Cursor {
	if order == math.MaxInt64 {
		return c.moveTo(max(position+1, c.since))
	}
	c.at, c.order = position, order+1
	return c
}

// moveTo returns the cursor before all changes at a position.
func (c Cursor) moveTo(position int64) Cursor {
	return Cursor{epoch: c.epoch, at: position, order: math.MinInt64}
}

// ErrCursor means that a cursor is of another epoch or after the end of the feed, or that changes
// after it are forgotten.
var ErrCursor = errors.New("the cursor is too old or of another database")

// ErrNoFeed means that the database has no feed.
var ErrNoFeed = errors.New("a database on Citus has no feed of changes")

// ChangedID is a change in the feed.
type ChangedID struct {
	ID   int64
	Next Cursor // behind it
}

// Feed reads the feed of a table, and tells for how long the oldest running transaction has held it up.
type Feed struct {
	db      *DB
	table   *table.Table
	sql     *dialect.Feed // or nil if there is no feed
	Written chan struct{} // has a value after a write of this process

	mu      sync.Mutex
	settled int64     // the position of the oldest transaction that was running
	held    time.Time // since when it is the oldest; zero if nothing was running
}

// note notes that the oldest running transaction is at settled, and that the next will be
// at newest.
func (f *Feed) note(settled, newest int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case settled >= newest:
		f.held = time.Time{}
	case settled != f.settled || f.held.IsZero():
		f.held = time.Now()
	}
	f.settled = settled
}

// MaxChanges limits how many changes are read at a time.
const MaxChanges = 1000

// Changes returns the ids of at most most changes from a cursor on, up to MaxChanges, and the
// cursor behind them, which is the end of the feed if there are no more. It fails
// with ErrCursor if changes from there on are forgotten or may be lost, and with ErrNoFeed.
func (f *Feed) Changes(ctx context.Context, from Cursor, most int) (changes []ChangedID, next Cursor, err error) {
	if f.sql == nil {
		return nil, from, ErrNoFeed
	}
	most = min(most, MaxChanges)
	asked, moved := from, false
	switch from {
	case Cursor{}:
		from.order = math.MinInt64
	case Now():
		most = 0
	}
	if from.at == timeAt { // from the last mark until then, or from the beginning if Purge has forgotten nothing
		err := f.db.Read(ctx, "read the feed", Few, func(tx *gorm.DB) error {
			return tx.Raw(f.table.FeedSQL("SELECT COALESCE((SELECT max(position) FROM {feed}_marks WHERE at <= ?), CASE WHEN kept < 2 THEN 1 ELSE kept - 1 END) FROM {feed}"),
				time.UnixMicro(from.since).UTC()).Scan(&from.at).Error
		})
		if err != nil {
			return nil, from, err
		}
		from = from.moveTo(from.at)
	}
	var epoch string
	var kept, end, settled, newest int64
	err = f.db.Read(ctx, "read the feed", Few, func(tx *gorm.DB) error {
		changes = changes[:0] // of an earlier attempt
		text := f.sql.Changes
		begin := time.Now()
		err := f.db.Dialect.Query(tx.Statement.Context, f.db.reads, text, []any{from.at, from.order, most + 1}, func(rows table.Rows) error {
			for rows.Next() {
				var position, order, id *int64
				if err := rows.Scan(&epoch, &kept, &end, &settled, &newest, &moved, &position, &order, &id); err != nil {
					return err
				}
				if from.epoch == "" {
					from.epoch = epoch
				}
				if from.at == 0 && from.since == 0 { // the first page
					from.since = end
				}
				if position != nil {
					changes = append(changes, ChangedID{*id, from.after(*position, *order)})
				}
			}
			return rows.Err()
		})
		f.db.metrics.trace(ctx, begin, text, len(changes), err)
		return err
	})
	if err != nil {
		return nil, from, err
	}
	if epoch == "" { // no row
		return nil, from, fmt.Errorf("read the feed: %w: %w", fault.ErrUnavailable, &fault.NotWritableError{Reason: fault.ReadOnly})
	}
	if moved {
		if _, err := f.db.Write(ctx, "renew the feed", func(tx *DB) error { return f.renew(tx.DB) }); err != nil {
			return nil, from, err
		}
		f.db.log.Warn("the database server was promoted or recovered, and may have lost changes: followers begin anew", zap.String("table", f.table.Name))
		return f.Changes(ctx, asked, most)
	}
	f.note(settled, newest)
	behind := from.at != nowAt && cmp.Or(from.at, from.since) < kept
	if from.epoch != epoch || behind || max(from.at, from.since) > end {
		return nil, from, ErrCursor
	}
	if most > 0 && len(changes) > most {
		return changes[:most], changes[most-1].Next, nil
	}
	if from.at == 0 {
		end = from.since
	}
	return changes, from.moveTo(end), nil
}

// renew begins another epoch of the feed, unless another replica was faster.
func (f *Feed) renew(tx *gorm.DB) error {
	return tx.Exec(f.sql.Renew, strings.ToLower(rand.Text()[:10])).Error
}

// prepareFeeds gives the feeds of a copy, which is a restored backup or a dump, new epochs. Then positions may
// have to grow, to stay above the positions of the rows: meanwhile, nobody may write to a table with a feed.
func (s *Schema) prepareFeeds(ctx context.Context) error {
	db := s.db
	err := s.retryWhileLocked(ctx, func() error {
		isCopy := false
		for _, f := range db.feeds {
			var is bool
			if err := db.WithContext(ctx).Raw(f.table.FeedSQL("SELECT " + f.sql.IsCopy + " FROM {feed}")).Scan(&is).Error; err != nil {
				return err
			}
			isCopy = isCopy || is
		}
		if !isCopy {
			return nil
		}
		return db.transaction(ctx, limit.Wait(db.options.Timeout)/2, func(tx *DB) (err error) {
			var followed []*table.Table
			for _, f := range db.feeds {
				followed = append(followed, f.table)
				err = cmp.Or(err, tx.WithContext(ctx).Exec(f.sql.LockWrites).Error)
			}
			for _, f := range db.feeds {
				err = cmp.Or(err, f.renew(tx.WithContext(ctx)), f.sql.Raise(tx.WithContext(ctx), followed))
			}
			return err
		})
	})
	if err != nil {
		return fmt.Errorf("prepare the feeds of changes in %s: %w", db.Name(), adviseOwner(err))
	}
	return nil
}

// purgePage is how many changes are forgotten at a time, so that writes wait for no lock.
const purgePage = 10_000

// Purge forgets changes that are older than retention, as far as it has noted when they
// happened: it must be called every now and then. On PostgreSQL, rows that exist keep their changes,
// unless an import copied them.
func (f *Feed) Purge(ctx context.Context, retention time.Duration) error {
	_, end, err := f.Changes(ctx, Now(), 0)
	if err != nil {
		return err
	}
	now, named := f.db.NowFunc(), f.table.FeedSQL
	err = f.tend(ctx, "mark the feed", func(tx *DB) error {
		return cmp.Or(
			tx.Exec(named("INSERT INTO {feed}_marks VALUES (?, ?) ON CONFLICT DO NOTHING"), end.at, now).Error,
			tx.Exec(named("UPDATE {feed} SET kept = mark.position FROM (SELECT max(position) AS position FROM {feed}_marks WHERE at < ?) AS mark WHERE kept < mark.position"),
				now.Add(-retention)).Error,
			tx.Exec(named("DELETE FROM {feed}_marks WHERE position < (SELECT kept FROM {feed})")).Error)
	})
	for _, statement := range f.sql.Purge {
		for rows := int64(1); err == nil && rows > 0; {
			err = f.tend(ctx, "purge the feed", func(tx *DB) error {
				deleted := tx.Exec(statement, purgePage)
				rows = deleted.RowsAffected
				return deleted.Error
			})
		}
	}
	return err
}

// tend calls do in a transaction that takes no turn: a client's write may wait for its turn for less long than a slow disk
// takes.
func (f *Feed) tend(ctx context.Context, operation string, do func(tx *DB) error) error {
	ctx, cancel := context.WithTimeout(ctx, f.db.options.Timeout)
	defer cancel()
	return fault.In(operation, f.db.transaction(ctx, limit.Wait(f.db.options.Timeout)/2, do))
}

// KeepFeeds calls Purge for each feed now and every minute, in the background, until the database is closed: a reader
// that begins at a time begins at the minute before it.
func (db *DB) KeepFeeds(retention time.Duration) {
	db.every(time.Minute, func(ctx context.Context) {
		for _, f := range db.feeds {
			if err := f.Purge(ctx, retention); err != nil && ctx.Err() == nil {
				db.log.Warn("cannot forget old deletions", zap.String("table", f.table.Name), zap.Error(err))
			}
		}
	})
}

// collector is the metric of what the feed waits for. Each scrape reads the end of the feed.
func (f *Feed) collector() prometheus.Collector {
	return prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "plantstore_feed_lag_seconds", Help: "For how long the feed of changes has waited for the oldest transaction that is running.",
	}, func() float64 {
		// A database that hangs must not delay the other metrics.
		ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
		defer cancel()
		if _, _, err := f.Changes(ctx, Now(), 0); err != nil {
			return math.NaN() // unknown: the transaction may have ended
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.held.IsZero() {
			return 0
		}
		return time.Since(f.held).Seconds()
	})
}
