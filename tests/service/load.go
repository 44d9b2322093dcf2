package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
)

// Traffic is clients that are never idle. Each request that gets another response than 200
// or 204 is an error of the test.
type Traffic struct {
	served atomic.Int64
	stop   context.CancelFunc
	All    sync.WaitGroup
}

// StartTraffic starts clients, each with a connection and plants of its own. A client ends
// when its connection is refused.
func (s *Service) StartTraffic(t *testing.T, clients int) *Traffic {
	t.Helper()
	return s.StartTrafficOver(t, clients, func() *http.Transport { return new(http.Transport) })
}

// StartTrafficOver is StartTraffic over transports that newTransport returns.
func (s *Service) StartTrafficOver(t *testing.T, clients int, newTransport func() *http.Transport) *Traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &Traffic{stop: stop}
	t.Cleanup(l.All.Wait) // before the end of t, which clients would fail; its context has ended
	for range clients {
		l.All.Go(func() {
			transport := newTransport()
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				id := IDs.Add(1)
				path := fmt.Sprintf("/plants/%d", id)
				for _, request := range [][3]string{
					{"POST", "/plants", BodyOf(id)},
					{"GET", path},
					{"PUT", path, `{"name":"x"}`},
					{"PATCH", path, `{"tag":"y"}`},
					{"GET", fmt.Sprintf("/plants?limit=1&after=%d", id-1)},
					{"DELETE", path},
				} {
					r, err := s.TryOn(transport, request[0], request[1], strings.NewReader(request[2]), As(Token)...)
					switch {
					case errors.Is(err, syscall.ECONNREFUSED):
						return
					case err != nil || r.Status != http.StatusOK && r.Status != http.StatusNoContent:
						t.Errorf("%s %s: got %v, %v", request[0], request[1], r, err)
					default:
						l.served.Add(1)
					}
				}
			}
		})
	}
	return l
}

// Await waits for n more requests.
func (l *Traffic) Await(t *testing.T, n int64) {
	t.Helper()
	before := l.served.Load()
	Eventually(t, "requests", func() bool { return l.served.Load() >= before+n || t.Failed() })
}

// End stops the clients and returns how many requests they have sent.
func (l *Traffic) End() int64 {
	l.stop()
	l.All.Wait()
	return l.served.Load()
}

// DefaultDelay gives a service the default of server.shutdown_delay, instead of none as in
// other tests.
const DefaultDelay = "PLANTSTORE_SERVER_SHUTDOWN_DELAY="

// Clients is the number of clients of a load.
const Clients = 16

// NameOf returns the name of plant id. Names differ, so that a mix-up of rows in a batch
// shows.
func NameOf(id int64) string { return fmt.Sprintf("plant %d", id) }

// BodyOf returns plant id in JSON.
func BodyOf(id int64) string { return fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, NameOf(id)) }

// IDs numbers the plants of tests that share a database.
var IDs atomic.Int64

// Attempt is one request to create plant id.
type Attempt struct {
	ID       int64
	Response Response
	Err      error // if the connection broke
}

// Create sends a request to create plant id over transport.
func (s *Service) Create(transport *http.Transport, id int64, body io.Reader, headers ...string) Attempt {
	r, err := s.TryOn(transport, http.MethodPost, "/plants", body, append(headers, As(Token)...)...)
	return Attempt{id, r, err}
}

// Ledger has the plants that clients sent: true if their creation was acknowledged, false
// if the outcome is unknown. Plants known not to be stored are absent.
type Ledger map[int64]bool

// Record notes the outcome of an attempt.
func (l Ledger) Record(t *testing.T, a Attempt) {
	t.Helper()
	_, sent := l[a.ID]
	switch code := a.Response.Code(); {
	case a.Err != nil, code == 50302:
		l[a.ID] = false
	case a.Response.Status == 200, code == 40902 && sent: // stored by an earlier attempt
		l[a.ID] = true
	case code == 50301:
	default:
		t.Errorf("plant %d: got %v", a.ID, a.Response)
	}
}

// Check compares the ledger with the table: each acknowledged plant is stored exactly once
// as it was sent, and no others but those with an unknown outcome.
func (l Ledger) Check(t *testing.T, databaseURL string) {
	t.Helper()
	rows, err := OpenTable(t, databaseURL).QueryContext(t.Context(), "SELECT id, name FROM plants")
	Must(t, err)
	defer rows.Close()
	found := make(map[int64]int)
	for rows.Next() {
		var id int64
		var name string
		Must(t, rows.Scan(&id, &name))
		found[id]++
		if name != NameOf(id) {
			t.Errorf("plant %d: got name %q, want %q", id, name, NameOf(id))
		}
		if _, sent := l[id]; !sent {
			t.Errorf("plant %d: stored, want a plant that was acknowledged or has an unknown outcome", id)
		}
	}
	Must(t, rows.Err())
	acknowledged, late := 0, 0
	for id, stored := range l {
		switch n := found[id]; {
		case n > 1, stored && n == 0:
			t.Errorf("plant %d (acknowledged: %v): stored %d times", id, stored, n)
		case stored:
			acknowledged++
		case n == 1:
			late++
		}
	}
	t.Logf("%d plants were acknowledged; of %d with an unknown outcome, %d are stored", acknowledged, len(l)-acknowledged, late)
}

// Load is a number of clients that create plants, each one after another.
type Load struct {
	t        *testing.T
	known    Ledger
	Last     int64 // acknowledged plant
	attempts chan Attempt
	stop     context.CancelFunc
}

// StartLoad starts a load that is recorded in known. Its clients keep their connections
// and retry after a 503, as the README says.
func (s *Service) StartLoad(t *testing.T, known Ledger) *Load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	// Room for attempts while the test causes a fault.
	attempts := make(chan Attempt, 4096)
	var group sync.WaitGroup
	for range Clients {
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for id := IDs.Add(1); ctx.Err() == nil; {
				a := s.Create(transport, id, strings.NewReader(BodyOf(id)))
				attempts <- a
				if a.Err != nil {
					return
				}
				if a.Response.Status != http.StatusServiceUnavailable {
					id = IDs.Add(1)
				}
			}
		})
	}
	go func() {
		group.Wait()
		close(attempts)
	}()
	return &Load{t: t, known: known, attempts: attempts, stop: stop}
}

func (l *Load) record(a Attempt) {
	l.t.Helper()
	l.known.Record(l.t, a)
	if l.known[a.ID] {
		l.Last = a.ID
	}
}

// Await records attempts until n more have status.
func (l *Load) Await(n, status int) {
	l.t.Helper()
	deadline := time.After(Patience)
	for n > 0 {
		select {
		case a, ok := <-l.attempts:
			if !ok {
				l.t.Fatalf("all clients ended, want %d more responses with %d", n, status)
			}
			if a.Err != nil {
				l.t.Errorf("plant %d: %v", a.ID, a.Err)
			}
			l.record(a)
			if a.Response.Status == status {
				n--
			}
		case <-deadline:
			l.t.Fatalf("timeout, want %d more responses with %d", n, status)
		}
	}
}

// End stops the clients, records their last attempts, and returns the number of broken
// connections.
func (l *Load) End() (broken int) {
	l.t.Helper()
	l.stop()
	for a := range l.attempts {
		l.record(a)
		if a.Err != nil {
			broken++
		}
	}
	return broken
}

// ClosedLoop runs clients that send one request after another for span. It returns the
// number of responses of each status, and the time until the last.
func ClosedLoop(clients int, span time.Duration, send func() int) (map[int]int, time.Duration) {
	statuses, begin := NewTally(), time.Now()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for time.Since(begin) < span {
				statuses.Add(send())
			}
		})
	}
	all.Wait()
	return statuses.Counts, time.Since(begin)
}

// Tally counts responses by status.
type Tally struct {
	mu     sync.Mutex
	Counts map[int]int
}

// NewTally returns an empty tally.
func NewTally() *Tally { return &Tally{Counts: make(map[int]int)} }

// Add counts a response.
func (c *Tally) Add(status int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Counts[status]++
}

// Of returns how many responses have status.
func (c *Tally) Of(status int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.Counts[status]
}
