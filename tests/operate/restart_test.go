package operate

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestStopUnderLoad ends a service that busy clients use without a load balancer: each
// request whose connection is accepted is served.
func TestStopUnderLoad(t *testing.T) {
	service.ParallelUnlessRecorded(t)
	const busy = 32
	own, folder := service.NewPair(t), t.TempDir()
	own.In(t, folder)
	for _, test := range []struct {
		protocol     string
		start        func() *service.Service
		newTransport func() *http.Transport
	}{
		{"HTTP/1.1", func() *service.Service { return service.StartPlain(t, service.DefaultDelay) }, func() *http.Transport { return new(http.Transport) }},
		{"HTTP/2", func() *service.Service { return service.StartTLS(t, folder, service.DefaultDelay) }, func() *http.Transport { return own.Over(t, true) }},
	} {
		t.Run(test.protocol, func(t *testing.T) {
			t.Parallel()
			rounds, served := service.Scale(1, 10), int64(0)
			for range rounds {
				s := test.start()
				l := s.StartTrafficOver(t, busy, test.newTransport)
				l.Await(t, 1000)
				s.Stop(t)
				l.All.Wait() // the connections of its clients are refused
				served += l.End()
			}
			service.Record(t, "## Stops: %s\n\n`TestStopUnderLoad`: %d services were ended by SIGTERM while %d clients used each, without a load\n"+
				"balancer. %d requests were served, and none failed before connections were refused.", test.protocol, rounds, busy, served)
		})
	}
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
		service.Must(t, os.WriteFile(path, []byte(text), 0o600))
		for _, kind := range []string{"postgres", "sqlite"} {
			target, err := filepath.Abs("../../database/migrations/" + kind + "/" + name)
			service.Must(t, err)
			overlay[target] = path
		}
	}
	replace, err := json.Marshal(map[string]any{"Replace": overlay})
	service.Must(t, err)
	list, newer := filepath.Join(folder, "overlay.json"), filepath.Join(folder, "newer")
	service.Must(t, os.WriteFile(list, replace, 0o600))
	// Without the race detector, since its code is that of the present version.
	service.Must(t, service.Build(newer, "-overlay="+list))

	settings := []string{"DATABASE_URL=" + dbtest.Postgres(t), "PLANTSTORE_DATABASE_TIMEOUT=30s"} // on a slow machine, requests wait long
	present := service.Start(t, settings...)
	present.Call(t, "PUT", "/plants/0", `{"name":"x"}`).RequireOK(t)
	before := present.StartTraffic(t, 8)
	before.Await(t, 500)
	next := service.StartProgram(t, newer, settings...)
	if got := len(next.Logged(t, "migrated the database")); got != 2 {
		t.Fatalf("got %d migrations, want 2", got)
	}
	after := next.StartTraffic(t, 8)
	after.Await(t, 500)
	before.Await(t, 500)
	present.Get(t, "/readyz").CheckStatus(t, 200)
	served := before.End() + after.End()
	service.Record(t, "## Upgrades\n\n`TestUpgradeUnderLoad`: a newer version, which adds a column and a table, was started beside the present one,\n"+
		"while 8 clients used each. %d requests were served, and none failed.", served)
}
