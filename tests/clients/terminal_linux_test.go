package clients

import (
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
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
