package tests

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// runToEnd runs the program to its end and returns its output and exit status.
func runToEnd(t *testing.T, settings []string, args ...string) (stdout, stderr string, status int) {
	t.Helper()
	cmd := command(t, settings, args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	overdue := time.AfterFunc(patience, func() {
		t.Errorf("plantstore %v with %v does not end", args, settings)
		_ = cmd.Process.Kill()
	})
	defer overdue.Stop()
	_ = cmd.Wait() // the exit status says it
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// TestFirstStart is the README's first minute: nothing is configured.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	first := launch(t, command(t, []string{"PORT=0"}))
	first.stdout.await(first.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	welcome := first.stdout.String()
	printed := regexp.MustCompile(`(http://localhost:\d+)/swagger/index.html\n +Token +(\S+) `).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("printed %q", welcome)
	}
	first.url = printed[1]
	checkStatus(t, first.get(t, "/swagger/index.html"), 200)

	// The line to paste, pasted.
	curl := regexp.MustCompile(`(?m)^ +Try it +(curl .*)$`).FindStringSubmatch(welcome)[1]
	body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(curl)[1]
	if !strings.Contains(curl, "-H 'Authorization: Bearer "+printed[2]+"'") || !strings.Contains(curl, first.url+"/plants") {
		t.Errorf("the curl line is %q", curl)
	}
	checkStatus(t, first.post(t, body, "Authorization", "Bearer "+printed[2]), 200)
	checkMode(t, filepath.Join(first.folder, "data", "dev-token"))
	checkMode(t, filepath.Join(first.folder, "data", "plantstore.db"))
	first.stop(t)

	second := command(t, []string{"PORT=0"})
	second.Dir = first.folder
	again := launch(t, second)
	again.stdout.await(again.ended, func(line string) bool { return strings.Contains(line, "Try it") })
	if !strings.Contains(again.stdout.String(), printed[2]) {
		t.Errorf("the second start prints another token: %q", again.stdout)
	}
	again.url = regexp.MustCompile(`http://localhost:\d+`).FindString(again.stdout.String())
	checkError(t, again.post(t, body, "Authorization", "Bearer "+printed[2]), 40902)                  // the same after a restart
	checkError(t, again.post(t, `{"id":1,"name":"x"}`, "Authorization", "Bearer "+printed[2]), 40901) // another name after a restart
}

func checkMode(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode() != 0o600 {
		t.Errorf("%s has the mode %o, want 600", path, info.Mode())
	}
}

// stop ends the service as an orchestrator does.
func (s *service) stop(t *testing.T) {
	t.Helper()
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.wait(t); err != nil {
		t.Errorf("the service ended with %v", err)
	}
}

func TestBadConfigurationStopsTheStart(t *testing.T) {
	t.Parallel()
	const secret = "canary-7261"
	empty := filepath.Join(t.TempDir(), "empty.db")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		setting  string
		status   int
		mentions string
	}{
		{"PORT=" + secret, 2, "server.port (PORT)"},
		{"PORT=65536", 2, "server.port (PORT)"},
		{"PLANTSTORE_SERVER_READ_TIMEOUT=" + secret, 2, "server.read_timeout (PLANTSTORE_SERVER_READ_TIMEOUT)"},
		{"PLANTSTORE_DATABASE_MIGRATE=" + secret, 2, "database.migrate (PLANTSTORE_DATABASE_MIGRATE)"},
		{"PLANTSTORE_ENV=" + secret, 2, "env (PLANTSTORE_ENV)"},
		{"PLANTSTORE_AUTH_TOKEN=" + secret, 2, "PLANTSTORE_AUTH_TOKEN"},
		{"PLANTSTORE_AUTH_TOKENS=a b " + secret, 2, "auth.tokens (PLANTSTORE_AUTH_TOKENS)"},
		{"PLANTSTORE_AUTH_TOKENS_FILE=/does/not/exist", 2, "PLANTSTORE_AUTH_TOKENS_FILE"},
		{"DATABASE_URL_FILE=postgres://u:" + secret + "@h/d", 2, "DATABASE_URL_FILE"},
		{"DATABASE_URL=mysql://" + secret, 2, "database.url (DATABASE_URL)"},
		{"DATABASE_URL=postgres://u:" + secret + "@h:port/d", 1, "database.url (DATABASE_URL)"},
		{"DATABASE_URL=sqlite:" + empty, 1, "has no bytes"},
		{"DATABASE_URL=sqlite:" + os.DevNull + "/x.db", 1, "database.url (DATABASE_URL)"},
		{"PLANTSTORE_CONFIG=/does/not/exist.yaml", 2, "/does/not/exist.yaml"},
	} {
		t.Run(test.setting, func(t *testing.T) {
			stdout, stderr, status := runToEnd(t, []string{"PORT=0", test.setting}) // the last one counts
			if status != test.status || stdout != "" {
				t.Errorf("exit status %d, printed %q", status, stdout)
			}
			if strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) || strings.Contains(stderr, secret) {
				t.Errorf("got %q, want one line that names %s and no value", stderr, test.mentions)
			}
		})
	}
}

func TestProductionRefusesWeakSettings(t *testing.T) {
	t.Parallel()
	database := "DATABASE_URL=" + dbtest.SQLite(t)
	strong := "PLANTSTORE_AUTH_TOKENS=0123456789abcdef0123456789abcdef"
	for _, test := range []struct {
		name     string
		settings []string
		mentions string
	}{
		{"a short token", []string{database, "PLANTSTORE_AUTH_TOKENS=0123456789abcdef0123456789abcde"}, "auth.tokens"},
		{"a strong and a short token", []string{database, strong + ",short"}, "auth.tokens"},
		{"a token of one character", []string{database, "PLANTSTORE_AUTH_TOKENS=" + strings.Repeat("x", 40)}, "auth.tokens"},
		{"a word that repeats itself", []string{database, "PLANTSTORE_AUTH_TOKENS=" + strings.Repeat("01234567", 5)}, "auth.tokens"},
		{"a placeholder", []string{database, "PLANTSTORE_AUTH_TOKENS=ChangeMe-0123456789abcdefghijklmnop"}, "auth.tokens"},
		{"a development token", []string{database, "PLANTSTORE_AUTH_TOKENS=dev_0123456789abcdef0123456789abcdef"}, "auth.tokens"},
		{"no database", []string{strong}, "database.url"},
	} {
		t.Run(test.name, func(t *testing.T) {
			_, stderr, status := runToEnd(t, append(test.settings, "PLANTSTORE_ENV=production", "PORT=0"))
			if status != 2 || !strings.Contains(stderr, test.mentions) || strings.Count(stderr, "\n") != 1 {
				t.Errorf("exit status %d, %q", status, stderr)
			}
		})
	}

	s := start(t, database, strong, "PLANTSTORE_ENV=production")
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`, "Authorization", "Bearer 0123456789abcdef0123456789abcdef"), 200)
	if s.stdout.String() != "" {
		t.Errorf("production prints %q", s.stdout)
	}
}

// TestStopFinishesRequests stops the service while a request is under way.
func TestStopFinishesRequests(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1s")
	body, send := io.Pipe()
	type result struct {
		response response
		err      error
	}
	results := make(chan result)
	go func() {
		r, err := s.try("POST", "/plants", body, "Authorization", "Bearer "+token)
		results <- result{r, err}
	}()
	if _, err := io.WriteString(send, `{"id":1,`); err != nil {
		t.Fatal(err)
	}
	if err := s.process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	s.awaitLog(t, "stopping")
	// Not ready for more, and alive.
	checkError(t, s.get(t, "/readyz"), 50302) // /readyz of a service that stops
	checkStatus(t, s.get(t, "/healthz"), 200)
	if _, err := io.WriteString(send, `"name":"x"}`); err != nil {
		t.Fatal(err)
	}
	if err := send.Close(); err != nil {
		t.Fatal(err)
	}
	if r := <-results; r.err != nil || r.response.status != 200 {
		t.Errorf("the request under way got %d %s, %v", r.response.status, r.response.body, r.err)
	}
	if err := s.wait(t); err != nil {
		t.Errorf("the service ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.folder, "data", "plantstore.db-wal")); err == nil {
		t.Error("the database was not closed: its WAL is still there")
	}
}

func TestSecondSignalEndsAtOnce(t *testing.T) {
	t.Parallel()
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT} {
		t.Run(signal.String(), func(t *testing.T) {
			s := start(t, "PLANTSTORE_SERVER_SHUTDOWN_DELAY=1h")
			if err := s.process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			s.awaitLog(t, "stopping")
			if err := s.process.Signal(signal); err != nil {
				t.Fatal(err)
			}
			if err := s.wait(t); err == nil || err.Error() != "exit status 1" {
				t.Errorf("after two of %v: %v", signal, err)
			}
		})
	}
}

// ownServer returns a PostgreSQL server that the test may stop.
func ownServer(t *testing.T) *dbtest.Server {
	t.Helper()
	server, err := dbtest.StartServer()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Close(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// TestPostgresOutage stops PostgreSQL under the running service and starts it
// again.
func TestPostgresOutage(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	create := func(id int) response { return s.post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, id)) }
	requireStatus(t, create(1), 200)

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	var group sync.WaitGroup
	for id := range 20 {
		group.Go(func() {
			begin := time.Now()
			r := create(100 + id)
			checkError(t, r, 50302)
			checkHas(t, r, "Retry-After")
			if took := time.Since(begin); took > 5*time.Second {
				t.Errorf("the answer took %v", took)
			}
		})
	}
	group.Wait()
	checkError(t, s.get(t, "/readyz"), 50302) // /readyz without a database
	checkStatus(t, s.get(t, "/healthz"), 200)

	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	checkStatus(t, create(2), 200)
	checkError(t, create(1), 40902) // what was stored before
}

// TestDatabaseComesLate starts the service before its database.
func TestDatabaseComesLate(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	_, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_DATABASE_START_TIMEOUT=300ms", "PORT=0"})
	last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]
	if status != 1 || !strings.HasPrefix(last, "plantstore: database.url (DATABASE_URL): connect to the database:") {
		t.Errorf("with no patience left: exit status %d, %q", status, stderr)
	}

	s := launch(t, command(t, []string{"DATABASE_URL=" + server.URL, "PLANTSTORE_LOG_FORMAT=json", "PORT=0"}))
	s.awaitLog(t, "waiting for the database")
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	s.awaitLog(t, "serving")
}

// TestManyStartAtOnce starts several processes on one empty database.
func TestManyStartAtOnce(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const replicas = 5
		services := make([]*service, replicas)
		for i := range services {
			services[i] = launch(t, command(t, []string{
				"DATABASE_URL=" + url, "PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + token,
			}))
		}
		migrated := make(map[string]int)
		for i, s := range services {
			address := s.awaitLog(t, "serving")["address"].(string)
			s.url = "http://127.0.0.1:" + address[strings.LastIndex(address, ":")+1:]
			for _, line := range regexp.MustCompile(`"msg":"migrated the database","migration":"(\S+)"`).FindAllStringSubmatch(s.stderr.String(), -1) {
				migrated[line[1]]++
			}
			checkStatus(t, s.post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, i)), 200)
			checkError(t, s.post(t, `{"id":0,"name":"x"}`), 40902)
		}
		for name, times := range migrated {
			if times != 1 {
				t.Errorf("%s was applied %d times", name, times)
			}
		}
		if len(migrated) == 0 {
			t.Error("nobody has migrated the database")
		}
	})
}

func TestMigrateCommand(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		settings := []string{"DATABASE_URL=" + url}
		migrate := func(direction, want string) {
			t.Helper()
			stdout, stderr, status := runToEnd(t, settings, "migrate", direction)
			if status != 0 || !strings.Contains(stdout, want) {
				t.Errorf("migrate %s: exit status %d, %q, %q", direction, status, stdout, stderr)
			}
		}
		migrate("status", "pending")
		_, stderr, status := runToEnd(t, append(settings, "PLANTSTORE_DATABASE_MIGRATE=false", "PORT=0"))
		if status != 1 || !strings.Contains(stderr, "plantstore migrate up") {
			t.Errorf("a start on an old schema: exit status %d, %q", status, stderr)
		}
		migrate("up", "applied 00001_plants.sql\napplied 00002_tokens.sql\n")
		migrate("up", "nothing to apply")
		migrate("status", "Z  00001_plants.sql")
		s := start(t, append(settings, "PLANTSTORE_DATABASE_MIGRATE=false")...)
		checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
		s.stop(t)
		migrate("down", "undone 00002_tokens.sql")
		migrate("down", "undone 00001_plants.sql")
		migrate("status", "pending")
	})
}

func TestHealthcheckAndVersionCommands(t *testing.T) {
	t.Parallel()
	s := start(t)
	port := "PORT=" + s.url[strings.LastIndex(s.url, ":")+1:]
	for _, args := range [][]string{{"healthcheck"}, {"healthcheck", "--ready"}} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			if _, stderr, status := runToEnd(t, []string{port}, args...); status != 0 {
				t.Errorf("%v of a healthy service: exit status %d, %q", args, status, stderr)
			}
		})
	}
	s.stop(t)
	if _, stderr, status := runToEnd(t, []string{port}, "healthcheck"); status != 1 || !strings.Contains(stderr, "does not answer") {
		t.Errorf("healthcheck of no service: exit status %d, %q", status, stderr)
	}
	if stdout, _, status := runToEnd(t, nil, "version"); status != 0 || !strings.HasPrefix(stdout, "plantstore dev (commit unknown, go1") {
		t.Errorf("version: exit status %d, %q", status, stdout)
	}
	if _, stderr, status := runToEnd(t, nil, "frobnicate"); status != 2 || strings.Count(stderr, "\n") != 1 {
		t.Errorf("an unknown command: exit status %d, %q", status, stderr)
	}
}

func TestFlagsBeatTheEnvironment(t *testing.T) {
	t.Parallel()
	s := launch(t, command(t, []string{"PORT=1", "DATABASE_URL=sqlite:environment.db", "PLANTSTORE_LOG_FORMAT=json"},
		"serve", "--port", "0", "--database-url", "sqlite:flag.db"))
	s.awaitLog(t, "serving")
	if _, err := os.Stat(filepath.Join(s.folder, "flag.db")); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(s.folder, "environment.db")); err == nil {
		t.Error("the environment's database was made, too")
	}
}

func TestPortInUse(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_, stderr, status := runToEnd(t, []string{"PORT=" + port})
	if last := stderr[strings.LastIndex(strings.TrimSpace(stderr), "\n")+1:]; status != 1 || !strings.HasPrefix(last, "plantstore: server.port (PORT):") {
		t.Errorf("exit status %d, %q", status, stderr)
	}
}

// TestAccessLog checks that every request has one line, and no secret in it.
func TestAccessLog(t *testing.T) {
	t.Parallel()
	s := start(t)
	const canary = "canary-4711"
	s.post(t, `{"id":1,"name":"`+canary+`"}`, "X-Request-ID", "one")
	s.post(t, `{"id":2,"name":"x"}`, "Authorization", "Bearer "+canary, "X-Request-ID", "two", "Cookie", canary)
	s.get(t, "/nothing?token="+canary, "X-Request-ID", "three")
	s.stop(t)
	log := s.stderr.String()
	for id, want := range map[string]string{
		"one":   `"method":"POST","path":"/plants","status":200,"duration":"[0-9.µm]+s","bytes":22,"client":"127.0.0.1"`,
		"two":   `"method":"POST","path":"/plants","status":401,`,
		"three": `"method":"GET","path":"/nothing","status":404,`,
	} {
		t.Run(id, func(t *testing.T) {
			if n := strings.Count(log, `"request_id":"`+id+`"`); n != 1 {
				t.Errorf("request %s has %d lines", id, n)
			}
			if !regexp.MustCompile(`"request_id":"` + id + `",` + want).MatchString(log) {
				t.Errorf("no line of request %s matches %s", id, want)
			}
		})
	}
	if all := log + s.stdout.String(); strings.Contains(all, canary) || strings.Contains(all, token) {
		t.Errorf("a secret is in what the service wrote: %s", all)
	}
}

// TestSlowClientsAreClosed opens connections that never send a whole request.
func TestSlowClientsAreClosed(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_READ_HEADER_TIMEOUT=200ms", "PLANTSTORE_SERVER_READ_TIMEOUT=400ms")
	for what, text := range map[string]string{
		"slow headers": "POST /plants HTTP/1.1\r\nHost: x\r\n",
		"a slow body":  "POST /plants HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\nContent-Length: 100\r\n\r\n{",
	} {
		t.Run(what, func(t *testing.T) {
			conn, err := net.Dial("tcp", strings.TrimPrefix(s.url, "http://"))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			if _, err := io.WriteString(conn, text); err != nil {
				t.Fatal(err)
			}
			if err := conn.SetReadDeadline(time.Now().Add(patience)); err != nil {
				t.Fatal(err)
			}
			if response, err := io.ReadAll(conn); err != nil {
				t.Errorf("the connection stays open: %q, %v", response, err)
			}
		})
	}
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
}

// TestFootprint prints what a start costs. It fails on nothing but a service
// that does not start: machines differ.
func TestFootprint(t *testing.T) {
	begin := time.Now()
	s := start(t)
	r := s.get(t, "/readyz")
	t.Logf("from the start of the process to the first 200 on SQLite: %v (status %d)", time.Since(begin).Round(time.Millisecond), r.status)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Pid))
	if err == nil {
		t.Logf("idle memory: %s", regexp.MustCompile(`VmRSS:.*`).Find(status))
	}
}
