package tests

import (
	"context"
	"database/sql"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver pgx
	"github.com/libtnb/sqlite"

	"plantstore/database/dbtest"
)

// clients is the number of clients of a load.
const clients = 16

// nameOf returns the name of plant id. Names differ, so that a mix-up of rows in a batch
// shows.
func nameOf(id int64) string { return fmt.Sprintf("plant %d", id) }

func bodyOf(id int64) string { return fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, nameOf(id)) }

// ids numbers the plants of tests that share a database.
var ids atomic.Int64

// attempt is one request to create plant id.
type attempt struct {
	id       int64
	response response
	err      error // if the connection broke
}

func (s *service) create(transport *http.Transport, id int64, body io.Reader, headers ...string) attempt {
	r, err := s.tryOn(transport, http.MethodPost, "/plants", body, append(headers, as(token)...)...)
	return attempt{id, r, err}
}

// ledger has the plants that clients sent: true if their creation was acknowledged, false
// if the outcome is unknown. Plants known not to be stored are absent.
type ledger map[int64]bool

func (l ledger) record(t *testing.T, a attempt) {
	t.Helper()
	_, sent := l[a.id]
	switch code := a.response.code(); {
	case a.err != nil, code == 50302:
		l[a.id] = false
	case a.response.status == 200, code == 40902 && sent: // stored by an earlier attempt
		l[a.id] = true
	case code == 50301:
	default:
		t.Errorf("plant %d: got %v", a.id, a.response)
	}
}

// check compares the ledger with the table: each acknowledged plant is stored exactly once
// as it was sent, and no others but those with an unknown outcome.
func (l ledger) check(t *testing.T, databaseURL string) {
	t.Helper()
	rows, err := openTable(t, databaseURL).QueryContext(t.Context(), "SELECT id, name FROM plants")
	must(t, err)
	defer rows.Close()
	found := make(map[int64]int)
	for rows.Next() {
		var id int64
		var name string
		must(t, rows.Scan(&id, &name))
		found[id]++
		if name != nameOf(id) {
			t.Errorf("plant %d: got name %q, want %q", id, name, nameOf(id))
		}
		if _, sent := l[id]; !sent {
			t.Errorf("plant %d: stored, want a plant that was acknowledged or has an unknown outcome", id)
		}
	}
	must(t, rows.Err())
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

// openTable opens the database of a service.
func openTable(t *testing.T, databaseURL string) *sql.DB {
	t.Helper()
	driver, name := "pgx", databaseURL
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		driver, name = sqlite.DriverName, "file:"+path+"?_pragma=busy_timeout(5000)" // the service marks the feed
	}
	db, err := sql.Open(driver, name)
	must(t, err)
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	return db
}

// load is a number of clients that create plants, each one after another.
type load struct {
	t        *testing.T
	known    ledger
	last     int64 // acknowledged plant
	attempts chan attempt
	stop     context.CancelFunc
}

// startLoad starts a load that is recorded in known. Its clients keep their connections
// and retry after a 503, as the README says.
func (s *service) startLoad(t *testing.T, known ledger) *load {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	// Room for attempts while the test causes a fault.
	attempts := make(chan attempt, 4096)
	var group sync.WaitGroup
	for range clients {
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for id := ids.Add(1); ctx.Err() == nil; {
				a := s.create(transport, id, strings.NewReader(bodyOf(id)))
				attempts <- a
				if a.err != nil {
					return
				}
				if a.response.status != http.StatusServiceUnavailable {
					id = ids.Add(1)
				}
			}
		})
	}
	go func() {
		group.Wait()
		close(attempts)
	}()
	return &load{t: t, known: known, attempts: attempts, stop: stop}
}

func (l *load) record(a attempt) {
	l.t.Helper()
	l.known.record(l.t, a)
	if l.known[a.id] {
		l.last = a.id
	}
}

// await records attempts until n more have status.
func (l *load) await(n, status int) {
	l.t.Helper()
	deadline := time.After(patience)
	for n > 0 {
		select {
		case a, ok := <-l.attempts:
			if !ok {
				l.t.Fatalf("all clients ended, want %d more responses with %d", n, status)
			}
			if a.err != nil {
				l.t.Errorf("plant %d: %v", a.id, a.err)
			}
			l.record(a)
			if a.response.status == status {
				n--
			}
		case <-deadline:
			l.t.Fatalf("timeout, want %d more responses with %d", n, status)
		}
	}
}

// end stops the clients, records their last attempts, and returns the number of broken
// connections.
func (l *load) end() (broken int) {
	l.t.Helper()
	l.stop()
	for a := range l.attempts {
		l.record(a)
		if a.err != nil {
			broken++
		}
	}
	return broken
}

// kill ends the service as a power cut would.
func (s *service) kill() { _ = s.process.Kill() }

// checkKilled waits for the end of a service that was killed.
func (s *service) checkKilled(t *testing.T) {
	t.Helper()
	if err := s.wait(t); err == nil || err.Error() != "signal: killed" {
		t.Errorf("got %v, want a killed service", err)
	}
}

// TestKillService kills the service under load, repeatedly on the same database:
// acknowledged plants stay stored, and others are replaced and deleted as acknowledged. It
// has as many rounds as HISTORIES says, at most 20.
func TestKillService(t *testing.T) {
	t.Parallel()
	rounds, seed := min(numberFrom(t, "HISTORIES", 10), 20), seedOf(t)
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		known, broken, counts := ledger{}, 0, tallies{}
		s := start(t, "DATABASE_URL="+url)
		for round := range rounds {
			l := s.startLoad(t, known)
			l.await(50+rand.IntN(451), 200)
			// So many plants that few of them have a write whose outcome is unknown.
			h := newHistory(t, seed+round, 50, "PUT", "PUT", "DELETE")
			h.run([]*service{s}, 20, 20+h.random.Int64N(150), s.kill)
			s.checkKilled(t)
			broken += l.end()
			s = start(t, "DATABASE_URL="+url)
			checkError(t, s.post(t, bodyOf(l.last)), 40902)
			h.read([]*service{s})
			h.check()
			counts.add(h)
			for _, id := range h.plants { // which the ledger does not have
				s.call(t, "DELETE", fmt.Sprintf("/plants/%d", id), "")
			}
		}
		if broken == 0 || counts["PUT 0"] == 0 || counts["DELETE 0"] == 0 {
			t.Errorf("got %d broken connections and %v, want kills during POSTs, PUTs and DELETEs", broken, counts)
		}
		t.Log(counts)
		known.check(t, url)
	})
}

// TestKillPostgres kills PostgreSQL under load, repeatedly: the service responds with 503,
// keeps acknowledged plants, and works again when PostgreSQL does.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	known := ledger{}
	l := s.startLoad(t, known)
	for range 5 {
		l.await(50+rand.IntN(451), 200)
		must(t, server.Kill())
		l.await(clients, 503)
		checkStatus(t, s.get(t, "/healthz"), 200)
		must(t, server.Start())
	}
	l.await(500, 200)
	if broken := l.end(); broken != 0 {
		t.Errorf("got %d broken connections to the service, want 0", broken)
	}
	s.stop(t)
	known.check(t, server.URL)
}

// TestTerminateWithFullQueue ends the service while its queue is full of writes that wait
// for the database: each gets a response.
func TestTerminateWithFullQueue(t *testing.T) {
	t.Parallel()
	const batch, queue = 8, 32
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=15s", "PLANTSTORE_WRITES_FLUSHERS=1",
			fmt.Sprintf("PLANTSTORE_WRITES_MAX_BATCH=%d", batch), fmt.Sprintf("PLANTSTORE_WRITES_QUEUE=%d", queue))
		unlock := lockTable(t, url)

		// One request more than fits into a batch and the half of the queue that a client may take.
		const requests = batch + queue/2 + 1
		arrivals, attempts := make(chan int64, requests), make(chan attempt, requests)
		for range requests {
			go func() {
				id := ids.Add(1)
				// With Expect, the client sends the body when the service asks for it:
				// then the request is in flight and must be finished.
				body := &watchedReader{strings.NewReader(bodyOf(id)), sync.OnceFunc(func() { arrivals <- id })}
				transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * patience}
				attempts <- s.create(transport, id, body, "Expect", "100-continue")
			}()
		}
		for range requests {
			receive(t, arrivals)
		}
		known := ledger{}
		rejected := receive(t, attempts)
		checkError(t, rejected.response, 50301)
		known.record(t, rejected)

		must(t, s.process.Signal(syscall.SIGTERM))
		s.awaitLog(t, "stopping")
		unlock()
		for range requests - 1 {
			a := receive(t, attempts)
			if a.err != nil || a.response.status != 200 && a.response.code() != 50301 {
				t.Errorf("plant %d: got %v, %v, want 200 or 50301", a.id, a.response, a.err)
			}
			known.record(t, a)
		}
		if err := s.wait(t); err != nil {
			t.Errorf("got %v, want exit status 0", err)
		}
		if len(known) < queue/2 {
			t.Errorf("stored %d plants, want at least the %d in the queue", len(known), queue/2)
		}
		known.check(t, url)
	})
}

// watchedReader calls onRead before each read.
type watchedReader struct {
	io.Reader
	onRead func()
}

func (r *watchedReader) Read(p []byte) (int, error) {
	r.onRead()
	return r.Reader.Read(p)
}

// lockTable blocks writes of plants until unlock is called.
func lockTable(t *testing.T, databaseURL string) (unlock func()) {
	t.Helper()
	conn, err := openTable(t, databaseURL).Conn(t.Context())
	must(t, err)
	exec := func(statement string) {
		if _, err := conn.ExecContext(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	if strings.HasPrefix(databaseURL, "sqlite:") {
		exec("BEGIN IMMEDIATE")
	} else {
		exec("BEGIN; LOCK TABLE plants IN ACCESS EXCLUSIVE MODE")
	}
	return func() {
		exec("ROLLBACK")
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}
}
