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
	text = models.SecretPart.ReplaceAllStringFunc(text, func(token string) string { return token[:models.TokenIDLength] + "…" })
	return jwtPart.ReplaceAllString(text, "eyJ…")
}

// HasSecret reports whether [Redact] would change text. It costs less than to replace nothing, and
// copies nothing.
func HasSecret(text []byte) bool { return models.SecretPart.Match(text) || jwtPart.Match(text) }

// tokenPart is how many characters count as a part of a token: fewer tell little, and
// occur by chance.
const tokenPart = 8

// HasToken reports whether text has an issued token, a JWT, a part of a token in tokens, or all of a
// shorter token.
func HasToken(text string, tokens ...string) bool {
	for _, token := range tokens {
		size := min(tokenPart, max(len(token), 1))
		for i := range len(text) - size + 1 {
			if strings.Contains(token, text[i:i+size]) {
				return true
			}
		}
	}
	return Redact(text) != text
}
