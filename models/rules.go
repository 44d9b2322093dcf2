package models

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Rules has the rules of a model's columns, by the column's name. Each text has a rule. The OpenAPI
// document shows the same rules.
type Rules map[string]Rule

// Text returns the rule of a column that is a text.
func (r Rules) Text(column string) Text { return r[column].(Text) }

// Rule is the rule of a column: a [Text] or an [Integer].
type Rule interface {
	// Schema returns the rule in keywords of JSON Schema.
	Schema() map[string]any
	// kind returns the kind of the values.
	kind() reflect.Kind
	// check reports why value is not valid, as an *InvalidError that names field, or nil.
	check(field string, value reflect.Value) error
}

// Integer is the rule of an int64.
type Integer struct {
	Min, Max int64
}

// Schema implements [Rule].
func (i Integer) Schema() map[string]any { return map[string]any{"minimum": i.Min, "maximum": i.Max} }

func (Integer) kind() reflect.Kind { return reflect.Int64 }

func (i Integer) check(field string, value reflect.Value) error {
	if n := value.Int(); n < i.Min || n > i.Max {
		return invalid(field, "must be from %d to %d, not %d", i.Min, i.Max, n)
	}
	return nil
}

// Text is the rule of a text. The text is stored byte for byte: nothing is trimmed, folded
// or normalized.
type Text struct {
	Min, Max int  // length, in Unicode code points
	NotBlank bool // it must not be only white space
	// Match is the form of the whole text, if not nil; then the limits do not apply.
	Match *regexp.Regexp
}

// Check reports why text is not valid, as an *InvalidError that names field, or nil.
func (t Text) Check(field, text string) error {
	switch n := utf8.RuneCountInString(text); {
	case t.Match != nil && t.Match.MatchString(text):
		return nil
	case t.Match != nil:
		return invalid(field, "must match %s", t.Match)
	case n < t.Min || n > t.Max:
		return invalid(field, "must have %d to %d characters, not %d", t.Min, t.Max, n)
	case t.NotBlank && strings.TrimSpace(text) == "":
		return invalid(field, "must not be only white space")
	}
	return checkCharacters(field, text)
}

func (Text) kind() reflect.Kind { return reflect.String }

func (t Text) check(field string, value reflect.Value) error { return t.Check(field, value.String()) }

// The characters of a text, as in a regular expression of ECMA-262. White space is
// Unicode's White_Space property, as for [unicode.IsSpace].
const (
	noControls = `[^\u0000-\u001F\u007F-\u009F]`
	noSpaces   = `[^\u0000-\u0020\u007F-\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]`
)

// Part returns the rule of a text to search for in a text of t.
func (t Text) Part() Text { return Text{Min: 1, Max: t.Max} }

// Schema implements [Rule].
func (t Text) Schema() map[string]any {
	schema := map[string]any{"pattern": t.pattern()}
	if t.Min > 0 {
		schema["minLength"] = t.Min
	}
	if t.Max > 0 {
		schema["maxLength"] = t.Max
	}
	return schema
}

// pattern returns the regular expression (ECMA-262) that a text matches besides the
// limits of its length.
func (t Text) pattern() string {
	switch {
	case t.Match != nil:
		return t.Match.String()
	case t.NotBlank:
		return "^" + noControls + "*" + noSpaces + noControls + "*$"
	}
	return "^" + noControls + "*$"
}

// checkCharacters rejects control characters (Unicode category Cc, which includes NUL:
// PostgreSQL cannot store it) and text that is not UTF-8.
func checkCharacters(field, text string) error {
	character := 0
	for i, r := range text {
		character++
		if unicode.IsControl(r) {
			return invalid(field, "contains the control character U+%04X at character %d", r, character)
		}
		if r == utf8.RuneError {
			if _, size := utf8.DecodeRuneInString(text[i:]); size == 1 { // not a U+FFFD that the text has
				return invalid(field, "is not valid UTF-8 at character %d", character)
			}
		}
	}
	return nil
}

// InvalidError means that a value breaks a rule of its model.
type InvalidError struct {
	Field  string // the column, which is also the name that clients use
	Reason string // a predicate, for example "must not be empty"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}
