package sqlite

import (
	"bytes"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// nobody returns the credentials of a user whom permissions stop, or nil if the tests run
// as such a user.
func nobody(t *testing.T) *syscall.Credential {
	t.Helper()
	if os.Geteuid() != 0 {
		return nil
	}
	u, err := user.Lookup("nobody")
	service.Must(t, err)
	id, err := strconv.ParseUint(u.Uid, 10, 32)
	service.Must(t, err)
	group, err := strconv.ParseUint(u.Gid, 10, 32)
	service.Must(t, err)
	return &syscall.Credential{Uid: uint32(id), Gid: uint32(group)}
}

// TestStartOnFaultyDisk: the service names the fault in one line, and does not wait.
func TestStartOnFaultyDisk(t *testing.T) {
	t.Parallel()
	for _, test := range []struct {
		name     string
		exists   bool   // the database
		shell    string // is run first in the process of the service
		folder   os.FileMode
		file     os.FileMode
		mentions []string
	}{
		{"a folder that is read-only", true, "", 0o555, 0o666, []string{"must be writable", "permission denied"}},
		{"a folder that is read-only, without a database", false, "", 0o555, 0, []string{"must be writable", "permission denied"}},
		{"a file that is read-only", true, "", 0o777, 0o444, []string{"must be writable", "permission denied"}},
		{"a file that cannot be read", true, "", 0o777, 0, []string{"must be writable", "permission denied"}},
		{"a full disk", true, "ulimit -f 80;", 0o777, 0o666, []string{"disk", "is full"}}, // 40 KiB, in blocks
		{"a full disk, without a database", false, "ulimit -f 80;", 0o777, 0, []string{"disk", "is full"}},
		{"a disk without any room", false, "ulimit -f 0;", 0o777, 0, []string{"disk", "is full"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			// Not t.TempDir, which only its owner can enter.
			folder, err := os.MkdirTemp("", "plantstore-disk-*")
			service.Must(t, err)
			t.Cleanup(func() { _ = os.RemoveAll(folder) })
			service.Must(t, os.Chmod(folder, 0o755)) //nolint:gosec // for another user
			binary, err := os.ReadFile(service.Program)
			service.Must(t, err)
			service.Must(t, os.WriteFile(filepath.Join(folder, "plantstore"), binary, 0o755)) //nolint:gosec // for another user
			data := filepath.Join(folder, "data")
			service.Must(t, os.Mkdir(data, 0o755)) //nolint:gosec // for another user
			path := filepath.Join(data, "plantstore.db")
			if test.exists {
				service.MigrateUp(t, "sqlite:"+path)
				service.Must(t, os.Chmod(path, test.file))
				for _, suffix := range []string{".lock", ".open"} {
					service.Must(t, os.Chmod(path+suffix, 0o666))
				}
			}
			service.Must(t, os.Chmod(data, test.folder))

			cmd := exec.CommandContext(t.Context(), "sh", "-c", test.shell+` exec ../plantstore`)
			cmd.Dir = data
			cmd.Env = []string{"DATABASE_URL=sqlite:" + path, "PORT=0", "PLANTSTORE_AUTH_TOKENS=" + service.Token, "PLANTSTORE_DATABASE_START_TIMEOUT=1h"}
			cmd.SysProcAttr = &syscall.SysProcAttr{Credential: nobody(t)}
			var stderr bytes.Buffer
			cmd.Stderr = &stderr
			begin := time.Now()
			s := time.AfterFunc(service.Patience, func() { _ = cmd.Process.Kill() })
			err = cmd.Run()
			s.Stop()
			took := time.Since(begin)
			// Of a program with coverage, which cannot write that here.
			text := strings.TrimPrefix(stderr.String(), "warning: GOCOVERDIR not set, no coverage data emitted\n")
			if cmd.ProcessState.ExitCode() != 1 || strings.Count(text, "\n") != 1 {
				t.Errorf("got %v and %q, want exit status 1 and one line", err, text)
			}
			for _, part := range append(test.mentions, path) {
				if !strings.Contains(text, part) {
					t.Errorf("got %q, want %q in it", text, part)
				}
			}
			if took > 10*time.Second { // well under a second on an idle machine
				t.Errorf("took %s", took)
			}
		})
	}
}

// TestDiskFillsUp: while files cannot grow, writes fail with a message that says so, and
// reads work. Then writes work again.
func TestDiskFillsUp(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := service.Start(t, "DATABASE_URL="+url)
	s.Post(t, service.BodyOf(1)).CheckStatus(t, 200)
	wal, err := os.Stat(service.NameOfDatabase(url) + "-wal")
	service.Must(t, err)
	service.Must(t, service.LimitFiles(s, uint64(wal.Size())))
	id := int64(2)
	s.Post(t, service.BodyOf(id)).CheckError(t, 50302, "the database is not writable")
	s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).CheckError(t, 50302, "the database is not writable")
	if r := s.Call(t, "GET", "/plants/1", ""); r.Status != 200 {
		t.Errorf("a read: got %v", r)
	}
	service.Eventually(t, "that the service is not ready", func() bool { return s.Get(t, "/readyz").Code() == 50302 })
	s.AwaitLog(t, "requests fail with error 50302")
	service.Must(t, service.LimitFiles(s, unix.RLIM_INFINITY))
	service.Eventually(t, "that the service is ready", func() bool { return s.Get(t, "/readyz").Status == 200 })
	s.Post(t, service.BodyOf(id)).CheckStatus(t, 200)
	known := service.Ledger{1: true, id: true}
	s.Stop(t)
	known.Check(t, url)
}
