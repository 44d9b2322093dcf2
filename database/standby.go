package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
)

// How often, and with how much patience, a standby is asked how far it is: a hang is
// noticed within a second.
const (
	standbyInterval = 200 * time.Millisecond
	standbyTimeout  = 500 * time.Millisecond
)

// standbys follow a primary. They serve reads that may miss the newest writes of other
// clients, for as long as they respond, stay standbys and lag behind by no more than
// [Options].MaxReplicaLag.
type standbys struct {
	primary   *DB
	all       []*standby
	next      atomic.Uint32 // serves the next read
	positions *batch.Batcher[*Position]

	mu      sync.Mutex
	history []moment        // of the primary, oldest first; of those older than kept, only the newest
	since   time.Time       // when the primary began to respond to each check; zero if it does not respond
	first   Position        // the lowest of the primary since the start; unknownPosition until it is known
	written map[string]need // by client, what its reads must see; without what every standby in use has
}

// kept is how far back the history goes. A standby in use has all that the primary had then: the time
// beyond the lag is that of two checks.
func (s *standbys) kept() time.Duration { return s.primary.options.MaxReplicaLag + 3*time.Second }

// moment is how far the primary was at a time.
type moment struct {
	at       time.Time
	position Position
}

// need is what the reads of a client must see.
type need struct {
	position Position  // of its writes
	stored   time.Time // when the last of them was, at the latest
}

// standby is a standby. Its DB has connections, turns and batches of its own.
type standby struct {
	*DB
	replayed atomic.Uint64
	lag      atomic.Int64 // nanoseconds
	inUse    atomic.Bool
	// Only its check needs these.
	strayed bool   // it had more than the primary, so it has another history
	fault   string // why it is not in use
}

// UseStandbys lets the standbys that db's options name serve reads, each once it responds.
// It does not wait for them. They are closed with db.
func (db *DB) UseStandbys() error {
	if len(db.options.ReplicaURLs) == 0 {
		return nil
	}
	s := &standbys{primary: db, first: unknownPosition, written: make(map[string]need)}
	var closers []func()
	defer func() { *db.closers = append(*db.closers, closers...) }() // after the last check
	for _, url := range db.options.ReplicaURLs {
		opened, err := s.open(url)
		if err != nil {
			return fmt.Errorf("standby: %w", err)
		}
		closers = append(closers, func() { _ = opened.Close() })
		if slices.ContainsFunc(s.all, func(other *standby) bool { return other.Name() == opened.Name() }) {
			return fmt.Errorf("standby: %s is listed twice", opened.Name())
		}
		s.all = append(s.all, opened)
	}
	s.positions = NewReader(db, s.readPositions)
	db.every(standbyInterval, s.check)
	db.standbys = s
	return nil
}

// open opens the standby at url.
func (s *standbys) open(url string) (*standby, error) {
	db, opened := s.primary, new(standby)
	d, err := db.Dialect.(server).Standby(postgres.Options{
		URL: url, MaxConnections: db.options.MaxConnections, Timeout: db.options.Timeout, Accept: opened.accept,
		ConnectTimeout: standbyTimeout, // reads fall back to the primary
	}, db.log)
	if err != nil {
		return nil, err
	}
	if opened.DB, err = New(d, db.options, db.batches, nil, db.log); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	opened.metrics, opened.Logger = db.metrics, db.Logger // of the primary
	own, process := opened.Limits, db.Limits
	own.Transfers, own.Disk, own.Work = process.Transfers, process.Disk, process.Work
	return opened, nil
}

// accept fails if the server of a new connection has less than the last check found: it has
// crashed since, is replaying again, and reads would go back in time. The primary serves them.
func (s *standby) accept(ctx context.Context, conn *pgx.Conn) error {
	had := Position(s.replayed.Load())
	var at Position
	err := conn.QueryRow(ctx, positionQuery).Scan(&at, nil)
	if err == nil && at < had {
		err = fmt.Errorf("the standby was restarted, and does not have all again: %w", driver.ErrBadConn)
	}
	return err
}

// Standbys returns the standbys of db, whether or not they can serve reads.
func (db *DB) Standbys() (all []*DB) {
	if db.standbys != nil {
		for _, standby := range db.standbys.all {
			all = append(all, standby.DB)
		}
	}
	return all
}

// check asks all servers for their state, and takes standbys out, or back in.
func (s *standbys) check(ctx context.Context) {
	origin := "''" // a database on Citus has no feeds
	if len(s.primary.feeds) > 0 {
		origin = s.primary.feeds[0].sql.Origin
	}
	stateOf := func(db *DB) state {
		ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
		defer cancel()
		return ask(ctx, db, origin)
	}
	states := make([]state, len(s.all))
	var asking sync.WaitGroup
	for i, standby := range s.all {
		asking.Go(func() { states[i] = stateOf(standby.DB) })
	}
	asking.Wait()
	begin := time.Now()
	primary := stateOf(s.primary) // afterwards, so that no standby may have more
	if ctx.Err() != nil {
		return
	}
	s.note(begin, primary)
	for i, standby := range s.all {
		s.judge(standby, states[i], primary)
	}
}

// note notes the state of the primary at begin, and forgets what every standby in use has.
func (s *standbys) note(begin time.Time, primary state) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if primary.err != nil || primary.isStandby { // to which a name may lead for a while after a failover
		s.since = time.Time{}
		return
	}
	if n := len(s.history); n > 0 && primary.position < s.history[n-1].position {
		s.history = nil // another server, which never was as far, is the primary now
	}
	s.history = append(s.history, moment{begin, primary.position})
	s.first = min(s.first, primary.position)
	if s.since.IsZero() {
		s.since = begin
	}
	old := begin.Add(-s.kept())
	for len(s.history) > 1 && s.history[1].at.Before(old) {
		s.history = s.history[1:]
	}
	if s.since.Before(old) {
		maps.DeleteFunc(s.written, func(_ string, w need) bool { return w.stored.Before(old) })
	}
}

// judge takes a standby out, or back in. While the primary does not respond, it takes no standby in.
func (s *standbys) judge(standby *standby, is, primary state) {
	known := primary.err == nil && !primary.isStandby
	switch {
	case is.err != nil:
		standby.strayed = false // perhaps it is being built again
		s.takeOut(standby, "it does not respond", zap.Error(is.err))
		standby.Dialect.(server).Cut() // for those that have begun to wait since
		standby.replayed.Store(0)
		return
	case known && is.origin != primary.origin:
		s.takeOut(standby, "it is not one of this database, or does not have its migrations yet")
		return
	case !is.isStandby:
		s.takeOut(standby, "it was promoted, or is the primary")
		return
	}
	standby.replayed.Store(uint64(is.position))
	standby.strayed = standby.strayed || known && is.position > primary.position
	lag := s.lagAt(is.position)
	standby.lag.Store(int64(lag))
	switch {
	case standby.strayed:
		s.takeOut(standby, "it had more than the primary: build it again")
	case lag > s.primary.options.MaxReplicaLag:
		s.takeOut(standby, lagging, zap.Duration("lag", lag))
	case known && !standby.inUse.Swap(true):
		standby.fault = ""
		s.primary.log.Info("a standby is in use", zap.String("standby", standby.Name()), zap.Duration("lag", lag))
	}
}

// lagAt returns how long the primary has been ahead of a standby at a position, as far as is known:
// while it cannot be reached, its newest writes are not.
func (s *standbys) lagAt(at Position) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.history) == 0 {
		return math.MaxInt64 // nothing is known of the primary yet
	}
	for _, had := range s.history {
		if had.position > at {
			return time.Since(had.at)
		}
	}
	return 0
}

// lagging is the only reason for which reads that have begun on a standby may end there.
const lagging = "it lags behind"

// takeOut stops using a standby. Unless it only lags, the reads that run there end, and the
// primary serves them.
func (s *standbys) takeOut(standby *standby, reason string, fields ...zap.Field) {
	if standby.inUse.Swap(false) && reason != lagging {
		standby.Dialect.(server).Cut()
	}
	if standby.fault != reason {
		standby.fault = reason
		s.primary.log.Warn("a standby is not used", append(fields, zap.String("standby", standby.Name()), zap.String("reason", reason))...)
	}
}

// Standby returns a standby that has what ctx's client must see: what it has written, as far as
// [DB.Wrote] knows, and what is before the position in ctx. It returns nil if there is no such standby: only db
// itself certainly has it.
func (db *DB) Standby(ctx context.Context) *DB {
	s := db.standbys
	if s == nil {
		return nil
	}
	seen, _ := ctx.Value(positionKey{}).(Position)
	s.mu.Lock()
	least := max(seen, s.written[limit.Client(ctx)].position, s.first) // perhaps the client wrote before a restart
	s.mu.Unlock()
	turn := s.next.Add(1)
	for n := range uint32(len(s.all)) { // each once, although other reads take turns meanwhile
		standby := s.all[(turn+n)%uint32(len(s.all))]
		if standby.inUse.Load() && Position(standby.replayed.Load()) >= least {
			return standby.DB
		}
	}
	return nil
}

// Wrote notes that ctx's client has written something, or tried to, with the outcome err:
// its reads must see that from now on. After a success, it returns a position that has the
// write, if the primary tells it, otherwise 0.
func (db *DB) Wrote(ctx context.Context, err error) Position {
	s := db.standbys
	if s == nil || fault.NothingStored(err) {
		return 0
	}
	at, stored := unknownPosition, time.Now()
	if !errors.Is(err, fault.ErrUnavailable) && s.positions.Do(ctx, &at) != nil {
		at = unknownPosition
	}
	if at == unknownPosition {
		stored = stored.Add(s.kept()) // the database may store it after the service has given it up
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.written[limit.Client(ctx)]
	if w.stored.After(stored) {
		stored = w.stored
	}
	s.written[limit.Client(ctx)] = need{max(w.position, at), stored}
	if err != nil || at == unknownPosition {
		return 0
	}
	return at
}

// readPositions sets a batch of positions to that of the primary.
func (s *standbys) readPositions(ctx context.Context, wanted []*Position) []error {
	attached, cancel := batch.Attach(ctx)
	defer cancel()
	is := ask(attached, s.primary, "''")
	if is.isStandby {
		is.err = fault.ErrStandby
	}
	for _, p := range wanted {
		if is.err == nil {
			*p = is.position
		}
	}
	return slices.Repeat([]error{is.err}, len(wanted))
}

// collectors returns the metrics of the standbys.
func (s *standbys) collectors() (all []prometheus.Collector) {
	for _, standby := range s.all {
		label := prometheus.Labels{"standby": standby.Name()}
		all = append(all, collectors.NewDBStatsCollector(standby.writes, standby.Name()),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "plantstore_standby_in_use", Help: "1 if the standby serves reads, otherwise 0.", ConstLabels: label,
			}, func() float64 {
				if standby.inUse.Load() {
					return 1
				}
				return 0
			}),
			prometheus.NewGaugeFunc(prometheus.GaugeOpts{
				Name: "plantstore_standby_lag_seconds", Help: "Age of the oldest write that the standby lacked when it last responded.", ConstLabels: label,
			}, func() float64 { return time.Duration(standby.lag.Load()).Seconds() }))
	}
	return all
}

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

// state is what a server says of itself.
type state struct {
	position  Position
	isStandby bool
	origin    string // of its database: see [dialect.Feed]
	err       error
}

// ask returns the state of the server of db, with the value of the expression origin.
func ask(ctx context.Context, db *DB, origin string) (is state) {
	is.err = db.writes.QueryRowContext(ctx, positionQuery+", "+origin).Scan(&is.position, &is.isStandby, &is.origin)
	return is
}
