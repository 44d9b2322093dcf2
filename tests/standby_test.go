package tests

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// otherToken is accepted by the services of startWithStandby, like token.
const otherToken = "another-token-for-tests-of-32-characters"

// startWithStandby starts a service that reads from a standby, and waits until it does.
func startWithStandby(t *testing.T, settings ...string) (s *service, standby *dbtest.Server) {
	t.Helper()
	primary, standby := ownServers(t)
	return startOn(t, primary, standby, settings...), standby
}

// startOn is startWithStandby with servers that are there.
func startOn(t *testing.T, primary, standby *dbtest.Server, settings ...string) *service {
	t.Helper()
	s := start(t, append([]string{
		"DATABASE_URL=" + primary.URL, "DATABASE_REPLICA_URLS=" + standby.URL,
		"PLANTSTORE_AUTH_TOKENS=" + token + "," + otherToken, "PLANTSTORE_DATABASE_MAX_REPLICA_LAG=1h",
	}, settings...)...)
	s.awaitLog(t, "a standby is in use")
	return s
}

// pauseReplay stops standby from following its primary, and returns how to let it go on.
func pauseReplay(t *testing.T, standby *dbtest.Server) (resume func()) {
	t.Helper()
	db := openTable(t, standby.URL)
	_, err := db.Exec("SELECT pg_wal_replay_pause()")
	must(t, err)
	eventually(t, "the end of the replay", func() (paused bool) {
		must(t, db.QueryRow("SELECT pg_get_wal_replay_pause_state() = 'paused'").Scan(&paused))
		return paused
	})
	return func() { dbtest.Exec(t, standby.URL, "SELECT pg_wal_replay_resume()") }
}

// followed waits until standby has a plant.
func followed(t *testing.T, standby *dbtest.Server, id int64) {
	t.Helper()
	db := openTable(t, standby.URL)
	eventually(t, "the plant on the standby", func() (found bool) {
		err := db.QueryRow("SELECT true FROM plants WHERE id = $1", id).Scan(&found)
		return err == nil // else the table is missing, too
	})
}

// plainReads are the reads that a standby serves, with what shows plant 1.
var plainReads = map[string]struct{ path, shows string }{
	"get":    {"/plants/1", `"name":"plant 1"`},
	"list":   {"/plants", `"name":"plant 1"`},
	"export": {"/plants/export", `"name":"plant 1"`},
}

// TestStandbyReads creates a plant while the standby does not follow. Only who must see it
// is served by the primary.
func TestStandbyReads(t *testing.T) {
	t.Parallel()
	s, standby := startWithStandby(t)
	requireOK(t, s.post(t, bodyOf(0)))
	followed(t, standby, 0)
	resume := pauseReplay(t, standby)
	created := s.post(t, bodyOf(1))
	requireOK(t, created)
	position := created.header.Get(middleware.PositionHeader)
	for name, read := range plainReads {
		for client, test := range map[string]struct {
			headers []string
			sees    bool
		}{
			"the writer":                      {as(token), true},
			"another client":                  {as(otherToken), false},
			"another client with a position":  {as(otherToken, middleware.PositionHeader, position), true},
			"another client with an old one":  {as(otherToken, middleware.PositionHeader, "1"), false},
			"the writer with an old position": {as(token, middleware.PositionHeader, "1"), true},
		} {
			t.Run(name+", "+client, func(t *testing.T) {
				r := s.get(t, read.path, test.headers...)
				if sees := strings.Contains(r.body, read.shows); sees != test.sees || r.status >= 500 {
					t.Errorf("got %s, want the plant: %t", r, test.sees)
				}
			})
		}
	}
	for method, body := range map[string]string{"PATCH": `{"name":"x"}`, "DELETE": ""} {
		t.Run("what a write reads, "+method, func(t *testing.T) {
			another := createToken(t, s, "plants:write") // that has not written yet
			checkError(t, s.call(t, method, "/plants/1", body, as(another, "If-Match", `"none"`)...), 41201)
		})
	}
	resume()
	for name, read := range plainReads {
		t.Run(name+", later", func(t *testing.T) {
			eventually(t, "the plant on the standby", func() bool {
				return strings.Contains(s.get(t, read.path, as(otherToken)...).body, read.shows)
			})
		})
	}
}

// TestStandbyAndChanges: who has got changes, or a cursor, must not export from a standby that lacks
// what is before the cursor, and would never learn of that.
func TestStandbyAndChanges(t *testing.T) {
	t.Parallel()
	s, standby := startWithStandby(t)
	requireOK(t, s.post(t, bodyOf(0)))
	followed(t, standby, 0)
	pauseReplay(t, standby)
	requireOK(t, s.post(t, bodyOf(1)))
	sees := func(t *testing.T, name string, headers ...string) bool {
		t.Helper()
		read := plainReads[name]
		return strings.Contains(s.get(t, read.path, headers...).body, read.shows)
	}
	for name, changes := range map[string]func(t *testing.T, own string) (position string){
		"a cursor": func(t *testing.T, own string) string {
			return s.get(t, "/plants/changes", as(own)...).header.Get(middleware.PositionHeader)
		},
		"a long poll": func(t *testing.T, own string) string {
			return s.get(t, "/plants/changes?after=0&wait=1s", as(own)...).header.Get(middleware.PositionHeader)
		},
		"an event": func(t *testing.T, own string) string {
			stream := s.stream(t, "after=0", as(own)...)
			stream.next()
			return stream.header.Get(middleware.PositionHeader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := createToken(t, s, "plants:read"), createToken(t, s, "plants:read")
			if sees(t, "export", as(own)...) || sees(t, "export", as(other)...) {
				t.Fatal("the standby follows")
			}
			position := changes(t, own)
			for read := range plainReads {
				if !sees(t, read, as(own)...) {
					t.Errorf("%s does not see what is before the cursor", read)
				}
				if !sees(t, read, as(other, middleware.PositionHeader, position)...) {
					t.Errorf("%s of another client with the position %q does not", read, position)
				}
			}
		})
	}
}

// TestStandbyLags lets clients read what they have just written, from a standby that is five
// seconds behind.
func TestStandbyLags(t *testing.T) {
	t.Parallel()
	s, standby := startWithStandby(t)
	requireOK(t, s.post(t, bodyOf(0)))
	followed(t, standby, 0)
	dbtest.Exec(t, standby.URL, "ALTER SYSTEM SET recovery_min_apply_delay = '5s'")
	dbtest.Exec(t, standby.URL, "SELECT pg_reload_conf()")
	const clients, writes = 8, 50
	var stale atomic.Int64
	var group sync.WaitGroup
	for client := range clients {
		own, transport := createToken(t, s, "plants:read", "plants:write"), &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		group.Go(func() {
			for n := range writes {
				path, body := fmt.Sprintf("/plants/%d", client+1), fmt.Sprintf(`{"name":"version %d"}`, n)
				written, err := s.tryOn(transport, "PUT", path, strings.NewReader(body), as(own, "Content-Type", "application/json")...)
				position := written.header.Get(middleware.PositionHeader)
				if err != nil || written.status >= 300 || position == "" {
					t.Errorf("got %v %v, want a position", err, written)
					return
				}
				for reader, headers := range map[string][]string{
					"the writer":                     as(own),
					"another client with a position": as(otherToken, middleware.PositionHeader, position),
					"another client":                 as(otherToken),
				} {
					read, err := s.tryOn(transport, "GET", path, nil, headers...)
					switch isOld := read.etag() != written.etag(); {
					case err != nil:
						t.Error(err)
					case isOld && reader == "another client":
						stale.Add(1)
					case isOld:
						t.Errorf("%s got %v, want %v", reader, read, written)
					}
				}
			}
		})
	}
	group.Wait()
	record(t, `## Standbys

%d clients wrote %d times each and read the plant after each write, while a standby was five seconds behind
(`+"`TestStandbyLags`"+`): all %d reads by the writers, and all %d by others with the position of the write, returned it; of
%d reads by others without a position, %d were served by the standby and did not.`,
		clients, writes, clients*writes, clients*writes, clients*writes, stale.Load())
	if stale.Load() == 0 {
		t.Error("no read was served by the standby")
	}
	eventually(t, "the last version on the standby", func() bool {
		return strings.Contains(s.get(t, "/plants/1", as(otherToken)...).body, fmt.Sprintf("version %d", writes-1))
	})
}

// TestStandbyIsNotAsked does, while the standby does not follow, what must not depend on it.
func TestStandbyIsNotAsked(t *testing.T) {
	t.Parallel()
	s, standby := startWithStandby(t)
	first := s.post(t, bodyOf(1))
	requireOK(t, first)
	old := createToken(t, s, "plants:read")
	followed(t, standby, 1)
	pauseReplay(t, standby)

	second := s.call(t, "PUT", "/plants/1", `{"name":"new"}`)
	requireOK(t, second)
	t.Run("a precondition", func(t *testing.T) {
		checkCode(t, s.over(t, connections, "PUT", "/plants/1", `{"name":"x"}`, as(otherToken, "If-Match", first.etag())...), 41201)
		requireOK(t, s.over(t, connections, "PATCH", "/plants/1", `{"tag":"x"}`, as(otherToken, "If-Match", second.etag())...))
	})
	t.Run("why a plant cannot be created", func(t *testing.T) {
		checkCode(t, s.post(t, `{"id":1,"name":"new","tag":"x"}`, "Authorization", "Bearer "+otherToken), 40902)
		checkCode(t, s.post(t, bodyOf(1), "Authorization", "Bearer "+otherToken), 40901)
	})
	t.Run("a new token, and a revoked one", func(t *testing.T) {
		checkStatus(t, s.get(t, "/plants", as(createToken(t, s, "plants:read"))...), 200)
		checkStatus(t, s.get(t, "/plants", as(old)...), 200)
		checkStatus(t, s.call(t, "DELETE", "/tokens/"+prefixOf(old), ""), 204)
		eventually(t, "the end of the token", func() bool { return s.get(t, "/plants", as(old)...).code() == 40102 })
		if issuedToken(t, s, old).RevokedAt == nil {
			t.Error("got a token that is not revoked from GET /tokens")
		}
	})
}

// TestWritePosition sends every request that writes plants.
func TestWritePosition(t *testing.T) {
	t.Parallel()
	withStandby, _ := startWithStandby(t)
	without := start(t)
	bodies := map[string]string{"POST /plants": bodyOf(1), "PUT": `{"name":"x"}`, "PATCH": `{"name":"y"}`, "POST /plants/import": bodyOf(2) + "\n", "DELETE": ""}
	for _, r := range routes.Table(routes.Options{}) {
		if r.Scope != models.ScopePlantsWrite {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			body, ok := bodies[r.Method+" "+r.Path]
			if !ok {
				body = bodies[r.Method]
			}
			path := strings.ReplaceAll(r.Path, ":id", "1")
			var headers []string
			if strings.HasSuffix(path, "import") {
				headers = []string{"Content-Type", "application/x-ndjson"}
			}
			checkHas(t, withStandby.call(t, r.Method, path, body, headers...), middleware.PositionHeader)
			checkHeader(t, without.call(t, r.Method, path, body, headers...), middleware.PositionHeader, "")
		})
	}
	t.Run("a write that fails", func(t *testing.T) {
		requireOK(t, withStandby.post(t, bodyOf(3)))
		conflict := withStandby.post(t, `{"id":3,"name":"another"}`)
		checkError(t, conflict, 40901)
		checkHeader(t, conflict, middleware.PositionHeader, "")
	})
	t.Run("a position that is none", func(t *testing.T) {
		for name, read := range plainReads {
			for _, position := range []string{"!", "-1", "A", "01", "1000000000000"} {
				t.Run(name+" "+position, func(t *testing.T) {
					checkError(t, withStandby.get(t, read.path, as(token, middleware.PositionHeader, position)...), 40007, middleware.PositionHeader)
				})
			}
		}
	})
}

// TestStandbyAndALostWrite: a write gets no response in time, and is stored later. Its client must
// see it then, although the standby does not have it.
func TestStandbyAndALostWrite(t *testing.T) {
	t.Parallel()
	primary, standby := ownServers(t)
	s := startOn(t, primary, standby, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	requireOK(t, s.post(t, bodyOf(0)))
	// PostgreSQL sends two signals for one request to cancel, and the second may arrive later.
	dbtest.Exec(t, primary.URL, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(1); END;
			RETURN NULL;
		EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(1); RETURN NULL; END $$`)
	dbtest.Exec(t, primary.URL, "CREATE TRIGGER slow AFTER INSERT ON plants FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION slow()")
	followed(t, standby, 0)
	pauseReplay(t, standby)
	checkError(t, s.post(t, bodyOf(1)), 50302)
	table := openTable(t, primary.URL)
	eventually(t, "the plant on the primary", func() (found bool) {
		return table.QueryRow("SELECT true FROM plants WHERE id = 1").Scan(&found) == nil
	})
	for name, read := range plainReads {
		t.Run(name, func(t *testing.T) {
			eventually(t, "the plant", func() bool { return strings.Contains(s.get(t, read.path, as(token)...).body, read.shows) })
		})
	}
}
