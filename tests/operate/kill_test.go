package operate

import (
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// kill ends the service as a power cut would.
func kill(s *service.Service) { _ = s.Process.Kill() }

// checkKilled waits for the end of a service that was killed.
func checkKilled(t *testing.T, s *service.Service) {
	t.Helper()
	if err := s.Wait(t); err == nil || err.Error() != "signal: killed" {
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
		known, broken, counts := service.Ledger{}, 0, tallies{}
		s := service.Start(t, "DATABASE_URL="+url)
		for round := range rounds {
			l := s.StartLoad(t, known)
			l.Await(50+rand.IntN(451), 200)
			// So many plants that few of them have a write whose outcome is unknown.
			h := newHistory(t, seed+round, 50, "PUT", "PUT", "DELETE")
			h.run([]*service.Service{s}, 20, 20+h.random.Int64N(150), func() { kill(s) })
			checkKilled(t, s)
			broken += l.End()
			s = service.Start(t, "DATABASE_URL="+url)
			s.Post(t, service.BodyOf(l.Last)).CheckError(t, 40902)
			h.read([]*service.Service{s})
			h.check()
			counts.add(h)
			for _, id := range h.plants { // which the ledger does not have
				s.Call(t, "DELETE", fmt.Sprintf("/plants/%d", id), "")
			}
		}
		if broken == 0 || counts["PUT 0"] == 0 || counts["DELETE 0"] == 0 {
			t.Errorf("got %d broken connections and %v, want kills during POSTs, PUTs and DELETEs", broken, counts)
		}
		t.Log(counts)
		known.Check(t, url)
	})
}

// TestKillPostgres kills PostgreSQL under load, repeatedly: the service responds with 503,
// keeps acknowledged plants, and works again when PostgreSQL does.
func TestKillPostgres(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := service.Start(t, "DATABASE_URL="+server.URL)
	known := service.Ledger{}
	l := s.StartLoad(t, known)
	for range 5 {
		l.Await(50+rand.IntN(451), 200)
		service.Must(t, server.Kill())
		l.Await(service.Clients, 503)
		s.Get(t, "/healthz").CheckStatus(t, 200)
		service.Must(t, server.Start())
	}
	l.Await(500, 200)
	if broken := l.End(); broken != 0 {
		t.Errorf("got %d broken connections to the service, want 0", broken)
	}
	s.Stop(t)
	known.Check(t, server.URL)
}

// TestTerminateWithFullQueue ends the service while its queue is full of writes that wait
// for the database: each gets a response.
func TestTerminateWithFullQueue(t *testing.T) {
	t.Parallel()
	const batch, queue = 8, 32
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=15s", "PLANTSTORE_WRITES_FLUSHERS=1",
			fmt.Sprintf("PLANTSTORE_WRITES_MAX_BATCH=%d", batch), fmt.Sprintf("PLANTSTORE_WRITES_QUEUE=%d", queue))
		unlock := service.LockTable(t, url)

		// One request more than fits into a batch and the half of the queue that a client may take.
		const requests = batch + queue/2 + 1
		arrivals, attempts := make(chan int64, requests), make(chan service.Attempt, requests)
		for range requests {
			go func() {
				id := service.IDs.Add(1)
				// With Expect, the client sends the body when the service asks for it:
				// then the request is in flight and must be finished.
				body := &service.WatchedReader{Reader: strings.NewReader(service.BodyOf(id)), OnRead: sync.OnceFunc(func() { arrivals <- id })}
				transport := &http.Transport{DisableKeepAlives: true, ExpectContinueTimeout: 2 * service.Patience}
				attempts <- s.Create(transport, id, body, "Expect", "100-continue")
			}()
		}
		for range requests {
			service.Receive(t, arrivals)
		}
		known := service.Ledger{}
		rejected := service.Receive(t, attempts)
		rejected.Response.CheckError(t, 50301)
		known.Record(t, rejected)

		service.Must(t, s.Process.Signal(syscall.SIGTERM))
		s.AwaitLog(t, "stopping")
		unlock()
		for range requests - 1 {
			a := service.Receive(t, attempts)
			if a.Err != nil || a.Response.Status != 200 && a.Response.Code() != 50301 {
				t.Errorf("plant %d: got %v, %v, want 200 or 50301", a.ID, a.Response, a.Err)
			}
			known.Record(t, a)
		}
		if err := s.Wait(t); err != nil {
			t.Errorf("got %v, want exit status 0", err)
		}
		if len(known) < queue/2 {
			t.Errorf("stored %d plants, want at least the %d in the queue", len(known), queue/2)
		}
		known.Check(t, url)
	})
}
