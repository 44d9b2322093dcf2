package database

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
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
	turn      atomic.Uint32 // of the next read
	positions *Batcher[*Position]

	mu      sync.Mutex
	history []moment          // of the primary, in order; of those before MaxReplicaLag only the last
	written map[string]moment // by client, what its writes need; without what every standby has
}

// moment is how far the primary was at a time.
type moment struct {
	at       time.Time
	position Position
}

// standby is one of the standbys. Its DB has connections, slots and batches of its own.
type standby struct {
	*DB
	network  *network
	replayed atomic.Uint64
	lag      atomic.Int64 // nanoseconds
	inUse    atomic.Bool
	fault    string // why it is not in use; only its check needs it
}

// UseStandbys lets the standbys that db's options name serve reads, each once it responds.
// It does not wait for them. They are closed with db.
func (db *DB) UseStandbys(ctx context.Context) error {
	if len(db.options.ReplicaURLs) == 0 {
		return nil
	}
	s := &standbys{primary: db, written: make(map[string]moment)}
	var closers []func()
	defer func() { db.closers = append(db.closers, closers...) }() // after the last checks
	for _, url := range db.options.ReplicaURLs {
		standby, err := db.openStandby(ctx, url)
		if err != nil {
			return fmt.Errorf("standby: %w", err)
		}
		s.all = append(s.all, standby)
		closers = append(closers, func() { _ = standby.Close() })
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
func (db *DB) openStandby(ctx context.Context, url string) (*standby, error) {
	o := db.options
	o.URL = url
	dialect := &postgresDialect{network: new(network)}
	pool, _, err := dialect.open(ctx, o, db.log)
	if err != nil {
		return nil, err
	}
	s := &standby{network: dialect.network, DB: newDB(dialect, pool, pool, o, db.batches, db.metrics, db.log)}
	s.budget.transfers, s.budget.disk = db.budget.transfers, db.budget.disk // of the process
	if s.DB.DB, err = s.handle(pool); err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	s.reads = s.DB.DB
	return s, nil
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

// sample notes how far the primary is, and forgets what every standby has.
func (s *standbys) sample(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	begin := time.Now()
	at, _, err := s.primary.position(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		s.history = append(s.history, moment{begin, at})
	}
	for len(s.history) > 1 && time.Since(s.history[1].at) > s.primary.options.MaxReplicaLag {
		s.history = s.history[1:]
	}
	least := unknownPosition
	for _, standby := range s.all {
		least = min(least, Position(standby.replayed.Load()))
	}
	for client, w := range s.written {
		if w.position == unknownPosition && err == nil && w.at.Before(begin) {
			s.written[client] = moment{w.at, at}
		} else if w.position <= least {
			delete(s.written, client)
		}
	}
}

// check asks a standby how far it is, and takes it out, or back in.
func (s *standbys) check(ctx context.Context, standby *standby) {
	ctx, cancel := context.WithTimeout(ctx, standbyTimeout)
	defer cancel()
	at, isStandby, err := standby.position(ctx)
	switch {
	case err != nil:
		if !errors.Is(err, context.Canceled) {
			s.takeOut(standby, "it does not respond", zap.Error(err))
		}
		return
	case !isStandby:
		s.takeOut(standby, "it was promoted")
		return
	}
	standby.replayed.Store(uint64(at))
	lag := s.lagAt(at)
	standby.lag.Store(int64(lag))
	if lag > s.primary.options.MaxReplicaLag {
		s.takeOut(standby, "it lags behind", zap.Duration("lag", lag))
		return
	}
	standby.fault = ""
	if !standby.inUse.Swap(true) {
		s.primary.log.Info("a standby is in use", zap.String("standby", standby.Name()), zap.Duration("lag", lag))
	}
}

// lagAt returns for how long the primary has had something that a standby at a position has
// not.
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

// takeOut ends the reads on a standby, which the primary then serves.
func (s *standbys) takeOut(standby *standby, reason string, fields ...zap.Field) {
	if standby.inUse.Swap(false) {
		standby.network.cut()
	}
	if standby.fault != reason {
		standby.fault = reason
		s.primary.log.Warn("a standby is not used", append(fields, zap.String("standby", standby.Name()), zap.String("reason", reason))...)
	}
}

// pick returns the index of a standby that has what ctx's client must see, or -1.
func (s *standbys) pick(ctx context.Context) int {
	s.mu.Lock()
	need := s.written[clientOf(ctx)].position
	s.mu.Unlock()
	seen, _ := ctx.Value(positionKey{}).(Position)
	need = max(need, seen)
	for range s.all {
		i := int(s.turn.Add(1)) % len(s.all)
		if s.all[i].inUse.Load() && Position(s.all[i].replayed.Load()) >= need {
			return i
		}
	}
	return -1
}

// ReadStandby calls do with the index of one of db's standbys that has what ctx's client
// must see: what it has written, as far as [DB.Wrote] knows, and what is before the position
// in ctx. If there is none, or do reports that its outcome is not that of the read,
// ReadStandby calls do with -1, which stands for db.
func (db *DB) ReadStandby(ctx context.Context, do func(standby int) (done bool, err error)) error {
	if db.standbys != nil {
		if i := db.standbys.pick(ctx); i >= 0 {
			if done, err := do(i); done || ctx.Err() != nil {
				return err
			}
		}
	}
	_, err := do(-1)
	return err
}

// Wrote notes that ctx's client has written something, or tried to, with the outcome err:
// its reads must see that from now on. It returns a position that has the write, or 0 if
// there is none, or no standby.
func (db *DB) Wrote(ctx context.Context, err error) Position {
	s := db.standbys
	if s == nil || errors.Is(err, ErrOverloaded) {
		return 0
	}
	at := unknownPosition
	if !errors.Is(err, ErrUnavailable) && s.positions.Do(ctx, &at) != nil {
		at = unknownPosition
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.written[clientOf(ctx)]
	w.position = max(w.position, at)
	if at == unknownPosition {
		w.at, at = time.Now(), 0
	}
	s.written[clientOf(ctx)] = w
	return at
}

// readPositions sets a batch of positions to that of the primary.
func (s *standbys) readPositions(ctx context.Context, batch []*Position) []error {
	at, _, err := s.primary.position(ctx)
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
		all = append(all,
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
