package tests

import (
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// TestPlantsWithoutDatabase sends all requests while PostgreSQL is down.
func TestPlantsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=2s")
	requireOK(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`))
	must(t, server.Stop())
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
		{"POST", "/plants/import", bodyOf(2), "Content-Type", inNDJSON},
	} {
		t.Run(strings.Join(request, " "), func(t *testing.T) {
			begin := time.Now()
			r := s.call(t, request[0], request[1], request[2], request[3:]...)
			checkError(t, r, 50302)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the response took %v, want at most 5s", took)
			}
		})
	}
	must(t, server.Start())
	checkStored(t, s.call(t, "GET", "/plants/1", ""), `{"id":1,"name":"x"}`)
}

// TestTokensWithoutPostgres stops PostgreSQL while the service runs: a cached token is
// accepted for a while, and valid tokens never get a 401.
func TestTokensWithoutPostgres(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	known, unknown := issue(t, server.URL), issueElsewhere(t)
	// The status of a bad body shows whether the token was accepted, without a database.
	try := func(t *testing.T, issued string) response { return s.post(t, "{", as(issued)...) }
	checkError(t, try(t, known), 40001)
	checkError(t, try(t, unknown), 40102)
	following := s.stream(t, "", as(known)...)
	following.next()

	must(t, server.Stop())
	stopped := time.Now()
	checkError(t, try(t, known), 40001)
	var took time.Duration // until the last one that was accepted
	eventually(t, "a 503", func() bool {
		begin := time.Now()
		r := try(t, known)
		if r.status != 503 {
			checkError(t, r, 40001)
			took = begin.Sub(stopped)
			return false
		}
		checkError(t, r, 50302)
		checkHeader(t, r, "WWW-Authenticate", "")
		return true
	})
	t.Logf("a known token was accepted for %v without a database", took.Round(10*time.Millisecond))
	if took > revocationTime {
		t.Errorf("accepted for %v, want at most %v", took, revocationTime)
	}
	if c, ok := following.next(); ok { // it may have been revoked elsewhere
		t.Errorf("a stream went on with %v", c)
	}
	for _, test := range []struct {
		name, token string
		code        int
	}{
		{"a known token", known, 50302},
		{"a token that may be new", unknown, 50302},
		{"a mistyped token", mistype(known), 40102},
		{"no issued token", "x", 40102},
		{"a static token", token, 40001},
	} {
		t.Run(test.name, func(t *testing.T) { checkError(t, try(t, test.token), test.code) })
	}

	must(t, server.Start())
	eventually(t, "the database", func() bool {
		r := try(t, known)
		if r.status != 400 {
			checkError(t, r, 50302)
		}
		return r.status == 400
	})
	checkStatus(t, s.get(t, "/plants", as(known)...), 200)
	checkError(t, try(t, unknown), 40102)
}

// TestDatabaseComesLate starts the service before its database.
func TestDatabaseComesLate(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	must(t, server.Stop())
	_, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_DATABASE_START_TIMEOUT=300ms", "PORT=0"})
	if status != 1 || !strings.HasPrefix(lastLine(stderr), "plantstore: database.url (DATABASE_URL): ") {
		t.Errorf("got exit status %d and %q, want 1 and an error of database.url", status, stderr)
	}

	settings := []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_LOG_FORMAT=json", "PORT=0"}
	s := launch(t, command(t, settings))
	s.awaitLog(t, "waiting for the database")
	s.stop(t) // with exit status 0
	s = launch(t, command(t, settings))
	s.awaitLog(t, "waiting for the database")
	must(t, server.Start())
	s.awaitLog(t, "serving")
}
