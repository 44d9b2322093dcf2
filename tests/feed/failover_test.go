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
		service.Eventually(t, "replication", func() bool { return count(t, standby.URL) == 40 })
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
		var names map[int64]string
		var cursor string
		service.Eventually(t, "a copy", func() bool {
			names, cursor = copyOf(t, s)
			return len(names) == 80
		})
		service.Must(t, primary.Kill())
		service.Must(t, standby.Promote())
		service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
		create(t, s, 201, 281)
		s.Get(t, "/plants/changes?after="+cursor, service.As(service.Token)...).CheckError(t, 41001)
		for {
			c, ok := waiting.Next()
			if !ok {
				break
			}
			t.Logf("the stream continued with %s", c)
		}
		s.AwaitLog(t, "the database server was promoted or recovered, and may have lost changes: followers begin anew")
		want := namesOf(t, standby.URL)
		service.Eventually(t, "an equal copy", func() bool {
			names, cursor = copyOf(t, s)
			return maps.Equal(names, want)
		})
		s.Stop(t)
		s = startOnBoth(t, primary, standby) // a restart is no failover
		create(t, s, 300, 300)
		await(t, s, cursor, "300")
	})
	t.Run("an announced switch without a loss", func(t *testing.T) {
		t.Parallel()
		primary, standby := service.OwnServers(t)
		s := startOnBoth(t, primary, standby)
		create(t, s, 1, 10)
		dbtest.Exec(t, primary.URL, "UPDATE feed SET timeline = timeline + 1")
		_, cursor := copyOf(t, s)
		service.Must(t, primary.Stop()) // which sends the standby all it has
		service.Must(t, standby.Promote())
		service.Eventually(t, "a ready service", func() bool { return s.Get(t, "/readyz").Status == 200 })
		create(t, s, 11, 12)
		await(t, s, cursor, "11 12")
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

func namesOf(t *testing.T, url string) map[int64]string {
	t.Helper()
	names := make(map[int64]string)
	rows, err := service.OpenTable(t, url).QueryContext(t.Context(), "SELECT id, name FROM plants")
	service.Must(t, err)
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name string
		service.Must(t, rows.Scan(&id, &name))
		names[id] = name
	}
	service.Must(t, rows.Err())
	return names
}

func count(t *testing.T, url string) int { return len(namesOf(t, url)) }

// copyOf follows the changes from the beginning.
func copyOf(t *testing.T, s *service.Service) (names map[int64]string, cursor string) {
	t.Helper()
	names, cursor = make(map[int64]string), "0"
	for {
		c := changesSince(t, s, fmt.Sprintf("limit=1000&after=%s", cursor))
		for _, change := range c.Changes {
			delete(names, change.ID)
			if change.Plant != nil {
				names[change.ID] = change.Plant.Name
			}
		}
		if cursor = c.Cursor; len(c.Changes) == 0 {
			return names, cursor
		}
	}
}
