package operate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// outage is a way in which the database fails.
type outage struct {
	name   string
	reason string // in the log, and in plantstore_ready
	// prepare returns the URL of a database, and what begins the outage. That returns what
	// ends it.
	prepare func(t *testing.T) (databaseURL string, begin func(*service.Service) (end func() error))
}

func outages() []outage {
	return []outage{
		{"PostgreSQL killed", "the database is unavailable", func(t *testing.T) (string, func(*service.Service) func() error) {
			server := dbtest.OwnServer(t)
			return server.URL, func(*service.Service) func() error {
				service.Must(t, server.Kill())
				return server.Start
			}
		}},
		{"PostgreSQL read-only", "the database is not writable: it is read-only", func(t *testing.T) (string, func(*service.Service) func() error) {
			server := dbtest.OwnServer(t)
			set := func(url, statement string) {
				dbtest.Exec(t, url, statement)
				dbtest.Exec(t, url, "SELECT pg_reload_conf()")
			}
			return server.URL, func(*service.Service) func() error {
				set(server.URL, "ALTER SYSTEM SET default_transaction_read_only = on")
				return func() error {
					set(server.URL+"&default_transaction_read_only=off", "ALTER SYSTEM RESET default_transaction_read_only")
					return nil
				}
			}
		}},
		{"disk of PostgreSQL full", "the database is not writable: its disk", func(t *testing.T) (string, func(*service.Service) func() error) {
			if folder, fill := smallDisk(t, 128); folder != "" {
				server, err := dbtest.StartServerIn(folder, "fsync=off")
				service.Must(t, err)
				t.Cleanup(func() { service.Must(t, server.Close()) })
				return server.URL, func(*service.Service) func() error { return fill() }
			}
			databaseURL := dbtest.Postgres(t)
			return databaseURL, func(*service.Service) func() error {
				// Only the errors of a full disk, for writes and for the test of one by the service.
				const raise = "LANGUAGE plpgsql AS $$ BEGIN RAISE 'no space left on device' USING ERRCODE = 'disk_full'; END $$"
				for _, statement := range []string{
					"CREATE FUNCTION full_disk() RETURNS trigger " + raise,
					"CREATE FUNCTION full_disk_of_ddl() RETURNS event_trigger " + raise,
					"CREATE EVENT TRIGGER full_disk ON ddl_command_start WHEN TAG IN ('CREATE TABLE AS') EXECUTE FUNCTION full_disk_of_ddl()",
					"CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE OR DELETE ON plants EXECUTE FUNCTION full_disk()",
				} {
					dbtest.Exec(t, databaseURL, statement)
				}
				return func() error {
					dbtest.Exec(t, databaseURL, "DROP TRIGGER full_disk ON plants")
					dbtest.Exec(t, databaseURL, "DROP EVENT TRIGGER full_disk")
					return nil
				}
			}
		}},
		{"PostgreSQL frozen", "the database did not respond in time", func(t *testing.T) (string, func(*service.Service) func() error) {
			server := dbtest.OwnServer(t)
			return server.URL, func(*service.Service) func() error {
				thaw, err := server.Freeze()
				service.Must(t, err)
				t.Cleanup(func() { service.Must(t, thaw()) }) // before it is stopped
				return thaw
			}
		}},
		{"disk of SQLite full", "the database is not writable: its disk", func(t *testing.T) (string, func(*service.Service) func() error) {
			if folder, fill := smallDisk(t, 16); folder != "" {
				return "sqlite:" + filepath.Join(folder, "plantstore.db"), func(*service.Service) func() error { return fill() }
			}
			databaseURL := dbtest.SQLite(t)
			return databaseURL, func(s *service.Service) func() error { // only files that cannot grow
				wal, err := os.Stat(service.NameOfDatabase(databaseURL) + "-wal")
				service.Must(t, err)
				service.Must(t, service.LimitFiles(s, uint64(wal.Size())))
				return func() error { return service.LimitFiles(s, unix.RLIM_INFINITY) }
			}
		}},
		{"SQLite file replaced", "the database is not writable: its file was removed or replaced", func(t *testing.T) (string, func(*service.Service) func() error) {
			databaseURL := dbtest.SQLite(t)
			path := service.NameOfDatabase(databaseURL)
			return databaseURL, func(*service.Service) func() error {
				backup := filepath.Join(t.TempDir(), "backup.db")
				service.CheckCLI(t, []string{"DATABASE_URL=" + databaseURL}, []string{"backup", backup}, 0, "wrote a backup to "+backup+"\n")
				service.Must(t, os.Link(path, path+".away"))
				service.Must(t, os.Rename(backup, path))
				return func() error { return os.Rename(path+".away", path) }
			}
		}},
	}
}

// smallDisk returns a folder on a disk of its own with so many MiB, and what fills it up,
// which returns what makes room again. The folder is empty if the test may not mount a disk,
// since it does not run as root.
func smallDisk(t *testing.T, size int) (folder string, fill func() func() error) {
	t.Helper()
	folder, err := os.MkdirTemp("", "plantstore-disk-*") // not t.TempDir, which only its owner can enter
	service.Must(t, err)
	created := folder
	t.Cleanup(func() { _ = os.RemoveAll(created) })
	if err := unix.Mount("tmpfs", folder, "tmpfs", 0, fmt.Sprintf("size=%dm,mode=1777", size)); err != nil {
		if service.ResultsFile != "" {
			t.Fatalf("mount a disk: %v: results need a real one", err)
		}
		t.Logf("mount a disk: %v: its errors are simulated", err)
		return "", nil
	}
	service.Must(t, os.Chmod(folder, 0o777)) //nolint:gosec // for PostgreSQL
	t.Cleanup(func() { _ = unix.Unmount(folder, unix.MNT_DETACH) })
	return folder, func() func() error {
		path := filepath.Join(folder, "full")
		file, err := os.Create(path)
		service.Must(t, err)
		defer file.Close()
		for err == nil {
			_, err = file.Write(make([]byte, 4096))
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Fatal(err)
		}
		return func() error { return os.Remove(path) }
	}
}

// TestOutagesInTheLog: the log explains each outage in a few lines, however many requests fail.
func TestOutagesInTheLog(t *testing.T) {
	service.ParallelUnlessRecorded(t)
	for _, outage := range outages() {
		t.Run(outage.name, func(t *testing.T) {
			t.Parallel()
			databaseURL, begin := outage.prepare(t)
			s := service.Start(t, "DATABASE_URL="+databaseURL, "PLANTSTORE_DATABASE_TIMEOUT=1s")

			ctx, stop := context.WithCancel(t.Context())
			statuses := service.NewTally()
			var group sync.WaitGroup
			for range service.Clients {
				group.Go(func() {
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					for ctx.Err() == nil {
						id := service.IDs.Add(1)
						a := s.Create(transport, id, strings.NewReader(service.BodyOf(id)))
						if a.Err != nil {
							t.Error(a.Err)
							return
						}
						statuses.Add(a.Response.Status)
					}
				})
			}
			awaitPlants := func() {
				stored := statuses.Of(http.StatusOK)
				service.Eventually(t, "plants", func() bool { return statuses.Of(http.StatusOK) > stored+100 })
			}
			awaitPlants()
			end := begin(s)
			service.Eventually(t, "a line per second", func() bool { return len(s.Logged(t, "requests fail with error 50302")) >= service.Scale(1, 3) })
			service.Must(t, end())
			awaitPlants()
			stop()
			group.Wait()
			failed := statuses.Of(http.StatusServiceUnavailable)
			_, log, _ := strings.Cut(s.Stderr.String(), `"msg":"serving"`)
			var story []string
			requests, causes := 0, strings.Count(log, `"msg":"requests fail with error `)
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
			if requests != causes || len(story) > few {
				t.Errorf("got %d lines of failed requests, want %d; got %d lines in all, want at most %d", requests, causes, len(story), few)
			}
			text := strings.ReplaceAll(strings.Join(story, ""), filepath.Dir(service.NameOfDatabase(databaseURL))+"/", "")
			if !strings.Contains(text, outage.reason) {
				t.Errorf("got no %q in the log", outage.reason)
			}
			service.Record(t, "## In the log: %s\n\n%d requests failed. Besides requests that did not, the log has\n\n```\n%s```", outage.name, failed, text)
		})
	}
}
