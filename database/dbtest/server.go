package dbtest

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// patience limits waits for a server.
const patience = 30 * time.Second

// Server is a temporary PostgreSQL server, in a folder of its own and on a free port of
// the loopback interface. It does not outlive the process that started it.
type Server struct {
	// URL names the database postgres, as a superuser.
	URL string

	folder   string
	bin      string
	port     int
	settings []string
	owner    *syscall.Credential // nil for the user who runs the tests
	watchdog *exec.Cmd
	lifeline io.Closer
	alive    *os.File // a pipe that closes with the last process of the server
}

// StartServer creates a cluster for tests and starts it. Its data survives the end of a
// process, but not of the machine.
func StartServer() (*Server, error) {
	return StartServerIn("", "max_connections=200", "fsync=off")
}

// OwnServer is StartServer for one test.
func OwnServer(t testing.TB) *Server {
	t.Helper()
	s, err := StartServer()
	return s.closedBy(t, err)
}

// OwnStandby starts a server that replicates s, for one test.
func (s *Server) OwnStandby(t testing.TB) *Server {
	t.Helper()
	standby, err := startServer("", s.settings, func(standby *Server) error {
		return standby.run("pg_basebackup", "--no-sync", "--checkpoint=fast", "--write-recovery-conf", "-d", s.URL, "-D", standby.data())
	})
	return standby.closedBy(t, err)
}

// closedBy returns s, which is closed when t ends. If err is not nil, s has not started, and t fails.
func (s *Server) closedBy(t testing.TB, err error) *Server {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// StartServerIn creates a cluster in a new folder under folder, or under the system's
// folder for temporary files, and starts it with settings, such as "fsync=off".
// PostgreSQL does not run as root, so root starts it as the user postgres or nobody.
func StartServerIn(folder string, settings ...string) (*Server, error) {
	return startServer(folder, settings, func(s *Server) error {
		return s.run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", s.data())
	})
}

// Promote makes a standby accept writes. It returns when it does.
func (s *Server) Promote() error { return s.run("pg_ctl", "promote", "-w", "-s", "-D", s.data()) }

func startServer(folder string, settings []string, create func(*Server) error) (_ *Server, err error) {
	s := &Server{settings: settings}
	if s.bin, err = findBinaries(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp(folder, "plantstore-postgres-*"); err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if s.owner, err = unprivileged(); err != nil {
			return nil, err
		}
		if err := os.Chown(s.folder, int(s.owner.Uid), int(s.owner.Gid)); err != nil {
			return nil, err
		}
	}
	if err := create(s); err != nil {
		return nil, errors.Join(err, os.RemoveAll(s.folder))
	}
	if err := s.watch(); err != nil {
		return nil, err
	}
	if s.port, err = FreePort(); err != nil { // as late as possible, as others look for ports, too
		return nil, errors.Join(err, s.lifeline.Close())
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	return s, s.Start()
}

// Start starts the server after Stop or Kill.
func (s *Server) Start() error {
	alive, held, err := os.Pipe()
	if err != nil {
		return err
	}
	defer held.Close()
	_ = s.alive.Close() // of the previous run, if any
	s.alive = alive
	options := fmt.Sprintf("-p %d -c %s", s.port, strings.Join(append([]string{"listen_addresses=127.0.0.1", "unix_socket_directories="}, s.settings...), " -c "))
	cmd := s.Command("pg_ctl", "start", "-w", "-s", "-D", s.data(), "-l", filepath.Join(s.folder, "log"), "-o", options)
	cmd.ExtraFiles = []*os.File{held} // inherited by each process of the server
	return s.finish(cmd)
}

// Stop stops the server and closes every connection to it.
func (s *Server) Stop() error {
	return s.run("pg_ctl", "stop", "-w", "-s", "-m", "fast", "-D", s.data())
}

// Kill sends SIGKILL to each process of the server, which must be running. It returns
// when no process is left, so that Start can follow.
func (s *Server) Kill() error {
	processes, err := s.processes()
	if err != nil {
		return err
	}
	if err := signal(processes, syscall.SIGKILL); err != nil {
		return err
	}
	if err := s.alive.SetReadDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, s.alive); err != nil {
		return fmt.Errorf("wait for the end of the server: %w", err)
	}
	// Otherwise the dead postmaster, which init may not have reaped yet, or the next
	// process with its pid, would be mistaken for a running server.
	return os.Remove(s.pidFile())
}

// Freeze stops each process of the server, as on a machine that hangs, until thaw is called.
func (s *Server) Freeze() (thaw func() error, err error) {
	processes, err := s.processes()
	if err != nil {
		return nil, err
	}
	return func() error { return signal(processes, syscall.SIGCONT) }, signal(processes, syscall.SIGSTOP)
}

// signal sends a signal to processes, some of which may have ended.
func signal(processes []int, sig syscall.Signal) error {
	for _, pid := range processes {
		if err := syscall.Kill(pid, sig); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("send %s to process %d of the server: %w", sig, pid, err)
		}
	}
	return nil
}

// processes stops the postmaster and returns all processes of the server: while it is stopped,
// there are no others.
func (s *Server) processes() ([]int, error) {
	text, err := os.ReadFile(s.pidFile())
	if err != nil {
		return nil, err
	}
	first, _, _ := strings.Cut(string(text), "\n")
	postmaster, err := strconv.Atoi(first)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.pidFile(), err)
	}
	if err := signal([]int{postmaster}, syscall.SIGSTOP); err != nil {
		return nil, err
	}
	stats, err := filepath.Glob("/proc/[0-9]*/stat")
	processes := []int{postmaster}
	for _, name := range stats {
		stat, _ := os.ReadFile(name) // it may have ended
		// The fields are the pid, the name in parentheses, the state, and the parent's pid.
		_, after, _ := strings.Cut(string(stat), ") ")
		if fields := strings.Fields(after); len(fields) > 1 && fields[1] == first {
			pid, err := strconv.Atoi(filepath.Base(filepath.Dir(name)))
			if err != nil {
				return nil, err
			}
			processes = append(processes, pid)
		}
	}
	return processes, err
}

func (s *Server) pidFile() string { return filepath.Join(s.data(), "postmaster.pid") }

// Close stops the server, if it is running, and removes its folder.
func (s *Server) Close() error {
	return errors.Join(s.lifeline.Close(), s.watchdog.Wait(), s.alive.Close())
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// watch starts a shell that waits until this process closes its input or dies, and then
// stops and removes the server.
func (s *Server) watch() error {
	s.watchdog = s.command("sh", "-c", `cat; "$1/pg_ctl" stop -s -m immediate -D "$2/data" 2>/dev/null; rm -rf "$2"`,
		"sh", s.bin, s.folder)
	// A group of its own, so that an interrupt from the terminal does not end it.
	s.watchdog.SysProcAttr.Setpgid = true
	lifeline, err := s.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	s.lifeline = lifeline
	return s.watchdog.Start()
}

func (s *Server) run(program string, args ...string) error {
	return s.finish(s.Command(program, args...))
}

// finish runs cmd and adds its output to an error.
func (s *Server) finish(cmd *exec.Cmd) error {
	// A file, not a pipe: the server inherits it and would keep a pipe open.
	output, err := os.CreateTemp("", "plantstore-postgres-output-*")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(output.Name())
		log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
		return fmt.Errorf("%s: %w\n%s%s", filepath.Base(cmd.Path), err, text, log)
	}
	return nil
}

// Command returns a command for one of PostgreSQL's programs, such as pgbench, as the
// user of the server.
func (s *Server) Command(program string, args ...string) *exec.Cmd {
	return s.command(filepath.Join(s.bin, program), args...)
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = s.folder
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PG") }), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// findBinaries returns the folder of PostgreSQL's programs: the one in PATH, or the newest
// that Debian has installed.
func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		// The folder of a link need not have the other programs.
		if path, err = filepath.EvalSymlinks(path); err != nil {
			return "", err
		}
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("the tests need PostgreSQL: make test installs it, or apt-get install postgresql")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return debianVersion(a) - debianVersion(b) })), nil
}

func debianVersion(path string) int {
	version, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return version
}

// FreePort returns a port below those of outgoing connections, of which one might take it
// before a server does, or while that is down.
func FreePort() (port int, err error) {
	for range 100 {
		port = 20_000 + rand.IntN(12_000) //nolint:gosec // any port will do
		listener, failed := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err = failed; err == nil {
			return port, listener.Close()
		}
	}
	return 0, err
}

func unprivileged() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err := strconv.ParseUint(u.Uid, 10, 32)
		if err != nil {
			return nil, err
		}
		gid, err := strconv.ParseUint(u.Gid, 10, 32)
		if err != nil {
			return nil, err
		}
		return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
	}
	return nil, errors.New("PostgreSQL does not run as root, and there is no user postgres or nobody")
}
