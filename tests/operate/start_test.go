package operate

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestFirstStart starts the service without configuration, as in the README.
func TestFirstStart(t *testing.T) {
	t.Parallel()
	first := service.Launch(t, service.Command(t, []string{"PORT=0"}))
	welcome := awaitWelcome(first)
	printed := regexp.MustCompile(`(http://localhost:\d+)/swagger/index.html\n +Token +(\S+) `).FindStringSubmatch(welcome)
	if printed == nil {
		t.Fatalf("got output %q, want a URL and a token", welcome)
	}
	first.URL = printed[1]
	first.Get(t, "/swagger/index.html").CheckStatus(t, 200)

	// The shell reads the printed command as what curl needs.
	curl := regexp.MustCompile(`(?m)^ +Try it +(curl .*)$`).FindStringSubmatch(welcome)[1]
	arguments, err := exec.CommandContext(t.Context(), "sh", "-c", `curl() { printf '%s\n' "$@"; }; `+curl).Output()
	service.Must(t, err)
	body := `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`
	want := strings.Join([]string{"-i", first.URL + "/plants", "-H", "Authorization: Bearer " + printed[2], "-H", "Content-Type: application/json", "-d", body, ""}, "\n")
	if string(arguments) != want {
		t.Errorf("got %q, want %q", arguments, want)
	}
	first.Post(t, body, service.As(printed[2])...).CheckStatus(t, 200)
	service.CheckMode(t, filepath.Join(first.Folder, "data", "dev-token"))
	service.CheckMode(t, filepath.Join(first.Folder, "data", "plantstore.db"))
	if info, err := os.Stat(filepath.Join(first.Folder, "data")); err != nil || info.Mode().Perm()&0o007 != 0 {
		t.Errorf("got %v, %v, want a folder that others cannot enter", info, err)
	}
	first.Stop(t)

	second := service.Command(t, []string{"PORT=0"})
	second.Dir = first.Folder
	again := service.Launch(t, second)
	if !strings.Contains(awaitWelcome(again), printed[2]) {
		t.Errorf("got output %q, want the token of the first start", again.Stdout)
	}
	again.URL = regexp.MustCompile(`http://localhost:\d+`).FindString(again.Stdout.String())
	again.Post(t, body, service.As(printed[2])...).CheckError(t, 40902)
	again.Post(t, `{"id":1,"name":"x"}`, service.As(printed[2])...).CheckError(t, 40901)
}

// TestDevTokenOfOthers: a service does not start with a development token that another user may know or have
// chosen, nor prints it.
func TestDevTokenOfOthers(t *testing.T) {
	t.Parallel()
	const token = "dev_ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
	file := func(text string, mode os.FileMode) func(t *testing.T, path string) {
		return func(t *testing.T, path string) {
			service.Must(t, os.WriteFile(path, []byte(text+"\n"), 0o600))
			service.Must(t, os.Chmod(path, mode))
		}
	}
	for _, test := range []struct {
		name string
		make func(t *testing.T, path string)
		want string // in the error, or "" if the token is used
	}{
		{"a private file", file(token, 0o600), ""},
		{"a file that all may read", file(token, 0o604), "may be read or changed by other users"},
		{"a file that its group may write", file(token, 0o620), "may be read or changed by other users"},
		{"a token without the prefix", file(strings.TrimPrefix(token, "dev_")+"abcd", 0o600), "begins with dev_"},
		{"a short token", file(token[:20], 0o600), "at least 32 characters"},
		{"a link", func(t *testing.T, path string) {
			service.Must(t, os.Symlink(service.Write(t, "token", token), path))
		}, "is not a regular file"},
		{"a link to nothing", func(t *testing.T, path string) { service.Must(t, os.Symlink("nothing", path)) }, "is not a regular file"},
		{"a folder", func(t *testing.T, path string) { service.Must(t, os.Mkdir(path, 0o700)) }, "is not a regular file"},
		{"a pipe", func(t *testing.T, path string) { service.Must(t, syscall.Mkfifo(path, 0o600)) }, "is not a regular file"},
		{"a file of another user", func(t *testing.T, path string) {
			if os.Geteuid() != 0 {
				t.Skip("only root can give files to other users")
			}
			file(token, 0o600)(t, path)
			service.Must(t, os.Chown(path, 65534, 65534))
		}, "belongs to another user"},
	} {
		t.Run(test.name, func(t *testing.T) {
			cmd := service.Command(t, nil)
			folder := filepath.Join(cmd.Dir, "data")
			service.Must(t, os.Mkdir(folder, 0o750))
			test.make(t, filepath.Join(folder, "dev-token"))
			s := service.Launch(t, cmd)
			if test.want == "" {
				if welcome := awaitWelcome(s); !strings.Contains(welcome, token) {
					t.Errorf("got %q, want the token", welcome)
				}
				return
			}
			_ = s.Wait(t)
			stderr := s.Stderr.String()
			if want := "plantstore: development token: data/dev-token "; !strings.Contains(service.LastLine(stderr), want) || !strings.Contains(stderr, test.want) {
				t.Errorf("got %q, want %q with %q", stderr, want, test.want)
			}
			if all := stderr + s.Stdout.String(); strings.Contains(all, token[4:20]) {
				t.Errorf("got the token in %q", all)
			}
		})
	}
}

// TestSecretFilesOfOthers: the log warns of files with secrets that other users may know or change.
func TestSecretFilesOfOthers(t *testing.T) {
	t.Parallel()
	const message = "the file of PLANTSTORE_AUTH_TOKENS_FILE may be read or changed by other users: chown it to the user of plantstore, and run chmod 600"
	for mode, want := range map[os.FileMode]int{0o600: 0, 0o400: 0, 0o640: 1, 0o644: 1, 0o602: 1} {
		t.Run(mode.String(), func(t *testing.T) {
			t.Parallel()
			path := service.Write(t, "tokens", service.Token)
			service.Must(t, os.Chmod(path, mode))
			s := service.Start(t, "PLANTSTORE_AUTH_TOKENS=", "PLANTSTORE_AUTH_TOKENS_FILE="+path)
			lines := s.Logged(t, message)
			if len(lines) != want || want > 0 && lines[0]["level"] != "warn" {
				t.Errorf("got %v, want %d warnings", lines, want)
			}
			_, stderr, _ := service.RunToEnd(t, nil, "export", "--url", s.URL, "--token-file", path)
			if got := strings.Count(stderr, "plantstore: warning: the file of --token-file may be read"); got != want {
				t.Errorf("export: got %q, want %d warnings", stderr, want)
			}
		})
	}
}

// TestFailedStartLeavesTheDatabase: a start that cannot succeed migrates nothing.
func TestFailedStartLeavesTheDatabase(t *testing.T) {
	t.Parallel()
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	service.Must(t, err)
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
			_, stderr, status := service.RunToEnd(t, append(test.settings, "DATABASE_URL="+url, "PLANTSTORE_SERVER_HOST=127.0.0.1"))
			if status != test.status || !strings.HasPrefix(service.LastLine(stderr), test.want) {
				t.Errorf("got exit status %d and %q, want %d and %q", status, stderr, test.status, test.want)
			}
			if _, err := os.Stat(service.NameOfDatabase(url)); !os.IsNotExist(err) {
				t.Errorf("the database: got %v, want that it does not exist", err)
			}
		})
	}
}

// TestManyStartAtOnce starts several processes on one empty database.
func TestManyStartAtOnce(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		const replicas = 5
		services := make([]*service.Service, replicas)
		for i := range services {
			services[i] = service.Launch(t, service.Command(t, []string{
				"DATABASE_URL=" + url, "PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + service.Token,
			}))
		}
		migrated := make(map[string]int)
		for i, s := range services {
			s.AwaitServing(t)
			for _, line := range regexp.MustCompile(`"msg":"migrated the database","migration":"(\S+)"`).FindAllStringSubmatch(s.Stderr.String(), -1) {
				migrated[line[1]]++
			}
			s.Post(t, fmt.Sprintf(`{"id":%d,"name":"x"}`, i)).CheckStatus(t, 200)
			s.Post(t, `{"id":0,"name":"x"}`).CheckError(t, 40902)
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

// awaitPort is awaitServing for a log in any format.
func awaitPort(t *testing.T, s *service.Service) {
	t.Helper()
	started := s.Stderr.Await(s.Ended, func(line string) bool {
		_, rest, found := strings.Cut(line, "[::]:")
		port, _, _ := strings.Cut(rest, `"`)
		s.URL = "http://127.0.0.1:" + port
		return found
	})
	if !started {
		t.Fatalf("the service did not start:\n%s", s.Stderr)
	}
}

// awaitWelcome waits for all that a development service prints, and returns it.
func awaitWelcome(s *service.Service) string {
	s.Stdout.Await(s.Ended, func(line string) bool { return strings.Contains(line, "Try it") })
	return s.Stdout.String()
}

// TestNewDatabaseIsAWarning: in production, a wrong name of the database must be seen at the first start.
func TestNewDatabaseIsAWarning(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		for _, test := range []struct {
			name  string
			warns bool
		}{{"a new database", true}, {"the same database", false}} {
			t.Run(test.name, func(t *testing.T) {
				s := service.Start(t, "DATABASE_URL="+url, "PLANTSTORE_ENV=production", "PLANTSTORE_AUTH_TOKENS=")
				name := s.AwaitLog(t, "serving")["database"].(string)
				warning := regexp.MustCompile(`"level":"warn",[^{]*"msg":"created a new, empty database at ` + regexp.QuoteMeta(name) + `: if it should have data, check database.url"`)
				if got := warning.MatchString(s.Stderr.String()); got != test.warns {
					t.Errorf("got a warning: %t, want %t", got, test.warns)
				}
				s.Stop(t)
			})
		}
	})
	if s := service.Start(t); strings.Contains(s.Stderr.String(), "created a new") {
		t.Error("got a warning in development")
	}
}
