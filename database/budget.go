package database

// How many of these may run at the same time, in all and of each client.
const (
	MaxTransfers     = 16 // imports and exports, most of the time without a connection
	MaxTransfersEach = 4
	MaxBulk          = 3 // those that store or read rows
	MaxBulkEach      = 2
	MaxImports       = 2 // those of them that store rows: one more can read
	MaxImportsEach   = 1
	MaxWaiters       = 64 // writes that wait for a lock
	MaxWaitersEach   = 16
	MaxFollowers     = 2000 // requests that follow the feed; a waiting one takes 20 to 40 KiB, and no connection
	MaxFollowersEach = 100
)

// Connections whose number does not depend on database.max_connections.
const (
	lookupBatches  = 2 // lookups by key
	suspectBatches = 1 // inserts and changes of clients that wait for locks
	singleWrites   = 1 // those of tokens
	background     = 1 // what takes no slot: the refresh of tokens, readiness, checks of standbys and of nodes
)

const fixedConnections = lookupBatches + suspectBatches + singleWrites + background + MaxBulk

// MinConnections is the fewest connections to PostgreSQL that suffice for flushers
// batches of writes at a time: one more is left for reads, and one for writes that wait for a
// lock.
func MinConnections(flushers int) int { return flushers + fixedConnections + 2 }

// budget shares out the connections, so that no kind of operation can starve another.
type budget struct {
	lookups                           slots  // reads by key, in batches
	reads                             *turns // other reads
	bulk, imports                     *turns // imports and exports that use the database; an import takes a turn of both
	batches, suspects, writes, locked slots  // writes in batches, single ones, and those that wait for a lock
	writer                            slots  // the only one of SQLite, shared by all writes; or nil
	pages                             *turns // pages of the feed for followers that are behind; each takes a turn for reads, too
	transfers, waiters, disk          *Shares
	followers                         *Shares
}

// newBudget returns the budget of a PostgreSQL database.
func newBudget(flushers, connections int, temporaryBytes int64) budget {
	rest := max(connections-flushers-fixedConnections, 2)
	locked := max(rest/4, 1)
	b := commonBudget(temporaryBytes)
	b.reads = newReads(rest - locked)
	b.locked = make(slots, locked)
	b.batches, b.suspects, b.writes = make(slots, flushers), make(slots, suspectBatches), make(slots, singleWrites)
	return b
}

// newFileBudget returns the budget of a SQLite database, which has connections for
// reading, and one that writes.
func newFileBudget(readers int, temporaryBytes int64) budget {
	b := commonBudget(temporaryBytes)
	b.reads = newReads(readers - lookupBatches - MaxBulk - background)
	b.writer = make(slots, 1)
	b.writes, b.batches, b.locked = b.writer, b.writer, b.writer
	return b
}

func commonBudget(temporaryBytes int64) budget {
	return budget{
		lookups:   make(slots, lookupBatches),
		transfers: NewShares(MaxTransfers, MaxTransfersEach),
		bulk:      newTurns(MaxBulk, MaxBulkEach),
		imports:   newTurns(MaxImports, MaxImportsEach),
		waiters:   NewShares(MaxWaiters, MaxWaitersEach),
		disk:      NewShares(temporaryBytes, temporaryBytes/2),
		followers: NewShares(MaxFollowers, MaxFollowersEach),
		pages:     newTurns(1, 1),
	}
}

// newReads returns the turns of reads with n connections, of which a client may use half.
func newReads(n int) *turns { return newTurns(n, max(n/2, 1)) }
