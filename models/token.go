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
)

// A token is a prefix, 40 random characters of 5 bits each, and a checksum. Secret
// scanners find a leaked token by its prefix; the checksum rejects a mistyped token
// without a look-up. The id is its first TokenIDLength characters.
const (
	tokenPrefix    = "pst_"
	tokenRandom    = 40
	tokenChecksum  = 7                    // 32 bits
	TokenIDLength  = len(tokenPrefix) + 8 // leaves 160 bits secret
	checksumOffset = len(tokenPrefix) + tokenRandom
	tokenLength    = checksumOffset + tokenChecksum
)

var tokenEncoding = base32.NewEncoding("abcdefghijklmnopqrstuvwxyz234567").WithPadding(base32.NoPadding)

// TokenID matches the id of a token. SecretPart matches a token in a text, whole or cut off, if
// it has more than the id. onlyToken matches a text that is a token, whatever its checksum.
var (
	TokenID    = regexp.MustCompile(fmt.Sprintf("^%s[a-z2-7]{%d}$", tokenPrefix, TokenIDLength-len(tokenPrefix)))
	SecretPart = regexp.MustCompile(fmt.Sprintf("%s[a-z2-7]{%d,}", tokenPrefix, TokenIDLength-len(tokenPrefix)+1))
	onlyToken  = regexp.MustCompile(fmt.Sprintf("^%s[a-z2-7]{%d}$", tokenPrefix, tokenLength-len(tokenPrefix)))
)

// Token is a row of the table tokens: an issued bearer token. Only its SHA-256 is
// stored; it has enough random bits to need no slower hash.
type Token struct {
	ID         string `gorm:"primaryKey"` // the token's first characters
	Name       string // its owner or purpose; not unique
	Hash       []byte
	Scopes     Scopes
	CreatedAt  time.Time
	ExpiresAt  *time.Time // nil if the token does not expire
	RevokedAt  *time.Time
	LastUsedAt *time.Time // recorded once a minute
}

// Rules returns the rules of the texts, and of the token itself.
func (Token) Rules() Rules {
	return Rules{
		"id":    Text{Match: TokenID},
		"name":  Text{Min: 1, Max: 100, NotBlank: true},
		"token": Text{Match: onlyToken},
	}
}

// Validate reports the first value that breaks a rule as an *InvalidError, or nil.
func (t *Token) Validate(now time.Time) error {
	if err := t.Rules().Text("name").Check("name", t.Name); err != nil {
		return err
	}
	if t.ExpiresAt != nil && !t.ExpiresAt.After(now) {
		return invalid("expires_at", "must be in the future")
	}
	if t.ExpiresAt != nil && t.ExpiresAt.UTC().Year() > 9999 { // the last of RFC 3339
		return invalid("expires_at", "must be before the year 10000")
	}
	return t.Scopes.validate()
}

// rfc3339 matches a time of RFC 3339. [time.Parse] alone also accepts other forms:
// 1:00:00 and 01:00:00,5 (https://go.dev/issue/54580).
var rfc3339 = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]([01]\d|2[0-3]):[0-5]\d)$`)

// ParseTime parses a time of RFC 3339, in which T and Z may be in lower case, to the microsecond. It fails
// with an *InvalidError that names field.
func ParseTime(field, text string) (time.Time, error) {
	text = strings.ToUpper(text)
	t, err := time.Parse(time.RFC3339, text)
	t = t.UTC().Truncate(time.Microsecond)
	if err != nil || !rfc3339.MatchString(text) || t.Year() < 0 || t.Year() > 9999 {
		return t, invalid(field, "must be a time of RFC 3339 in the years 0 to 9999 of UTC, such as 2099-12-31T00:00:00Z")
	}
	return t, nil
}

// Expired reports whether the token has expired.
func (t *Token) Expired(now time.Time) bool { return t.ExpiresAt != nil && !now.Before(*t.ExpiresAt) }

func newSecret() string {
	body := tokenPrefix + strings.ToLower(rand.Text() + rand.Text())[:tokenRandom]
	return body + checksum(body)
}

// checksum returns the CRC-32 (IEEE 802.3) of body.
func checksum(body string) string {
	return tokenEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, crc32.ChecksumIEEE([]byte(body))))
}

// HashToken returns the SHA-256 of a token, or false if secret does not have the form
// of a token, with its checksum.
func HashToken(secret string) (hash [sha256.Size]byte, ok bool) {
	if len(secret) != tokenLength || !strings.HasPrefix(secret, tokenPrefix) || checksum(secret[:checksumOffset]) != secret[checksumOffset:] {
		return hash, false
	}
	return sha256.Sum256([]byte(secret)), true
}
