package models

import (
	"cmp"
	"context"
	"slices"
	"time"

	"plantstore/database"
)

// PlantStore keeps plants in a database. It is safe for concurrent use.
type PlantStore struct {
	db      *database.DB
	inserts *groupCommit[*Plant]
	// reads and writes are for all that is neither gathered into batches nor bulk.
	reads, writes turns
	bulk          chan struct{} // holds one for each import and export that runs
}

// maxBulk is how many imports and exports may run at the same time: each of them
// occupies a connection for as long as its client likes.
const maxBulk = 2

// WriteOptions says how a store gathers writes that come at the same time.
type WriteOptions struct {
	// Timeout bounds an operation, the wait for its turn included.
	Timeout time.Duration
	// Flushers is how many batches may be written at the same time; SQLite has
	// one, whatever it says.
	Flushers int
	// MaxBatch is the most rows that share a transaction.
	MaxBatch int
	// Queue is how many rows may wait for their turn.
	Queue int
}

// NewPlantStore returns a store on db, whose schema must be migrated. It must be
// closed before db is.
func NewPlantStore(db *database.DB, o WriteOptions) *PlantStore {
	s := &PlantStore{db: db, bulk: make(chan struct{}, maxBulk)}
	// What is left of the connections when batches, bulk and tokens have theirs.
	s.writes = newTurns(max(db.Writers()-o.Flushers-maxBulk-1, 1), o.Timeout)
	s.reads = s.writes
	if readers := db.Readers(); readers > 0 {
		s.reads = newTurns(max(readers-maxBulk-1, 1), o.Timeout)
	}
	s.inserts = newGroupCommit(min(o.Flushers, db.Writers()), o.MaxBatch, o.Queue, o.Timeout, s.insert)
	return s
}

// Close waits until what was to be written is written. Later writes fail.
func (s *PlantStore) Close() { s.inserts.close() }

// WriteStats returns what the store has written so far.
func (s *PlantStore) WriteStats() WriteStats { return s.inserts.stats() }

// Create validates and stores a new plant and fills in its CreatedAt and
// UpdatedAt. When it returns nil, the row is on disk.
//
// It fails with an *InvalidError when p breaks a rule, an *ExistsError when the
// id is taken, ErrOverloaded when too many writes are waiting, and an error that
// wraps ErrUnavailable when the database cannot be reached in time; p must then
// not be used any more.
func (s *PlantStore) Create(ctx context.Context, p *Plant) error {
	if err := p.Validate(); err != nil {
		return err
	}
	return storeError("insert plant", s.inserts.do(ctx, p))
}

// insert writes a batch of plants and returns the outcome of each.
func (s *PlantStore) insert(ctx context.Context, batch []*Plant) []error {
	outcomes := make([]error, len(batch))
	err := insertPlants(ctx, s.db, batch, outcomes)
	switch {
	case err == nil:
	case len(batch) == 1 || database.IsUnavailable(err) && !database.IsLocked(err):
		for i := range outcomes {
			outcomes[i] = err
		}
	default:
		// One row that the database refuses, or that somebody has locked, must not
		// harm the others.
		for i := range batch {
			outcomes[i] = s.insert(ctx, batch[i:i+1])[0]
		}
	}
	return outcomes
}

// insertPlants writes a batch with one statement and fills in the outcome of each
// plant, or fails as a whole.
func insertPlants(ctx context.Context, db *database.DB, batch []*Plant, outcomes []error) error {
	// By ascending id, as InsertNew asks; of two with the same id, the first wins.
	order := make([]int, len(batch))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		return cmp.Or(cmp.Compare(batch[a].ID, batch[b].ID), cmp.Compare(a, b))
	})

	now := db.NowFunc()
	ids := make([]int64, 0, len(batch))
	names, tags := make([]string, 0, len(batch)), make([]*string, 0, len(batch))
	for n, i := range order {
		p := batch[i]
		p.CreatedAt, p.UpdatedAt = now, now
		if n == 0 || p.ID != ids[len(ids)-1] {
			ids, names, tags = append(ids, p.ID), append(names, p.Name), append(tags, p.Tag)
		}
	}
	created, err := db.InsertNew(ctx, "plants", database.ColumnOf("id", "bigint", ids),
		database.ColumnOf("name", "text", names), database.ColumnOf("tag", "text", tags),
		database.SameInAll("created_at", "timestamptz", now), database.SameInAll("updated_at", "timestamptz", now))
	if err != nil {
		return err
	}
	if len(created) == len(batch) {
		return nil
	}
	explainTaken(ctx, db, batch, order, created, outcomes)
	return nil
}

// explainTaken fills in the outcomes of those plants in batch whose ids were
// taken. created has the ids that were not: those plants are stored, whatever
// becomes of the others.
func explainTaken(ctx context.Context, db *database.DB, batch []*Plant, order []int, created []int64, outcomes []error) {
	holders := make(map[int64]*Plant, len(batch))
	mine := make(map[int64]bool, len(created))
	for _, id := range created {
		mine[id] = true
	}
	var taken []int64
	for _, i := range order {
		p := batch[i]
		switch {
		case holders[p.ID] != nil:
		case mine[p.ID]:
			holders[p.ID] = p // the first in the batch has it
		default:
			taken = append(taken, p.ID)
		}
	}
	var stored []Plant
	var unknown error
	if len(taken) > 0 {
		unknown = db.WithContext(ctx).Where("id IN ?", slices.Compact(taken)).Find(&stored).Error
	}
	for i := range stored {
		holders[stored[i].ID] = &stored[i]
	}
	for i, p := range batch {
		switch holder := holders[p.ID]; {
		case holder == p:
		case holder != nil:
			outcomes[i] = &ExistsError{ID: p.ID, Same: p.SameContent(holder)}
		case unknown != nil:
			outcomes[i] = unknown
		default:
			// Deleted between the two statements: the id is free again.
			if err := insertPlants(ctx, db, batch[i:i+1], outcomes[i:i+1]); err != nil {
				outcomes[i] = err
			}
		}
	}
}
