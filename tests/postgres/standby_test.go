package postgres

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
	"plantstore/tests/service"
)

// pauseReplay stops standby from following its primary, and returns how to let it go on.
func pauseReplay(t *testing.T, standby *dbtest.Server) (resume func()) {
	t.Helper()
	db := service.OpenTable(t, standby.URL)
	_, err := db.Exec("SELECT pg_wal_replay_pause()")
	service.Must(t, err)
	service.Eventually(t, "the end of the replay", func() (paused bool) {
		service.Must(t, db.QueryRow("SELECT pg_get_wal_replay_pause_state() = 'paused'").Scan(&paused))
		return paused
	})
	return func() { dbtest.Exec(t, standby.URL, "SELECT pg_wal_replay_resume()") }
}

// followed waits until standby has a plant.
func followed(t *testing.T, standby *dbtest.Server, id int64) {
	t.Helper()
	db := service.OpenTable(t, standby.URL)
	service.Eventually(t, "the plant on the standby", func() (found bool) {
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
	s, standby := service.StartWithStandby(t)
	s.Post(t, service.BodyOf(0)).RequireOK(t)
	followed(t, standby, 0)
	resume := pauseReplay(t, standby)
	created := s.Post(t, service.BodyOf(1))
	created.RequireOK(t)
	position := created.Header.Get(middleware.PositionHeader)
	service.Eventually(t, "reads from the standby", func() bool { // which begin once it has what the primary had at first
		return s.Get(t, "/plants/1", service.As(service.OtherToken)...).Status == 404
	})
	for name, read := range plainReads {
		for client, test := range map[string]struct {
			headers []string
			sees    bool
		}{
			"the writer":                      {service.As(service.Token), true},
			"another client":                  {service.As(service.OtherToken), false},
			"another client with a position":  {service.As(service.OtherToken, middleware.PositionHeader, position), true},
			"another client with an old one":  {service.As(service.OtherToken, middleware.PositionHeader, "1"), false},
			"the writer with an old position": {service.As(service.Token, middleware.PositionHeader, "1"), true},
		} {
			t.Run(name+", "+client, func(t *testing.T) {
				r := s.Get(t, read.path, test.headers...)
				if sees := strings.Contains(r.Body, read.shows); sees != test.sees || r.Status >= 500 {
					t.Errorf("got %s, want the plant: %t", r, test.sees)
				}
			})
		}
	}
	for method, body := range map[string]string{"PATCH": `{"name":"x"}`, "DELETE": ""} {
		t.Run("what a write reads, "+method, func(t *testing.T) {
			another := service.CreateToken(t, s, "plants:write") // that has not written yet
			s.Call(t, method, "/plants/1", body, service.As(another, "If-Match", `"none"`)...).CheckError(t, 41201)
		})
	}
	resume()
	for name, read := range plainReads {
		t.Run(name+", later", func(t *testing.T) {
			service.Eventually(t, "the plant on the standby", func() bool {
				return strings.Contains(s.Get(t, read.path, service.As(service.OtherToken)...).Body, read.shows)
			})
		})
	}
}

// TestStandbyAndChanges: who has got changes, or a cursor, must not export from a standby that lacks
// what is before the cursor, and would never learn of that.
func TestStandbyAndChanges(t *testing.T) {
	t.Parallel()
	s, standby := service.StartWithStandby(t)
	s.Post(t, service.BodyOf(0)).RequireOK(t)
	followed(t, standby, 0)
	pauseReplay(t, standby)
	s.Post(t, service.BodyOf(1)).RequireOK(t)
	sees := func(t *testing.T, name string, headers ...string) bool {
		t.Helper()
		read := plainReads[name]
		return strings.Contains(s.Get(t, read.path, headers...).Body, read.shows)
	}
	for name, changes := range map[string]func(t *testing.T, own string) (position string){
		"a cursor": func(t *testing.T, own string) string {
			return s.Get(t, "/plants/changes", service.As(own)...).Header.Get(middleware.PositionHeader)
		},
		"a long poll": func(t *testing.T, own string) string {
			return s.Get(t, "/plants/changes?after=0&wait=1s", service.As(own)...).Header.Get(middleware.PositionHeader)
		},
		"an event": func(t *testing.T, own string) string {
			stream := s.Stream(t, "after=0", service.As(own)...)
			stream.Next()
			return stream.Header.Get(middleware.PositionHeader)
		},
	} {
		t.Run(name, func(t *testing.T) {
			own, other := service.CreateToken(t, s, "plants:read"), service.CreateToken(t, s, "plants:read")
			service.Eventually(t, "exports from the standby", func() bool { // without a connection in time, the primary has them
				return !sees(t, "export", service.As(own)...) && !sees(t, "export", service.As(other)...)
			})
			position := changes(t, own)
			for read := range plainReads {
				if !sees(t, read, service.As(own)...) {
					t.Errorf("%s does not see what is before the cursor", read)
				}
				if !sees(t, read, service.As(other, middleware.PositionHeader, position)...) {
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
	s, standby := service.StartWithStandby(t)
	s.Post(t, service.BodyOf(0)).RequireOK(t)
	followed(t, standby, 0)
	dbtest.Exec(t, standby.URL, "ALTER SYSTEM SET recovery_min_apply_delay = '5s'")
	dbtest.Exec(t, standby.URL, "SELECT pg_reload_conf()")
	const clients, writes = 8, 50
	var stale atomic.Int64
	var group sync.WaitGroup
	for client := range clients {
		own, transport := service.CreateToken(t, s, "plants:read", "plants:write"), &http.Transport{}
		t.Cleanup(transport.CloseIdleConnections)
		group.Go(func() {
			for n := range writes {
				path, body := fmt.Sprintf("/plants/%d", client+1), fmt.Sprintf(`{"name":"version %d"}`, n)
				written, err := s.TryOn(transport, "PUT", path, strings.NewReader(body), service.As(own, "Content-Type", "application/json")...)
				position := written.Header.Get(middleware.PositionHeader)
				if err != nil || written.Status >= 300 || position == "" {
					t.Errorf("got %v %v, want a position", err, written)
					return
				}
				for reader, headers := range map[string][]string{
					"the writer":                     service.As(own),
					"another client with a position": service.As(service.OtherToken, middleware.PositionHeader, position),
					"another client":                 service.As(service.OtherToken),
				} {
					read, err := s.TryOn(transport, "GET", path, nil, headers...)
					switch isOld := read.ETag() != written.ETag(); {
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
	service.Record(t, `## Standbys

%d clients wrote %d times each and read the plant after each write, while a standby was five seconds behind
(`+"`TestStandbyLags`"+`): all %d reads by the writers, and all %d by others with the position of the write, returned it; of
%d reads by others without a position, %d were served by the standby and did not.`,
		clients, writes, clients*writes, clients*writes, clients*writes, stale.Load())
	if stale.Load() == 0 {
		t.Error("no read was served by the standby")
	}
	service.Eventually(t, "the last version on the standby", func() bool {
		return strings.Contains(s.Get(t, "/plants/1", service.As(service.OtherToken)...).Body, fmt.Sprintf("version %d", writes-1))
	})
}

// TestStandbyIsNotAsked does, while the standby does not follow, what must not depend on it.
func TestStandbyIsNotAsked(t *testing.T) {
	t.Parallel()
	s, standby := service.StartWithStandby(t)
	first := s.Post(t, service.BodyOf(1))
	first.RequireOK(t)
	old := service.CreateToken(t, s, "plants:read")
	followed(t, standby, 1)
	pauseReplay(t, standby)

	second := s.Call(t, "PUT", "/plants/1", `{"name":"new"}`)
	second.RequireOK(t)
	t.Run("a precondition", func(t *testing.T) {
		s.Over(t, service.Connections, "PUT", "/plants/1", `{"name":"x"}`, service.As(service.OtherToken, "If-Match", first.ETag())...).CheckCode(t, 41201)
		s.Over(t, service.Connections, "PATCH", "/plants/1", `{"tag":"x"}`, service.As(service.OtherToken, "If-Match", second.ETag())...).RequireOK(t)
	})
	t.Run("why a plant cannot be created", func(t *testing.T) {
		s.Post(t, `{"id":1,"name":"new","tag":"x"}`, "Authorization", "Bearer "+service.OtherToken).CheckCode(t, 40902)
		s.Post(t, service.BodyOf(1), "Authorization", "Bearer "+service.OtherToken).CheckCode(t, 40901)
	})
	t.Run("a new token, and a revoked one", func(t *testing.T) {
		s.Get(t, "/plants", service.As(service.CreateToken(t, s, "plants:read"))...).CheckStatus(t, 200)
		s.Get(t, "/plants", service.As(old)...).CheckStatus(t, 200)
		s.Call(t, "DELETE", "/tokens/"+service.PrefixOf(old), "").CheckStatus(t, 204)
		service.Eventually(t, "the end of the token", func() bool { return s.Get(t, "/plants", service.As(old)...).Code() == 40102 })
		if service.IssuedToken(t, s, old).RevokedAt == nil {
			t.Error("got a token that is not revoked from GET /tokens")
		}
	})
}

// TestWritePosition sends every request that writes plants.
func TestWritePosition(t *testing.T) {
	t.Parallel()
	withStandby, _ := service.StartWithStandby(t)
	without := service.Start(t)
	bodies := map[string]string{"POST /plants": service.BodyOf(1), "PUT": `{"name":"x"}`, "PATCH": `{"name":"y"}`, "POST /plants/import": service.BodyOf(2) + "\n", "DELETE": ""}
	for _, r := range routes.Table(routes.Options{}) {
		if r.Scope != models.WriteScope("plants") {
			continue
		}
		t.Run(r.Method+" "+r.Path, func(t *testing.T) {
			body, ok := bodies[r.Method+" "+r.Path]
			if !ok {
				body = bodies[r.Method]
			}
			path := strings.ReplaceAll(r.Path, ":id", "1")
			if slices.Contains(r.Query, "max") { // it writes to selected plants
				path += "?q=plant"
			}
			var headers []string
			if strings.HasSuffix(path, "import") {
				headers = []string{"Content-Type", "application/x-ndjson"}
			}
			withStandby.Call(t, r.Method, path, body, headers...).CheckHas(t, middleware.PositionHeader)
			without.Call(t, r.Method, path, body, headers...).CheckHeader(t, middleware.PositionHeader, "")
		})
	}
	t.Run("a write that fails", func(t *testing.T) {
		withStandby.Post(t, service.BodyOf(3)).RequireOK(t)
		conflict := withStandby.Post(t, `{"id":3,"name":"another"}`)
		conflict.CheckError(t, 40901)
		conflict.CheckHeader(t, middleware.PositionHeader, "")
	})
	t.Run("a position that is none", func(t *testing.T) {
		for name, read := range plainReads {
			for _, position := range []string{"!", "-1", "A", "01", "1000000000000"} {
				t.Run(name+" "+position, func(t *testing.T) {
					withStandby.Get(t, read.path, service.As(service.Token, middleware.PositionHeader, position)...).CheckError(t, 40007, middleware.PositionHeader)
				})
			}
		}
	})
}

// TestStandbyAndALostWrite: a write gets no response in time, and is stored later. Its client must
// see it then, although the standby does not have it.
func TestStandbyAndALostWrite(t *testing.T) {
	t.Parallel()
	primary, standby := service.OwnServers(t)
	s := service.StartOn(t, primary, standby, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	s.Post(t, service.BodyOf(0)).RequireOK(t)
	// PostgreSQL sends two signals for one request to cancel, and the second may arrive later.
	dbtest.Exec(t, primary.URL, `CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS $$
		BEGIN
			BEGIN PERFORM pg_sleep(60); EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(1); END;
			RETURN NULL;
		EXCEPTION WHEN query_canceled THEN PERFORM pg_sleep(1); RETURN NULL; END $$`)
	dbtest.Exec(t, primary.URL, "CREATE TRIGGER slow AFTER INSERT ON plants FOR EACH ROW WHEN (NEW.id = 1) EXECUTE FUNCTION slow()")
	followed(t, standby, 0)
	pauseReplay(t, standby)
	s.Post(t, service.BodyOf(1)).CheckError(t, 50302)
	table := service.OpenTable(t, primary.URL)
	service.Eventually(t, "the plant on the primary", func() (found bool) {
		return table.QueryRow("SELECT true FROM plants WHERE id = 1").Scan(&found) == nil
	})
	for name, read := range plainReads {
		t.Run(name, func(t *testing.T) {
			service.Eventually(t, "the plant", func() bool {
				return strings.Contains(s.Get(t, read.path, service.As(service.Token)...).Body, read.shows)
			})
		})
	}
}
