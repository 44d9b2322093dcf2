package service

import (
	"bufio"
	"bytes"
	"strings"
	"sync"
	"time"
)

// Lines collects the output of a process.
type Lines struct {
	mu      sync.Mutex
	text    bytes.Buffer
	changed chan struct{}
}

// NewLines returns no lines.
func NewLines() *Lines { return &Lines{changed: make(chan struct{})} }

// Write adds a part of the output.
func (l *Lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
	return l.text.Write(p)
}

// String returns the output so far. The rest of what the process has written may still arrive,
// even after a response or a line of the other stream: wait by Await, or for the end of the process.
func (l *Lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Without returns the lines without text.
func (l *Lines) Without(text string) string {
	var kept strings.Builder
	for line := range strings.Lines(l.String()) {
		if !strings.Contains(line, text) {
			kept.WriteString(line)
		}
	}
	return kept.String()
}

// Await waits until wanted accepts a line. It returns false if the process ends or
// patience runs out.
func (l *Lines) Await(ended <-chan struct{}, wanted func(string) bool) bool {
	deadline := time.After(Patience)
	for last := false; ; {
		l.mu.Lock()
		text, changed := l.text.String(), l.changed
		l.mu.Unlock()
		for scanner := bufio.NewScanner(strings.NewReader(text)); scanner.Scan(); {
			if wanted(scanner.Text()) {
				return true
			}
		}
		if last {
			return false
		}
		select {
		case <-changed:
		case <-ended:
			last = true
		case <-deadline:
			return false
		}
	}
}
