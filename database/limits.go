package database

import (
	"runtime"
	"sync/atomic"

	"plantstore/database/limit"
)

// How many of these may run at the same time, in all and of each client.
const (
	MaxTransfers     = 16 // imports and exports, most of the time without a connection
	MaxTransfersEach = 4
	MaxBulk          = 3 // imports and exports that store or read rows
	MaxBulkEach      = 2
	MaxImports       = 2 // of these, imports: then an export can read
	MaxImportsEach   = 1
	MaxScans         = 2  // searches and counts, each of another client
	MaxPages         = 16 // pages of many rows in memory
	MaxPagesEach     = 8
	MaxWaiters       = 64 // writes that wait for a lock
	MaxWaitersEach   = 16
	MaxFollowers     = 2000 // requests that follow the feed; waiting, each takes 20 to 40 KiB, and no connection
	MaxFollowersEach = 100
)

// Connections whose number does not depend on database.max_connections.
const (
	lookupBatches = 2 // of reads by key
	singleWrites  = 1 // of tokens
	unlimited     = 1 // what takes no turn: the refresh of tokens, readiness, the upkeep of feeds, checks of standbys and of nodes
)

const fixedConnections = lookupBatches + singleWrites + unlimited + MaxBulk

// MinConnections is the fewest connections to PostgreSQL that suffice for flushers
// batches of writes at a time: a further connection is left for reads, and another for writes that wait for a
// lock.
func MinConnections(flushers int) int { return flushers + fixedConnections + 2 }

// Limits share out the connections, so that no kind of operation can starve another.
type Limits struct {
	// Work is turns to compute for about a millisecond or more: half of the processors, and one for each client.
	// They rest while operations on single rows wait.
	Work      *limit.Turns
	Pages     *limit.Turns  // pages of many rows, from before they are read until they are encoded
	Followers *limit.Shares // of the feed
	Transfers *limit.Shares // imports and exports
	Disk      *limit.Shares // bytes of temporary files

	scans         *limit.Turns  // reads that may look at all rows of a table; each takes a turn of reads, too
	lookups       *limit.Turns  // batches of reads by key
	reads         *limit.Turns  // other reads
	bulk, imports *limit.Turns  // imports and exports that use the database; an import takes a turn of both
	batches       *limit.Turns  // of writes
	writes        *limit.Turns  // single writes
	locked        *limit.Turns  // writes that wait for a lock
	writer        *limit.Turns  // the only turn of SQLite, which all writes share; or nil
	waiters       *limit.Shares // of turns of locked
	next          atomic.Int64  // when the next import may use writer, in nanoseconds since 1970
}

// newLimits returns the limits of a server with a number of connections or, if writer is not nil, of a SQLite
// file: its connections only read, one of them for the batch of writes, and all writes share writer.
func newLimits(writer *limit.Turns, flushers, connections int, temporaryBytes int64) *Limits {
	reads := connections - flushers - fixedConnections
	batches, writes, locked := writer, writer, writer
	if writer == nil {
		waiting := max(reads/4, 1)
		reads = max(reads-waiting, 1)
		batches, writes, locked = limit.NewTurns(flushers, 0), limit.NewTurns(singleWrites, 0), limit.NewTurns(waiting, 0)
	}
	return &Limits{
		Work:      limit.NewTurns(max(runtime.GOMAXPROCS(0)/2, 1), 1),
		Pages:     limit.NewTurns(MaxPages, MaxPagesEach),
		Followers: limit.NewShares(MaxFollowers, MaxFollowersEach),
		Transfers: limit.NewShares(MaxTransfers, MaxTransfersEach),
		Disk:      limit.NewShares(temporaryBytes, temporaryBytes/2),
		scans:     limit.NewTurns(MaxScans, 1),
		lookups:   limit.NewTurns(lookupBatches, 0),
		reads:     limit.NewTurns(reads, max(reads/2, 1)),
		bulk:      limit.NewTurns(MaxBulk, MaxBulkEach),
		imports:   limit.NewTurns(MaxImports, MaxImportsEach),
		batches:   batches,
		writes:    writes,
		locked:    locked,
		writer:    writer,
		waiters:   limit.NewShares(MaxWaiters, MaxWaitersEach),
	}
}
