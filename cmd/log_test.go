package cmd

import (
	"io"
	"strings"
	"testing"
)

// TestLinesDoNotWait writes lines while nobody reads the log. Only once too many are pending do they
// wait, and then none is lost.
func TestLinesDoNotWait(t *testing.T) {
	reader, to := io.Pipe()
	log := newLogWriter(to)
	line := strings.Repeat("x", 999) + "\n"
	const few, many = maxPendingLines / 1000, 3 * maxPendingLines / 1000
	written := make(chan int)
	go func() {
		defer close(written)
		for n := range many {
			if _, err := io.WriteString(log, line); err != nil {
				t.Error(err)
			}
			if n == few {
				written <- n
			}
		}
		if err := log.Sync(); err != nil {
			t.Error(err)
		}
		to.Close()
	}()
	<-written
	text, err := io.ReadAll(reader)
	if err != nil {
		t.Error(err)
	}
	if want := strings.Repeat(line, many); string(text) != want {
		t.Errorf("got %d bytes, want %d", len(text), len(want))
	}
}
