package models

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/background"
	"plantstore/database/fault"
)

// Feed tells of changes to the rows of the model T: see database/feed.go. While readers wait, a single
// goroutine reads the feed for all of them. It is safe for concurrent use.
type Feed[T Model] struct {
	store *Store[T, int64]
	feed  *database.Feed

	followers atomic.Int64 // calls of Follow that have not returned
	mu        sync.Mutex
	// The newest pages that the goroutine has read, each from where the page before it ends,
	// and the next page, which is not read yet. Empty while the goroutine does not run.
	pages []*page[T]
}

// NewFeed returns the feed of the rows in store, on its primary. Who has got changes or a cursor of it reads
// no standby that lacks what is before them.
func NewFeed[T Model](store *Store[T, int64]) *Feed[T] {
	return &Feed[T]{store: store, feed: store.db.Feed(store.table)}
}

// Change is a row that was written, as it is now, or nil if it does not exist.
type Change[T any] struct {
	database.ChangedID
	Row *T
}

// Changes is a part of the feed, without repeated ids, and the cursor behind it.
type Changes[T any] struct {
	Rows []Change[T]
	Next database.Cursor
	// Position has all of the feed up to now, for reads from other replicas; or 0.
	Position database.Position
	// Kept lasts for as long as the result of Encode is kept for other readers: until it ends, a response with it takes
	// no memory of its own. It is nil if the result is not shared.
	Kept   context.Context //nolint:containedctx // ends when the feed forgets the page
	shared *page[T]        // if other readers have the same changes
}

// Encode returns the result of encode, which is called once for all readers of the same
// changes.
func (c *Changes[T]) Encode(encode func(*Changes[T]) ([]byte, error)) ([]byte, error) {
	p := c.shared
	if p == nil {
		return encode(c)
	}
	p.once.Do(func() {
		p.encodeErr = errors.New("another reader's encoding of the changes panicked")
		p.body, p.encodeErr = encode(c)
	})
	return p.body, p.encodeErr
}

// page is a part of the feed that readers share.
type page[T any] struct {
	from    database.Cursor // where the page before it ends
	read    database.Cursor // up to which no change was found; guarded by the feed's mutex
	ready   chan struct{}   // closed when changes and err are set
	changes Changes[T]
	err     error
	forget  context.CancelFunc // ends Kept
	// What all readers send.
	once      sync.Once
	body      []byte
	encodeErr error
}

func newPage[T any](from database.Cursor) *page[T] {
	p := &page[T]{from: from, read: from, ready: make(chan struct{})}
	p.changes.Kept, p.forget = context.WithCancel(context.Background())
	return p
}

const (
	pollInterval = 250 * time.Millisecond // between two looks for writes of other processes
	sharedPages  = 16
	// Under steady writes, the goroutine waits this long for each reader before it reads the next
	// page: writing it to a thousand connections takes tens of milliseconds, which other
	// requests need as well, and a reader that falls behind the shared pages reads its own.
	pausePerReader = 250 * time.Microsecond
	catchUpWait    = 10 * time.Second // for the turn of a follower to read a page, which takes milliseconds
)

// Read returns at most limit changes from a cursor on. It fails with database.ErrCursor if
// changes from there on are forgotten, with database.ErrNoFeed, and with the errors that all
// methods of the store share.
func (f *Feed[T]) Read(ctx context.Context, from database.Cursor, limit int) (Changes[T], error) {
	changes, err := f.catchUp(ctx, from, limit)
	return f.seen(ctx, changes, err)
}

// seen notes that ctx's client sees all of the feed up to now, unless err is not nil.
func (f *Feed[T]) seen(ctx context.Context, changes Changes[T], err error) (Changes[T], error) {
	if err == nil {
		changes.Position = f.store.db.Wrote(ctx, nil)
	}
	return changes, err
}

// catchUp reads a page in its turn: many followers that start at the same time take no turns from other reads.
func (f *Feed[T]) catchUp(ctx context.Context, from database.Cursor, limit int) (changes Changes[T], err error) {
	err = f.store.db.Limits.Work.Do(ctx, catchUpWait, func() error {
		changes, err = f.read(ctx, from, limit)
		return err
	})
	return changes, err
}

func (f *Feed[T]) read(ctx context.Context, from database.Cursor, limit int) (changes Changes[T], err error) {
	defer background.Recover("the feed", &err)
	all, next, err := f.feed.Changes(ctx, from, limit)
	changes.Next = next
	if err != nil || len(all) == 0 {
		return changes, err
	}
	last := make(map[int64]int, len(all)) // index of the last change, by id
	ids := make([]int64, len(all))
	for i, c := range all {
		last[c.ID], ids[i] = i, c.ID
	}
	var rows map[int64]*T
	err = f.store.db.Read(ctx, "read the feed", database.Few, func(tx *gorm.DB) (err error) {
		rows, err = f.store.getAll(tx.Statement.Context, f.store.db, ids, false)
		return err
	})
	for i, c := range all {
		if last[c.ID] == i {
			changes.Rows = append(changes.Rows, Change[T]{c, rows[c.ID]})
		}
	}
	return changes, err
}

// NextChanges is like [Feed.Read], but waits for a change. It fails if the context of Follow
// ends, and returns no changes if until ends before.
type NextChanges[T any] func(until context.Context, from database.Cursor, limit int) (Changes[T], error)

// Follow calls do with a function that waits for changes. It fails at once with limit.ErrShare
// at the limit of followers, in all or of ctx's client.
func (f *Feed[T]) Follow(ctx context.Context, do func(NextChanges[T]) error) error {
	return f.store.db.Limits.Followers.Do(ctx, func() error {
		f.followers.Add(1)
		defer f.followers.Add(-1)
		return do(func(until context.Context, from database.Cursor, limit int) (Changes[T], error) {
			changes, err := f.next(ctx, until, from, limit)
			return f.seen(ctx, changes, err)
		})
	})
}

func (f *Feed[T]) next(ctx, until context.Context, from database.Cursor, limit int) (Changes[T], error) {
	confirmed := false
	for {
		p, sure := f.pageAt(from)
		if p == nil || !sure && !confirmed {
			confirmed = true
			changes, err := f.catchUp(ctx, from, limit)
			if err != nil || len(changes.Rows) > 0 || until.Err() != nil {
				return changes, err
			}
			from = changes.Next
			f.start(from)
			continue
		}
		select {
		case <-p.ready:
		case <-ctx.Done():
			return Changes[T]{}, context.Cause(ctx)
		case <-until.Done():
			return Changes[T]{Next: from}, nil
		}
		if p.err != nil {
			return Changes[T]{}, p.err
		}
		changes := p.changes.after(from, limit)
		if len(changes.Rows) > 0 {
			return changes, nil
		}
		from = changes.Next
	}
}

// after returns at most limit of the changes after a cursor. A reader that is ahead of them
// stays where it is.
func (c Changes[T]) after(from database.Cursor, limit int) Changes[T] {
	if c.Next.Before(from) {
		return Changes[T]{Next: from}
	}
	all := len(c.Rows)
	for len(c.Rows) > 0 && !from.Before(c.Rows[0].Next) {
		c.Rows = c.Rows[1:]
	}
	if len(c.Rows) > limit {
		c.Rows, c.Next = c.Rows[:limit], c.Rows[limit-1].Next
	}
	if len(c.Rows) < all {
		c.shared, c.Kept = nil, nil
	}
	return c
}

// pageAt returns the shared page that has the changes from a cursor on, or nil. It is not sure
// if the goroutine has not read as far as the cursor: the database may have lost those changes,
// as after a failover.
func (f *Feed[T]) pageAt(from database.Cursor) (at *page[T], sure bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for i, p := range slices.Backward(f.pages) {
		if p.from.SameEpoch(from) && !from.Before(p.from) {
			return p, i < len(f.pages)-1 || !p.read.Before(from)
		}
	}
	return nil, false
}

// start starts the goroutine at from, unless it is running.
func (f *Feed[T]) start(from database.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.pages) == 0 {
		f.pages = []*page[T]{newPage[T](from)}
		go f.run(f.pages[0])
	}
}

// run reads pages, from p on, until the feed fails or nobody follows it.
func (f *Feed[T]) run(p *page[T]) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-f.feed.Written:
		}
		for {
			changes, err := f.read(context.Background(), p.read, database.MaxChanges) // for no client: it reads for all
			next := f.publish(p, changes, err)
			if next == nil {
				return
			}
			if next == p {
				break
			}
			p = next
			time.Sleep(time.Duration(f.followers.Load()) * pausePerReader) // for the readers to send it
		}
	}
}

// publish gives the readers the page p and returns the next page, or nil if the goroutine ends. If there are no changes, or
// the database is unavailable for now, it returns p: the readers go on waiting.
func (f *Feed[T]) publish(p *page[T], changes Changes[T], err error) *page[T] {
	_, lasts := errors.AsType[*fault.NotWritableError](err)
	f.mu.Lock()
	defer f.mu.Unlock()
	switch {
	case f.followers.Load() == 0:
		f.keep(0)
		return nil
	case !lasts && (errors.Is(err, fault.ErrUnavailable) || fault.NothingStored(err)):
		return p
	case err == nil && len(changes.Rows) == 0:
		p.read = changes.Next // from stays: readers may have the cursor at the end of the page before
		return p
	}
	changes.shared, changes.Kept = p, p.changes.Kept
	p.changes, p.err = changes, err
	close(p.ready)
	if err != nil {
		f.keep(0)
		return nil
	}
	next := newPage[T](changes.Next)
	f.pages = append(f.pages, next)
	f.keep(sharedPages)
	return next
}

// keep forgets all but the newest n pages. The caller holds the mutex.
func (f *Feed[T]) keep(n int) {
	for len(f.pages) > n {
		f.pages[0].forget()
		f.pages = slices.Delete(f.pages, 0, 1)
	}
}
