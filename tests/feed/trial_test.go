package feed

import (
	"bufio"
	"context"
	"database/sql"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

const (
	trialWriters = 64
	trialPlants  = 400 // few, so that most are written, deleted and created again
	trialTime    = 1500 * time.Millisecond
)

// follower is a copy of the plants that follows a service: the name of each plant, by id.
type follower struct {
	cursor string
	names  map[int64]string
}

func (f *follower) apply(data []byte) error {
	var c service.Changes
	if err := json.Unmarshal(data, &c); err != nil {
		return err
	}
	for _, change := range c.Changes {
		delete(f.names, change.ID)
		if change.Plant != nil {
			f.names[change.ID] = change.Plant.Name
		}
	}
	f.cursor = c.Cursor
	return nil
}

// stay follows the service at url until ctx ends or done holds. It disconnects only at the end.
func (f *follower) stay(ctx context.Context, url string, streams bool, done func(map[int64]string) bool) error {
	return f.follow(ctx, []string{url}, streams, func() time.Duration { return time.Hour }, done)
}

// run follows one of the services at urls after the other until ctx ends or done holds. It
// disconnects at random times.
func (f *follower) run(ctx context.Context, urls []string, streams bool, done func(map[int64]string) bool) error {
	return f.follow(ctx, urls, streams, func() time.Duration { return time.Duration(rand.IntN(400)) * time.Millisecond }, done)
}

// follow is run with other times until it disconnects.
func (f *follower) follow(ctx context.Context, urls []string, streams bool, stays func() time.Duration, done func(map[int64]string) bool) error {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil && !done(f.names) {
		err := func() error {
			short, cancel := context.WithTimeout(ctx, stays())
			defer cancel()
			target := fmt.Sprintf("%s/plants/changes?wait=1s&limit=%d&after=%s", urls[rand.IntN(len(urls))], 1+rand.IntN(100), f.cursor)
			request, err := http.NewRequestWithContext(short, http.MethodGet, target, nil)
			if err != nil {
				return err
			}
			request.Header.Set("Authorization", "Bearer "+service.Token)
			if streams {
				request.Header.Set("Accept", "text/event-stream")
			}
			response, err := transport.RoundTrip(request)
			if err != nil {
				return nil // it disconnected, or the service is down
			}
			defer response.Body.Close()
			switch {
			case response.StatusCode >= 500:
				return nil
			case response.StatusCode != http.StatusOK:
				text, _ := io.ReadAll(response.Body)
				return fmt.Errorf("after %s: got %s %s", f.cursor, response.Status, text)
			case !streams:
				text, err := io.ReadAll(response.Body)
				if err != nil {
					return nil
				}
				return f.apply(text)
			}
			reader := bufio.NewReader(response.Body)
			for {
				line, err := reader.ReadString('\n')
				if err != nil {
					return nil // without the rest of a line
				}
				if data, ok := strings.CutPrefix(line, "data: "); ok {
					if err := f.apply([]byte(data)); err != nil {
						return err
					}
				}
				if done(f.names) { // also on a comment, as there may be no later change
					return nil
				}
			}
		}()
		if err != nil {
			return err
		}
	}
	return nil
}

// writeChange sends a random write of one of the plants to a service.
func writeChange(ctx context.Context, transport *http.Transport, url string, serial *atomic.Int64) {
	id, name := rand.IntN(trialPlants), strconv.FormatInt(serial.Add(1), 10)
	method, path, body := "PUT", fmt.Sprintf("/plants/%d", id), fmt.Sprintf(`{"name":"%s"}`, name)
	switch rand.IntN(4) {
	case 0:
		method, body = "DELETE", ""
	case 1:
		method = "PATCH"
	case 2:
		method, path, body = "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"%s"}`, id, name)
	}
	request, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(body))
	if err != nil {
		return
	}
	request.Header.Set("Authorization", "Bearer "+service.Token)
	request.Header.Set("Content-Type", "application/json")
	if response, err := transport.RoundTrip(request); err == nil {
		_, _ = io.Copy(io.Discard, response.Body)
		_ = response.Body.Close()
	}
}

// holdOpen writes plants in transactions that stay open for a while, until ctx ends.
func holdOpen(ctx context.Context, db *sql.DB, serial *atomic.Int64) {
	for ctx.Err() == nil {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			continue
		}
		id, name := rand.IntN(trialPlants), strconv.FormatInt(serial.Add(1), 10)
		if rand.IntN(3) == 0 {
			_, err = tx.ExecContext(ctx, "DELETE FROM plants WHERE id = $1", id)
		} else {
			_, err = tx.ExecContext(ctx, "INSERT INTO plants (id, name, created_at, updated_at) VALUES ($1, $2, now(), now()) "+
				"ON CONFLICT (id) DO UPDATE SET name = excluded.name, updated_at = excluded.updated_at", id, name)
		}
		time.Sleep(time.Duration(rand.IntN(50)) * time.Millisecond) // how long it stays open
		if err == nil && rand.IntN(3) > 0 {
			_ = tx.Commit()
		} else {
			_ = tx.Rollback()
		}
	}
}

// naiveReader asks for what is committed after the last position it has seen.
type naiveReader struct {
	last  int64
	names map[int64]string
}

func (n *naiveReader) read(ctx context.Context, db *sql.DB) {
	rows, err := db.QueryContext(ctx, "SELECT id, name, changed FROM plants WHERE changed > $1 ORDER BY changed", n.last)
	if err != nil {
		return
	}
	defer rows.Close()
	for rows.Next() {
		var id int64
		var name string
		if rows.Scan(&id, &name, &n.last) != nil {
			return
		}
		n.names[id] = name
	}
}

// TestFeedMissesNothing follows two replicas while 64 clients write, other transactions are
// held open, and the replicas and PostgreSQL are killed.
func TestFeedMissesNothing(t *testing.T) {
	service.ParallelUnlessRecorded(t)
	runs := service.Scale(2, 20)
	t.Run("SQLite", func(t *testing.T) { missesNothing(t, runs, dbtest.SQLite(t), nil) })
	t.Run("PostgreSQL", func(t *testing.T) {
		server := dbtest.OwnServer(t)
		missesNothing(t, runs, server.URL, server)
	})
}

func missesNothing(t *testing.T, runs int, database string, server *dbtest.Server) {
	ports := service.FreePorts(t, 2)
	begin := func(i int) *service.Service {
		return service.StartPlain(t, "DATABASE_URL="+database, "PORT="+ports[i])
	}
	services := []*service.Service{begin(0), begin(1)}
	urls := []string{services[0].URL, services[1].URL}
	db := service.OpenTable(t, database)
	followers := [3]follower{}
	for i := range followers {
		followers[i] = follower{"0", make(map[int64]string)}
	}
	naive := naiveReader{names: make(map[int64]string)}
	lost, serial := 0, new(atomic.Int64)
	for run := range runs {
		ctx, stop := context.WithCancel(t.Context())
		var writers, readers sync.WaitGroup
		for i := range trialWriters {
			writers.Go(func() {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				for ctx.Err() == nil {
					writeChange(t.Context(), transport, urls[i%2], serial) // to its end: a write must not happen later
				}
			})
		}
		if server != nil {
			for range 4 {
				writers.Go(func() { holdOpen(ctx, db, serial) })
			}
			readers.Go(func() {
				for ctx.Err() == nil {
					naive.read(ctx, db)
				}
			})
		}
		var want atomic.Pointer[map[int64]string] // once no more is written
		done := func(names map[int64]string) bool {
			all := want.Load()
			return all != nil && maps.Equal(names, *all)
		}
		following, giveUp := context.WithCancel(t.Context())
		errs := make([]error, len(followers))
		for i := range followers {
			readers.Go(func() { errs[i] = followers[i].run(following, urls, i > 0, done) })
		}
		faults := []func(){func() {
			i := rand.IntN(len(services))
			service.Must(t, services[i].Process.Kill())
			<-services[i].Ended
			services[i] = begin(i)
		}}
		if server != nil {
			faults = append(faults, func() {
				service.Must(t, server.Kill())
				service.Must(t, server.Start())
			})
		}
		for _, fault := range faults {
			time.Sleep(trialTime/2 + time.Duration(rand.Int64N(int64(trialTime/2)))) // of writes
			fault()
		}
		time.Sleep(trialTime / 2)
		stop()
		writers.Wait()
		service.Eventually(t, "the database", func() bool { return db.PingContext(t.Context()) == nil })
		content := storedNames(t, db)
		want.Store(&content)
		overdue := time.AfterFunc(service.Patience, giveUp)
		readers.Wait()
		overdue.Stop()
		giveUp()
		for i := range followers {
			if errs[i] != nil || !maps.Equal(followers[i].names, content) {
				t.Fatalf("run %d: follower %d has %d plants, want %d: %v; %s", run, i, len(followers[i].names), len(content), errs[i], difference(followers[i].names, content))
			}
		}
		if server != nil {
			naive.read(t.Context(), db)
			for id, name := range content {
				if naive.names[id] != name {
					lost++
				}
			}
			naive.last, naive.names = 0, make(map[int64]string)
		}
	}
	if server != nil && lost == 0 {
		t.Error("the naive reader has lost nothing, so the trial shows nothing")
	}
	faults, naively := "a replica was killed", ""
	if server != nil {
		faults = "transactions were held open, and a replica and PostgreSQL were killed"
		naively = fmt.Sprintf(" A naive reader, which asks for\nlater positions, ended without %d plants, or with old ones.", lost)
	}
	service.Record(t, "## Followers, %s\n\n`TestFeedMissesNothing`: %d runs, in which %d clients wrote %d times to two replicas, while\n%s.\n"+
		"Three followers, which disconnected at random times, ended with exactly the content of the store.%s",
		t.Name()[strings.Index(t.Name(), "/")+1:], runs, trialWriters, serial.Load(), faults, naively)
}

// storedNames returns the name of each plant, by id.
func storedNames(t *testing.T, db *sql.DB) map[int64]string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT id, name FROM plants")
	service.Must(t, err)
	defer rows.Close()
	names := make(map[int64]string)
	for rows.Next() {
		var id int64
		var name string
		service.Must(t, rows.Scan(&id, &name))
		names[id] = name
	}
	service.Must(t, rows.Err())
	return names
}

// difference tells what differs in two copies.
func difference(got, want map[int64]string) string {
	var differences []string
	for id := range int64(trialPlants) {
		if got[id] != want[id] {
			differences = append(differences, fmt.Sprintf("%d: got %q, want %q", id, got[id], want[id]))
		}
	}
	return strings.Join(differences[:min(len(differences), 10)], "; ")
}
