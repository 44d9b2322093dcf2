package postgres

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestPlantsWithoutDatabase sends all requests while PostgreSQL is down.
func TestPlantsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := service.Start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=2s")
	s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).RequireOK(t)
	service.Must(t, server.Stop())
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
		{"POST", "/plants/import", service.BodyOf(2), "Content-Type", service.InNDJSON},
	} {
		t.Run(strings.Join(request, " "), func(t *testing.T) {
			begin := time.Now()
			r := s.Call(t, request[0], request[1], request[2], request[3:]...)
			r.CheckError(t, 50302)
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the response took %v, want at most 5s", took)
			}
		})
	}
	service.Must(t, server.Start())
	s.Call(t, "GET", "/plants/1", "").CheckStored(t, `{"id":1,"name":"x"}`)
}

// TestTokensWithoutPostgres stops PostgreSQL while the service runs: a cached token is
// accepted for a while, and valid tokens never get a 401.
func TestTokensWithoutPostgres(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s := service.Start(t, "DATABASE_URL="+server.URL)
	known, unknown := service.Issue(t, server.URL), service.IssueElsewhere(t)
	// The status of a bad body shows whether the token was accepted, without a database.
	try := func(t *testing.T, issued string) service.Response { return s.Post(t, "{", service.As(issued)...) }
	try(t, known).CheckError(t, 40001)
	try(t, unknown).CheckError(t, 40102)
	following := s.Stream(t, "", service.As(known)...)
	following.Next()

	service.Must(t, server.Stop())
	stopped := time.Now()
	try(t, known).CheckError(t, 40001)
	var took time.Duration // until the last one that was accepted
	service.Eventually(t, "a 503", func() bool {
		begin := time.Now()
		r := try(t, known)
		if r.Status != 503 {
			r.CheckError(t, 40001)
			took = begin.Sub(stopped)
			return false
		}
		r.CheckError(t, 50302)
		r.CheckHeader(t, "WWW-Authenticate", "")
		return true
	})
	t.Logf("a known token was accepted for %v without a database", took.Round(10*time.Millisecond))
	if took > service.RevocationTime {
		t.Errorf("accepted for %v, want at most %v", took, service.RevocationTime)
	}
	if c, ok := following.Next(); ok { // it may have been revoked elsewhere
		t.Errorf("a stream went on with %v", c)
	}
	for _, test := range []struct {
		name, token string
		code        int
	}{
		{"a known token", known, 50302},
		{"a token that may be new", unknown, 50302},
		{"a mistyped token", service.Mistype(known), 40102},
		{"no issued token", "x", 40102},
		{"a static token", service.Token, 40001},
	} {
		t.Run(test.name, func(t *testing.T) { try(t, test.token).CheckError(t, test.code) })
	}

	service.Must(t, server.Start())
	service.Eventually(t, "the database", func() bool {
		r := try(t, known)
		if r.Status != 400 {
			r.CheckError(t, 50302)
		}
		return r.Status == 400
	})
	s.Get(t, "/plants", service.As(known)...).CheckStatus(t, 200)
	try(t, unknown).CheckError(t, 40102)
}

// TestDatabaseComesLate starts the service before its database.
func TestDatabaseComesLate(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	service.Must(t, server.Stop())
	_, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_DATABASE_START_TIMEOUT=300ms", "PORT=0"})
	if status != 1 || !strings.HasPrefix(service.LastLine(stderr), "plantstore: database.url (DATABASE_URL): ") {
		t.Errorf("got exit status %d and %q, want 1 and an error of database.url", status, stderr)
	}

	settings := []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_LOG_FORMAT=json", "PORT=0"}
	s := service.Launch(t, service.Command(t, settings))
	s.AwaitLog(t, "waiting for the database")
	service.Must(t, s.Process.Signal(syscall.SIGTERM))
	if err := s.Wait(t); err == nil || service.LastLine(s.Stderr.String()) != "plantstore: interrupted\n" {
		t.Errorf("got %v and %q, want that the start was interrupted", err, s.Stderr)
	}
	s = service.Launch(t, service.Command(t, settings))
	s.AwaitLog(t, "waiting for the database")
	service.Must(t, server.Start())
	s.AwaitLog(t, "serving")
}
