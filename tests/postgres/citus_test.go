//go:build citus

package postgres

import (
	"bufio"
	"cmp"
	"database/sql"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// onNode returns databaseURL, with the port of another node.
func onNode(t *testing.T, databaseURL, port string) string {
	t.Helper()
	u, err := url.Parse(databaseURL)
	service.Must(t, err)
	u.Host = net.JoinHostPort(u.Hostname(), port)
	return u.String()
}

// nodePorts returns the ports of the coordinator and of the workers, which are all on one
// machine.
func nodePorts(t *testing.T, db *sql.DB) (coordinator string, workers []string) {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "SELECT nodeport, groupid = 0 FROM pg_dist_node ORDER BY nodeport")
	service.Must(t, err)
	defer rows.Close()
	for rows.Next() {
		var port string
		var first bool
		service.Must(t, rows.Scan(&port, &first))
		if first {
			coordinator = port
		} else {
			workers = append(workers, port)
		}
	}
	service.Must(t, rows.Err())
	return coordinator, workers
}

// owner runs the command of the cluster's owner in variable, with args.
func owner(t *testing.T, variable, does string, args ...string) {
	t.Helper()
	command := os.Getenv(variable)
	if command == "" {
		t.Fatalf("%s must be a shell command that %s", variable, does)
	}
	output, err := exec.CommandContext(t.Context(), "sh", "-c", command+" "+strings.Join(args, " ")).CombinedOutput()
	if err != nil {
		t.Fatalf("%s: %v\n%s", variable, err, output)
	}
}

func kill(t *testing.T, port string) {
	t.Helper()
	owner(t, "TEST_CITUS_KILL", "ends the node whose port is its argument with SIGKILL", port)
}

func revive(t *testing.T, port string) {
	t.Helper()
	owner(t, "TEST_CITUS_REVIVE", "starts the node whose port is its argument again", port)
}

// flood is clients that create plants one after another, each with a new id.
type flood struct {
	t              *testing.T
	stored, failed atomic.Int64
	stop           atomic.Bool
	group          sync.WaitGroup
	mu             sync.Mutex
	known          service.Ledger
}

func startFlood(t *testing.T, s *service.Service, known service.Ledger) *flood {
	t.Helper()
	f := &flood{t: t, known: known}
	for range 4 * service.Clients {
		f.group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for !f.stop.Load() {
				id := service.IDs.Add(1)
				a := s.Create(transport, id, strings.NewReader(service.BodyOf(id)))
				f.mu.Lock()
				f.known.Record(t, a)
				f.mu.Unlock()
				if a.Response.Status == 200 {
					f.stored.Add(1)
				} else {
					f.failed.Add(1)
				}
			}
		})
	}
	t.Cleanup(f.end)
	return f
}

func (f *flood) end() {
	f.stop.Store(true)
	f.group.Wait()
}

// during returns how many plants are stored in a second, and rejected with 503, while do
// runs.
func (f *flood) during(do func()) (stored, failed float64) {
	begin, s, e := time.Now(), f.stored.Load(), f.failed.Load()
	do()
	took := time.Since(begin).Seconds()
	return float64(f.stored.Load()-s) / took, float64(f.failed.Load()-e) / took
}

// calm waits until no request has failed for a second.
func (f *flood) calm() {
	f.t.Helper()
	service.Eventually(f.t, "a second without failures", func() bool {
		stored, failed := f.during(func() { time.Sleep(time.Second) })
		return failed == 0 && stored > 0
	})
}

func span(d time.Duration) func() { return func() { time.Sleep(d) } }

// TestCitusReplicas writes on one replica and reads on another, on the coordinator and on
// both workers.
func TestCitusReplicas(t *testing.T) {
	databaseURL := dbtest.Citus(t)
	services := []*service.Service{service.Start(t, "DATABASE_URL="+databaseURL)}
	_, workers := nodePorts(t, service.OpenTable(t, databaseURL))
	for _, port := range workers {
		services = append(services, service.Start(t, "DATABASE_URL="+onNode(t, databaseURL, port)))
	}
	for i, s := range services {
		other := services[(i+1)%len(services)]
		path := fmt.Sprintf("/plants/%d", i)
		s.Post(t, service.BodyOf(int64(i))).RequireOK(t)
		other.Post(t, service.BodyOf(int64(i))).CheckError(t, 40902)
		other.Post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, i)).CheckError(t, 40901)
		put := other.Call(t, "PUT", path, `{"name":"put"}`)
		put.CheckStatus(t, 200)
		patched := s.Call(t, "PATCH", path, `{"tag":"x"}`, "If-Match", put.ETag())
		patched.CheckStatus(t, 200)
		other.Call(t, "DELETE", path, "", "If-Match", put.ETag()).CheckError(t, 41201)
		if got := other.Call(t, "GET", path, ""); got.Body != patched.Body {
			t.Errorf("got %s, want %s", got.Body, patched.Body)
		}
		other.Call(t, "DELETE", path, "").CheckEmpty(t, 204)
	}
}

// TestCitusMigratesOnTheCoordinator runs `migrate up` on a worker and then on the
// coordinator, twice, and after a table has come to be local.
func TestCitusMigratesOnTheCoordinator(t *testing.T) {
	databaseURL := dbtest.Citus(t)
	db := service.OpenTable(t, databaseURL)
	_, workers := nodePorts(t, db)
	exec := func(statement string) {
		t.Helper()
		_, err := db.ExecContext(t.Context(), statement)
		service.Must(t, err)
	}
	// All tables but those that each node has a copy of.
	kinds := func() (text string) {
		service.Must(t, db.QueryRowContext(t.Context(), `SELECT string_agg(concat_ws(' ', relname, partmethod), ', ' ORDER BY relname)
			FROM pg_class c LEFT JOIN pg_dist_partition ON logicalrelid = c.oid
			WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace AND partmethod IS DISTINCT FROM 'n'`).Scan(&text))
		return text
	}
	_, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=" + onNode(t, databaseURL, workers[0])}, "migrate", "up")
	if status != 1 || !strings.Contains(stderr, "coordinator") {
		t.Errorf("on a worker: got exit status %d and %q, want 1 and a line about the coordinator", status, stderr)
	}
	for _, step := range []struct{ name, before string }{
		{"an empty schema", "SELECT 1"},
		{"nothing is pending", "SELECT 1"},
		{"a table is not distributed", "DROP TABLE compatible_migrations; CREATE TABLE compatible_migrations (version bigint PRIMARY KEY)"},
	} {
		t.Run(step.name, func(t *testing.T) {
			exec(step.before)
			if _, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=" + databaseURL}, "migrate", "up"); status != 0 {
				t.Fatal(stderr)
			}
			if got, want := kinds(), "goose_lock, plants h"; got != want {
				t.Errorf("got the tables %s, want %s", got, want)
			}
		})
	}
}

// TestCitusSettings turns synchronous_commit off for the role on all nodes.
func TestCitusSettings(t *testing.T) {
	databaseURL := dbtest.Citus(t)
	service.Start(t, "DATABASE_URL="+databaseURL)
	dbtest.Exec(t, databaseURL, "ALTER ROLE CURRENT_USER SET synchronous_commit = 'off'")
	t.Cleanup(func() { dbtest.Exec(t, databaseURL, "ALTER ROLE CURRENT_USER RESET synchronous_commit") })
	_, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=" + databaseURL, "PORT=0"})
	if status != 1 || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, "ALTER ROLE") {
		t.Errorf("got exit status %d and %q, want 1 and a line with ALTER ROLE", status, stderr)
	}
}

// TestCitusLocks locks a row: a change of it waits and fails, and others are not delayed.
func TestCitusLocks(t *testing.T) {
	databaseURL := dbtest.Citus(t)
	s := service.Start(t, "DATABASE_URL="+databaseURL)
	for id := range int64(9) {
		s.Post(t, service.BodyOf(id)).RequireOK(t)
	}
	tx, err := service.OpenTable(t, databaseURL).BeginTx(t.Context(), nil)
	service.Must(t, err)
	_, err = tx.ExecContext(t.Context(), "SELECT FROM plants WHERE id = 0 FOR UPDATE")
	service.Must(t, err)
	locked := make(chan service.Response, 1)
	go func() {
		r, _ := s.Try("PATCH", "/plants/0", strings.NewReader(`{"tag":"x"}`), service.As(service.Token)...)
		locked <- r
	}()
	for id := range 8 {
		begin := time.Now()
		s.Call(t, "PATCH", fmt.Sprintf("/plants/%d", id+1), `{"tag":"x"}`).CheckStatus(t, 200)
		if took := time.Since(begin); took > 2*time.Second {
			t.Errorf("plant %d: took %v beside a locked row", id+1, took)
		}
	}
	service.Receive(t, locked).CheckError(t, 50301)
	service.Must(t, tx.Rollback())
	s.Call(t, "PATCH", "/plants/0", `{"tag":"x"}`).CheckStatus(t, 200)
}

// TestCitusThroughput compares POST /plants on the cluster and on one PostgreSQL, at 256
// connections.
func TestCitusThroughput(t *testing.T) {
	server, err := dbtest.StartServerIn("/dev/shm", "max_connections=300", "max_wal_size=2GB")
	service.Must(t, err)
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	const connections, rounds, turn = 256, 7, 2 * time.Second
	for _, test := range []struct {
		name   string
		shards string
		least  float64
	}{{"8 shards", "8", 0.5}, {"4 shards", "4", 0.8}} {
		t.Run(test.name, func(t *testing.T) {
			u, err := url.Parse(dbtest.Citus(t))
			service.Must(t, err)
			query := u.Query()
			query.Set("citus.shard_count", test.shards)
			u.RawQuery = query.Encode()
			databaseURL := u.String()
			one, coordinator := service.StartPlain(t, "DATABASE_URL="+server.URL), service.StartPlain(t, "DATABASE_URL="+databaseURL)
			_, workers := nodePorts(t, service.OpenTable(t, databaseURL))
			worker := service.StartPlain(t, "DATABASE_URL="+onNode(t, databaseURL, workers[0]))
			contenders := []*service.Service{one, coordinator, worker}
			rates, ratios := make([][]float64, len(contenders)), make([][]float64, len(contenders))
			for range rounds {
				for i, s := range contenders {
					rates[i] = append(rates[i], rateOf(t, s, connections, turn))
					ratios[i] = append(ratios[i], rates[i][len(rates[i])-1]/rates[0][len(rates[0])-1])
				}
			}
			for _, list := range slices.Concat(rates, ratios) {
				slices.Sort(list)
			}
			row := func(i int, to string) string {
				return fmt.Sprintf("| %s | %.0f | %.2f (%.2f to %.2f) |\n", to, rates[i][rounds/2], ratios[i][rounds/2], ratios[i][0], ratios[i][rounds-1])
			}
			service.Record(t, "## Citus: throughput with %s\n\n`TestCitusThroughput`: POST /plants at %d connections, medians of %d alternating turns of %v. "+
				"The mark of %.1f is %s by the service that is connected to a worker, as docs/scaling.md says.\n\n"+
				"| the service is connected to | requests/s | ÷ one PostgreSQL |\n| --- | --- | --- |\n%s%s%s",
				test.name, connections, rounds, turn,
				test.least, map[bool]string{true: "reached", false: "missed"}[ratios[2][rounds/2] >= test.least],
				row(0, "one PostgreSQL"), row(1, "the coordinator"), row(2, "a worker"))
		})
	}
}

// rateOf returns how many plants per second clients create with so many connections.
func rateOf(t *testing.T, s *service.Service, connections int, turn time.Duration) float64 {
	t.Helper()
	var done atomic.Int64
	var group sync.WaitGroup
	errs := make([]error, connections)
	begin := time.Now()
	for i := range connections {
		group.Go(func() {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.URL, "http://"))
			if err != nil {
				errs[i] = err
				return
			}
			defer conn.Close()
			responses := bufio.NewReader(conn)
			for time.Since(begin) < turn && errs[i] == nil {
				body := service.BodyOf(service.IDs.Add(1))
				_, _ = fmt.Fprintf(conn, "POST /plants HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n%s", service.Token, len(body), body)
				r, err := http.ReadResponse(responses, nil)
				if err != nil {
					errs[i] = err
					return
				}
				_, err = io.Copy(io.Discard, r.Body)
				errs[i] = errors.Join(err, r.Body.Close())
				if r.StatusCode != http.StatusOK {
					errs[i] = fmt.Errorf("status %d", r.StatusCode)
				}
				done.Add(1)
			}
		})
	}
	group.Wait()
	service.Must(t, cmp.Or(errs...))
	return float64(done.Load()) / time.Since(begin).Seconds()
}

// TestCitusNodes kills a worker and the coordinator, adds a worker and moves shards, all
// under load: no acknowledged plant is lost, no request gets a 500, and rows of healthy
// nodes are stored. It comes last, since it leaves a worker more.
func TestCitusNodes(t *testing.T) {
	databaseURL := dbtest.Citus(t)
	s := service.StartPlain(t, "DATABASE_URL="+databaseURL)
	db := service.OpenTable(t, databaseURL)
	coordinator, workers := nodePorts(t, db)
	replica := service.StartPlain(t, "DATABASE_URL="+onNode(t, databaseURL, workers[0]))
	known := service.Ledger{}
	var table strings.Builder
	row := func(fault string, before, stored, failed float64) {
		fmt.Fprintf(&table, "| %s | %.0f | %.0f | %.2f | %.0f |\n", fault, before, stored, stored/before, failed)
	}

	t.Run("a worker is killed", func(t *testing.T) {
		f := startFlood(t, s, known)
		f.during(span(time.Second))
		before, _ := f.during(span(3 * time.Second))
		kill(t, workers[1])
		stored, failed := f.during(span(5 * time.Second))
		revive(t, workers[1])
		f.calm()
		f.end()
		row(fmt.Sprintf("a worker of %d killed", len(workers)), before, stored, failed)
		// The others hold this part of the rows.
		if healthy := before * float64(len(workers)-1) / float64(len(workers)); stored < healthy/2 {
			t.Errorf("stored %.0f plants/s without the worker, want at least half of %.0f", stored, healthy)
		}
		if failed == 0 {
			t.Error("no request failed, want 503 for the rows of the worker")
		}
	})
	t.Run("the coordinator is killed", func(t *testing.T) {
		f := startFlood(t, replica, known)
		f.during(span(time.Second))
		before, _ := f.during(span(3 * time.Second))
		kill(t, coordinator)
		service.Eventually(t, "an unready service on the coordinator", func() bool { return s.Get(t, "/readyz").Status == 503 })
		stored, failed := f.during(span(5 * time.Second))
		revive(t, coordinator)
		f.calm()
		f.end()
		row("coordinator killed, clients of a replica on a worker", before, stored, failed)
		if stored < before/2 {
			t.Errorf("stored %.0f plants/s without the coordinator, want at least half of %.0f", stored, before)
		}
		service.Eventually(t, "a ready service on the coordinator", func() bool { return s.Get(t, "/readyz").Status == 200 })
	})
	t.Run("a worker is added and shards move", func(t *testing.T) {
		f := startFlood(t, s, known)
		f.during(span(time.Second))
		before, _ := f.during(span(3 * time.Second))
		stored, failed := f.during(func() {
			owner(t, "TEST_CITUS_ADD", "adds a worker, without moving shards")
			_, err := db.ExecContext(t.Context(), "SELECT rebalance_table_shards('plants')")
			service.Must(t, err)
		})
		f.calm()
		f.end()
		row("a worker added, shards moved to it", before, stored, failed)
		if stored == 0 {
			t.Error("no plants were stored meanwhile")
		}
		_, now := nodePorts(t, db)
		var onNew int
		service.Must(t, db.QueryRowContext(t.Context(), "SELECT count(*) FROM citus_shards WHERE table_name = 'plants'::regclass AND nodeport = $1",
			now[len(now)-1]).Scan(&onNew))
		if len(now) != len(workers)+1 || onNew == 0 {
			t.Errorf("got workers %v, and %d shards on the new one", now, onNew)
		}
	})
	for _, each := range []*service.Service{s, replica} {
		each.Stop(t)
	}
	known.Check(t, databaseURL)
	acknowledged := 0
	for _, stored := range known {
		if stored {
			acknowledged++
		}
	}
	service.Record(t, "## Citus: nodes\n\n`TestCitusNodes`: %d clients created plants while this happened. Of %d acknowledged plants, none was lost; "+
		"every other response was a 503.\n\n| | stored/s before | meanwhile | ratio | 503/s meanwhile |\n| --- | --- | --- | --- | --- |\n%s",
		4*service.Clients, acknowledged, table.String())
}
