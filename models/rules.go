package models

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"regexp"
	"strings"
	"unicode"
	"unicode/utf8"

	"plantstore/database/table"
)

// Rules has the rules of a model's columns, by the column's name. Each text has a rule. The OpenAPI
// document shows the same rules.
type Rules map[string]Rule

// Text returns the rule of a column that is a text.
func (r Rules) Text(column string) Text { return Base(r[column]).(Text) }

// Ref returns the rule of a column that is a reference.
func (r Rules) Ref(column string) (ref Ref, ok bool) {
	ref, ok = Base(r[column]).(Ref)
	return ref, ok
}

// Server reports whether the server sets column.
func (r Rules) Server(column string) bool {
	_, server, _ := unwrap(r[column])
	return server
}

// Unique reports whether the values of column are unique.
func (r Rules) Unique(column string) bool {
	_, _, unique := unwrap(r[column])
	return unique
}

// Base returns rule without [Unique] and [Server]. It may be nil.
func Base(rule Rule) Rule {
	base, _, _ := unwrap(rule)
	return base
}

// unwrap returns the rule within [Server] and [Unique], and which of them are around it.
func unwrap(rule Rule) (base Rule, server, unique bool) {
	for {
		switch wrapper := rule.(type) {
		case Server:
			rule, server = wrapper.Rule, true
		case Unique:
			rule, unique = wrapper.Rule, true
		default:
			return rule, server, unique
		}
	}
}

// Rule decides what a column holds: its type in the database, its values, and what the documents say of
// them. JSON, CSV and the files of imports follow from the field's Go type.
type Rule interface {
	// Schema returns the rule in keywords of JSON Schema.
	Schema() map[string]any
	// SQL returns the type of the column.
	SQL() table.Type
	// fits reports whether a field of type t can have the rule.
	fits(t reflect.Type) bool
	// check reports why value is not valid, as an *InvalidError that names field, or nil. If a value has
	// several forms, check sets it to the form that the database returns.
	check(field string, value reflect.Value) error
}

// Check reports why value breaks rule, which may be nil, as an *InvalidError that names field, or nil.
func Check(rule Rule, field string, value reflect.Value) error {
	if rule = Base(rule); rule == nil {
		return nil
	}
	return rule.check(field, value)
}

// Server is the rule of a column that the server sets: clients see the column and may send it back, but
// cannot change it. Rule is what the values follow, if anything. A new row gets the value of its field or, if
// that is zero, the constant in the field's tag default.
type Server struct{ Rule }

// Schema implements [Rule].
func (s Server) Schema() map[string]any {
	schema := make(map[string]any)
	if s.Rule != nil {
		schema = s.Rule.Schema()
	}
	schema["readOnly"] = true
	return schema
}

// Ref is the rule of a column with the key of a row of the model To, which must exist, or nil. A migration
// declares the reference in the database, which enforces it.
type Ref struct{ To Model }

// Schema implements [Rule].
func (r Ref) Schema() map[string]any {
	return map[string]any{"x-references": table.OfModel(r.To).Name}
}

// SQL implements [Rule].
func (r Ref) SQL() table.Type {
	key := table.OfModel(r.To).Key
	if rule := r.To.Rules()[key.DBName]; rule != nil {
		return rule.SQL()
	}
	return key.Type
}

func (r Ref) fits(t reflect.Type) bool { return t == table.OfModel(r.To).Key.FieldType }

func (Ref) check(field string, value reflect.Value) error {
	if value.Type() == reflect.TypeFor[ID]() {
		return UUID().Check(field, value.String())
	}
	return nil
}

// Unique is Rule for a column whose values are unique in the table. A migration declares that in the database,
// which enforces it.
type Unique struct{ Rule }

// Schema implements [Rule].
func (u Unique) Schema() map[string]any {
	schema := u.Rule.Schema()
	schema["x-unique"] = true
	return schema
}

// Range is the rule of a number: an [Integer] or a [Float].
type Range[N int64 | float64] struct{ Min, Max N }

// Integer is the rule of an int64.
type Integer = Range[int64]

// Float is the rule of a float64.
type Float = Range[float64]

// Schema implements [Rule].
func (r Range[N]) Schema() map[string]any { return map[string]any{"minimum": r.Min, "maximum": r.Max} }

// SQL implements [Rule].
func (Range[N]) SQL() table.Type { return table.Types[reflect.TypeFor[N]()] }

func (Range[N]) fits(t reflect.Type) bool { return t == reflect.TypeFor[N]() }

func (r Range[N]) check(field string, value reflect.Value) error {
	n := value.Addr().Interface().(*N)
	if *n < r.Min || *n > r.Max || math.IsNaN(float64(*n)) {
		return invalid(field, "must be from %v to %v, not %v", r.Min, r.Max, *n)
	}
	if *n == 0 && math.Signbit(float64(*n)) {
		*n = 0 // both databases return it so
	}
	return nil
}

// Text is the rule of a text. The text is stored byte for byte: nothing is trimmed, folded
// or normalized.
type Text struct {
	Min, Max int  // length, in Unicode code points
	NotBlank bool // it must not be only white space
	Lines    bool // it may have line feeds and tabs
	// Match is the form of the whole text, if not nil; then only Max applies, unless it is 0.
	Match *regexp.Regexp
	Says  string // what Match matches, in words: "two capital letters"

	// What the rules in columns.go are.
	of     reflect.Type // of the field, if it is not a string
	sql    table.Type
	schema map[string]any
	form   func(text string) string // returns the form of a valid text that the database returns, or ""
}

// Check reports why text is not valid, as an *InvalidError that names field, or nil.
func (t Text) Check(field, text string) error {
	switch n := utf8.RuneCountInString(text); {
	case t.form != nil && t.form(text) != "", t.Match != nil && t.Match.MatchString(text) && (t.Max == 0 || n <= t.Max):
		return nil
	case t.Says != "":
		return invalid(field, "must be %s", t.Says)
	case t.Match != nil:
		return invalid(field, "must match %s", t.Match)
	case n < t.Min || n > t.Max:
		return invalid(field, "must have %d to %d characters, not %d", t.Min, t.Max, n)
	case t.NotBlank && strings.TrimSpace(text) == "":
		return invalid(field, "must not be only white space")
	}
	return t.checkCharacters(field, text)
}

// SQL implements [Rule].
func (t Text) SQL() table.Type { return cmp.Or(t.sql, table.Text) }

func (t Text) fits(field reflect.Type) bool {
	return field == t.of || t.of == nil && field.Kind() == reflect.String && (field != reflect.TypeFor[ID]() || t.Match == UUIDForm)
}

func (t Text) check(field string, value reflect.Value) error {
	err := t.Check(field, value.String())
	if err == nil && t.form != nil {
		value.SetString(t.form(value.String()))
	}
	return err
}

// The characters of a text, as in a regular expression of ECMA-262. White space is
// Unicode's White_Space property, as for [unicode.IsSpace].
const (
	noControls = `[^\u0000-\u001F\u007F-\u009F]`
	lines      = `[^\u0000-\u0008\u000B-\u001F\u007F-\u009F]`
	noSpaces   = `[^\u0000-\u0020\u007F-\u00A0\u1680\u2000-\u200A\u2028\u2029\u202F\u205F\u3000]`
)

// Part returns the rule of a text to search for in a text of t.
func (t Text) Part() Text { return Text{Min: 1, Max: cmp.Or(t.Max, 255)} }

// Schema implements [Rule].
func (t Text) Schema() map[string]any {
	schema := map[string]any{"pattern": t.pattern()}
	if t.schema != nil {
		schema = maps.Clone(t.schema)
	}
	if t.Says != "" {
		schema["description"] = t.Says
	}
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
	characters := noControls
	if t.Lines {
		characters = lines
	}
	switch {
	case t.Match != nil:
		return t.Match.String()
	case t.NotBlank:
		return "^" + characters + "*" + noSpaces + characters + "*$"
	}
	return "^" + characters + "*$"
}

// checkCharacters rejects control characters (Unicode category Cc, which includes NUL:
// PostgreSQL cannot store it) and text that is not UTF-8.
func (t Text) checkCharacters(field, text string) error {
	character := 0
	for i, r := range text {
		character++
		if unicode.IsControl(r) && (!t.Lines || r != '\n' && r != '\t') {
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
