package auth

import (
	"regexp"
	"slices"
	"strings"

	"plantstore/models"
)

// jwtPart matches a JWT anywhere in a text, or its start: the Base64 of {" and more.
var jwtPart = regexp.MustCompile(`eyJ[A-Za-z0-9_.-]+`)

// Redact returns text with each issued token cut to its id, and without JWTs, for logs
// and error messages: a client may have put a token anywhere.
func Redact(text string) string {
	text = models.SecretPart.ReplaceAllStringFunc(text, func(token string) string { return token[:models.TokenIDLength] + "…" })
	return jwtPart.ReplaceAllString(text, "eyJ…")
}

// HasSecret reports whether [Redact] would change text. It costs less than to replace nothing, and
// copies nothing.
func HasSecret(text []byte) bool { return models.SecretPart.Match(text) || jwtPart.Match(text) }

// tokenPart is how many characters count as a part of a token: fewer tell little, and
// occur by chance.
const tokenPart = 8

// HasToken reports whether text has an issued token, a JWT, or a part of a token in tokens.
func HasToken(text string, tokens ...string) bool {
	return slices.ContainsFunc(tokens, func(token string) bool { return hasPart(text, token) }) || Redact(text) != text
}

// hasPart reports whether text has a part of token, or all of a shorter token.
func hasPart(text, token string) bool {
	size := min(tokenPart, max(len(token), 1))
	short, long := text, token
	if len(short) > len(long) {
		short, long = long, short
	}
	for i := range len(short) - size + 1 {
		if strings.Contains(long, short[i:i+size]) {
			return true
		}
	}
	return false
}
