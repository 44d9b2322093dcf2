package dbtest

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Server is a PostgreSQL server of the tests' own, in a temporary folder and on
// a free port of the loopback interface. It does not outlive the process that
// started it.
type Server struct {
	// URL is that of the database postgres, for a superuser.
	URL string

	folder   string
	bin      string
	port     int
	owner    *syscall.Credential // nil: the user who runs the tests
	watchdog *exec.Cmd
	lifeline io.Closer
}

// StartServer makes a new cluster and starts it. PostgreSQL refuses to run as
// root, so root starts it as the user postgres or nobody.
func StartServer() (_ *Server, err error) {
	s := &Server{}
	if s.bin, err = findBinaries(); err != nil {
		return nil, err
	}
	if s.port, err = freePort(); err != nil {
		return nil, err
	}
	if s.folder, err = os.MkdirTemp("", "plantstore-postgres-*"); err != nil {
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
	if err := s.run("initdb", "--auth=trust", "--username=postgres", "--encoding=UTF8", "--locale=C", "--no-sync", "-D", s.data()); err != nil {
		return nil, err
	}
	if err := s.watch(); err != nil {
		return nil, err
	}
	s.URL = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres?sslmode=disable", s.port)
	return s, s.Start()
}

// Start starts the server after Stop.
func (s *Server) Start() error {
	// fsync=off: what these tests look at survives the end of a process, not of
	// the machine.
	options := fmt.Sprintf("-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c max_connections=200 -c fsync=off", s.port)
	return s.run("pg_ctl", "start", "-w", "-s", "-D", s.data(), "-l", filepath.Join(s.folder, "log"), "-o", options)
}

// Stop ends the server and every connection to it.
func (s *Server) Stop() error {
	return s.run("pg_ctl", "stop", "-w", "-s", "-m", "fast", "-D", s.data())
}

// Close ends the server, if it runs, and removes it.
func (s *Server) Close() error {
	return errors.Join(s.lifeline.Close(), s.watchdog.Wait())
}

func (s *Server) data() string { return filepath.Join(s.folder, "data") }

// watch starts a shell that waits for the end of its input, which comes when
// this process closes it or dies, and then ends and removes the server.
func (s *Server) watch() error {
	s.watchdog = s.command("sh", "-c", `cat; "$1/pg_ctl" stop -s -m immediate -D "$2/data" 2>/dev/null; rm -rf "$2"`,
		"sh", s.bin, s.folder)
	// Not ended by the interrupt that a terminal sends to all.
	s.watchdog.SysProcAttr.Setpgid = true
	lifeline, err := s.watchdog.StdinPipe()
	if err != nil {
		return err
	}
	s.lifeline = lifeline
	return s.watchdog.Start()
}

func (s *Server) run(program string, args ...string) error {
	// To a file and not a pipe: the server inherits it, and would hold it open.
	output, err := os.CreateTemp("", "plantstore-postgres-output-*")
	if err != nil {
		return err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd := s.command(filepath.Join(s.bin, program), args...)
	cmd.Stdout, cmd.Stderr = output, output
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(output.Name())
		log, _ := os.ReadFile(filepath.Join(s.folder, "log"))
		return fmt.Errorf("%s: %w\n%s%s", program, err, text, log)
	}
	return nil
}

func (s *Server) command(program string, args ...string) *exec.Cmd {
	cmd := exec.Command(program, args...)
	cmd.Dir = s.folder
	cmd.Env = append(slices.DeleteFunc(os.Environ(), func(entry string) bool { return strings.HasPrefix(entry, "PG") }), "LC_ALL=C")
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: s.owner}
	return cmd
}

// findBinaries returns the folder of PostgreSQL's programs: one that is on the
// PATH, or the newest that Debian has put beside it.
func findBinaries() (string, error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		return filepath.Dir(path), nil
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", errors.New("the tests need PostgreSQL: make test installs it, or apt-get install postgresql, or set TEST_DATABASE_URL")
	}
	return filepath.Dir(slices.MaxFunc(found, func(a, b string) int { return debianVersion(a) - debianVersion(b) })), nil
}

func debianVersion(path string) int {
	version, _ := strconv.Atoi(strings.Split(path, "/")[4])
	return version
}

func freePort() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	return listener.Addr().(*net.TCPAddr).Port, listener.Close()
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
	return nil, errors.New("root cannot run PostgreSQL, and there is no user postgres or nobody to run it as")
}
