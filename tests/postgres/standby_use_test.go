package postgres

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestStandbyFails reads plants while the standby fails. No read fails, or takes longer than
// it takes to notice that.
func TestStandbyFails(t *testing.T) {
	t.Parallel()
	const readers = 8
	for name, test := range map[string]struct {
		reason string
		fail   func(t *testing.T, standby *dbtest.Server) (mend func())
	}{
		"it is killed": {"it does not respond", func(t *testing.T, standby *dbtest.Server) func() {
			service.Must(t, standby.Kill())
			return func() { service.Must(t, standby.Start()) }
		}},
		"it hangs": {"it does not respond", func(t *testing.T, standby *dbtest.Server) func() {
			thaw, err := standby.Freeze()
			service.Must(t, err)
			return func() { service.Must(t, thaw()) }
		}},
		"it is promoted": {"it was promoted, or is the primary", func(t *testing.T, standby *dbtest.Server) func() {
			service.Must(t, standby.Promote())
			return nil
		}},
		"it lags behind": {"it lags behind", pauseReplay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, standby := service.StartWithStandby(t, "PLANTSTORE_DATABASE_MAX_REPLICA_LAG=500ms", "PLANTSTORE_DATABASE_TIMEOUT=30s")
			s.Post(t, service.BodyOf(1)).RequireOK(t)
			stop, slowest := make(chan struct{}), make(chan time.Duration, readers)
			endReaders := sync.OnceFunc(func() { close(stop) })
			t.Cleanup(endReaders)
			for i := range readers {
				go func() {
					var longest time.Duration
					transport := &http.Transport{}
					defer transport.CloseIdleConnections()
					for path := []string{"/plants/1", "/plants?limit=1"}[i%2]; ; {
						begin := time.Now()
						r, err := s.TryOn(transport, "GET", path, nil, service.As(service.Token)...)
						select {
						case <-stop:
							slowest <- longest
							return
						default:
						}
						if err != nil || r.Status != 200 {
							t.Errorf("got %v %s, want 200", err, r)
						}
						longest = max(longest, time.Since(begin))
					}
				}()
			}
			failed := time.Now()
			mend := test.fail(t, standby)
			// The lag shows in what the primary writes.
			s.Post(t, service.BodyOf(2)).RequireOK(t)
			awaitStandbyOut(t, s, test.reason)
			service.Record(t, "## Standbys: %s\n\n`TestStandbyFails`: the standby was out of use after %v; no read failed.", name, time.Since(failed).Round(time.Millisecond))
			if mend != nil {
				mend()
				service.Eventually(t, "the standby in use again", func() bool { return usesStandby(s) })
			}
			endReaders()
			for range readers {
				if took := service.Receive(t, slowest); took > 10*time.Second {
					t.Errorf("a read took %v", took)
				}
			}
		})
	}
}

// TestStandbyAfterRestart restarts the service, which then does not know who wrote what, while
// the standby does not follow.
func TestStandbyAfterRestart(t *testing.T) {
	t.Parallel()
	primary, standby := service.OwnServers(t)
	s := service.StartOn(t, primary, standby)
	s.Post(t, service.BodyOf(0)).RequireOK(t)
	followed(t, standby, 0)
	pauseReplay(t, standby)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	s.Stop(t)
	s = service.StartOn(t, primary, standby)
	for name, read := range plainReads {
		t.Run(name, func(t *testing.T) {
			if r := s.Get(t, read.path, service.As(service.Token)...); !strings.Contains(r.Body, read.shows) {
				t.Errorf("got %s, want what the token has written before", r)
			}
		})
	}
}

// TestStandbyOfAnotherDatabase lists a standby that has other plants.
func TestStandbyOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	primary, standby := service.OwnServers(t)
	_, foreign := service.OwnServers(t)
	dbtest.Exec(t, primary.URL, "CREATE DATABASE other")
	database, err := url.Parse(standby.URL)
	service.Must(t, err)
	database.Path = "/other"
	copied := service.OpenTable(t, database.String())
	service.Eventually(t, "the database on the standby", func() bool { return copied.Ping() == nil })
	for name, at := range map[string]string{"of another server": foreign.URL, "of another database of the server": database.String()} {
		t.Run(name, func(t *testing.T) {
			s := service.Start(t, "DATABASE_URL="+primary.URL, "DATABASE_REPLICA_URLS="+at)
			awaitStandbyOut(t, s, "it is not one of this database, or does not have its migrations yet")
			s.Get(t, "/plants/1", service.As(service.Token)...).CheckStatus(t, 404)
		})
	}
}

// TestStandbyOfAnotherHistory replaces the primary by a standby that has less than the other one.
func TestStandbyOfAnotherHistory(t *testing.T) {
	t.Parallel()
	primary, next := service.OwnServers(t)
	other := primary.OwnStandby(t)
	servers, err := url.Parse(primary.URL)
	service.Must(t, err)
	second, err := url.Parse(next.URL)
	service.Must(t, err)
	servers.Host += "," + second.Host
	s := service.Start(t, "DATABASE_URL="+servers.String(), "DATABASE_REPLICA_URLS="+other.URL)
	s.AwaitLog(t, "a standby is in use")
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	followed(t, next, 1)
	service.Must(t, next.Kill())
	const lost = 20_000
	dbtest.Exec(t, primary.URL, fmt.Sprintf("INSERT INTO plants (id, name, created_at, updated_at) SELECT n, repeat('x', 200), now(), now() FROM generate_series(2, %d) n", lost))
	followed(t, other, lost)
	service.Must(t, primary.Kill())
	service.Must(t, next.Start())
	service.Must(t, next.Promote())
	awaitStandbyOut(t, s, "it had more than the primary: build it again")
	s.Get(t, fmt.Sprintf("/plants/%d", lost), service.As(service.Token)...).CheckStatus(t, 404)
	s.Get(t, "/plants/1", service.As(service.Token)...).CheckStatus(t, 200)
}

// awaitStandbyOut waits until the last standby that is not used is out for reason. At the start,
// one may lag behind the migrations.
func awaitStandbyOut(t *testing.T, s *service.Service, reason string) {
	t.Helper()
	service.Eventually(t, "a standby that is out: "+reason, func() bool {
		lines := s.Logged(t, "a standby is not used")
		return !usesStandby(s) && len(lines) > 0 && lines[len(lines)-1]["reason"] == reason
	})
}

// usesStandby reports whether the only standby is in use. It may have lagged behind before.
func usesStandby(s *service.Service) bool {
	log := s.Stderr.String()
	return strings.LastIndex(log, `"msg":"a standby is in use"`) > strings.LastIndex(log, `"msg":"a standby is not used"`)
}

// TestStandbyAsPrimary starts the service with the servers in wrong places.
func TestStandbyAsPrimary(t *testing.T) {
	t.Parallel()
	primary, standby := service.OwnServers(t)
	const isStandby = "(DATABASE_URL): it is a standby"
	for name, test := range map[string]struct {
		settings, arguments []string
		want                string
	}{
		"a service":     {[]string{"DATABASE_URL=" + standby.URL}, nil, isStandby},
		"no migrations": {[]string{"DATABASE_URL=" + standby.URL, "PLANTSTORE_DATABASE_MIGRATE=false"}, nil, isStandby},
		"migrations":    {[]string{"DATABASE_URL=" + standby.URL}, []string{"migrate", "up"}, isStandby},
		"a standby twice": {
			[]string{"DATABASE_URL=" + primary.URL, "DATABASE_REPLICA_URLS=" + standby.URL + "," + standby.URL}, nil, "is listed twice",
		},
	} {
		t.Run(name, func(t *testing.T) {
			out, err := service.Command(t, append(test.settings, "PLANTSTORE_AUTH_TOKENS="+service.Token), test.arguments...).CombinedOutput()
			if err == nil || !strings.Contains(string(out), "DATABASE_") || !strings.Contains(string(out), test.want) {
				t.Errorf("got %v and %s, want an error with %q that names the setting", err, out, test.want)
			}
		})
	}
}

// TestStandbyFailsDuringAnExport: the rest of an export does not come from the primary, which would
// begin again.
func TestStandbyFailsDuringAnExport(t *testing.T) {
	t.Parallel()
	s, standby := service.StartWithStandby(t)
	long := strings.Repeat("🌵", 255)
	var rows strings.Builder
	for id := range int64(8_000) {
		fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
	}
	s.ImportRows(t, "", service.InNDJSON, rows.String()).RequireOK(t)
	followed(t, standby, 7_999)
	rest, first := s.BeginExportAs(t, service.OtherToken)
	defer rest.Close()
	service.Must(t, standby.Kill())
	text, err := io.ReadAll(rest)
	if err == nil || !strings.HasPrefix(rows.String(), first+string(text)) {
		t.Errorf("got %d bytes, %v, want a part of the plants and an error", len(first)+len(text), err)
	}
}
