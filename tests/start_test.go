package tests

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

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

	// The printed curl command works.
	curl := regexp.MustCompile(`(?m)^ +Try it +(curl .*)$`).FindStringSubmatch(welcome)[1]
	body := regexp.MustCompile(`-d '(.*)'`).FindStringSubmatch(curl)[1]
	if !strings.Contains(curl, "-H 'Authorization: Bearer "+printed[2]+"'") || !strings.Contains(curl, first.url+"/plants") {
		t.Errorf("got the curl command %q", curl)
	}
	checkStatus(t, first.post(t, body, as(printed[2])...), 200)
	checkMode(t, filepath.Join(first.folder, "data", "dev-token"))
	checkMode(t, filepath.Join(first.folder, "data", "plantstore.db"))
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

func TestPortInUse(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", ":0")
	must(t, err)
	defer listener.Close()
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	_, stderr, status := runToEnd(t, []string{"PORT=" + port})
	if status != 1 || !strings.HasPrefix(lastLine(stderr), "plantstore: server.port (PORT):") {
		t.Errorf("got exit status %d and %q, want 1 and an error of server.port", status, stderr)
	}
}

// TestFootprint logs the time and memory of a start. It has no limits, as machines differ.
func TestFootprint(t *testing.T) {
	begin := time.Now()
	s := start(t)
	r := s.get(t, "/readyz")
	t.Logf("from start to first response on SQLite: %v (status %d)", time.Since(begin).Round(time.Millisecond), r.status)
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.process.Pid))
	if err == nil {
		t.Logf("idle memory: %s", regexp.MustCompile(`VmRSS:.*`).Find(status))
	}
}
