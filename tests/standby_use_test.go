package tests

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
			must(t, standby.Kill())
			return func() { must(t, standby.Start()) }
		}},
		"it hangs": {"it does not respond", func(t *testing.T, standby *dbtest.Server) func() {
			thaw, err := standby.Freeze()
			must(t, err)
			return func() { must(t, thaw()) }
		}},
		"it is promoted": {"it was promoted, or is the primary", func(t *testing.T, standby *dbtest.Server) func() {
			must(t, standby.Promote())
			return nil
		}},
		"it lags behind": {"it lags behind", pauseReplay},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, standby := startWithStandby(t, "PLANTSTORE_DATABASE_MAX_REPLICA_LAG=500ms", "PLANTSTORE_DATABASE_TIMEOUT=30s")
			requireOK(t, s.post(t, bodyOf(1)))
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
						r, err := s.tryOn(transport, "GET", path, nil, as(token)...)
						select {
						case <-stop:
							slowest <- longest
							return
						default:
						}
						if err != nil || r.status != 200 {
							t.Errorf("got %v %s, want 200", err, r)
						}
						longest = max(longest, time.Since(begin))
					}
				}()
			}
			failed := time.Now()
			mend := test.fail(t, standby)
			// The lag shows in what the primary writes.
			requireOK(t, s.post(t, bodyOf(2)))
			s.awaitStandbyOut(t, test.reason)
			record(t, "## Standbys: %s\n\n`TestStandbyFails`: the standby was out of use after %v; no read failed.", name, time.Since(failed).Round(time.Millisecond))
			if mend != nil {
				mend()
				eventually(t, "the standby in use again", s.usesStandby)
			}
			endReaders()
			for range readers {
				if took := receive(t, slowest); took > 10*time.Second {
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
	primary, standby := ownServers(t)
	s := startOn(t, primary, standby)
	requireOK(t, s.post(t, bodyOf(0)))
	followed(t, standby, 0)
	pauseReplay(t, standby)
	requireOK(t, s.post(t, bodyOf(1)))
	s.stop(t)
	s = startOn(t, primary, standby)
	for name, read := range plainReads {
		t.Run(name, func(t *testing.T) {
			if r := s.get(t, read.path, as(token)...); !strings.Contains(r.body, read.shows) {
				t.Errorf("got %s, want what the token has written before", r)
			}
		})
	}
}

// TestStandbyOfAnotherDatabase lists a standby that has other plants.
func TestStandbyOfAnotherDatabase(t *testing.T) {
	t.Parallel()
	primary, standby := ownServers(t)
	_, foreign := ownServers(t)
	dbtest.Exec(t, primary.URL, "CREATE DATABASE other")
	database, err := url.Parse(standby.URL)
	must(t, err)
	database.Path = "/other"
	copied := openTable(t, database.String())
	eventually(t, "the database on the standby", func() bool { return copied.Ping() == nil })
	for name, at := range map[string]string{"of another server": foreign.URL, "of another database of the server": database.String()} {
		t.Run(name, func(t *testing.T) {
			s := start(t, "DATABASE_URL="+primary.URL, "DATABASE_REPLICA_URLS="+at)
			if got := s.awaitLog(t, "a standby is not used")["reason"]; got != "it is not one of this database, or does not have its migrations yet" {
				t.Errorf("got the reason %v", got)
			}
			checkStatus(t, s.get(t, "/plants/1", as(token)...), 404)
		})
	}
}

// TestStandbyOfAnotherHistory replaces the primary by a standby that has less than the other one.
func TestStandbyOfAnotherHistory(t *testing.T) {
	t.Parallel()
	primary, next := ownServers(t)
	other := primary.OwnStandby(t)
	servers, err := url.Parse(primary.URL)
	must(t, err)
	second, err := url.Parse(next.URL)
	must(t, err)
	servers.Host += "," + second.Host
	s := start(t, "DATABASE_URL="+servers.String(), "DATABASE_REPLICA_URLS="+other.URL)
	s.awaitLog(t, "a standby is in use")
	requireOK(t, s.post(t, bodyOf(1)))
	followed(t, next, 1)
	must(t, next.Kill())
	const lost = 20_000
	dbtest.Exec(t, primary.URL, fmt.Sprintf("INSERT INTO plants (id, name, created_at, updated_at) SELECT n, repeat('x', 200), now(), now() FROM generate_series(2, %d) n", lost))
	followed(t, other, lost)
	must(t, primary.Kill())
	must(t, next.Start())
	must(t, next.Promote())
	s.awaitStandbyOut(t, "it had more than the primary: build it again")
	checkStatus(t, s.get(t, fmt.Sprintf("/plants/%d", lost), as(token)...), 404)
	checkStatus(t, s.get(t, "/plants/1", as(token)...), 200)
}

// awaitStandbyOut waits until the last standby that is not used is out for reason. At the start,
// one may lag behind the migrations.
func (s *service) awaitStandbyOut(t *testing.T, reason string) {
	t.Helper()
	eventually(t, "a standby that is out: "+reason, func() bool {
		lines := s.logged(t, "a standby is not used")
		return !s.usesStandby() && len(lines) > 0 && lines[len(lines)-1]["reason"] == reason
	})
}

// usesStandby reports whether the only standby is in use. It may have lagged behind before.
func (s *service) usesStandby() bool {
	log := s.stderr.String()
	return strings.LastIndex(log, `"msg":"a standby is in use"`) > strings.LastIndex(log, `"msg":"a standby is not used"`)
}

// TestStandbyAsPrimary starts the service with the servers in wrong places.
func TestStandbyAsPrimary(t *testing.T) {
	t.Parallel()
	primary, standby := ownServers(t)
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
			out, err := command(t, append(test.settings, "PLANTSTORE_AUTH_TOKENS="+token), test.arguments...).CombinedOutput()
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
	s, standby := startWithStandby(t)
	long := strings.Repeat("🌵", 255)
	var rows strings.Builder
	for id := range int64(20_000) {
		fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
	}
	requireOK(t, s.importRows(t, "", inNDJSON, rows.String()))
	followed(t, standby, 19_999)
	rest, first := s.beginExportAs(t, otherToken)
	defer rest.Close()
	must(t, standby.Kill())
	text, err := io.ReadAll(rest)
	if err == nil || !strings.HasPrefix(rows.String(), first+string(text)) {
		t.Errorf("got %d bytes, %v, want a part of the plants and an error", len(first)+len(text), err)
	}
}
