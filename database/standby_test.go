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

// TestSampleKeepsWhatIsKnown: of a client with a lost write and a later one whose position is
// known, reads must see both.
func TestSampleKeepsWhatIsKnown(t *testing.T) {
	begin := time.Now()
	for name, test := range map[string]struct{ had, want need }{
		"a lost write before":  {need{0, begin.Add(-time.Second)}, need{490, time.Time{}}},
		"and a later position": {need{500, begin.Add(-time.Second)}, need{500, time.Time{}}},
		"a lost write after":   {need{500, begin.Add(time.Second)}, need{500, begin.Add(time.Second)}},
		"no lost write":        {need{500, time.Time{}}, need{500, time.Time{}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := test.had.from(begin, 490); got != test.want {
				t.Errorf("got %+v, want %+v", got, test.want)
			}
		})
	}
}

func TestStandbyIsAhead(t *testing.T) {
	now := time.Now()
	s := &standbys{history: []moment{{now.Add(-2 * time.Second), 100}, {now.Add(-time.Second), 200}}}
	for name, test := range map[string]struct {
		had          moment
		ahead, known bool
	}{
		"less":                         {moment{now.Add(-3 * time.Second), 199}, false, true},
		"as much":                      {moment{now.Add(-3 * time.Second), 200}, false, true},
		"more":                         {moment{now.Add(-3 * time.Second), 201}, true, true},
		"more than the primary before": {moment{now, 201}, false, false},
		"nothing yet":                  {moment{}, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			if ahead, known := s.isAhead(test.had); ahead != test.ahead || known != test.known {
				t.Errorf("got %t, %t, want %t, %t", ahead, known, test.ahead, test.known)
			}
		})
	}
}

// TestLagAfterAFailover: what only the lost primary had is nothing that a standby lacks.
func TestLagAfterAFailover(t *testing.T) {
	now := time.Now()
	s := &standbys{history: []moment{{now.Add(-3 * time.Hour), 100}, {now.Add(-2 * time.Hour), 300}}}
	s.note(moment{now.Add(-time.Hour), 200})
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
			s := &standbys{all: []*standby{only}, first: 1, written: make(map[string]need)}
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
		db := &DB{limits: commonLimits(1, 1)}
		db.feed = newFeed(db)
		running, end, order := 0, make(chan struct{}), make(chan string, 4)
		read := func(client string) {
			err := db.Feed().CatchUp(limit.WithClient(t.Context(), client), func() error {
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
