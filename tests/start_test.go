package tests

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"plantstore/database/dbtest"
)

// TestFirstStart starts the service without configuration, as in the README.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	first := launch(t, command(t, []string{"PORT=0"}))
	welcome := first.awaitWelcome()
	printed := regexp.MustCompile(`(http://localhost:\d+)/swagger/index.html\n +Token +(\S+) `).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("got output %q, want a URL and a token", welcome)
	}
	first.url = printed[1]
	checkStatus(t, first.get(t, "/swagger/index.html"), 200)

	// The shell reads the printed command as what curl needs.
	curl := regexp.MustCompile(`(?m)^ +Try it +(curl .*)$`).FindStringSubmatch(welcome)[1]
	arguments, err := exec.CommandContext(t.Context(), "sh", "-c", `curl() { printf '%s\n' "$@"; }; `+curl).Output()
	must(t, err)
	body := `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`
	want := strings.Join([]string{"-i", first.url + "/plants", "-H", "Authorization: Bearer " + printed[2], "-H", "Content-Type: application/json", "-d", body, ""}, "\n")
	if string(arguments) != want {
		t.Errorf("got %q, want %q", arguments, want)
	}
	checkStatus(t, first.post(t, body, as(printed[2])...), 200)
	checkMode(t, filepath.Join(first.folder, "data", "dev-token"))
	checkMode(t, filepath.Join(first.folder, "data", "plantstore.db"))
	if info, err := os.Stat(filepath.Join(first.folder, "data")); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("got %v, %v, want a folder that others cannot enter", info, err)
	}
	first.stop(t)

	second := command(t, []string{"PORT=0"})
	second.Dir = first.folder
	again := launch(t, second)
	if !strings.Contains(again.awaitWelcome(), printed[2]) {
		t.Errorf("got output %q, want the token of the first start", again.stdout)
	}
	again.url = regexp.MustCompile(`http://localhost:\d+`).FindString(again.stdout.String())
	checkError(t, again.post(t, body, as(printed[2])...), 40902)
	checkError(t, again.post(t, `{"id":1,"name":"x"}`, as(printed[2])...), 40901)
}

// TestFailedStartLeavesTheDatabase: a start that cannot succeed migrates nothing.
func TestFailedStartLeavesTheDatabase(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	must(t, err)
	t.Cleanup(func() { _ = taken.Close() })
	_, port, _ := net.SplitHostPort(taken.Addr().String())
	for _, test := range []struct {
		name     string
		settings []string
		status   int
		want     string
	}{
		{"the port is in use", []string{"PORT=" + port}, 1, "plantstore: server.port (PORT):"},
		{"the admin address is in use", []string{"PORT=0", "PLANTSTORE_SERVER_ADMIN_ADDRESS=127.0.0.1:" + port}, 1, "plantstore: server.admin_address (PLANTSTORE_SERVER_ADMIN_ADDRESS):"},
		{"a wrong key of JWTs", []string{
			"PORT=0", "PLANTSTORE_AUTH_JWT_ISSUER=https://issuer.example", "PLANTSTORE_AUTH_JWT_AUDIENCE=plants", "PLANTSTORE_AUTH_JWT_PUBLIC_KEY=x",
		}, 2, "plantstore: auth.jwt.public_key (PLANTSTORE_AUTH_JWT_PUBLIC_KEY):"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			url := dbtest.SQLite(t)
			_, stderr, status := runToEnd(t, append(test.settings, "DATABASE_URL="+url, "PLANTSTORE_SERVER_HOST=127.0.0.1"))
			if status != test.status || !strings.HasPrefix(lastLine(stderr), test.want) {
				t.Errorf("got exit status %d and %q, want %d and %q", status, stderr, test.status, test.want)
			}
			if _, err := os.Stat(nameOfDatabase(url)); !os.IsNotExist(err) {
				t.Errorf("the database: got %v, want that it does not exist", err)
			}
		})
	}
}

func checkMode(t *testing.T, path string) {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Error(err)
	} else if info.Mode() != 0o600 {
		t.Errorf("got mode %o of %s, want 600", info.Mode(), path)
	}
}

// TestManyStartAtOnce starts several processes on one empty database.
func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
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
			s.awaitServing(t)
			for _, line := range regexp.MustCompile(`"msg":"migrated the database","migration":"(\S+)"`).FindAllStringSubmatch(s.stderr.String(), -1) {
				migrated[line[1]]++
			}
			checkStatus(t, s.post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, i)), 200)
			checkError(t, s.post(t, `{"id":0,"name":"x"}`), 40902)
		}
		for name, times := range migrated {
			if times != 1 {
				t.Errorf("%s was applied %d times, want once", name, times)
			}
		}
		if len(migrated) == 0 {
			t.Error("got no migrations in the logs")
		}
	})
}
