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

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
)

// TestFewFiles starts the service with room for fewer files than connections.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	const files, connections = 300, 400
	cmd := command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + token})
	cmd.Args = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0"`, files), cmd.Path}
	var err error
	cmd.Path, err = exec.LookPath("sh")
	must(t, err)
	s := launch(t, cmd)
	s.awaitServing(t)
	line := s.awaitLog(t, "ulimit -n is too low for server.max_connections, which is lowered")
	lowered, _ := line["lowered_to"].(float64)
	if line["level"] != "warn" || line["ulimit"] != float64(files) || line["max_connections"] != float64(10_000) || lowered < 1 || lowered >= files {
		t.Errorf("got log line %v", line)
	}
	open := make([]net.Conn, connections)
	for i := range open {
		open[i] = s.dialFrom(t, fmt.Sprintf("127.0.0.%d", 2+i%8))
		askHealth(t, open[i])
		readHealth(t, open[i])
	}
	checkStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
	if strings.Contains(s.stderr.String(), "Accept error") {
		t.Error("the service tried to accept more connections than it may open files")
	}
}

// TestEnoughFiles starts the service with room for all connections.
func TestEnoughFiles(t *testing.T) {
	t.Parallel()
	s := start(t, "PLANTSTORE_SERVER_MAX_CONNECTIONS=100")
	if strings.Contains(s.stderr.String(), "ulimit") {
		t.Error("got a warning")
	}
}

// TestAcceptErrorsAreWarnings takes from the running service the right to open files.
func TestAcceptErrorsAreWarnings(t *testing.T) {
	t.Parallel()
	s := start(t)
	var before unix.Rlimit
	must(t, unix.Prlimit(s.process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1 << 10}, &before))
	conn := s.dial(t)
	askHealth(t, conn)
	line := ""
	s.stderr.await(s.ended, func(text string) bool { line = text; return strings.Contains(text, "Accept error") })
	if !strings.Contains(line, `"level":"warn"`) || !strings.Contains(line, "too many open files") {
		t.Errorf("got %s, want a warning", line)
	}
	must(t, unix.Prlimit(s.process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}, nil))
	readHealth(t, conn)
}

// TestTokenIsNotLost prints a token to a full disk: the command tells what to revoke.
func TestTokenIsNotLost(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	full, err := os.OpenFile("/dev/full", os.O_WRONLY, 0)
	must(t, err)
	defer full.Close()
	migrateUp(t, url)
	cmd := command(t, []string{"DATABASE_URL=" + url}, "token", "create", "--name", "lost")
	var stderr strings.Builder
	cmd.Stdout, cmd.Stderr = full, &stderr
	err = cmd.Run()
	advice := regexp.MustCompile("no space left on device: the token is lost; revoke it with `plantstore token revoke (pst_[a-z2-7]{8})`\n$").FindStringSubmatch(stderr.String())
	if err == nil || advice == nil {
		t.Fatalf("got %v, %q", err, &stderr)
	}
	checkCLI(t, []string{"DATABASE_URL=" + url}, []string{"token", "revoke", advice[1]}, 0, "revoked "+advice[1]+" in "+nameOfDatabase(url)+"\n", "revoked a token")
}

// TestNoTemporaryFiles imports more than the disk of temporary files has room for.
func TestNoTemporaryFiles(t *testing.T) {
	t.Parallel()
	s := start(t, "DATABASE_URL="+dbtest.Postgres(t))
	must(t, limitFiles(s, 100_000))
	for name, query := range map[string]string{"an import": "", "an import that replaces": "?on_conflict=replace"} {
		t.Run(name, func(t *testing.T) {
			checkError(t, s.importRows(t, query, inNDJSON, numbered(0, 19_999)), 50301, "the service cannot write temporary files")
			s.checkNoPlants(t)
		})
	}
	s.stop(t)
	if log := s.stderr.String(); !strings.Contains(log, "temporary files (TMPDIR) cannot be written") {
		t.Errorf("got the log %s", log)
	}
}

// TestNoTemporaryFolder imports after the folder of temporary files was removed.
func TestNoTemporaryFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "temporary")
	must(t, os.Mkdir(folder, 0o700))
	s := start(t, "DATABASE_URL="+dbtest.SQLite(t), "TMPDIR="+folder)
	must(t, os.RemoveAll(folder))
	checkError(t, s.importRows(t, "", inNDJSON, bodyOf(1)), 50301, "the service cannot write temporary files")
	s.checkNoPlants(t)
}
