package cmd

import (
	"strings"
	"unicode"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"plantstore/auth"
)

// logWriter writes log lines without tokens, and without characters that a terminal would
// obey or that would make a line look like another: zap's encoders pass on both, as a
// client or a database sent them.
type logWriter struct{ zapcore.WriteSyncer }

func (w logWriter) Write(line []byte) (int, error) {
	safe := line
	if !isPlain(line) || auth.HasSecret(line) {
		safe = []byte(visible(auth.Redact(string(line))))
	}
	if _, err := w.WriteSyncer.Write(safe); err != nil {
		return 0, err
	}
	return len(line), nil
}

// visible returns text with U+FFFD in place of each invisible character.
func visible(text string) string {
	return strings.Map(func(r rune) rune {
		if isInvisible(r) {
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

// isInvisible reports whether r is a control character (C0 but tab and newline, DEL, C1),
// a format character like a bidi mark, or a separator of lines or paragraphs.
func isInvisible(r rune) bool {
	return r > '~' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r < ' ' && r != '\n' && r != '\t'
}
