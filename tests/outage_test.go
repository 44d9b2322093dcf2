package tests

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// ownServer returns a PostgreSQL server that the test may stop.
func ownServer(t *testing.T) *dbtest.Server {
	t.Helper()
	server, err := dbtest.StartServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestPostgresOutage stops PostgreSQL under the running service and starts it
// again.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	create := func(id int) response { return s.post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, id)) }
	requireStatus(t, create(1), 200)

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for id := range 20 {
		group.Go(func() {
			begin := time.Now()
			r := create(100 + id)
			checkError(t, r, 50302)
			checkHas(t, r, "Retry-After")
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the answer took %v", took)
			}
		})
	}
	group.Wait()
	checkError(t, s.get(t, "/readyz"), 50302) // /readyz without a database
	checkStatus(t, s.get(t, "/healthz"), 200)

	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	checkStatus(t, create(2), 200)
	checkError(t, create(1), 40902) // what was stored before
}

// TestPlantsWithoutDatabase asks for everything while PostgreSQL is down.
func TestPlantsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	requireStatus(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`), 200)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, request := range [][]string{
		{"GET", "/plants", ""},
		{"GET", "/plants/1", ""},
		{"PUT", "/plants/1", `{"name":"x"}`},
		{"PUT", "/plants/1", `{"name":"x"}`, "If-Match", `"x"`},
		{"PATCH", "/plants/1", `{}`},
		{"PATCH", "/plants/1", `{}`, "If-None-Match", "*"},
		{"DELETE", "/plants/1", ""},
		{"GET", "/plants/export", ""},
		{"GET", "/plants/export", "", "Accept", "text/csv"},
		{"POST", "/plants/import", bodyOf(2), "Content-Type", "application/x-ndjson"},
	} {
		t.Run(strings.Join(request, " "), func(t *testing.T) {
			r := s.call(t, request[0], request[1], request[2], request[3:]...)
			checkError(t, r, 50302)
			checkHas(t, r, "Retry-After")
		})
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	checkStored(t, s.call(t, "GET", "/plants/1", ""), `{"id":1,"name":"x"}`) // with the database back
}

// TestTokensWithoutPostgres stops PostgreSQL under the running service: a token
// that is known is still good for a moment, and whoever has a good one is never told
// that it is not.
func TestTokensWithoutPostgres(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	known, unknown := issue(t, server.URL), issue(t, dbtest.SQLite(t))
	// A bad body tells whether the token is accepted, for it needs no database.
	try := func(issued string) response { return s.post(t, "{", as(issued)...) }
	checkError(t, try(known), 40001)   // a known token
	checkError(t, try(unknown), 40102) // an unknown token

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	checkError(t, try(known), 40001) // a known token, just now
	for {
		r := try(known)
		if r.status == 503 {
			checkError(t, r, 50302) // a known token
			if r.header.Get("Retry-After") == "" || r.header.Get("WWW-Authenticate") != "" {
				t.Errorf("a known token: headers %v", r.header)
			}
			break
		}
		checkError(t, r, 40001) // a known token, for a while
		if time.Since(stopped) > patience {
			t.Fatal("a token is trusted for ever")
		}
	}
	took := time.Since(stopped)
	t.Logf("without a database, a known token was trusted for %v", took.Round(10*time.Millisecond))
	if took > revocationTime {
		t.Errorf("that is more than %v", revocationTime)
	}
	for _, test := range []struct {
		name, token string
		code        int
	}{
		{"a known token", known, 50302},
		{"a token that may have been issued since", unknown, 50302},
		{"a mistyped token", mistype(known), 40102},
		{"what is no token", "x", 40102},
		{"a static token", token, 40001},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkError(t, try(test.token), test.code)
		})
	}

	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		r := try(known)
		if r.status == 400 {
			break
		}
		checkError(t, r, 50302) // a known token, with the database back
		if time.Now().After(deadline) {
			t.Fatal("it is not accepted again")
		}
	}
	checkStatus(t, s.get(t, "/plants", as(known)...), 200)
	checkError(t, try(unknown), 40102) // an unknown token
}

// TestDatabaseComesLate starts the service before its database.
func TestDatabaseComesLate(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_DATABASE_START_TIMEOUT=300ms", "PORT=0"})
	last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]
	if status != 1 || !strings.HasPrefix(last, "plantstore: database.url (DATABASE_URL): connect to the database:") {
		t.Errorf("with no patience left: exit status %d, %q", status, stderr)
	}

	s := launch(t, command(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_LOG_FORMAT=json", "PORT=0"}))
	s.awaitLog(t, "waiting for the database")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.awaitLog(t, "serving")
}
