//go:build pgbouncer

package postgres

import (
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// pooler is a running pgbouncer.
type pooler struct {
	url     string // of the database behind it, for the service
	console string
	version string
}

// startPgbouncer runs pgbouncer as in deploy/compose.yaml, for the database at databaseURL.
// The URL for the service has the mode that this version needs: see docs/databases.md.
func startPgbouncer(t *testing.T, databaseURL string) *pooler {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		program = "/usr/sbin/pgbouncer" // which is not in everybody's PATH
	}
	output, err := exec.CommandContext(t.Context(), program, "--version").Output()
	service.Must(t, err)
	p := &pooler{}
	var major, minor int
	_, err = fmt.Sscanf(string(output), "PgBouncer %d.%d", &major, &minor)
	service.Must(t, err)
	p.version = fmt.Sprintf("%d.%d", major, minor)
	hasPrepared := major > 1 || minor >= 21

	target, err := url.Parse(databaseURL)
	service.Must(t, err)
	name, port, password := strings.TrimPrefix(target.Path, "/"), service.FreePorts(t, 1)[0], ""
	if secret, ok := target.User.Password(); ok {
		password = " password=" + secret
	}
	changes := map[string]string{
		"plantstore = host=postgres port=5432": fmt.Sprintf("%s = host=%s port=%s user=%s%s",
			name, target.Hostname(), target.Port(), target.User.Username(), password),
		"listen_addr = *":                     "listen_addr = 127.0.0.1",
		"listen_port = 6432":                  "listen_port = " + port,
		"auth_type = scram-sha-256\n":         "auth_type = any\nadmin_users = plantstore\n",
		"auth_file = /run/secrets/userlist\n": "",
	}
	if !hasPrepared {
		changes["max_prepared_statements = 200\n"] = ""
	}
	config, err := os.ReadFile("../../deploy/pgbouncer.ini")
	service.Must(t, err)
	text := string(config)
	for from, to := range changes {
		if !strings.Contains(text, from) {
			t.Fatalf("deploy/pgbouncer.ini has no %q", from)
		}
		text = strings.Replace(text, from, to, 1)
	}
	path := filepath.Join(t.TempDir(), "pgbouncer.ini")
	service.Must(t, os.WriteFile(path, []byte(text), 0o600))
	args := []string{path}
	if os.Geteuid() == 0 {
		args = []string{"-u", "nobody", path} // it refuses to run as root
	}
	service.Launch(t, exec.CommandContext(t.Context(), program, args...))

	p.url = fmt.Sprintf("postgres://plantstore@127.0.0.1:%s/%s?sslmode=disable", port, name)
	p.console = fmt.Sprintf("postgres://plantstore@127.0.0.1:%s/pgbouncer?sslmode=disable&default_query_exec_mode=simple_protocol", port)
	if !hasPrepared {
		p.url += "&default_query_exec_mode=exec"
	}
	service.Eventually(t, "pgbouncer", func() bool {
		conn, err := pgx.Connect(t.Context(), p.console)
		if err != nil {
			return false
		}
		return conn.Close(t.Context()) == nil
	})
	return p
}

// obey runs the statements ALTER ROLE in text, in the database at databaseURL, and lets
// the pooler open new sessions. It returns the settings.
func (p *pooler) obey(t *testing.T, databaseURL, text string) (settings []string) {
	t.Helper()
	for _, found := range regexp.MustCompile(`ALTER ROLE \w+ IN DATABASE \w+ SET (\w+) = '[^']*'`).FindAllStringSubmatch(text, -1) {
		dbtest.Exec(t, databaseURL, found[0])
		settings = append(settings, found[1])
	}
	dbtest.Exec(t, p.console, "RECONNECT")
	slices.Sort(settings)
	return settings
}

// TestPgbouncer runs two replicas through pgbouncer, in a database whose defaults are all
// wrong. Each setting that a session cannot keep there is named with the statement that
// changes it. Then no request fails.
func TestPgbouncer(t *testing.T) {
	t.Parallel()
	databaseURL := dbtest.Postgres(t)
	wrong := map[string]string{
		"IntervalStyle": "sql_standard", "extra_float_digits": "-15", "bytea_output": "escape", "array_nulls": "off",
		"default_transaction_isolation": "serializable", "lock_timeout": "0",
	}
	kept := map[string]string{"DateStyle": "'German, DMY'", "TimeZone": "'Asia/Kathmandu'", "standard_conforming_strings": "off"}
	name := databaseURL[strings.LastIndex(databaseURL, "/")+1 : strings.Index(databaseURL, "?")]
	for _, settings := range []map[string]string{wrong, kept, {"synchronous_commit": "off"}} {
		for setting, value := range settings {
			dbtest.Exec(t, databaseURL, fmt.Sprintf("ALTER DATABASE %s SET %s = %s", name, setting, value))
		}
	}
	direct := service.Start(t, "DATABASE_URL="+databaseURL) // migrates
	direct.Stop(t)
	checkWarnings(t, "on a direct connection", direct)
	p := startPgbouncer(t, databaseURL)
	settings := []string{
		"DATABASE_URL=" + p.url, "PLANTSTORE_DATABASE_MIGRATE=false", "PORT=0", "PLANTSTORE_AUTH_TOKENS=" + service.Token,
		"PLANTSTORE_DATABASE_TIMEOUT=30s", // on a slow machine, requests wait long
	}

	output, err := service.Command(t, settings).CombinedOutput()
	if got := p.obey(t, databaseURL, service.LastLine(string(output))); err == nil || !slices.Equal(got, []string{"synchronous_commit"}) {
		t.Fatalf("synchronous_commit = off: got %v, and statements for %v:\n%s", err, got, output)
	}
	s := service.StartPlain(t, settings...)
	s.Stop(t)
	want := slices.Sorted(maps.Keys(wrong))
	checkWarnings(t, "through pgbouncer", s, want...)
	if got := p.obey(t, databaseURL, s.Stderr.String()); !slices.Equal(got, want) {
		t.Fatalf("got statements for %v, want them for %v:\n%s", got, want, s.Stderr)
	}

	replicas := []*service.Service{service.StartPlain(t, settings...), service.StartPlain(t, settings...)}
	loads := make([]*service.Traffic, len(replicas))
	for i, s := range replicas {
		checkWarnings(t, "after ALTER ROLE", s)
		loads[i] = s.StartTraffic(t, service.Scale(8, 64))
	}
	served := int64(0)
	for _, l := range loads {
		l.Await(t, service.Scale[int64](1000, 20000))
	}
	for _, l := range loads {
		served += l.End()
	}
	t.Run("locked rows delay no others", func(t *testing.T) { checkLockedRows(t, databaseURL, replicas) })
	mode := "the default mode"
	if strings.HasSuffix(p.url, "exec") {
		mode = "`default_query_exec_mode=exec`"
	}
	service.Record(t, "## pgbouncer %s\n\n`TestPgbouncer`: two replicas through pgbouncer in transaction mode, with %s and the configuration in\n"+
		"`deploy/`, served %d requests, a third of them reads, and none failed.", p.version, mode, served)
}

// checkWarnings reports an error unless s has warned of these settings.
func checkWarnings(t *testing.T, when string, s *service.Service, want ...string) {
	t.Helper()
	var got []string
	for _, entry := range s.Logged(t, poolerWarning) {
		got = append(got, fmt.Sprint(entry["setting"]))
	}
	if slices.Sort(got); !slices.Equal(got, want) {
		t.Errorf("%s: got warnings of %v, want %v:\n%s", when, got, want, s.Stderr.Without(`"msg":"request",`))
	}
}

const poolerWarning = "a setting is wrong, and sessions cannot keep it through a pooler such as pgbouncer: change it, and RECONNECT in its console"

// checkLockedRows creates plants while another transaction holds some of the ids.
func checkLockedRows(t *testing.T, databaseURL string, replicas []*service.Service) {
	const rows, held = 100, 20 // one of held rows
	tx, err := service.OpenTable(t, databaseURL).BeginTx(t.Context(), nil)
	service.Must(t, err)
	first := service.IDs.Add(rows) - rows + 1
	_, err = tx.ExecContext(t.Context(), "INSERT INTO plants (id, name, tag, created_at, updated_at) SELECT n, 'held', NULL, now(), now() FROM generate_series($1::bigint, $2, $3) n",
		first, first+rows-1, held)
	service.Must(t, err)
	var free, locked sync.WaitGroup
	for i := range int64(rows) {
		group := &free
		if i%held == 0 {
			group = &locked
		}
		group.Go(func() {
			r, err := replicas[i%2].Try(http.MethodPost, "/plants", strings.NewReader(service.BodyOf(first+i)), service.As(service.Token)...)
			if err != nil || r.Status != http.StatusOK {
				t.Errorf("plant %d (locked: %v): got %v, %v", first+i, i%held == 0, r, err)
			}
		})
	}
	free.Wait()
	service.Must(t, tx.Rollback())
	locked.Wait()
}
