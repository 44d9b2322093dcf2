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
