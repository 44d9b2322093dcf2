package feed

import (
	"os/exec"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestRowsPutBack: rows that another program takes away and puts back, with the column changed as it was, reach
// followers, whether they were created, imported, or put back before.
func TestRowsPutBack(t *testing.T) {
	t.Parallel()
	run := func(t *testing.T, program *exec.Cmd) {
		t.Helper()
		if output, err := program.CombinedOutput(); err != nil {
			t.Fatalf("%v: %s", err, output)
		}
	}
	psql := func(statements ...string) func(*testing.T, *dbtest.Server) {
		return func(t *testing.T, server *dbtest.Server) {
			t.Helper()
			args := []string{"-v", "ON_ERROR_STOP=1", server.URL}
			for _, s := range statements {
				args = append(args, "-c", s)
			}
			run(t, server.Command("psql", args...))
		}
	}
	for name, way := range map[string]struct {
		take, put func(*testing.T, *dbtest.Server)
	}{
		"INSERT SELECT": {psql("CREATE TABLE yesterday AS SELECT * FROM plants"), psql("INSERT INTO plants SELECT * FROM yesterday")},
		"copy":          {psql(`\copy plants TO plants.txt`), psql(`\copy plants FROM plants.txt`)},
		"pg_restore": {
			func(t *testing.T, server *dbtest.Server) {
				run(t, server.Command("pg_dump", "-Fc", "-t", "plants", "-f", "plants.dump", server.URL))
			},
			func(t *testing.T, server *dbtest.Server) {
				run(t, server.Command("pg_restore", "--data-only", "-d", server.URL, "plants.dump"))
			},
		},
	} {
		t.Run("PostgreSQL, "+name, func(t *testing.T) {
			t.Parallel()
			server := dbtest.OwnServer(t)
			checkPutBack(t, server.URL, func() { way.take(t, server) }, func() { way.put(t, server) })
		})
	}
	t.Run("SQLite", func(t *testing.T) {
		t.Parallel()
		url := dbtest.SQLite(t)
		exec := func(statement string) func() {
			return func() {
				_, err := service.OpenTable(t, url).ExecContext(t.Context(), statement)
				service.Must(t, err)
			}
		}
		checkPutBack(t, url, exec("CREATE TABLE IF NOT EXISTS yesterday AS SELECT * FROM plants"), exec("INSERT INTO plants SELECT * FROM yesterday"))
	})
}

// checkPutBack calls take before plants are deleted, and put after.
func checkPutBack(t *testing.T, url string, take, put func()) {
	t.Helper()
	s := service.Start(t, "DATABASE_URL="+url)
	var rows []string
	for id := range int64(40) {
		if id < 20 {
			s.Post(t, service.BodyOf(id)).RequireOK(t)
		} else {
			rows = append(rows, service.BodyOf(id))
		}
	}
	s.ImportRows(t, "", "application/x-ndjson", strings.Join(rows, "\n")).RequireOK(t)
	all, follower := storedNames(t, service.OpenTable(t, url)), newPlants()
	follower.follow(t, s, all)
	take()
	for range 2 {
		_, err := service.OpenTable(t, url).ExecContext(t.Context(), "DELETE FROM plants")
		service.Must(t, err)
		follower.follow(t, s, map[int64]string{})
		put()
		follower.follow(t, s, all)
	}
}
