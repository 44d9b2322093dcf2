package operate

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFewFiles starts the service with room for fewer files than connections.
func TestFewFiles(t *testing.T) {
	t.Parallel()
	const files, connections = 300, 400
	s := launchWithFiles(t, files)
	s.AwaitServing(t)
	line := s.AwaitLog(t, "ulimit -n is too low for server.max_connections, which is lowered")
	lowered, _ := line["lowered_to"].(float64)
	if line["level"] != "warn" || line["ulimit"] != float64(files) || line["max_connections"] != float64(10_000) || lowered < 1 || lowered >= files {
		t.Errorf("got log line %v", line)
	}
	open := make([]net.Conn, connections)
	for i := range open {
		open[i] = dialFrom(t, s, fmt.Sprintf("127.0.0.%d", 2+i%8))
		askHealth(t, open[i])
		readHealth(t, open[i])
	}
	s.Post(t, `{"id":1,"name":"x"}`).CheckStatus(t, 200)
	if strings.Contains(s.Stderr.String(), "Accept error") {
		t.Error("the service tried to accept more connections than it may open files")
	}
}

// launchWithFiles starts the service with a limit of open files.
func launchWithFiles(t *testing.T, files int) *service.Service {
	t.Helper()
	cmd := service.Command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + service.Token})
	cmd.Args = []string{"sh", "-c", fmt.Sprintf(`ulimit -n %d; exec "$0"`, files), cmd.Path}
	var err error
	cmd.Path, err = exec.LookPath("sh")
	service.Must(t, err)
	return service.Launch(t, cmd)
}

// TestTooFewFiles: a service with room for fewer connections than processors would look as if it worked.
func TestTooFewFiles(t *testing.T) {
	t.Parallel()
	s := launchWithFiles(t, 144) // none is left for connections
	want := fmt.Sprintf("plantstore: ulimit -n is 144: raise it to at least %d, or to 10144 for server.max_connections\n", 144+runtime.NumCPU())
	if err := s.Wait(t); err == nil || !strings.HasSuffix(s.Stderr.String(), want) {
		t.Errorf("got %v and %q, want %q", err, s.Stderr, want)
	}
}

// TestEnoughFiles starts the service with room for all connections.
func TestEnoughFiles(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "PLANTSTORE_SERVER_MAX_CONNECTIONS=100")
	if strings.Contains(s.Stderr.String(), "ulimit") {
		t.Error("got a warning")
	}
}

// TestAcceptErrorsAreWarnings takes from the running service the right to open files.
func TestAcceptErrorsAreWarnings(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	var before unix.Rlimit
	service.Must(t, unix.Prlimit(s.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1, Max: 1 << 10}, &before))
	conn := s.Dial(t)
	askHealth(t, conn)
	line := ""
	s.Stderr.Await(s.Ended, func(text string) bool { line = text; return strings.Contains(text, "Accept error") })
	if !strings.Contains(line, `"level":"warn"`) || !strings.Contains(line, "too many open files") {
		t.Errorf("got %s, want a warning", line)
	}
	service.Must(t, unix.Prlimit(s.Process.Pid, unix.RLIMIT_NOFILE, &unix.Rlimit{Cur: 1 << 10, Max: 1 << 10}, nil))
	readHealth(t, conn)
}

// TestNoTemporaryFiles imports more than the disk of temporary files has room for.
func TestNoTemporaryFiles(t *testing.T) {
	t.Parallel()
	s := service.Start(t, "DATABASE_URL="+dbtest.Postgres(t))
	service.Must(t, service.LimitFiles(s, 100_000))
	for name, query := range map[string]string{"an import": "", "an import that replaces": "?on_conflict=replace"} {
		t.Run(name, func(t *testing.T) {
			s.ImportRows(t, query, service.InNDJSON, service.Numbered(0, 19_999)).CheckError(t, 50301, "the service cannot write temporary files")
			s.CheckNoPlants(t)
		})
	}
	s.Stop(t)
	if log := s.Stderr.String(); !strings.Contains(log, "temporary files (TMPDIR) cannot be written") {
		t.Errorf("got the log %s", log)
	}
}

// TestNoTemporaryFolder imports after the folder of temporary files was removed.
func TestNoTemporaryFolder(t *testing.T) {
	t.Parallel()
	folder := filepath.Join(t.TempDir(), "temporary")
	service.Must(t, os.Mkdir(folder, 0o700))
	s := service.Start(t, "DATABASE_URL="+dbtest.SQLite(t), "TMPDIR="+folder)
	ready := func(want string) {
		t.Helper()
		service.Eventually(t, "/readyz to respond with "+want, func() bool { // the result is up to a second old
			r := s.Send(t, "GET", "/readyz", nil)
			return r.Status == 200 && r.Body == want
		})
	}
	ready(`{"status":"ok"}`)
	service.Must(t, os.RemoveAll(folder))
	ready(`{"status":"ok","warning":"imports and exports fail: temporary files (TMPDIR) cannot be written"}`)
	s.ImportRows(t, "", service.InNDJSON, service.BodyOf(1)).CheckError(t, 50301, "the service cannot write temporary files")
	s.CheckNoPlants(t)
}
