package operate

import (
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// numberFrom returns a number from the environment, or otherwise its default.
func numberFrom(t *testing.T, variable string, otherwise uint64) uint64 {
	t.Helper()
	text := os.Getenv(variable)
	if text == "" {
		return otherwise
	}
	n, err := strconv.ParseUint(text, 10, 64)
	service.Must(t, err)
	return n
}

// seedOf returns the number on which the choices of a test depend: SEED repeats them.
func seedOf(t *testing.T) uint64 {
	t.Helper()
	seed := numberFrom(t, "SEED", rand.Uint64())
	t.Logf("SEED=%d", seed)
	return seed
}

// tallies counts operations by method and outcome.
type tallies map[string]int

func (c tallies) add(h *history) {
	for _, o := range h.operations {
		c[fmt.Sprint(o.Input.(operation).method, " ", o.Output.(outcome).code)]++
		c["all"]++
	}
}

// fault ends a part of the system while clients use it.
type fault struct {
	name       string
	begin, end func()
}

// sharedDatabase is a database that replicas share. It has a fault, unless that is nil.
type sharedDatabase struct {
	name    string
	prepare func(t *testing.T) (url string, f *fault)
}

// sharedDatabases returns one of each kind, and that of TEST_CITUS_URL if it is set.
func sharedDatabases() []sharedDatabase {
	all := []sharedDatabase{
		{"SQLite", func(t *testing.T) (string, *fault) { return dbtest.SQLite(t), nil }},
		{"PostgreSQL", func(t *testing.T) (string, *fault) {
			server := dbtest.OwnServer(t)
			return server.URL, &fault{"kill of PostgreSQL", func() {
				if err := server.Kill(); err != nil {
					t.Error(err)
				}
			}, func() { service.Must(t, server.Start()) }}
		}},
	}
	if url := os.Getenv("TEST_CITUS_URL"); url != "" {
		all = append(all, sharedDatabase{"Citus", func(t *testing.T) (string, *fault) {
			return url, &fault{"end of all connections to Citus", func() {
				dbtest.Exec(t, url, "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "+
					"WHERE datname = current_database() AND backend_type = 'client backend' AND pid <> pg_backend_pid()")
			}, func() {}}
		}})
	}
	return all
}

// startReplicas starts two services on a database, and returns their faults and its.
func startReplicas(t *testing.T, url string, ofDatabase *fault) (replicas []*service.Service, faults []*fault) {
	t.Helper()
	begin := func() *service.Service { return service.Start(t, "DATABASE_URL="+url) }
	for i := range 2 {
		replicas = append(replicas, begin())
		faults = append(faults, &fault{"kill of a replica", func() { kill(replicas[i]) }, func() {
			checkKilled(t, replicas[i])
			replicas[i] = begin()
		}})
	}
	if ofDatabase != nil {
		faults = append(faults, ofDatabase, ofDatabase) // as often as a kill of a replica
	}
	return replicas, faults
}

// TestLinearizable checks histories of all operations on a few plants by the clients of two
// replicas. In half of the histories, a replica or the database is killed. HISTORIES is
// their number for each database; less if the time is up.
func TestLinearizable(t *testing.T) {
	service.ParallelUnlessRecorded(t)
	histories, seed := numberFrom(t, "HISTORIES", 10), seedOf(t)
	for _, database := range sharedDatabases() {
		t.Run(database.name, func(t *testing.T) {
			t.Parallel()
			begin, counts := time.Now(), tallies{}
			url, ofDatabase := database.prepare(t)
			replicas, faults := startReplicas(t, url, ofDatabase)
			checked, falsified := uint64(0), 0
			for ; checked < histories && !timeIsUp(t); checked++ {
				random, plants := rand.New(rand.NewPCG(seed+checked, 1)), 3 //nolint:gosec // must be repeatable
				var f *fault
				if random.IntN(2) == 0 {
					// Many unknown outcomes of one plant would take too long to check.
					f, plants = faults[random.IntN(len(faults))], 6
				}
				h := newHistory(t, seed+checked, plants, "POST", "POST", "PUT", "PUT", "PATCH", "DELETE", "GET", "GET")
				for _, id := range h.plants { // of an earlier run, if the database outlives it
					replicas[0].Call(t, "DELETE", fmt.Sprintf("/plants/%d", id), "")
				}
				if f != nil {
					counts[f.name]++
					h.run(replicas, 20, 20+random.Int64N(200), f.begin)
					f.end()
					for _, s := range replicas {
						service.Eventually(t, "a replica that is ready", func() bool { return s.Get(t, "/readyz").Status == 200 })
					}
				}
				h.run(replicas, 20, 0, nil)
				h.read(replicas)
				h.check()
				if h.checkFalsified(random) {
					falsified++
				}
				counts.add(h)
				if t.Failed() {
					t.Fatalf("SEED=%d HISTORIES=1 repeats the choices of this history", seed+checked)
				}
			}
			for _, want := range strings.Split("POST 200,POST 40901,POST 40902,PUT 200,PUT 201,PUT 41201,PATCH 200,PATCH 40401,PATCH 41201,"+
				"DELETE 204,DELETE 40401,DELETE 41201,GET 200,GET 304,GET 40401", ",") {
				if counts[want] == 0 && histories >= 10 { // not when one is repeated
					t.Errorf("got no %s, want each outcome", want)
				}
			}
			t.Log(counts)
			heading := "Consistency: " + database.name
			if database.name == "Citus" { // so that it is in the part of make test-citus
				heading = "Citus: consistency"
			}
			service.Record(t, "## %s\n\n`TestLinearizable`, SEED=%d: %d histories of %d operations by %d clients of two replicas, with %s, in %v.\n"+
				"Every history is linearizable. With a falsified response, none of the %d without unknown outcomes is.",
				heading, seed, checked, counts["all"], service.Clients, counts.faults(faults), time.Since(begin).Round(time.Second), falsified)
		})
	}
}

// timeIsUp reports whether the time limit of the tests leaves less than a minute.
func timeIsUp(t *testing.T) bool {
	t.Helper()
	deadline, limited := t.Deadline()
	return limited && time.Until(deadline) < time.Minute
}

// faults returns how many of each there were.
func (c tallies) faults(all []*fault) string {
	var texts []string
	for _, f := range all {
		if text := fmt.Sprintf("%d × %s", c[f.name], f.name); !slices.Contains(texts, text) {
			texts = append(texts, text)
		}
	}
	return strings.Join(texts, " and ")
}

// TestFalsifiedHistory falsifies single responses of a history: it is then not
// linearizable.
func TestFalsifiedHistory(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "DATABASE_URL="+dbtest.SQLite(t))
	h := newHistory(t, seedOf(t), 2, "POST", "PUT", "PATCH", "DELETE", "GET")
	h.run([]*service.Service{s}, 10, 0, nil)
	first, id := len(h.operations), h.plants[0]
	a, b := content{service.NameOf(id) + "a", ""}, content{service.NameOf(id) + "b", `"x"`}
	for _, test := range []struct {
		method string
		content
		header, etags string
		code          int
	}{
		{method: "PUT", content: a}, // 201 or 200
		{method: "DELETE", header: "If-Match", etags: "NOW", code: 204},
		{method: "GET", code: 40401},
		{method: "DELETE", code: 40401},
		{method: "PATCH", content: b, code: 40401},
		{method: "PUT", content: a, header: "If-Match", etags: "*", code: 41201},
		{method: "POST", content: a, code: 200},
		{method: "POST", content: a, code: 40902},
		{method: "POST", content: b, code: 40901},
		{method: "GET", header: "If-None-Match", etags: "NOW", code: 304},
		{method: "PUT", content: b, code: 200},
		{method: "PUT", content: a, header: "If-Match", etags: "OLD", code: 41201},
		{method: "PATCH", content: a, header: "If-None-Match", etags: "*", code: 41201},
		{method: "GET", header: "If-None-Match", etags: "OLD", code: 200},
		{method: "PATCH", content: content{tag: "null"}, header: "If-Match", etags: "NOW", code: 200},
		{method: "DELETE", header: "If-Match", etags: "OLD", code: 41201},
		{method: "GET", code: 200},
		{method: "DELETE", code: 204},
		{method: "PUT", content: b, code: 201},
		{method: "GET", code: 200},
	} {
		known := append([]string{"", ""}, h.etags[id]...)
		etags := strings.NewReplacer("NOW", known[len(known)-1], "OLD", known[len(known)-2]).Replace(test.etags)
		service.Must(t, h.do(s, service.Connections, operation{test.method, id, test.content, test.header, etags}))
		if last := h.operations[len(h.operations)-1]; test.code != 0 && last.Output.(outcome).code != test.code {
			t.Fatalf("%v: got %v, want %d", last.Input, last.Output, test.code)
		}
	}
	h.check()

	codes := map[string][]int{
		"POST": {200, 40901, 40902}, "PUT": {200, 201, 41201}, "PATCH": {200, 40401, 41201},
		"DELETE": {204, 40401, 41201}, "GET": {200, 304, 40401},
	}
	for i := first; i < len(h.operations); i++ {
		o := h.operations[i].Input.(operation)
		received := h.operations[i].Output.(outcome)
		falsified := make([]outcome, 0, 4)
		for _, code := range codes[o.method] {
			if code != received.code {
				falsified = append(falsified, outcome{code, received.content, received.etag})
			}
		}
		if received.etag != "" { // a later operation shows every ETag
			falsified = append(falsified, outcome{received.code, received.content, `"another"`})
		}
		if received.name != "" {
			falsified = append(falsified, outcome{received.code, content{received.name, `"y"`}, received.etag})
		}
		for _, lie := range falsified {
			t.Run(fmt.Sprintf("%v with %v instead of %v", o, lie, received), func(t *testing.T) {
				operations := slices.Clone(h.operations)
				operations[i].Output = lie
				if !isContradiction(operations) {
					t.Error("got a linearizable history")
				}
			})
		}
	}
}
