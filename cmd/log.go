package cmd

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"go.uber.org/zap/zapcore"

	"plantstore/auth"
)

// logWriter writes log lines without tokens, and escapes characters that a terminal would
// obey or that would make a line look like another: zap's encoders pass on both, as a
// client or a database sent them. In JSON, such characters occur in strings only, where the
// escapes stand for the same characters.
type logWriter struct{ zapcore.WriteSyncer }

func (w logWriter) Write(line []byte) (int, error) {
	safe := line
	if !isPlain(line) || auth.HasSecret(line) {
		safe = []byte(escape(auth.Redact(string(line))))
	}
	if _, err := w.WriteSyncer.Write(safe); err != nil {
		return 0, err
	}
	return len(line), nil
}

// escape returns text with an escape in place of each invisible character.
func escape(text string) string {
	var escaped strings.Builder
	for _, r := range strings.ToValidUTF8(text, string(utf8.RuneError)) {
		switch high, low := utf16.EncodeRune(r); {
		case !isInvisible(r):
			escaped.WriteRune(r)
		case high != utf8.RuneError:
			fmt.Fprintf(&escaped, `\u%04x\u%04x`, high, low)
		default:
			fmt.Fprintf(&escaped, `\u%04x`, r)
		}
	}
	return escaped.String()
}

// oneLine returns text, which may be from a server, on a single line, without tokens and without
// characters that a terminal would obey.
func oneLine(text string) string { return escape(auth.Redact(strings.Join(strings.Fields(text), " "))) }

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
// a format character such as a bidi mark, or a separator of lines or paragraphs.
func isInvisible(r rune) bool {
	return r > '~' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) || r < ' ' && r != '\n' && r != '\t'
}
