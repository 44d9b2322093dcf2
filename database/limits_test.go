package database

import (
	"testing"

	"plantstore/database/limit"
	"plantstore/database/sqlite"
)

// TestLimitsSpendEveryConnection: an operation with a turn never waits for a connection,
// and no connection is idle for want of a turn.
func TestLimitsSpendEveryConnection(t *testing.T) {
	for flushers := 1; flushers < 20; flushers++ {
		for connections := MinConnections(flushers); connections < 100; connections++ {
			b := newLimits(nil, flushers, connections, 1)
			got := unlimited
			for _, turns := range []*limit.Turns{b.lookups, b.reads, b.bulk, b.batches, b.writes, b.locked} {
				if got += turns.Len(); turns.Len() == 0 {
					t.Errorf("%d flushers and %d connections: got no turns for one of %+v", flushers, connections, b)
				}
			}
			if got != connections || b.batches.Len() != flushers {
				t.Errorf("%d flushers and %d connections: got %d turns, %+v", flushers, connections, got, b)
			}
		}
	}
}

func TestLimitsOfSQLite(t *testing.T) {
	b := newLimits(limit.NewTurns(1, 0), 0, sqlite.Readers, 1)
	for name, writes := range map[string]*limit.Turns{"batches": b.batches, "single writes": b.writes, "writes that wait for a lock": b.locked} {
		t.Run(name+" share the writer", func(t *testing.T) {
			if writes != b.writer || writes.Len() != 1 {
				t.Errorf("got %d turns of their own", writes.Len())
			}
		})
	}
	t.Run("reads have the other connections", func(t *testing.T) {
		if got := b.lookups.Len() + b.reads.Len() + b.bulk.Len() + unlimited + 1; got != sqlite.Readers {
			t.Errorf("got %d turns, want %d", got, sqlite.Readers)
		}
	})
}

// TestNoShareIsAll: a client that takes all it can leaves something for another client.
func TestNoShareIsAll(t *testing.T) {
	b := newLimits(nil, 1, 16, 1<<20)
	for name, s := range map[string]*limit.Shares{
		"imports and exports": b.Transfers, "writes that wait for a lock": b.waiters, "temporary files": b.Disk,
	} {
		t.Run(name, func(t *testing.T) {
			for s.Take("greedy", 1) == nil {
			}
			if err := s.Take("other", 1); err != nil {
				t.Error(err)
			}
		})
	}
	for name, turns := range map[string]*limit.Turns{"reads": b.reads, "imports and exports that store or read": b.bulk, "imports": b.imports} {
		t.Run(name, func(t *testing.T) {
			for {
				if _, err := turns.Take(limit.WithClient(t.Context(), "greedy"), 0); err != nil {
					break
				}
			}
			if _, err := turns.Take(limit.WithClient(t.Context(), "other"), 0); err != nil {
				t.Error(err)
			}
		})
	}
}
