package operate

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/user"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestEventsInTheLog: what an operator looks for has a line with the fields that identify it.
func TestEventsInTheLog(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	started := s.AwaitLog(t, "serving")
	for _, field := range []string{"version", "commit", "env", "address", "database_system", "database", "schema", "gomaxprocs", "max_connections"} {
		t.Run(field+" at the start", func(t *testing.T) {
			if value, ok := started[field]; !ok || value == "" {
				t.Errorf("got %v", started)
			}
		})
	}

	var issued struct{ ID string }
	service.Must(t, json.Unmarshal([]byte(s.Call(t, "POST", "/tokens", `{"name":"x","scopes":["plants:read"]}`).Body), &issued))
	s.Call(t, "DELETE", "/tokens/"+issued.ID, "")
	for method, of := range map[string][2]string{"POST": {"id", issued.ID}, "DELETE": {"path", "/tokens/" + issued.ID}} {
		t.Run(method+" of a token", func(t *testing.T) {
			if line := s.AwaitLine(t, "method", method); line[of[0]] != of[1] || line["token"] != "static:1" || line["request_id"] == nil || line["logger"] != "audit" {
				t.Errorf("got %v, want the %s %s and the token static:1", line, of[0], of[1])
			}
		})
	}

	service.Must(t, s.Process.Signal(syscall.SIGHUP))
	for _, path := range []string{"/healthz", "/readyz"} {
		s.Get(t, path).CheckStatus(t, 200)
	}
	s.Stop(t)
	for _, path := range []string{"/healthz", "/readyz"} {
		if strings.Contains(s.Stderr.String(), path) {
			t.Errorf("got a line for %s, want none at the level info", path)
		}
	}
}

// TestTokensOfUnknownOutcomeInTheLog: the database does not know whether it has committed, so a token
// may be valid although its client has got an error.
func TestTokensOfUnknownOutcomeInTheLog(t *testing.T) {
	t.Parallel()
	url := dbtest.Postgres(t)
	service.MigrateUp(t, url)
	revoked := service.PrefixOf(service.Issue(t, url))
	dbtest.Exec(t, url, "CREATE FUNCTION unknown() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'unknown' USING ERRCODE = '40003'; END $$")
	dbtest.Exec(t, url, "CREATE TRIGGER unknown BEFORE INSERT OR UPDATE ON tokens FOR EACH ROW EXECUTE FUNCTION unknown()")
	for _, test := range []struct{ method, path, body, field, value string }{
		{"POST", "/tokens", `{"name":"x","scopes":["plants:read"]}`, "id", "pst_"},
		{"DELETE", "/tokens/" + revoked, "", "path", "/tokens/" + revoked},
	} {
		t.Run(test.method, func(t *testing.T) {
			// A service logs the first such request, so each needs its own. Writes at the start may keep it waiting.
			s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_DATABASE_TIMEOUT=30s")
			s.Call(t, test.method, test.path, test.body).CheckError(t, 50302)
			line := s.AwaitLine(t, "method", test.method)
			if value, _ := line[test.field].(string); line["code"] != float64(50302) || !strings.HasPrefix(value, test.value) || line["token"] != "static:1" {
				t.Errorf("got %v, want an unknown outcome", line)
			}
		})
	}
}

// TestLogWithoutReader ends what reads the log, and not the service.
func TestLogWithoutReader(t *testing.T) {
	t.Parallel()
	log, w, err := os.Pipe()
	service.Must(t, err)
	cmd := service.Command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + service.Token})
	cmd.Stderr = w
	service.Must(t, errors.Join(cmd.Start(), w.Close()))
	lines := bufio.NewScanner(log)
	var started struct{ Msg, Address string }
	for started.Msg != "serving" && lines.Scan() {
		service.Must(t, json.Unmarshal(lines.Bytes(), &started))
	}
	service.Must(t, errors.Join(lines.Err(), log.Close()))
	_, port, err := net.SplitHostPort(started.Address)
	service.Must(t, err)
	s := &service.Service{URL: "http://127.0.0.1:" + port}
	for range 2 {
		s.Get(t, "/plants", service.As(service.Token)...).RequireOK(t)
	}
	service.Must(t, cmd.Process.Signal(syscall.SIGTERM))
	if err := cmd.Wait(); err != nil {
		t.Errorf("got %v, want exit status 0", err)
	}
}

// TestMetrics checks the metrics of a few requests. The values are exact where they depend on
// these requests alone.
func TestMetrics(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s, admin := service.StartAdmin(t, "DATABASE_URL="+url)
		s.Post(t, `{"id":1,"name":"x"}`)
		s.Post(t, `{"id":1,"name":"x"}`)
		for _, request := range [][3]string{
			{"GET", "/plants/1"},
			{"GET", "/plants/1"},
			{"GET", "/no-such-path"},
			{"MADE-UP", "/plants"},
			{"PUT", "/plants/1", `{"name":"y"}`},
			{"DELETE", "/plants/1"},
			{"POST", "/tokens", `{"name":"x","scopes":["plants:read"]}`},
		} {
			s.Call(t, request[0], request[1], request[2])
		}

		system, tables := "sqlite", `go_sql_open_connections\{db_name="plantstore-reads"\} [1-9].*`
		if strings.HasPrefix(url, "postgres") {
			system, tables = "postgresql", `go_sql_max_open_connections\{db_name="plantstore"\} 16`
		}
		statement := func(operation, table string) string {
			return `db_client_operation_duration_seconds_count\{db_collection_name="` + table + `",db_operation_name="` + operation +
				`",db_system_name="` + system + `"\} [1-9].*`
		}
		request := func(method, route, status, count string) string {
			return `http_server_request_duration_seconds_count\{http_request_method="` + method + `",http_response_status_code="` + status +
				`",http_route="` + route + `"\} ` + count
		}
		want := []string{
			request("POST", "/plants", "200", "1"), request("POST", "/plants", "409", "1"), request("GET", "/plants/:id", "200", "2"),
			request("GET", "", "404", "1"), request("_OTHER", "", "405", "1"), request("PUT", "/plants/:id", "200", "1"),
			statement("INSERT", "plants"), statement("SELECT", "plants"), statement("DELETE", "plants"), statement("INSERT", "tokens"),
			`plantstore_refused_total\{error="40902"\} 1`, `plantstore_refused_total\{error="40402"\} 1`,
			"plantstore_write_batch_rows_sum 4", "plantstore_write_wait_seconds_count 4", "plantstore_write_queue_rows 0",
			"plantstore_tokens_in_force 1", "plantstore_bulk_running 0", `plantstore_build_info\{commit="[^"]+",goversion="go[^"]+",version="[^"]+"\} 1`,
			`plantstore_ready\{reason=""\} 1`, `plantstore_refused_total\{error="50001"\} 0`,
			`plantstore_connections\{state="active"\} [0-9]+`, `plantstore_connections\{state="idle"\} [1-9].*`, "plantstore_connections_max [1-9].*",
			"go_goroutines [1-9].*", "process_open_fds [1-9].*", tables,
		}
		var got string
		service.Eventually(t, "the token to be in force", func() bool {
			got = admin.Get(t, "/metrics").Body
			return strings.Contains(got, "\nplantstore_tokens_in_force 1\n")
		})
		for _, line := range want {
			t.Run(line, func(t *testing.T) {
				if !regexp.MustCompile("(?m)^" + line + "$").MatchString(got) {
					t.Errorf("got no such line in\n%s", got)
				}
			})
		}
		if strings.Contains(got, "MADE-UP") || strings.Contains(got, "no-such-path") {
			t.Errorf("got a label that a client made up in\n%s", got)
		}
		if r := s.Get(t, "/metrics"); r.Status != http.StatusNotFound {
			t.Errorf("the API: got %d, want 404", r.Status)
		}
	})
}

// TestWorkInProgress: the gauges of work follow it.
func TestWorkInProgress(t *testing.T) {
	t.Parallel()
	server := dbtest.OwnServer(t)
	s, admin := service.StartAdmin(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=10s", "PLANTSTORE_WRITES_MAX_BATCH=1")
	await := func(metric string, least, most float64) {
		t.Helper()
		service.Eventually(t, fmt.Sprintf("%s from %v to %v", metric, least, most), func() bool {
			got := service.ValueOf(t, admin.Get(t, "/metrics").Body, metric)
			return least <= got && got <= most
		})
	}
	const running, active, waiting = "plantstore_bulk_running", `plantstore_connections{state="active"}`, "plantstore_write_queue_rows"
	i := s.BeginImportAs(t, service.Token, "")
	i.Write(service.BodyOf(1) + "\n")
	await(running, 1, 1)
	await(active, 1, 1)
	service.Must(t, i.Body.Close())
	service.Receive(t, i.Responses).RequireOK(t)
	await(running, 0, 0)
	await(active, 0, 0)

	thaw, err := server.Freeze()
	service.Must(t, err)
	t.Cleanup(func() { service.Must(t, thaw()) }) // a test that fails would leave it frozen
	var posts sync.WaitGroup
	for id := range int64(4) {
		posts.Go(func() { s.Post(t, service.BodyOf(10+id)).CheckStatus(t, 200) })
	}
	await(active, 4, 4)
	await(waiting, 2, 3) // one is being written, and the next one may be taken from the queue
	service.Must(t, thaw())
	posts.Wait()
	await(waiting, 0, 0)
	await(active, 0, 0)
}

// TestTokenCommandsInTheLog: the command line logs who has changed a token.
func TestTokenCommandsInTheLog(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	service.MigrateUp(t, url)
	settings := []string{"DATABASE_URL=" + url, "PLANTSTORE_LOG_FORMAT=json"}
	issued, created, _ := service.RunToEnd(t, settings, "token", "create", "--name", "x")
	id := service.PrefixOf(issued)
	_, revoked, _ := service.RunToEnd(t, settings, "token", "revoke", id)
	u, err := user.Current()
	service.Must(t, err)
	for event, stderr := range map[string]string{"created a token": created, "revoked a token": revoked} {
		t.Run(event, func(t *testing.T) {
			if want := `"msg":"` + event + `","id":"` + id + `","by":"cli:` + u.Username + `"`; !strings.Contains(stderr, want) {
				t.Errorf("got %q, want %s in it", stderr, want)
			}
		})
	}
}
