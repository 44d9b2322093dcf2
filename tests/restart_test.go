package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
)

// traffic is clients that are never idle. Each request that gets another response than 200
// or 204 is an error of the test.
type traffic struct {
	served atomic.Int64
	stop   context.CancelFunc
	all    sync.WaitGroup
}

// startTraffic starts clients, each with a connection and plants of its own. A client ends
// when its connection is refused.
func (s *service) startTraffic(t *testing.T, clients int) *traffic {
	t.Helper()
	return s.startTrafficOver(t, clients, func() *http.Transport { return new(http.Transport) })
}

func (s *service) startTrafficOver(t *testing.T, clients int, newTransport func() *http.Transport) *traffic {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	l := &traffic{stop: stop}
	for range clients {
		l.all.Go(func() {
			transport := newTransport()
			defer transport.CloseIdleConnections()
			for ctx.Err() == nil {
				id := ids.Add(1)
				path := fmt.Sprintf("/plants/%d", id)
				for _, request := range [][3]string{
					{"POST", "/plants", bodyOf(id)},
					{"GET", path},
					{"PUT", path, `{"name":"x"}`},
					{"PATCH", path, `{"tag":"y"}`},
					{"GET", fmt.Sprintf("/plants?limit=1&after=%d", id-1)},
					{"DELETE", path},
				} {
					r, err := s.tryOn(transport, request[0], request[1], strings.NewReader(request[2]), as(token)...)
					switch {
					case errors.Is(err, syscall.ECONNREFUSED):
						return
					case err != nil || r.status != http.StatusOK && r.status != http.StatusNoContent:
						t.Errorf("%s %s: got %v, %v", request[0], request[1], r, err)
					default:
						l.served.Add(1)
					}
				}
			}
		})
	}
	return l
}

// await waits for n more requests.
func (l *traffic) await(t *testing.T, n int64) {
	t.Helper()
	before := l.served.Load()
	eventually(t, "requests", func() bool { return l.served.Load() >= before+n || t.Failed() })
}

// end stops the clients and returns how many requests they have sent.
func (l *traffic) end() int64 {
	l.stop()
	l.all.Wait()
	return l.served.Load()
}

// defaultDelay gives a service the default of server.shutdown_delay, instead of none as in
// other tests.
const defaultDelay = "PLANTSTORE_SERVER_SHUTDOWN_DELAY="

// TestStopUnderLoad ends a service that busy clients use without a load balancer: each
// request whose connection is accepted is served.
func TestStopUnderLoad(t *testing.T) {
	parallelUnlessRecorded(t)
	const busy = 32
	own, folder := newPair(t), t.TempDir()
	own.in(t, folder)
	for _, test := range []struct {
		protocol     string
		start        func() *service
		newTransport func() *http.Transport
	}{
		{"HTTP/1.1", func() *service { return startPlain(t, defaultDelay) }, func() *http.Transport { return new(http.Transport) }},
		{"HTTP/2", func() *service { return startTLS(t, folder, defaultDelay) }, func() *http.Transport { return own.over(t, true) }},
	} {
		t.Run(test.protocol, func(t *testing.T) {
			t.Parallel()
			rounds, served := scale(1, 10), int64(0)
			for range rounds {
				s := test.start()
				l := s.startTrafficOver(t, busy, test.newTransport)
				l.await(t, 1000)
				s.stop(t)
				l.all.Wait() // the connections of its clients are refused
				served += l.end()
			}
			record(t, "## Stops: %s\n\n`TestStopUnderLoad`: %d services were ended by SIGTERM while %d clients used each, without a load\n"+
				"balancer. %d requests were served, and none failed before connections were refused.", test.protocol, rounds, busy, served)
		})
	}
}

// freePorts returns ports that nobody uses.
func freePorts(t *testing.T, n int) (ports []string) {
	t.Helper()
	for len(ports) < n {
		port, err := dbtest.FreePort()
		must(t, err)
		if text := strconv.Itoa(port); !slices.Contains(ports, text) {
			ports = append(ports, text)
		}
	}
	return ports
}

// TestUpgradeUnderLoad starts a newer version of the program, which adds a column and a
// table, beside the present one. Both serve, before, meanwhile and after.
func TestUpgradeUnderLoad(t *testing.T) {
	t.Parallel()
	folder, overlay := t.TempDir(), make(map[string]string)
	for i, statements := range []string{
		"ALTER TABLE plants ADD COLUMN height bigint",
		"CREATE TABLE newer (id bigint PRIMARY KEY)",
	} {
		version := 9001 + i
		name := fmt.Sprintf("0%d_newer.sql", version)
		path := filepath.Join(folder, name)
		text := fmt.Sprintf("-- +goose Up\n%s;\nINSERT INTO compatible_migrations VALUES (%d);\n", statements, version)
		must(t, os.WriteFile(path, []byte(text), 0o600))
		for _, kind := range []string{"postgres", "sqlite"} {
			target, err := filepath.Abs("../database/migrations/" + kind + "/" + name)
			must(t, err)
			overlay[target] = path
		}
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	must(t, err)
	list, newer := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "newer")
	must(t, os.WriteFile(list, replace, 0o600))
	// Without the race detector, since its code is that of the present version.
	must(t, build(newer, "-overlay="+list))

	settings := []string{"DATABASE_URL=" + dbtest.Postgres(t)}
	present := start(t, settings...)
	requireOK(t, present.call(t, "PUT", "/plants/0", `{"name":"x"}`))
	before := present.startTraffic(t, 8)
	before.await(t, 500)
	next := startProgram(t, newer, settings...)
	if got := len(next.logged(t, "migrated the database")); got != 2 {
		t.Fatalf("got %d migrations, want 2", got)
	}
	after := next.startTraffic(t, 8)
	after.await(t, 500)
	before.await(t, 500)
	checkStatus(t, present.get(t, "/readyz"), 200)
	served := before.end() + after.end()
	record(t, "## Upgrades\n\n`TestUpgradeUnderLoad`: a newer version, which adds a column and a table, was started beside the present one,\n"+
		"while 8 clients used each. %d requests were served, and none failed.", served)
}
