package clients

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// terminal returns the program's side of a pseudo-terminal, the output written to it,
// which is complete after hangUp, and its keyboard.
func terminal(t *testing.T) (tty *os.File, screen *service.Lines, keyboard io.Writer, hangUp func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	service.Must(t, err)
	fd := int(control.Fd())
	service.Must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	service.Must(t, err)
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	screen = service.NewLines()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(screen, control) // until the other side is closed
	}()
	return tty, screen, control, func() {
		_ = tty.Close()
		<-copied
		_ = control.Close()
	}
}

// TestCLIProgress imports on a terminal. The service responds when the terminal shows how
// many rows it has to store, and that time passes.
func TestCLIProgress(t *testing.T) {
	t.Parallel()
	tty, screen, _, hangUp := terminal(t)
	ended := make(chan struct{})
	waits := regexp.MustCompile(`625 rows sent, waiting for the service to store them  \[[1-9]\d*s\]`)
	settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !screen.Await(ended, func(line string) bool {
			return waits.MatchString(line)
		}) {
			t.Errorf("got %q on the terminal", screen)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"rows":625,"created":625,"stored":true}`)
	})
	cmd := service.Command(t, settings, "import", service.Absolute(t, samplePlants))
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, tty
	err := cmd.Run()
	close(ended)
	hangUp()
	if err != nil || stdout.String() != service.Counts(625, 0, 0, "stored") {
		t.Errorf("got %v and %q, want 625 plants", err, &stdout)
	}
	shown := screen.String()
	if !strings.Contains(shown, " importing (0, ") || strings.Contains(shown, "\x1b") {
		t.Errorf("got %q on the terminal, want the progress without colors", shown)
	}
	if last := shown[strings.LastIndex(strings.TrimRight(shown, "\r"), "\r")+1:]; strings.TrimSpace(last) != "" {
		t.Errorf("got %q left on the terminal", last)
	}
}

// TestCLIQuietOnTerminal: with -q, there is no progress.
func TestCLIQuietOnTerminal(t *testing.T) {
	t.Parallel()
	settings := service.ClientOf(service.Start(t).URL)
	for _, args := range []string{"import -q " + service.Absolute(t, samplePlants), "export -q -o plants.csv"} {
		t.Run(args, func(t *testing.T) {
			tty, screen, _, hangUp := terminal(t)
			cmd := service.Command(t, settings, strings.Fields(args)...)
			cmd.Stdout, cmd.Stderr = tty, tty
			err := cmd.Run()
			hangUp()
			if err != nil || screen.String() != "" {
				t.Errorf("got %v and %q on the terminal, want nothing", err, screen)
			}
		})
	}
}

// prompted runs the program on a terminal until it asks for confirmation. answer types a text,
// and waits until the program, and what it wrote on screen, has ended.
func prompted(t *testing.T, settings []string, args ...string) (cmd *exec.Cmd, screen *service.Lines, answer func(text string)) {
	t.Helper()
	tty, screen, keyboard, hangUp := terminal(t)
	cmd = service.Command(t, settings, args...)
	cmd.Stdin, cmd.Stderr = tty, tty
	service.Must(t, cmd.Start())
	if !screen.Await(nil, func(line string) bool { return strings.Contains(line, "[y/N]") }) {
		t.Errorf("got %q on the terminal", screen)
	}
	return cmd, screen, func(text string) {
		_, err := io.WriteString(keyboard, text)
		service.Must(t, err)
		_ = cmd.Wait()
		hangUp()
	}
}

// TestStartDuringRestore starts the service while restore waits for an answer: it says so.
func TestStartDuringRestore(t *testing.T) {
	t.Parallel()
	database, backup := "DATABASE_URL="+dbtest.SQLite(t), filepath.Join(t.TempDir(), "backup.db")
	s := service.Start(t, database)
	if _, stderr, status := service.RunToEnd(t, []string{database}, "backup", backup); status != 0 {
		t.Fatal(stderr)
	}
	s.Stop(t)
	_, _, answer := prompted(t, []string{database}, "restore", backup)
	s = service.Launch(t, service.Command(t, []string{"PORT=0", "PLANTSTORE_LOG_FORMAT=json", "PLANTSTORE_AUTH_TOKENS=" + service.Token, database}))
	s.AwaitLog(t, "waiting for another process that creates, migrates or restores the database")
	answer("n\n")
	s.AwaitServing(t)
}

// TestMigrateDownAsks: the command names the database and what is lost, and needs a yes.
func TestMigrateDownAsks(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, databaseURL string) {
		t.Parallel()
		u, err := url.Parse(databaseURL)
		service.Must(t, err)
		name := strings.TrimPrefix(databaseURL, "sqlite:")
		if u.Host != "" {
			name = u.Host + u.Path
			u.User = url.UserPassword("postgres", "canary")
			databaseURL = u.String()
		}
		settings := []string{"DATABASE_URL=" + databaseURL}
		for _, args := range []string{"migrate up", "token create --name x"} {
			if _, stderr, status := service.RunToEnd(t, settings, strings.Fields(args)...); status != 0 {
				t.Fatal(stderr)
			}
		}
		migrations, err := filepath.Glob("../../database/migrations/sqlite/*.sql")
		service.Must(t, err)
		for range len(migrations) - 2 { // to the tokens
			if _, stderr, status := service.RunToEnd(t, settings, "migrate", "down", "--yes"); status != 0 {
				t.Fatal(stderr)
			}
		}
		want := []string{"00002_tokens.sql", name + "?", "the table tokens with 1 rows"}
		check := func(output string) {
			t.Helper()
			for _, part := range want {
				if !strings.Contains(output, part) {
					t.Errorf("got %q, want %q", output, part)
				}
			}
			if strings.Contains(output, "canary") {
				t.Errorf("the password is in %q", output)
			}
		}
		t.Run("without a terminal", func(t *testing.T) {
			_, stderr, status := service.RunToEnd(t, settings, "migrate", "down")
			check(stderr)
			if status != 2 || !strings.Contains(stderr, "--yes") {
				t.Errorf("got exit status %d and %q, want 2 and --yes", status, stderr)
			}
		})
		for _, test := range []struct {
			name, answer string
			status       int
		}{{"no", "n\n", 1}, {"nothing", "\n", 1}, {"yes", "y\n", 0}} {
			t.Run("the answer is "+test.name, func(t *testing.T) {
				cmd, screen, answer := prompted(t, settings, "migrate", "down")
				answer(test.answer)
				check(screen.String())
				if got := cmd.ProcessState.ExitCode(); got != test.status {
					t.Errorf("got exit status %d and %q, want %d", got, screen, test.status)
				}
			})
		}
		stdout, _, _ := service.RunToEnd(t, settings, "migrate", "status")
		if strings.Count(stdout, "pending") != len(migrations)-1 {
			t.Errorf("got %s, want the tokens and later migrations undone", stdout)
		}
	})
}
