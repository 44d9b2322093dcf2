package models

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"gorm.io/gorm"

	"plantstore/database"
	"plantstore/database/background"
	"plantstore/database/fault"
)

// PlantFeed tells of changes to plants: see database/feed.go. While readers wait, one
// goroutine reads the feed for all of them. It is safe for concurrent use.
type PlantFeed struct {
	store *PlantStore

	mu        sync.Mutex
	followers int // calls of Follow that have not returned
	// The newest pages that the goroutine has read, each from where the one before it ends,
	// and the next one, which is not read yet. Empty while the goroutine does not run.
	pages []*page
	stop  context.CancelFunc
}

// NewPlantFeed returns the feed of the plants in store, on its primary. Who has got changes or a
// cursor of it reads no standby that lacks what is before them.
func NewPlantFeed(store *PlantStore) *PlantFeed { return &PlantFeed{store: store} }

// PlantChange is a plant that was written, as it is now, or nil if it does not exist.
type PlantChange struct {
	ID   int64
	Row  *Plant
	next database.Cursor // behind it
}

// PlantChanges is a part of the feed, without repeated ids, and the cursor behind it.
type PlantChanges struct {
	Rows []PlantChange
	Next database.Cursor
	// Position has all of the feed up to now, for reads from other replicas; or 0.
	Position database.Position
	shared   *encoded // if other readers have the same changes
}

// encoded is what all readers of a page send. It is kept for them until kept ends.
type encoded struct {
	kept   context.Context //nolint:containedctx // the page's
	forget context.CancelFunc
	once   sync.Once
	body   []byte
	err    error
}

func newEncoded() *encoded {
	e := new(encoded)
	e.kept, e.forget = context.WithCancel(context.Background())
	return e
}

// Encode returns the result of encode, which is called once for all readers of the same
// changes.
func (c *PlantChanges) Encode(encode func(*PlantChanges) ([]byte, error)) ([]byte, error) {
	if c.shared == nil {
		return encode(c)
	}
	c.shared.once.Do(func() {
		c.shared.err = errors.New("another reader's encoding of the changes panicked")
		c.shared.body, c.shared.err = encode(c)
	})
	return c.shared.body, c.shared.err
}

// Kept returns a context that lasts for as long as the result of Encode is kept for other
// readers, too: until that ends, a response with it takes no memory of its own. It returns nil
// if the result is not shared.
func (c *PlantChanges) Kept() context.Context {
	if c.shared == nil {
		return nil
	}
	return c.shared.kept
}

// page is a part of the feed that readers share.
type page struct {
	from    database.Cursor // where the page before it ends
	read    database.Cursor // up to which no change was found; guarded by the feed's mutex
	ready   chan struct{}   // closed when the rest is set
	changes PlantChanges
	err     error
}

func newPage(from database.Cursor) *page {
	return &page{from: from, read: from, ready: make(chan struct{})}
}

const (
	pollInterval = 250 * time.Millisecond // between two looks for writes of other processes
	sharedPages  = 16
	// Under steady writes, the goroutine waits this long for each reader before it reads the next
	// page: writing one to a thousand connections takes tens of milliseconds, which other
	// requests need, too, and a reader that falls behind the shared pages reads its own.
	pausePerReader = 250 * time.Microsecond
)

// Read returns at most limit changes from a cursor on. It fails with database.ErrCursor if
// changes from there on are forgotten, with database.ErrNoFeed, and with the errors that all
// methods of the store share.
func (f *PlantFeed) Read(ctx context.Context, from database.Cursor, limit int) (PlantChanges, error) {
	return f.seen(ctx)(f.catchUp(ctx, from, limit))
}

// seen returns a function that notes that ctx's client sees all of the feed up to now, unless err is not
// nil.
func (f *PlantFeed) seen(ctx context.Context) func(changes PlantChanges, err error) (PlantChanges, error) {
	return func(changes PlantChanges, err error) (PlantChanges, error) {
		if err == nil {
			changes.Position = f.store.db.Wrote(ctx, nil)
		}
		return changes, err
	}
}

func (f *PlantFeed) catchUp(ctx context.Context, from database.Cursor, limit int) (changes PlantChanges, err error) {
	err = f.store.db.Feed().CatchUp(ctx, func() error {
		changes, err = f.read(ctx, from, limit)
		return err
	})
	return changes, err
}

func (f *PlantFeed) read(ctx context.Context, from database.Cursor, limit int) (changes PlantChanges, err error) {
	all, next, err := f.store.db.Feed().Changes(ctx, from, limit)
	changes.Next = next
	if err != nil || len(all) == 0 {
		return changes, err
	}
	last := make(map[int64]int, len(all)) // index of the last change, by id
	ids := make([]int64, len(all))
	for i, c := range all {
		last[c.ID], ids[i] = i, c.ID
	}
	var rows map[int64]*Plant
	err = f.store.db.Read(ctx, "read the feed", func(tx *gorm.DB) (err error) {
		rows, err = f.store.getAll(tx.Statement.Context, f.store.db.ForReads(), ids, false)
		return err
	})
	for i, c := range all {
		if last[c.ID] == i {
			changes.Rows = append(changes.Rows, PlantChange{c.ID, rows[c.ID], c.Next})
		}
	}
	return changes, err
}

// readShared is read for the goroutine of the feed.
func (f *PlantFeed) readShared(ctx context.Context, from database.Cursor) (changes PlantChanges, err error) {
	defer background.Recover("the feed", &err)
	return f.read(ctx, from, database.MaxChanges)
}

// NextChanges is like [PlantFeed.Read], but waits for a change. It fails if the context of Follow
// ends, and returns no changes if until ends before there is one.
type NextChanges func(until context.Context, from database.Cursor, limit int) (PlantChanges, error)

// Follow calls do with a function that waits for changes. It fails with limit.ErrShare at
// once if there are too many followers, in all or of ctx's client.
func (f *PlantFeed) Follow(ctx context.Context, do func(NextChanges) error) error {
	return f.store.db.Feed().Follow(ctx, func() error {
		f.mu.Lock()
		f.followers++
		f.mu.Unlock()
		defer func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			if f.followers--; f.followers == 0 && f.stop != nil {
				f.end()
			}
		}()
		return do(func(until context.Context, from database.Cursor, limit int) (PlantChanges, error) {
			return f.seen(ctx)(f.next(ctx, until, from, limit))
		})
	})
}

func (f *PlantFeed) next(ctx, until context.Context, from database.Cursor, limit int) (PlantChanges, error) {
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
			return PlantChanges{}, context.Cause(ctx)
		case <-until.Done():
			return PlantChanges{Next: from}, nil
		}
		if p.err != nil {
			return PlantChanges{}, p.err
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
func (c PlantChanges) after(from database.Cursor, limit int) PlantChanges {
	if c.Next.Before(from) {
		return PlantChanges{Next: from}
	}
	first := slices.IndexFunc(c.Rows, func(change PlantChange) bool { return from.Before(change.next) })
	if first < 0 {
		first = len(c.Rows)
	}
	if first > 0 || len(c.Rows) > limit {
		c.shared = nil
	}
	c.Rows = c.Rows[first:]
	if len(c.Rows) > limit {
		c.Rows = c.Rows[:limit]
		c.Next = c.Rows[limit-1].next
	}
	return c
}

// pageAt returns the shared page that has the changes from a cursor on, or nil. It is not sure
// if the goroutine has not read as far as the cursor: the database may have lost those changes,
// as after a failover.
func (f *PlantFeed) pageAt(from database.Cursor) (at *page, sure bool) {
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
func (f *PlantFeed) start(from database.Cursor) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.pages != nil || f.followers == 0 {
		return
	}
	f.pages = []*page{newPage(from)}
	var ctx context.Context // of no request, as it reads for all clients
	ctx, f.stop = context.WithCancel(context.Background())
	go f.run(ctx, f.pages[0])
}

// run reads pages, of which p is the first one, until ctx ends.
func (f *PlantFeed) run(ctx context.Context, p *page) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		case <-f.store.db.Feed().Written():
		}
		for {
			changes, err := f.readShared(ctx, p.read)
			_, lasts := errors.AsType[*fault.NotWritableError](err)
			if !lasts && (errors.Is(err, fault.ErrUnavailable) || fault.NothingStored(err)) {
				break // readers go on waiting
			}
			found := len(changes.Rows) > 0
			p = f.publish(ctx, p, changes, err)
			if p == nil {
				return
			}
			if !found {
				break
			}
			f.pause(ctx)
		}
	}
}

// publish gives the readers a page and returns the next one, or nil if ctx or the feed has
// ended. If there are no changes, the page stays the next one.
func (f *PlantFeed) publish(ctx context.Context, p *page, changes PlantChanges, err error) *page {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ctx.Err() != nil {
		return nil
	}
	if err == nil && len(changes.Rows) == 0 {
		p.read = changes.Next // from stays: readers may have the cursor at the end of the page before
		return p
	}
	changes.shared = newEncoded()
	p.changes, p.err = changes, err
	close(p.ready)
	if err != nil {
		f.end()
		return nil
	}
	next := newPage(changes.Next)
	f.pages = append(f.pages, next)
	if len(f.pages) > sharedPages {
		f.pages[0].changes.shared.forget()
		f.pages = slices.Clone(f.pages[1:])
	}
	return next
}

// end ends the goroutine, and forgets its pages. The caller holds the mutex.
func (f *PlantFeed) end() {
	f.stop()
	for _, p := range f.pages {
		if p.changes.shared != nil {
			p.changes.shared.forget()
		}
	}
	f.pages, f.stop = nil, nil
}

// pause leaves time for the readers to send a page.
func (f *PlantFeed) pause(ctx context.Context) {
	f.mu.Lock()
	pause := time.Duration(f.followers) * pausePerReader
	f.mu.Unlock()
	background.Sleep(ctx, pause)
}
