package database

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"go.uber.org/zap"

	"plantstore/database/batch"
	"plantstore/database/citus"
	"plantstore/database/fault"
	"plantstore/database/limit"
	"plantstore/database/postgres"
)

// How often, and with how much patience, a standby is asked how far it is: one that hangs is
// noticed within a second.
const (
	standbyInterval = 200 * time.Millisecond
	standbyTimeout  = 500 * time.Millisecond
)

// standbys are those of a primary. They serve reads that may miss the newest writes of other
// clients, for as long as they respond, stay standbys and lag behind by no more than
// [Options].MaxReplicaLag.
type standbys struct {
	primary   *DB
	all       []*standby
	next      atomic.Uint32 // serves the next read
	positions *batch.Batcher[*Position]

	mu      sync.Mutex
	history []moment        // of the primary, oldest first; of those older than kept, only the newest
	first   Position        // the lowest of the primary since the start; unknownPosition until it is known
	origin  string          // of the primary: see [dialect.Feed]; empty until it is known
	written map[string]need // by client, what its reads must see; without what every standby in use has
}

// kept is how far back the history goes. A standby in use has all that the primary had then.
func (s *standbys) kept() time.Duration { return s.primary.options.MaxReplicaLag + time.Second }

// moment is how far the primary was at a time.
type moment struct {
	at       time.Time
	position Position
}

// need is what the reads of a client must see.
type need struct {
	position Position  // of its writes, as far as they are known
	lost     time.Time // when a write ended without a known position; zero if none has since
}

// from returns n as of a position of the primary: a write that was lost before a time is not beyond
// that position. The time is well in the past, since the database may store a write after the
// service has given it up.
func (n need) from(when time.Time, at Position) need {
	if !n.lost.IsZero() && n.lost.Before(when) {
		return need{position: max(n.position, at)}
	}
	return n
}

// standby is one of the standbys. Its DB has connections, turns and batches of its own.
type standby struct {
	*DB
	cut      func() // closes all connections
	replayed atomic.Uint64
	lag      atomic.Int64 // nanoseconds
	inUse    atomic.Bool
	// Only its check needs these.
	checked time.Time // when it responded last
	strayed bool      // it had more than the primary, so it has another history
	fault   string    // why it is not in use
}

// UseStandbys lets the standbys that db's options name serve reads, each once it responds.
// It does not wait for them. They are closed with db.
func (db *DB) UseStandbys(ctx context.Context) error {
	if len(db.options.ReplicaURLs) == 0 {
		return nil
	}
	s := &standbys{primary: db, first: unknownPosition, written: make(map[string]need)}
	var closers []func()
	defer func() { db.closers = append(db.closers, closers...) }() // after the last checks
	for _, url := range db.options.ReplicaURLs {
		opened, err := db.openStandby(url)
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
	s.sample(ctx) // the first checks need it
	db.every(standbyInterval, s.sample)
	for _, standby := range s.all {
		db.every(standbyInterval, func(ctx context.Context) { s.check(ctx, standby) })
	}
	db.standbys = s
	return nil
}

// openStandby opens the standby of db at url.
func (db *DB) openStandby(url string) (*standby, error) {
	o := db.options
	o.URL = url
	s := new(standby)
	settings := db.dialect.(server).Settings()
	settings.URL, settings.Accept = url, s.accept
	settings.ConnectTimeout = standbyTimeout // reads fall back to the primary
	var d server
	var err error
	if _, distributed := db.dialect.(*citus.Dialect); distributed {
		d, err = citus.Open(settings, db.log)
	} else {
		d, err = postgres.Open(settings)
	}
	if err != nil {
		return nil, err
	}
	s.cut = d.Cut
	if s.DB, err = New(d, o, db.batches, db.log); err != nil {
		return nil, errors.Join(err, d.Close())
	}
	s.metrics = db.metrics
	s.Logger, s.reads.Logger = db.Logger, db.Logger                         // which measure into db.metrics
	s.limits.transfers, s.limits.disk = db.limits.transfers, db.limits.disk // of the process
	return s, nil
}

// accept fails if the server of a new connection has less than the last check found: it has
// crashed since, is replaying again, and reads would go back in time. The primary serves them.
func (s *standby) accept(ctx context.Context, conn *pgx.Conn) error {
	had := Position(s.replayed.Load())
	var at Position
	var isStandby bool
	err := conn.QueryRow(ctx, positionQuery).Scan(&at, &isStandby)
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

// sample notes how far the primary is, and forgets what every standby in use has.
func (s *standbys) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	begin := time.Now()
	at, err := s.primaryAt(ctx)
	var origin string
	if err == nil {
		origin, err = s.primary.feed.origin(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.note(moment{begin, at})
		s.first, s.origin = min(s.first, at), origin
	}
	for len(s.history) > 1 && time.Since(s.history[1].at) > s.kept() {
		s.history = s.history[1:]
	}
	had := s.history
	for client, w := range s.written {
		switch {
		case !w.lost.IsZero():
			if err == nil {
				s.written[client] = w.from(begin.Add(-s.kept()), at)
			}
		case len(had) > 0 && w.position <= had[0].position && time.Since(had[0].at) > s.kept():
			delete(s.written, client)
		}
	}
}

// note adds to the history how far the primary is. The caller holds the mutex.
func (s *standbys) note(now moment) {
	if n := len(s.history); n > 0 && now.position < s.history[n-1].position {
		s.history = nil // another server, which never was as far, is the primary now
	}
	s.history = append(s.history, now)
}

// check asks a standby how far it is, and takes it out, or back in.
func (s *standbys) check(ctx context.Context, standby *standby) {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	at, isStandby, err := standby.position(ctx)
	isCopy, known := true, true
	if err == nil && !standby.inUse.Load() {
		isCopy, known, err = s.isCopy(ctx, standby)
	}
	switch {
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			standby.checked, standby.strayed = time.Time{}, false // perhaps it is being built again
			s.takeOut(standby, "it does not respond", zap.Error(err))
			standby.cut() // for those that have begun to wait since
			standby.replayed.Store(0)
		}
		return
	case !isCopy:
		s.takeOut(standby, "it is not one of this database, or does not have its migrations yet")
		return
	case !isStandby:
		s.takeOut(standby, "it was promoted, or is the primary")
		return
	}
	ahead, asked := s.isAhead(moment{standby.checked, Position(standby.replayed.Load())})
	standby.checked, standby.strayed = time.Now(), standby.strayed || ahead
	standby.replayed.Store(uint64(at))
	switch {
	case standby.strayed:
		s.takeOut(standby, "it had more than the primary: build it again")
		return
	case (!known || !asked) && !standby.inUse.Load():
		return // the next check decides
	}
	lag := s.lagAt(at)
	standby.lag.Store(int64(lag))
	if lag > s.primary.options.MaxReplicaLag {
		s.takeOut(standby, lagging, zap.Duration("lag", lag))
		return
	}
	standby.fault = ""
	if !standby.inUse.Swap(true) {
		s.primary.log.Info("a standby is in use", zap.String("standby", standby.Name()), zap.Duration("lag", lag))
	}
}

// isCopy reports whether a standby is one of the primary, and has the same database. known
// reports whether the primary has told which that is.
func (s *standbys) isCopy(ctx context.Context, standby *standby) (isCopy, known bool, err error) {
	origin, err := standby.feed.origin(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	known = s.origin != ""
	return !known || origin == s.origin, known, err
}

// isAhead reports whether a standby had more, at a time, than the primary had later: then it
// followed another primary. known reports whether the primary was asked later.
func (s *standbys) isAhead(had moment) (ahead, known bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.history) == 0 || had.at.IsZero() {
		return false, false
	}
	newest := s.history[len(s.history)-1]
	known = newest.at.After(had.at)
	return known && newest.position < had.position, known
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

// lagging is the one reason for which reads that have begun on a standby may end there.
const lagging = "it lags behind"

// takeOut stops using a standby. Unless it only lags, the reads that run there end, and the
// primary serves them.
func (s *standbys) takeOut(standby *standby, reason string, fields ...zap.Field) {
	if standby.inUse.Swap(false) && reason != lagging {
		standby.cut()
	}
	if standby.fault != reason {
		standby.fault = reason
		s.primary.log.Warn("a standby is not used", append(fields, zap.String("standby", standby.Name()), zap.String("reason", reason))...)
	}
}

// Standby returns a standby that has what ctx's client must see: what it has written, as far as
// [DB.Wrote] knows, and what is before the position in ctx. It returns nil if there is none: only db
// itself certainly has it.
func (db *DB) Standby(ctx context.Context) *DB {
	s := db.standbys
	if s == nil {
		return nil
	}
	seen, _ := ctx.Value(positionKey{}).(Position)
	s.mu.Lock()
	w := s.written[limit.Client(ctx)]
	least := max(seen, w.position, s.first) // perhaps the client wrote before a restart
	s.mu.Unlock()
	if !w.lost.IsZero() {
		return nil
	}
	turn := s.next.Add(1)
	for n := range uint32(len(s.all)) { // each once, although other reads take turns meanwhile
		i := int((turn + n) % uint32(len(s.all)))
		if s.all[i].inUse.Load() && Position(s.all[i].replayed.Load()) >= least {
			return s.all[i].DB
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
	at := unknownPosition
	if !errors.Is(err, fault.ErrUnavailable) && s.positions.Do(ctx, &at) != nil {
		at = unknownPosition
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.written[limit.Client(ctx)]
	if at == unknownPosition {
		w.lost, at = time.Now(), 0
	}
	w.position = max(w.position, at)
	s.written[limit.Client(ctx)] = w
	if err != nil {
		return 0
	}
	return at
}

// primaryAt returns how far the primary is. A server in recovery, to which a name may lead
// for a while after a failover, is not the primary.
func (s *standbys) primaryAt(ctx context.Context) (Position, error) {
	at, isStandby, err := s.primary.position(ctx)
	if err == nil && isStandby {
		err = fault.ErrStandby
	}
	return at, err
}

// readPositions sets a batch of positions to that of the primary.
func (s *standbys) readPositions(ctx context.Context, batch []*Position) []error {
	at, err := s.primaryAt(ctx)
	for _, p := range batch {
		if err == nil {
			*p = at
		}
	}
	return slices.Repeat([]error{err}, len(batch))
}

// standbyCollectors returns the metrics of db's standbys.
func (db *DB) standbyCollectors() (all []prometheus.Collector) {
	if db.standbys == nil {
		return nil
	}
	for _, standby := range db.standbys.all {
		label := prometheus.Labels{"standby": standby.Name()}
		all = append(all, collectors.NewDBStatsCollector(standby.primary(), standby.Name()),
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
