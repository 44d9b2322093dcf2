package models

import (
	"errors"
	"regexp"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore/database"
)

func TestPlantRules(t *testing.T) {
	table := database.TableOf[Plant]()
	store := Store[Plant, int64]{reader: &reader[Plant, int64]{table: table}, rules: Plant{}.Rules()}
	for _, test := range []struct {
		name  string
		plant Plant
		field string // that is invalid, if any
	}{
		{"a name of one character is valid", Plant{Name: "x"}, ""},
		{"zero is an id", Plant{ID: 0, Name: "x"}, ""},
		{"a name may have 255 characters, not bytes", Plant{Name: strings.Repeat("🌵", 255)}, ""},
		{"a name must not have 256 characters", Plant{Name: strings.Repeat("x", 256)}, "name"},
		{"a name must not be empty", Plant{Name: ""}, "name"},
		{"a name must not be only spaces", Plant{Name: "   "}, "name"},
		{"a name must not be only Unicode white space", Plant{Name: "\u00a0\u2003\u3000"}, "name"},
		{"spaces around a name are valid", Plant{Name: " x "}, ""},
		{"NUL is invalid", Plant{Name: "a\x00b"}, "name"},
		{"a newline is invalid", Plant{Name: "a\nb"}, "name"},
		{"DEL is invalid", Plant{Name: "a\x7fb"}, "name"},
		{"the C1 controls are invalid", Plant{Name: "a\u0085b"}, "name"},
		{"text that is not UTF-8 is invalid", Plant{Name: "a\xffb"}, "name"},
		{"the replacement character is valid", Plant{Name: "a\ufffdb"}, ""},
		{"a tag may be empty", Plant{Name: "x", Tag: new("")}, ""},
		{"a tag may be only spaces", Plant{Name: "x", Tag: new("  ")}, ""},
		{"a tag may have 255 characters", Plant{Name: "x", Tag: new(strings.Repeat("é", 255))}, ""},
		{"a tag must not have 256 characters", Plant{Name: "x", Tag: new(strings.Repeat("é", 256))}, "tag"},
		{"a tab in a tag is invalid", Plant{Name: "x", Tag: new("a\tb")}, "tag"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkField(t, store.validate(&test.plant, table.Data), test.field)
		})
	}
}

// TestInvalidUTF8: the message gives the place of the first invalid byte, which a U+FFFD is not.
func TestInvalidUTF8(t *testing.T) {
	err := Text{Max: 9}.Check("name", "\ufffda\xff")
	if want := "name is not valid UTF-8 at character 3"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}

func TestTextCheck(t *testing.T) {
	light := Text{Match: regexp.MustCompile("^(low|bright)$")}
	for _, test := range []struct {
		name, text string
		rule       Text
		field      string // that is invalid, if any
	}{
		{"a text that matches", "low", light, ""},
		{"a text that does not match", "Low", light, "light"},
		{"an empty text that does not match", "", light, "light"},
		{"a text of the least length", "äb", Text{Min: 2, Max: 3}, ""},
		{"a shorter text", "ä", Text{Min: 2, Max: 3}, "light"},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkField(t, test.rule.Check("light", test.text), test.field)
		})
	}
}

// TestTextPattern compares Pattern to Check over Unicode's first plane, which has every
// space and control character, and the last character.
func TestTextPattern(t *testing.T) {
	for name, rule := range map[string]Text{"a blank text is valid": {Max: 9}, "a blank text is invalid": {Max: 9, NotBlank: true}} {
		t.Run(name, func(t *testing.T) {
			// ECMA-262 writes \uXXXX, Go \x{XXXX}.
			pattern := regexp.MustCompile(regexp.MustCompile(`\\u([0-9A-F]{4})`).ReplaceAllString(rule.Pattern(), `\x{$1}`))
			for r := rune(0); r <= 0x10000; r++ {
				if r == 0x10000 {
					r = utf8.MaxRune
				}
				if !utf8.ValidRune(r) {
					continue
				}
				for _, text := range []string{string(r), "a" + string(r), string(r) + "a"} {
					if got, want := pattern.MatchString(text), rule.Check("x", text) == nil; got != want {
						t.Errorf("%q: the pattern says %v, Check %v", text, got, want)
					}
				}
			}
		})
	}
}

// checkField fails the test unless err is an *InvalidError that names field or, if that
// is empty, nil.
func checkField(t *testing.T, err error, field string) {
	t.Helper()
	if invalid, ok := errors.AsType[*InvalidError](err); ok != (field != "") || err != nil && !ok || ok && invalid.Field != field {
		t.Errorf("got %v, want field %q as invalid", err, field)
	}
}
