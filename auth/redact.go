package auth

import (
	"regexp"
	"strings"

	"plantstore/models"
)

// jwtPart matches a JWT anywhere in a text, or its start: the Base64 of {" and more.
var jwtPart = regexp.MustCompile(`eyJ[A-Za-z0-9_.-]+`)

// Redact returns text with each issued token cut to its id, and without JWTs, for logs
// and error messages: a client may have put a token anywhere.
func Redact(text string) string {
	// To look costs less than to replace nothing, and each line of the log comes here.
	if models.SecretPart.MatchString(text) {
		text = models.SecretPart.ReplaceAllStringFunc(text, func(token string) string { return token[:models.TokenIDLength] + "…" })
	}
	if jwtPart.MatchString(text) {
		text = jwtPart.ReplaceAllString(text, "eyJ…")
	}
	return text
}

// tokenPart is how many characters count as a part of a token: fewer tell little, and
// occur by chance.
const tokenPart = 8

// HasToken reports whether text has an issued token, a JWT, or a part of one of tokens.
func HasToken(text string, tokens ...string) bool {
	for _, token := range tokens {
		size := min(tokenPart, max(len(token), 1))
		long, short := token, text // a search of the shorter one takes least: a client may send 16 KB of tokens
		if len(long) < len(short) {
			long, short = short, long
		}
		for i := range len(long) - size + 1 {
			if strings.Contains(short, long[i:i+size]) {
				return true
			}
		}
	}
	return Redact(text) != text
}

// HasHexPart is HasToken for a hexadecimal text that every request may have, such as a trace
// id: it takes a tenth of the time, but misses some parts of less than twice tokenPart.
func HasHexPart(text string, tokens ...string) bool {
	const fast = 64 // the most that strings.Contains searches with vector instructions
	for _, token := range tokens {
		if !hasHexRun(token) {
			continue
		}
		for ; len(token) >= tokenPart; token = token[min(fast-tokenPart+1, len(token)):] {
			for i := 0; i+tokenPart <= len(text); i += tokenPart {
				if strings.Contains(token[:min(fast, len(token))], text[i:i+tokenPart]) {
					return true
				}
			}
		}
	}
	return false
}

// hasHexRun reports whether token has tokenPart lower-case hexadecimal digits in a row. Most
// tokens have none, and looking at every tokenPart-th character rules out most of them.
func hasHexRun(token string) bool {
	for last := tokenPart - 1; last < len(token); last += tokenPart {
		first := last
		for first >= 0 && last-first < tokenPart && isHex(token[first]) {
			first--
		}
		if last-first == tokenPart {
			return true
		}
		// What precedes the run is not hexadecimal: another run ends tokenPart after that.
		last = first
	}
	return false
}

// isHex reports whether c is a lower-case hexadecimal digit.
func isHex(c byte) bool { return '0' <= c && c <= '9' || 'a' <= c && c <= 'f' }
