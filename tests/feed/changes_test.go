package feed

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// changesSince returns the response to GET /plants/changes with a query.
func changesSince(t *testing.T, s *service.Service, query string) (c service.Changes) {
	t.Helper()
	r := s.Get(t, "/plants/changes?"+query, service.As(service.Token)...)
	r.RequireOK(t)
	service.Must(t, json.Unmarshal([]byte(r.Body), &c))
	return c
}

func TestChanges(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		now := changesSince(t, s, "")
		if now.String() != "" || now.Cursor == "" {
			t.Errorf("without after: got %+v, want only a cursor", now)
		}
		for id := range 3 {
			s.Post(t, service.BodyOf(int64(id+1))).RequireOK(t)
		}
		s.Send(t, "DELETE", "/plants/2", nil, service.As(service.Token)...).CheckEmpty(t, 204)
		await(t, s, now.Cursor, "1 3 -2")
		if c := await(t, s, "0", "1 3"); c.Changes[0].Plant.Name != service.NameOf(1) {
			t.Errorf("got %+v, want the plant", c)
		}
		future := now.Cursor + "999999999" // however many transactions the server has had
		page := changesSince(t, s, "limit=1&after="+now.Cursor)
		rest := changesSince(t, s, "after="+page.Cursor)
		if all := page.String() + " " + rest.String(); all != "1 3 -2" {
			t.Errorf("in pages: got %s", all)
		}
		t.Run("wait", func(t *testing.T) {
			begin := time.Now()
			if c := changesSince(t, s, "wait=1s&after="+rest.Cursor); c.String() != "" || c.Cursor != rest.Cursor || time.Since(begin) < time.Second {
				t.Errorf("got %+v after %v, want nothing after a second", c, time.Since(begin))
			}
			var group sync.WaitGroup
			defer group.Wait()
			group.Go(func() {
				awaitFollowers(t, s, 1)
				s.Get(t, "/plants/changes?wait=60s&after="+future, service.As(service.Token)...).CheckError(t, 41001)
				s.Post(t, service.BodyOf(4)).RequireOK(t)
			})
			if c := changesSince(t, s, "wait=60s&after="+rest.Cursor); c.String() != "4" {
				t.Errorf("got %s, want 4", c)
			}
		})
		t.Run("HEAD", func(t *testing.T) {
			r := s.Send(t, "HEAD", "/plants/changes?wait=60s", nil, service.As(service.Token, "Accept", "text/event-stream")...)
			r.CheckStatus(t, 200)
			r.CheckHeader(t, "Content-Type", "text/event-stream")
			r.CheckHeader(t, "X-Accel-Buffering", "no")
			r.CheckHeader(t, "Content-Length", "")
			for _, accept := range []string{"application/json", "text/event-stream"} {
				s.Send(t, "HEAD", "/plants/changes?after=abc.1", nil, service.As(service.Token, "Accept", accept)...).CheckStatus(t, 410)
			}
		})
		messages := map[string]string{"wait=1": "wait must be a time such as 30s, from 0s to 60s"}
		for query, code := range map[string]int{
			"after=x": 40007, "after=": 40007, "after=1": 40007, "wait=61s": 40007, "wait=1": 40007, "wait=-1s": 40007, "limit=0": 40007, "tag=x": 40007,
			"after=abc.1": 41001, "after=" + future: 41001,
		} {
			t.Run(query, func(t *testing.T) {
				s.Get(t, "/plants/changes?"+query, service.As(service.Token)...).CheckError(t, code, messages[query])
			})
		}
		t.Run("Last-Event-ID", func(t *testing.T) {
			for _, ids := range []string{"Last-Event-ID: x\r\n", "Last-Event-ID: 0\r\nLast-Event-ID: 0\r\n"} {
				conn := s.Dial(t)
				fmt.Fprintf(conn, "GET /plants/changes HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n%s\r\n", service.Token, ids)
				service.ReadConn(t, conn).CheckError(t, 40007, "Last-Event-ID must be")
			}
		})
	}, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
}

// await reads the changes since a cursor until they are those in want: transactions of other
// tests on the same server can hold them up.
func await(t *testing.T, s *service.Service, cursor, want string) (c service.Changes) {
	t.Helper()
	service.Eventually(t, "the changes "+want, func() bool {
		c = changesSince(t, s, "after="+cursor)
		return c.String() == want
	})
	return c
}

// TestChangesStream: a stream outlasts server.write_timeout and server.read_timeout, resumes,
// and has the writes of other replicas.
func TestChangesStream(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		settings := []string{"DATABASE_URL=" + url, "PLANTSTORE_SERVER_WRITE_TIMEOUT=1s", "PLANTSTORE_SERVER_READ_TIMEOUT=1s"}
		a, b := service.Start(t, settings...), service.Start(t, settings...)
		events := a.Stream(t, "")
		if c, _ := events.Next(); c.String() != "" || c.Cursor == "" {
			t.Errorf("got %+v, want the cursor at first", c)
		}
		if events.Retry != "1000" {
			t.Errorf("got %q milliseconds until a client connects again, want 1000", events.Retry)
		}
		a.Post(t, service.BodyOf(1)).RequireOK(t)
		first := events.Await("1")
		b.Post(t, service.BodyOf(2)).RequireOK(t)
		events.Await("2")
		long := time.Now().Add(3 * time.Second)
		for id := int64(3); time.Now().Before(long); id++ {
			b.Post(t, service.BodyOf(id)).RequireOK(t)
			events.Await(strconv.FormatInt(id, 10))
		}
		if c, _ := b.Stream(t, "limit=1", "Last-Event-ID", first.Cursor).Next(); c.String() != "2" {
			t.Errorf("resumed with %v, want 2", c)
		}
		if c, _ := b.Stream(t, "limit=1&lastEventId="+first.Cursor).Next(); c.String() != "2" { // as a polyfill does
			t.Errorf("resumed by the parameter with %v, want 2", c)
		}
		if c, _ := b.Stream(t, "limit=1&after="+first.Cursor, "Last-Event-ID", "").Next(); c.String() != "2" {
			t.Errorf("with an empty Last-Event-ID, began with %v, want 2", c)
		}
	})
}

// TestChangesComments: a stream without changes has a comment every 15 seconds.
func TestChangesComments(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	events := s.Stream(t, "")
	events.Next()
	begin := time.Now()
	select {
	case <-events.Comments:
		if waited := time.Since(begin); waited < 10*time.Second {
			t.Errorf("got a comment after %v, want one after 15 s", waited)
		}
	case <-time.After(service.Patience):
		t.Error("got no comment")
	}
}

// TestFeedLag: the metric tells for how long a transaction has held up the feed.
func TestFeedLag(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s, admin := service.StartAdmin(t, "DATABASE_URL="+server.URL)
	lag := func() float64 {
		return service.ValueOf(t, admin.Get(t, "/metrics").Body, "plantstore_feed_lag_seconds")
	}
	if got := lag(); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	service.Must(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	service.Must(t, err)
	_, err = tx.Exec(t.Context(), "CREATE TABLE report (n int)")
	service.Must(t, err)
	begin := time.Now()
	s.Post(t, service.BodyOf(1)).RequireOK(t) // which is held up
	service.Eventually(t, "a lag of a second", func() bool { return lag() > 1 })
	if got, most := lag(), time.Since(begin).Seconds(); got > most {
		t.Errorf("got %v, want at most %v", got, most)
	}
	service.Must(t, tx.Rollback(t.Context()))
	if got := lag(); got != 0 {
		t.Errorf("after the end: got %v, want 0", got)
	}
}

// TestChangesEnd: a stream ends with its token, and when the service drains.
func TestChangesEnd(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		issued := service.CreateToken(t, s, "plants:read")
		revoked, drained := s.Stream(t, "", service.As(issued)...), s.Stream(t, "")
		revoked.Next()
		drained.Next()
		s.Send(t, "DELETE", "/tokens/"+service.PrefixOf(issued), nil, service.As(service.Token)...).CheckEmpty(t, 204)
		begin := time.Now()
		if c, ok := revoked.Next(); ok || time.Since(begin) > service.RevocationTime {
			t.Errorf("got %v after %v, want the end within %v", c, time.Since(begin), service.RevocationTime)
		}
		waiting := make(chan service.Response, 1)
		go func() {
			r, _ := s.Try("GET", "/plants/changes?wait=60s", nil, service.As(service.Token)...)
			waiting <- r
		}()
		awaitFollowers(t, s, 2)
		service.Must(t, s.Process.Signal(syscall.SIGTERM))
		if c, ok := drained.Next(); ok || drained.Err != nil {
			t.Errorf("got %v, %v, want a complete response", c, drained.Err)
		}
		if r := <-waiting; r.Status != 200 {
			t.Errorf("a waiting request: got %v", r)
		}
		service.Must(t, s.Wait(t))
	}, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
}

// TestChangesLimits: each token has so many followers, and one that does not read is dropped.
func TestChangesLimits(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
	other := service.CreateToken(t, s, "plants:read")
	const each = 100
	streams := make([]*service.Stream, each)
	for i := range streams {
		streams[i] = s.Stream(t, "")
	}
	s.Get(t, "/plants/changes?wait=1s", service.As(service.Token)...).CheckError(t, 50301)
	s.Get(t, "/plants/changes?wait=1s", service.As(other)...).RequireOK(t)
	s.Get(t, "/plants/changes", service.As(service.Token)...).RequireOK(t) // which does not wait

	for _, stream := range streams {
		stream.Close()
	}
	awaitFollowers(t, s, 0)

	// Those that do not read: the buffers of the network take a few megabytes.
	request := func(accept, target string) net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
		service.Must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		service.Must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		service.Must(t, conn.SetDeadline(time.Now().Add(service.Patience)))
		text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\nAuthorization: Bearer %s\r\n\r\n", target, accept, other)
		_, err = io.WriteString(conn, strings.Repeat(text, 10))
		service.Must(t, err)
		return conn
	}
	request("text/event-stream", "/plants/changes")
	awaitFollowers(t, s, 1)
	var rows strings.Builder
	long := strings.Repeat("🌱", 255)
	for id := range 8000 {
		fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
	}
	s.ImportRows(t, "", "application/x-ndjson", rows.String()).RequireOK(t)
	awaitFollowers(t, s, 0)
	service.AwaitReset(t, request("application/json", "/plants/changes?after=0&limit=1000"), func() []byte { return []byte("x") })
}

// awaitFollowers waits until so many requests follow the feed.
func awaitFollowers(t *testing.T, s *service.Service, n int) {
	t.Helper()
	admin := s.Admin(t)
	service.Eventually(t, "followers", func() bool {
		return service.ValueOf(t, admin.Get(t, "/metrics").Body, "plantstore_followers") == float64(n)
	})
}

// TestFeedRetention: the service itself forgets deletions that are older than feed.retention, and
// no others.
func TestFeedRetention(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		table := service.OpenTable(t, url)
		marks := func() (n int) {
			service.Must(t, table.QueryRowContext(t.Context(), "SELECT count(*) FROM feed_marks").Scan(&n))
			return n
		}
		s := service.Start(t, "DATABASE_URL="+url)
		s.Post(t, service.BodyOf(1)).RequireOK(t)
		cursor := changesSince(t, s, "").Cursor
		s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckEmpty(t, 204)
		s.Post(t, service.BodyOf(2)).RequireOK(t)
		await(t, s, cursor, "-1 2") // on PostgreSQL, transactions of other tests hold up the end of the feed, and so the next mark
		s.Stop(t)
		before := marks()
		s = service.Start(t, "DATABASE_URL="+url)
		service.Eventually(t, "a mark", func() bool { return marks() > before })
		s.Stop(t)
		_, err := table.ExecContext(t.Context(), "UPDATE feed_marks SET at = '2020-01-01 00:00:00+00:00'")
		service.Must(t, err)
		s = service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_FEED_RETENTION=876000h")
		await(t, s, cursor, "-1 2")
		s.Stop(t)
		s = service.Start(t, "DATABASE_URL="+url)
		service.Eventually(t, "the end of what is old", func() bool {
			return s.Get(t, "/plants/changes?after="+cursor, service.As(service.Token)...).Code() == 41001
		})
	})
}

// TestFeedIsMeasured: its statement begins with a subquery.
func TestFeedIsMeasured(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s, admin := service.StartAdmin(t, "DATABASE_URL="+url)
		changesSince(t, s, "")
		want := regexp.MustCompile(`(?m)^db_client_operation_duration_seconds_count\{db_collection_name="(feed|plant_changes)",db_operation_name="SELECT",.*\} [1-9]`)
		if got := admin.Get(t, "/metrics").Body; !want.MatchString(got) {
			t.Errorf("got no %s in\n%s", want, got)
		}
	})
}
