package tests

import (
	"context"
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
)

// fault is what may happen to the database of a service.
type fault struct {
	name, cause string // the cause is in the log
	// begin makes it happen, and returns what ends it.
	begin func(t *testing.T, server *dbtest.Server, s *service) (end func() error)
}

// faults are those of PostgreSQL, then those of a SQLite file.
var faults = []fault{
	{"PostgreSQL is killed", "connection refused", func(t *testing.T, server *dbtest.Server, _ *service) func() error {
		t.Helper()
		must(t, server.Kill())
		return server.Start
	}},
	{"PostgreSQL is frozen", "did not respond in time", func(t *testing.T, server *dbtest.Server, _ *service) func() error {
		t.Helper()
		thaw, err := server.Freeze()
		must(t, err)
		return thaw
	}},
	{"PostgreSQL is read-only", "it is read-only", func(t *testing.T, server *dbtest.Server, _ *service) func() error {
		t.Helper()
		set := func(url, statement string) {
			dbtest.Exec(t, url, statement)
			dbtest.Exec(t, url, "SELECT pg_reload_conf()")
		}
		set(server.URL, "ALTER SYSTEM SET default_transaction_read_only = on")
		return func() error {
			set(server.URL+"&default_transaction_read_only=off", "ALTER SYSTEM RESET default_transaction_read_only")
			return nil
		}
	}},
	{"the disk is full", "disk", func(t *testing.T, _ *dbtest.Server, s *service) func() error {
		t.Helper()
		limit := func(bytes uint64) error {
			return unix.Prlimit(s.process.Pid, unix.RLIMIT_FSIZE, &unix.Rlimit{Cur: bytes, Max: unix.RLIM_INFINITY}, nil)
		}
		must(t, limit(1024))
		return func() error { return limit(unix.RLIM_INFINITY) }
	}},
	{"the SQLite file is taken away", "removed or replaced", func(t *testing.T, _ *dbtest.Server, s *service) func() error {
		t.Helper()
		path := s.folder + "/data/plantstore.db"
		must(t, os.Rename(path, path+".away"))
		return func() error { return os.Rename(path+".away", path) }
	}},
}

// TestFaultsInTheLog: the log explains each fault of the database in a few lines, however
// many requests fail, and counts those exactly.
func TestFaultsInTheLog(t *testing.T) {
	for _, fault := range faults {
		t.Run(fault.name, func(t *testing.T) {
			t.Parallel()
			var server *dbtest.Server
			settings := []string{"PLANTSTORE_DATABASE_TIMEOUT=1s"}
			if strings.HasPrefix(fault.name, "PostgreSQL") {
				server = ownServer(t)
				settings = append(settings, "DATABASE_URL="+server.URL)
			}
			s := start(t, settings...)

			ctx, stop := context.WithCancel(t.Context())
			statuses := newTally()
			var group sync.WaitGroup
			for range clients {
				group.Go(func() {
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					for ctx.Err() == nil {
						id := ids.Add(1)
						a := s.create(transport, id, strings.NewReader(bodyOf(id)))
						if a.err != nil {
							t.Error(a.err)
							return
						}
						statuses.add(a.response.status)
					}
				})
			}
			awaitPlants := func() {
				stored := statuses.of(http.StatusOK)
				eventually(t, "plants", func() bool { return statuses.of(http.StatusOK) > stored+100 })
			}
			awaitPlants()
			end := fault.begin(t, server, s)
			eventually(t, "a line per second", func() bool { return len(s.logged(t, "requests fail")) >= scale(1, 3) })
			must(t, end())
			awaitPlants()
			stop()
			group.Wait()

			failed := statuses.of(http.StatusServiceUnavailable)
			eventually(t, "all failed requests in the log", func() bool {
				n := 0
				for _, line := range s.logged(t, "requests no longer fail") {
					n += int(line["requests"].(float64))
				}
				return n == failed
			})
			_, log, _ := strings.Cut(s.stderr.String(), `"msg":"serving"`)
			var story []string
			requests := 0
			for line := range strings.Lines(log) {
				isRequest, isError := strings.Contains(line, `"msg":"request"`), strings.Contains(line, `"level":"error"`)
				if isRequest && isError {
					requests++
				}
				if isError || strings.HasPrefix(line, "{") && !isRequest {
					story = append(story, line)
				}
			}
			const few = 40 // some 6 in a second
			if begins := len(s.logged(t, "requests begin to fail")); requests != begins || len(story) > few {
				t.Errorf("got %d lines of failed requests, want %d; got %d lines in all, want at most %d", requests, begins, len(story), few)
			}
			text := strings.Join(story, "")
			if !strings.Contains(text, fault.cause) {
				t.Errorf("got no %q in the log", fault.cause)
			}
			record(t, "### %s\n\n%d requests failed. Besides requests that did not, the log has\n\n```\n%s```", fault.name, failed, text)
		})
	}
}
