package database

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"plantstore/database/batch"
	"plantstore/database/fault"
	"plantstore/database/limit"
)

// TestWrittenIsForgotten: only if the primary has responded for as long as a standby in use may lack a write.
func TestWrittenIsForgotten(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		stored, since time.Time
		kept          bool
	}{
		"long ago":                          {now.Add(-2 * time.Hour), now.Add(-3 * time.Hour), false},
		"a moment ago":                      {now.Add(-time.Second), now.Add(-3 * time.Hour), true},
		"before the primary was asked":      {now.Add(-2 * time.Hour), now.Add(-time.Second), true},
		"while the primary did not respond": {now.Add(-2 * time.Hour), time.Time{}, true},
	} {
		t.Run(name, func(t *testing.T) {
			s := &standbys{primary: &DB{options: Options{MaxReplicaLag: time.Hour}}, since: test.since, written: map[string]need{"a": {500, test.stored}}}
			s.note(now, state{position: 600})
			if _, kept := s.written["a"]; kept != test.kept {
				t.Errorf("kept: got %t, want %t", kept, test.kept)
			}
		})
	}
}

// TestLagAfterAFailover: what only the lost primary had is nothing that a standby lacks.
func TestLagAfterAFailover(t *testing.T) {
	now := time.Now()
	s := &standbys{primary: new(DB), history: []moment{{now.Add(-3 * time.Hour), 100}, {now.Add(-2 * time.Hour), 300}}}
	s.note(now.Add(-time.Hour), state{position: 200})
	if lag := s.lagAt(200); lag != 0 {
		t.Errorf("a standby that has all: got %s, want 0", lag)
	}
	if lag := s.lagAt(199); lag < time.Hour || lag >= 2*time.Hour {
		t.Errorf("a standby that lacks the newest write: got %s, want that of the new primary", lag)
	}
}

// TestReadsAfterALostWrite: a client whose write has an unknown outcome reads from the primary,
// and others from the standby.
func TestReadsAfterALostWrite(t *testing.T) {
	for name, test := range map[string]struct {
		outcome error
		standby bool // the writer's reads use it
	}{
		"an unknown outcome":    {fmt.Errorf("x: %w", fault.ErrUnavailable), false},
		"nothing was stored":    {limit.ErrShare, true},
		"no room in the queues": {limit.ErrBusy, true},
		"no position":           {nil, false},
	} {
		t.Run(name, func(t *testing.T) {
			only := &standby{DB: new(DB)}
			only.inUse.Store(true)
			only.replayed.Store(100)
			s := &standbys{primary: new(DB), all: []*standby{only}, first: 1, written: make(map[string]need)}
			o := batch.Options{Max: 1, Queue: 1, Timeout: time.Second, Turns: limit.NewTurns(1, 0)}
			s.positions = batch.New(o, func(context.Context, []*Position) []error { return []error{fault.ErrUnavailable} })
			defer s.positions.Close()
			db := &DB{standbys: s}
			writer, other := limit.WithClient(t.Context(), "writer"), limit.WithClient(t.Context(), "other")
			if at := db.Wrote(writer, test.outcome); at != 0 {
				t.Errorf("got the position %v, want none", at)
			}
			if got := db.Standby(writer) == only.DB; got != test.standby {
				t.Errorf("the writer reads from the standby: got %v, want %v", got, test.standby)
			}
			if db.Standby(other) != only.DB {
				t.Error("another client does not read from the standby")
			}
		})
	}
}

// TestHistoryOutlastsTheLag: a standby may be in use that lacks what was written for as long as
// max_replica_lag.
func TestHistoryOutlastsTheLag(t *testing.T) {
	s := &standbys{primary: &DB{options: Options{MaxReplicaLag: time.Hour}}}
	if s.kept() <= time.Hour {
		t.Errorf("kept for %s", s.kept())
	}
}

// TestCatchUp: pages of followers are read one after the other, and those of one client do not
// queue before those of others.
func TestCatchUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pages := limit.NewTurns(1, 1) // as Limits.Work has on two processors
		running, end, order := 0, make(chan struct{}), make(chan string, 4)
		read := func(client string) {
			err := pages.Do(limit.WithClient(t.Context(), client), time.Minute, func() error {
				if running++; running > 1 {
					t.Error("two pages at the same time")
				}
				order <- client
				<-end
				running--
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		}
		for _, client := range []string{"greedy", "greedy", "greedy", "other"} {
			go read(client)
			synctest.Wait()
		}
		for range 4 {
			end <- struct{}{}
			synctest.Wait()
		}
		<-order
		if second := <-order; second != "other" {
			t.Errorf("got the turn of %s, want other", second)
		}
	})
}
