package models

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"regexp"
	"strings"
	"time"
	"unicode"
)

// A token is the prefix, 40 random characters of 5 bits each, and a checksum:
// pst_[a-z2-7]{47}. The prefix lets scanners of repositories and logs find one that
// has leaked; the checksum lets a mistyped one be refused without a look at the
// database.
const (
	tokenPrefix    = "pst_"
	tokenRandom    = 40
	tokenChecksum  = 7 // 32 bits
	tokenLength    = len(tokenPrefix) + tokenRandom + tokenChecksum
	tokenIDLength  = len(tokenPrefix) + 8 // leaves 160 bits that nobody sees
	maxTokenName   = 100
	tokenAlphabet  = "abcdefghijklmnopqrstuvwxyz234567"
	randomBytes    = 5 * tokenRandom / 8
	checksumOffset = tokenLength - tokenChecksum
)

var tokenEncoding = base32.NewEncoding(tokenAlphabet).WithPadding(base32.NoPadding)

// Token is one row of the table tokens: a bearer token that was issued. The token
// itself is not kept, only its SHA-256: it has so many random bits that nothing
// slower is needed.
type Token struct {
	// ID is the beginning of the token, by which people tell it from others.
	ID string `gorm:"primaryKey"`
	// Name says whose it is, or what it is for; several may have the same.
	Name      string
	Hash      []byte
	Scopes    Scopes
	CreatedAt time.Time
	// ExpiresAt is nil where the token does not expire.
	ExpiresAt *time.Time
	RevokedAt *time.Time
	// LastUsedAt is written once a minute: it may be a minute late.
	LastUsedAt *time.Time
}

// Validate reports the first value that breaks a rule as an *InvalidError, or nil.
func (t *Token) Validate(now time.Time) error {
	if isBlank(t.Name) {
		return invalid("name", "must not be blank: say whose token it is, or what it is for")
	}
	if err := checkText("name", t.Name, maxTokenName); err != nil {
		return err
	}
	if t.ExpiresAt != nil && !t.ExpiresAt.After(now) {
		return invalid("expires_at", "must be in the future")
	}
	if t.ExpiresAt != nil && t.ExpiresAt.UTC().Year() > 9999 { // RFC 3339 has no more
		return invalid("expires_at", "must be before the year 10000")
	}
	return t.Scopes.validate()
}

// Expired reports whether the token has ended by itself.
func (t *Token) Expired(now time.Time) bool { return t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) }

// newSecret returns a new token.
func newSecret() string {
	var random [randomBytes]byte
	_, _ = rand.Read(random[:]) // which does not fail
	body := tokenPrefix + tokenEncoding.EncodeToString(random[:])
	return body + checksum(body)
}

// checksum returns the CRC-32 (IEEE 802.3) of body.
func checksum(body string) string {
	var sum [4]byte
	binary.BigEndian.PutUint32(sum[:], crc32.ChecksumIEEE([]byte(body)))
	return tokenEncoding.EncodeToString(sum[:])
}

// isWellFormed reports whether secret has the form of a token, and its checksum.
func isWellFormed(secret string) bool {
	return len(secret) == tokenLength && strings.HasPrefix(secret, tokenPrefix) &&
		checksum(secret[:checksumOffset]) == secret[checksumOffset:]
}

func hashOf(secret string) [sha256.Size]byte { return sha256.Sum256([]byte(secret)) }

// IsTokenID reports whether id has the form of a Token.ID, and not that of a whole
// token, which belongs in no command line and no path.
func IsTokenID(id string) bool {
	return len(id) == tokenIDLength && strings.HasPrefix(id, tokenPrefix) &&
		!strings.ContainsFunc(id[len(tokenPrefix):], func(r rune) bool { return r > unicode.MaxASCII || !strings.ContainsRune(tokenAlphabet, r) })
}

// issuedToken matches a whole token, wherever it stands.
var issuedToken = regexp.MustCompile(fmt.Sprintf("(%s[a-z2-7]{%d})[a-z2-7]{%d}", tokenPrefix, tokenIDLength-len(tokenPrefix), tokenLength-tokenIDLength))

// HideTokens returns text with no more than the ids of the issued tokens in it, for
// logs and error messages: somebody may have put a token where none belongs.
func HideTokens(text string) string {
	if !strings.Contains(text, tokenPrefix) { // as a rule, and faster
		return text
	}
	return issuedToken.ReplaceAllString(text, "$1…")
}
