package tests

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// terminal returns the program's side of a pseudo-terminal and the output written to it,
// which is complete after hangUp.
func terminal(t *testing.T) (tty *os.File, screen *lines, hangUp func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	must(t, err)
	fd := int(control.Fd())
	must(t, unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0))
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	must(t, err)
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	screen = newLines()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(screen, control) // until the other side is closed
	}()
	return tty, screen, func() {
		_ = tty.Close()
		<-copied
		_ = control.Close()
	}
}

// TestCLIProgress imports on a terminal. The service responds when the terminal shows that
// the client waits.
func TestCLIProgress(t *testing.T) {
	t.Parallel()
	tty, screen, hangUp := terminal(t)
	ended := make(chan struct{})
	settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !screen.await(ended, func(line string) bool { return strings.Contains(line, "waiting for") }) {
			t.Errorf("got %q on the terminal", screen)
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = io.WriteString(w, `{"rows":625,"created":625,"stored":true}`)
	})
	cmd := command(t, settings, "import", absolute(t, samplePlants))
	var stdout bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, tty
	err := cmd.Run()
	close(ended)
	hangUp()
	if err != nil || stdout.String() != counts(625, 0, 0, "stored") {
		t.Errorf("got %v and %q, want 625 plants", err, &stdout)
	}
	shown := screen.String()
	if !strings.Contains(shown, "importing   0% |") || !strings.Contains(shown, "(0/625, ") {
		t.Errorf("got %q on the terminal, want a progress bar", shown)
	}
	if last := shown[strings.LastIndex(strings.TrimRight(shown, "\r"), "\r")+1:]; strings.TrimSpace(last) != "" {
		t.Errorf("got %q left on the terminal", last)
	}
}
