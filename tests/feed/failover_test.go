package feed

import (
	"fmt"
	"maps"
	"net/url"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFeedAfterAFailover: a follower that has seen what the standby lacked when it was promoted begins anew, however
// many changes there were before it asks.
func TestFeedAfterAFailover(t *testing.T) {
	t.Parallel()
	t.Run("the standby lacked changes", func(t *testing.T) {
		t.Parallel()
		primary, standby := service.OwnServers(t)
		s := startOnBoth(t, primary, standby)
		create(t, s, 1, 40)
		service.Eventually(t, "replication", func() bool { return len(storedNames(t, service.OpenTable(t, standby.URL))) == 40 })
		dbtest.Exec(t, standby.URL, "ALTER SYSTEM SET primary_conninfo = ''")
		dbtest.Exec(t, standby.URL, "SELECT pg_reload_conf()")
		service.Eventually(t, "the end of replication", func() bool {
			var n int
			service.Must(t, service.OpenTable(t, standby.URL).QueryRowContext(t.Context(), "SELECT count(*) FROM pg_stat_wal_receiver").Scan(&n))
			return n == 0
		})
		create(t, s, 101, 140)
		waiting := s.Stream(t, "")
		waiting.Next()
		follower := newPlants()
		follower.follow(t, s, storedNames(t, service.OpenTable(t, primary.URL)))
		service.Must(t, primary.Kill())
		service.Must(t, standby.Promote())
		service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
		create(t, s, 201, 281)
		s.Get(t, "/plants/changes?after="+follower.cursor, service.As(service.Token)...).CheckError(t, 41001)
		for c, ok := waiting.Next(); ok; c, ok = waiting.Next() {
			t.Logf("the stream went on with %s", c) // perhaps of the old primary
		}
		s.AwaitLog(t, "the database server was promoted or recovered, and may have lost changes: followers begin anew")
		follower = newPlants()
		follower.follow(t, s, storedNames(t, service.OpenTable(t, standby.URL)))
		s.Stop(t)
		s = startOnBoth(t, primary, standby) // a restart is no failover
		create(t, s, 300, 300)
		follower.follow(t, s, storedNames(t, service.OpenTable(t, standby.URL)))
	})
	t.Run("an announced switch without a loss", func(t *testing.T) {
		t.Parallel()
		primary, standby := service.OwnServers(t)
		s := startOnBoth(t, primary, standby)
		create(t, s, 1, 10)
		dbtest.Exec(t, primary.URL, "UPDATE feed SET timeline = timeline + 1")
		follower := newPlants()
		follower.follow(t, s, storedNames(t, service.OpenTable(t, primary.URL)))
		service.Must(t, primary.Stop()) // which sends the standby all it has
		service.Must(t, standby.Promote())
		service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
		create(t, s, 11, 12)
		follower.follow(t, s, storedNames(t, service.OpenTable(t, standby.URL)))
	})
}

// startOnBoth starts a service that uses the primary of two servers.
func startOnBoth(t *testing.T, a, b *dbtest.Server) *service.Service {
	t.Helper()
	u, err := url.Parse(a.URL)
	service.Must(t, err)
	other, err := url.Parse(b.URL)
	service.Must(t, err)
	u.Host += "," + other.Host
	return service.Start(t, "DATABASE_URL="+u.String())
}

func create(t *testing.T, s *service.Service, first, last int64) {
	t.Helper()
	for id := first; id <= last; id++ {
		s.Post(t, service.BodyOf(id)).RequireOK(t)
	}
}

// plants is a copy of the plants, up to a cursor.
type plants struct {
	names  map[int64]string
	cursor string
}

func newPlants() *plants { return &plants{make(map[int64]string), "0"} }

// follow reads changes until the copy has the plants in want.
func (p *plants) follow(t *testing.T, s *service.Service, want map[int64]string) {
	t.Helper()
	service.Eventually(t, fmt.Sprintf("%d plants", len(want)), func() bool {
		c := changesSince(t, s, "limit=1000&after="+p.cursor)
		for _, change := range c.Changes {
			delete(p.names, change.ID)
			if change.Plant != nil {
				p.names[change.ID] = change.Plant.Name
			}
		}
		p.cursor = c.Cursor
		return maps.Equal(p.names, want)
	})
}
