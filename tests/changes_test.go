package tests

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"plantstore/database/dbtest"
)

// changes is the body of a response of /plants/changes.
type changes struct {
	Changes []struct {
		ID    int64
		Plant *struct{ Name string }
	}
	Cursor string
}

// ids returns the changes as text, such as "1 2 -1" for two plants and a deletion.
func (c changes) String() string {
	var texts []string
	for _, change := range c.Changes {
		text := strconv.FormatInt(change.ID, 10)
		if change.Plant == nil {
			text = "-" + text
		}
		texts = append(texts, text)
	}
	return strings.Join(texts, " ")
}

// changesSince returns the response to GET /plants/changes with a query.
func (s *service) changesSince(t *testing.T, query string) (c changes) {
	t.Helper()
	r := s.get(t, "/plants/changes?"+query, as(token)...)
	requireOK(t, r)
	must(t, json.Unmarshal([]byte(r.body), &c))
	return c
}

// stream is an open response of server-sent events.
type stream struct {
	t        *testing.T
	header   http.Header
	events   chan changes // closed when the response ends
	comments chan struct{}
	err      error // set before that
	ids      []string
	retry    string
	close    func()
}

// stream follows the changes of a service, with a query, as server-sent events.
func (s *service) stream(t *testing.T, query string, headers ...string) *stream {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/plants/changes?"+query, nil)
	must(t, err)
	request.Header.Set("Accept", "text/event-stream")
	request.Header.Set("Authorization", "Bearer "+token)
	for i := 0; i < len(headers); i += 2 {
		request.Header.Set(headers[i], headers[i+1])
	}
	transport := &http.Transport{}
	response, err := transport.RoundTrip(request) //nolint:bodyclose // below
	must(t, err)
	if response.StatusCode != http.StatusOK || response.Header.Get("Content-Type") != "text/event-stream" {
		t.Fatalf("got %v", response)
	}
	if !slices.Contains(response.Header.Values("Vary"), "Accept") || response.Header.Get("X-Accel-Buffering") != "no" {
		t.Errorf("got %v, want headers that keep caches and nginx from holding events back", response.Header)
	}
	events := &stream{t: t, header: response.Header, events: make(chan changes, 1000), comments: make(chan struct{}, 1000), close: cancel}
	t.Cleanup(cancel)
	go func() {
		defer transport.CloseIdleConnections()
		defer close(events.events)
		defer response.Body.Close()
		scanner := bufio.NewScanner(response.Body)
		scanner.Buffer(nil, 1<<22)
		for scanner.Scan() {
			if strings.HasPrefix(scanner.Text(), ":") {
				events.comments <- struct{}{}
			}
			if id, ok := strings.CutPrefix(scanner.Text(), "id: "); ok {
				events.ids = append(events.ids, id)
			}
			if retry, ok := strings.CutPrefix(scanner.Text(), "retry: "); ok {
				events.retry = retry
			}
			if data, ok := strings.CutPrefix(scanner.Text(), "data: "); ok {
				var c changes
				if events.err = json.Unmarshal([]byte(data), &c); events.err != nil {
					return
				}
				if id := events.ids[len(events.ids)-1]; id != c.Cursor {
					events.err = fmt.Errorf("the id is %s, and the cursor %s", id, c.Cursor)
				}
				events.events <- c
			}
		}
		if events.err == nil {
			events.err = scanner.Err()
		}
	}()
	return events
}

// next waits for the next event.
func (s *stream) next() (c changes, ok bool) {
	s.t.Helper()
	select {
	case c, ok := <-s.events:
		return c, ok
	case <-time.After(patience):
		s.t.Fatal("no event")
		return c, false
	}
}

// await reads events until they have the given changes.
func (s *stream) await(want string) changes {
	s.t.Helper()
	var all []string
	for {
		c, ok := s.next()
		if !ok {
			s.t.Fatalf("the stream has ended after %v: %v", all, s.err)
		}
		if text := c.String(); text != "" {
			all = append(all, text)
		}
		if strings.Join(all, " ") == want {
			return c
		}
	}
}

func TestChanges(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		now := s.changesSince(t, "")
		if now.String() != "" || now.Cursor == "" {
			t.Errorf("without after: got %+v, want only a cursor", now)
		}
		for id := range 3 {
			requireOK(t, s.post(t, bodyOf(int64(id+1))))
		}
		checkEmpty(t, s.send(t, "DELETE", "/plants/2", nil, as(token)...), 204)
		s.await(t, now.Cursor, "1 3 -2")
		if c := s.await(t, "0", "1 3"); c.Changes[0].Plant.Name != nameOf(1) {
			t.Errorf("got %+v, want the plant", c)
		}
		future := now.Cursor + "999999999" // however many transactions the server has had
		page := s.changesSince(t, "limit=1&after="+now.Cursor)
		rest := s.changesSince(t, "after="+page.Cursor)
		if all := page.String() + " " + rest.String(); all != "1 3 -2" {
			t.Errorf("in pages: got %s", all)
		}
		t.Run("wait", func(t *testing.T) {
			begin := time.Now()
			if c := s.changesSince(t, "wait=1s&after="+rest.Cursor); c.String() != "" || c.Cursor != rest.Cursor || time.Since(begin) < time.Second {
				t.Errorf("got %+v after %v, want nothing after a second", c, time.Since(begin))
			}
			var group sync.WaitGroup
			defer group.Wait()
			group.Go(func() {
				s.awaitFollowers(t, 1)
				checkError(t, s.get(t, "/plants/changes?wait=60s&after="+future, as(token)...), 41001)
				requireOK(t, s.post(t, bodyOf(4)))
			})
			if c := s.changesSince(t, "wait=60s&after="+rest.Cursor); c.String() != "4" {
				t.Errorf("got %s, want 4", c)
			}
		})
		t.Run("HEAD", func(t *testing.T) {
			r := s.send(t, "HEAD", "/plants/changes?wait=60s", nil, as(token, "Accept", "text/event-stream")...)
			checkStatus(t, r, 200)
			checkHeader(t, r, "Content-Type", "text/event-stream")
			for _, accept := range []string{"application/json", "text/event-stream"} {
				checkStatus(t, s.send(t, "HEAD", "/plants/changes?after=abc.1", nil, as(token, "Accept", accept)...), 410)
			}
		})
		messages := map[string]string{"wait=1": "wait must be a time such as 30s, from 0s to 60s"}
		for query, code := range map[string]int{
			"after=x": 40007, "after=": 40007, "after=1": 40007, "wait=61s": 40007, "wait=1": 40007, "wait=-1s": 40007, "limit=0": 40007, "tag=x": 40007,
			"after=abc.1": 41001, "after=" + future: 41001,
		} {
			t.Run(query, func(t *testing.T) {
				checkError(t, s.get(t, "/plants/changes?"+query, as(token)...), code, messages[query])
			})
		}
		t.Run("Last-Event-ID", func(t *testing.T) {
			for _, ids := range []string{"Last-Event-ID: x\r\n", "Last-Event-ID: 0\r\nLast-Event-ID: 0\r\n"} {
				conn := s.dial(t)
				fmt.Fprintf(conn, "GET /plants/changes HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n%s\r\n", token, ids)
				checkError(t, readConn(t, conn), 40007, "Last-Event-ID must be")
			}
		})
	}, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
}

// await reads the changes since a cursor until they are those in want: transactions of other
// tests on the same server can hold them up.
func (s *service) await(t *testing.T, cursor, want string) (c changes) {
	t.Helper()
	eventually(t, "the changes "+want, func() bool {
		c = s.changesSince(t, "after="+cursor)
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
		a, b := start(t, settings...), start(t, settings...)
		events := a.stream(t, "")
		if c, _ := events.next(); c.String() != "" || c.Cursor == "" {
			t.Errorf("got %+v, want the cursor at first", c)
		}
		if events.retry != "1000" {
			t.Errorf("got %q milliseconds until a client connects again, want 1000", events.retry)
		}
		requireOK(t, a.post(t, bodyOf(1)))
		first := events.await("1")
		requireOK(t, b.post(t, bodyOf(2)))
		events.await("2")
		long := time.Now().Add(3 * time.Second)
		for id := int64(3); time.Now().Before(long); id++ {
			requireOK(t, b.post(t, bodyOf(id)))
			events.await(strconv.FormatInt(id, 10))
		}
		if c, _ := b.stream(t, "limit=1", "Last-Event-ID", first.Cursor).next(); c.String() != "2" {
			t.Errorf("resumed with %v, want 2", c)
		}
	})
}

// TestChangesComments: a stream without changes has a comment every 15 seconds.
func TestChangesComments(t *testing.T) {
	t.Parallel()
	s := start(t)
	events := s.stream(t, "")
	events.next()
	begin := time.Now()
	select {
	case <-events.comments:
		if waited := time.Since(begin); waited < 10*time.Second {
			t.Errorf("got a comment after %v, want one after 15 s", waited)
		}
	case <-time.After(patience):
		t.Error("got no comment")
	}
}

// TestFeedLag: the metric tells for how long a transaction has held up the feed.
func TestFeedLag(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s, admin := startAdmin(t, "DATABASE_URL="+server.URL)
	lag := func() float64 { return valueOf(t, admin.get(t, "/metrics").body, "plantstore_feed_lag_seconds") }
	if got := lag(); got != 0 {
		t.Errorf("got %v, want 0", got)
	}
	conn, err := pgx.Connect(t.Context(), server.URL)
	must(t, err)
	defer conn.Close(t.Context())
	tx, err := conn.Begin(t.Context())
	must(t, err)
	_, err = tx.Exec(t.Context(), "CREATE TABLE report (n int)")
	must(t, err)
	begin := time.Now()
	requireOK(t, s.post(t, bodyOf(1))) // which is held up
	eventually(t, "a lag of a second", func() bool { return lag() > 1 })
	if got, most := lag(), time.Since(begin).Seconds(); got > most {
		t.Errorf("got %v, want at most %v", got, most)
	}
	must(t, tx.Rollback(t.Context()))
	if got := lag(); got != 0 {
		t.Errorf("after the end: got %v, want 0", got)
	}
}

// TestChangesEnd: a stream ends with its token, and when the service drains.
func TestChangesEnd(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		issued := createToken(t, s, "plants:read")
		revoked, drained := s.stream(t, "", as(issued)...), s.stream(t, "")
		revoked.next()
		drained.next()
		checkEmpty(t, s.send(t, "DELETE", "/tokens/"+prefixOf(issued), nil, as(token)...), 204)
		begin := time.Now()
		if c, ok := revoked.next(); ok || time.Since(begin) > revocationTime {
			t.Errorf("got %v after %v, want the end within %v", c, time.Since(begin), revocationTime)
		}
		waiting := make(chan response, 1)
		go func() {
			r, _ := s.try("GET", "/plants/changes?wait=60s", nil, as(token)...)
			waiting <- r
		}()
		s.awaitFollowers(t, 2)
		must(t, s.process.Signal(syscall.SIGTERM))
		if c, ok := drained.next(); ok || drained.err != nil {
			t.Errorf("got %v, %v, want a complete response", c, drained.err)
		}
		if r := <-waiting; r.status != 200 {
			t.Errorf("a waiting request: got %v", r)
		}
		must(t, s.wait(t))
	}, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
}

// TestChangesLimits: each token has so many followers, and one that does not read is dropped.
func TestChangesLimits(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:0")
	other := createToken(t, s, "plants:read")
	const each = 100
	streams := make([]*stream, each)
	for i := range streams {
		streams[i] = s.stream(t, "")
	}
	checkError(t, s.get(t, "/plants/changes?wait=1s", as(token)...), 50301)
	requireOK(t, s.get(t, "/plants/changes?wait=1s", as(other)...))
	requireOK(t, s.get(t, "/plants/changes", as(token)...)) // which does not wait

	for _, stream := range streams {
		stream.close()
	}
	s.awaitFollowers(t, 0)

	// Those that do not read: the buffers of the network take a few megabytes.
	request := func(accept, target string) net.Conn {
		conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
		must(t, err)
		t.Cleanup(func() { _ = conn.Close() })
		must(t, conn.(*net.TCPConn).SetReadBuffer(4096))
		must(t, conn.SetDeadline(time.Now().Add(patience)))
		text := fmt.Sprintf("GET %s HTTP/1.1\r\nHost: x\r\nAccept: %s\r\nAuthorization: Bearer %s\r\n\r\n", target, accept, other)
		_, err = io.WriteString(conn, strings.Repeat(text, 10))
		must(t, err)
		return conn
	}
	request("text/event-stream", "/plants/changes")
	s.awaitFollowers(t, 1)
	var rows strings.Builder
	long := strings.Repeat("🌱", 255)
	for id := range 8000 {
		fmt.Fprintf(&rows, `{"id":%d,"name":"%s","tag":"%s"}`+"\n", id, long, long)
	}
	requireOK(t, s.importRows(t, "", "application/x-ndjson", rows.String()))
	s.awaitFollowers(t, 0)
	awaitReset(t, request("application/json", "/plants/changes?after=0&limit=1000"), []byte("x"))
}

// awaitFollowers waits until so many requests follow the feed.
func (s *service) awaitFollowers(t *testing.T, n int) {
	t.Helper()
	admin := s.admin(t)
	eventually(t, "followers", func() bool { return valueOf(t, admin.get(t, "/metrics").body, "plantstore_followers") == float64(n) })
}

// TestFeedRetention: the service itself forgets deletions that are older than feed.retention, and
// no others.
func TestFeedRetention(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		table := openTable(t, url)
		marks := func() (n int) {
			must(t, table.QueryRowContext(t.Context(), "SELECT count(*) FROM feed_marks").Scan(&n))
			return n
		}
		s := start(t, "DATABASE_URL="+url)
		requireOK(t, s.post(t, bodyOf(1)))
		cursor := s.changesSince(t, "").Cursor
		checkEmpty(t, s.send(t, "DELETE", "/plants/1", nil, as(token)...), 204)
		requireOK(t, s.post(t, bodyOf(2)))
		s.await(t, cursor, "-1 2") // on PostgreSQL, transactions of other tests hold up the end of the feed, and so the next mark
		s.stop(t)
		before := marks()
		s = start(t, "DATABASE_URL="+url)
		eventually(t, "a mark", func() bool { return marks() > before })
		s.stop(t)
		_, err := table.ExecContext(t.Context(), "UPDATE feed_marks SET at = '2020-01-01 00:00:00+00:00'")
		must(t, err)
		s = start(t, "DATABASE_URL="+url, "PLANTSTORE_FEED_RETENTION=876000h")
		s.await(t, cursor, "-1 2")
		s.stop(t)
		s = start(t, "DATABASE_URL="+url)
		eventually(t, "the end of what is old", func() bool { return s.get(t, "/plants/changes?after="+cursor, as(token)...).code() == 41001 })
	})
}
