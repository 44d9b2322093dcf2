package models

import (
	"time"
	"unicode"
	"unicode/utf8"
)

// The limits of a plant's texts, in Unicode code points. The same numbers stand
// as CHECK constraints in database/migrations and as minLength and maxLength in
// the OpenAPI document.
const (
	MaxNameLength = 255
	MaxTagLength  = 255
)

// Plant is one row of the table plants.
type Plant struct {
	// ID is chosen by the client; every int64 is valid, zero and negatives
	// included. GORM would leave a zero key out of the INSERT and let the
	// database choose, hence autoIncrement:false.
	ID   int64 `gorm:"primaryKey;autoIncrement:false"`
	Name string
	// Tag is nil when the plant has none, which is not the same as an empty tag.
	Tag *string
	// CreatedAt and UpdatedAt are set by the store, to the microsecond. Every
	// write moves UpdatedAt forward, which makes it the version of the row.
	CreatedAt time.Time
	UpdatedAt time.Time
}

// Validate reports the first text that is outside its limits as an
// *InvalidError, or nil. Texts are stored as they are: nothing is trimmed,
// folded or normalised.
func (p *Plant) Validate() error {
	switch n := utf8.RuneCountInString(p.Name); {
	case n == 0:
		return invalid("name", "must not be empty")
	case n > MaxNameLength:
		return invalid("name", "has %d characters, at most %d are allowed", n, MaxNameLength)
	case isBlank(p.Name):
		return invalid("name", "must not be only blanks")
	}
	if err := checkCharacters("name", p.Name); err != nil {
		return err
	}
	if p.Tag == nil {
		return nil
	}
	return checkText("tag", *p.Tag, MaxTagLength)
}

// SameContent reports whether p and other have the same name and the same tag,
// which makes a second attempt to create p a repetition and not a conflict.
func (p *Plant) SameContent(other *Plant) bool {
	if p.Name != other.Name || (p.Tag == nil) != (other.Tag == nil) {
		return false
	}
	return p.Tag == nil || *p.Tag == *other.Tag
}

// checkText refuses text of more than most characters, and what checkCharacters does.
func checkText(field, text string, most int) error {
	if n := utf8.RuneCountInString(text); n > most {
		return invalid(field, "has %d characters, at most %d are allowed", n, most)
	}
	return checkCharacters(field, text)
}

// checkCharacters refuses control characters (Unicode category Cc, NUL included:
// PostgreSQL cannot store it) and text that is not UTF-8.
func checkCharacters(field, text string) error {
	offset := 0
	for i, r := range text {
		if unicode.IsControl(r) {
			return invalid(field, "has the control character U+%04X at character %d", r, offset+1)
		}
		if r == utf8.RuneError && !utf8.ValidString(text[i:]) {
			return invalid(field, "is not valid UTF-8 at character %d", offset+1)
		}
		offset++
	}
	return nil
}

// isBlank reports whether text has nothing but white space, as Unicode's
// White_Space property defines it.
func isBlank(text string) bool {
	for _, r := range text {
		if !unicode.IsSpace(r) {
			return false
		}
	}
	return true
}
