package cmd

import (
	"io"
	"runtime"
	"strings"
	"sync"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"plantstore/auth"
)

// leveled is a core that writes the lines from level on, and all lines of the audit log, whose level is info.
type leveled struct {
	zapcore.Core
	level zap.AtomicLevel
}

func (l leveled) Enabled(at zapcore.Level) bool { return at == zap.InfoLevel || l.level.Enabled(at) }

func (l leveled) With(f []zapcore.Field) zapcore.Core { return leveled{l.Core.With(f), l.level} }

func (l leveled) Check(line zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if line.LoggerName == auth.AuditLog || l.level.Enabled(line.Level) {
		return checked.AddCore(line, l.Core)
	}
	return checked
}

// maxPendingLines is how many bytes of lines may wait to be written before requests wait with them.
const maxPendingLines = 256 << 10

// logWriter writes log lines without tokens, and without characters that a terminal would
// obey or that would make a line look like another: zap's encoders pass on both, as a
// client or a database sent them. A goroutine of its own writes the lines that wait with one
// system call, so that no response waits for the log. Sync waits for that goroutine.
type logWriter struct {
	to      io.Writer
	mu      sync.Mutex
	changed sync.Cond // lines wait, or have been written
	pending []byte
	writing bool
}

func newLogWriter(to io.Writer) *logWriter {
	w := &logWriter{to: to}
	w.changed.L = &w.mu
	go w.run()
	return w
}

func (w *logWriter) Write(line []byte) (int, error) {
	safe := line
	if !isPlain(line) || auth.HasSecret(line) {
		safe = []byte(visible(auth.Redact(string(line))))
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for len(w.pending) > maxPendingLines {
		w.changed.Wait()
	}
	w.pending = append(w.pending, safe...)
	w.changed.Broadcast()
	return len(line), nil
}

// run writes pending lines until the end of the process.
func (w *logWriter) run() {
	var lines []byte
	w.mu.Lock()
	for {
		for len(w.pending) == 0 {
			w.changed.Wait()
		}
		w.mu.Unlock()
		runtime.Gosched() // goroutines that can run add their lines first
		w.mu.Lock()
		lines, w.pending, w.writing = w.pending, lines[:0], true
		w.mu.Unlock()
		_, _ = w.to.Write(lines) // there is nowhere to report that the log cannot be written
		w.mu.Lock()
		w.writing = false
		w.changed.Broadcast()
	}
}

// Sync returns once all lines are written.
func (w *logWriter) Sync() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.writing || len(w.pending) > 0 {
		w.changed.Wait()
	}
	return nil
}

// visible returns text with U+FFFD in place of each invisible character: a control character (C0 but
// tab and newline, DEL, C1), a format character like a bidi mark, or a separator of lines or paragraphs.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if r > '~' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r < ' ' && r != '\n' && r != '\t' {
			return utf8.RuneError
		}
		return r
	}, text)
}

// oneLine returns text, which may be from a server, on a single line, without tokens and without
// characters that a terminal would obey.
func oneLine(text string) string {
	return visible(auth.Redact(strings.Join(strings.Fields(text), " ")))
}

// isPlain reports whether text is ASCII that needs no escapes, as most lines are.
func isPlain(text []byte) bool {
	for _, c := range text {
		if c > '~' || c < ' ' && c != '\n' && c != '\t' {
			return false
		}
	}
	return true
}
