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

// terminal makes a pseudo-terminal, and returns the program's side of it and what
// is written there: all of it, when hangUp has returned.
func terminal(t *testing.T) (tty *os.File, screen *lines, hangUp func()) {
	t.Helper()
	control, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	fd := int(control.Fd())
	if err := unix.IoctlSetPointerInt(fd, unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	n, err := unix.IoctlGetInt(fd, unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	if tty, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", n), os.O_RDWR|unix.O_NOCTTY, 0); err != nil {
		t.Fatal(err)
	}
	screen = newLines()
	copied := make(chan struct{})
	go func() {
		defer close(copied)
		_, _ = io.Copy(screen, control) // until the last has closed the other side
	}()
	return tty, screen, func() {
		_ = tty.Close()
		<-copied
		_ = control.Close()
	}
}

// TestCLIProgress watches an import on a terminal, whose service answers when
// the terminal says that it waits for it.
func TestCLIProgress(t *testing.T) {
	t.Parallel()
	tty, screen, hangUp := terminal(t)
	ended := make(chan struct{})
	settings := fake(t, func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if !screen.await(ended, func(line string) bool { return strings.Contains(line, "waiting for the answer") }) {
			t.Errorf("the terminal shows %q", screen)
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
	if err != nil || stdout.String() != "625 rows: 625 created, 0 unchanged, 0 refused; stored\n" {
		t.Errorf("%v, %q", err, &stdout)
	}
	shown := screen.String()
	if !strings.Contains(shown, "importing   0% |") || !strings.Contains(shown, "(0/625, ") {
		t.Errorf("the terminal shows no bar: %q", shown)
	}
	if last := shown[strings.LastIndex(strings.TrimRight(shown, "\r"), "\r")+1:]; strings.TrimSpace(last) != "" {
		t.Errorf("the terminal is left with %q", last)
	}
}
