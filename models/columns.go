package models

import (
	"database/sql/driver"
	"fmt"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/database/table"
)

// The types of fields that are texts in Go, and of another type in a database. A rule gives each value the
// form that both databases return.
type (
	// Day is a date. Its rule is [Date].
	Day string
	// Number is an exact decimal number, without zeros at its end. Its rule is [Decimal].
	Number string
	// JSON is a value in JSON, with sorted names. Its rule is [Object] or [List].
	JSON string
	// ID is the key of a row, which the server makes if a client sends no id, or a reference to it. The rule of the
	// key is [UUID].
	ID string
)

// Scan reads a date of PostgreSQL, or a text.
func (d *Day) Scan(value any) error {
	if t, ok := value.(time.Time); ok {
		value = t.Format(time.DateOnly)
	}
	*d = Day(fmt.Sprint(value))
	return nil
}

// Scan reads a numeric of PostgreSQL, or a number of SQLite.
func (n *Number) Scan(value any) error {
	if f, ok := value.(float64); ok {
		value = strconv.FormatFloat(f, 'f', -1, 64)
	}
	*n = Number(trimZeros(fmt.Sprint(value)))
	return nil
}

// trimZeros removes the zeros at the end of a fraction, and the sign of 0.
func trimZeros(number string) string {
	if strings.Contains(number, ".") {
		number = strings.TrimSuffix(strings.TrimRight(number, "0"), ".")
	}
	if number == "-0" {
		return "0"
	}
	return number
}

// Value returns j as it is: pgx would write escapes.
func (j JSON) Value() (driver.Value, error) { return string(j), nil }

// MarshalJSON returns the value itself.
func (j JSON) MarshalJSON() ([]byte, error) { return []byte(j), nil }

// UnmarshalJSON accepts every value: the rule checks it.
func (j *JSON) UnmarshalJSON(text []byte) error {
	*j = JSON(text)
	return nil
}

// OneOf is the rule of a string that is one of values.
func OneOf(values ...string) Text {
	return Text{Says: "one of " + strings.Join(values, ", "), schema: map[string]any{"enum": values}, form: func(text string) string {
		if !slices.Contains(values, text) {
			return ""
		}
		return text
	}}
}

// URL is the rule of a string that is the address of a web page, of at most most characters.
func URL(most int) Text {
	return Text{
		Max: most, Says: fmt.Sprintf("an address of at most %d characters that starts with http:// or https://", most),
		Match: regexp.MustCompile(`^https?://[0-9A-Za-z.-]+(:[0-9]+)?([/?#]([!$&-;=?-Z_a-z~#]|%[0-9A-Fa-f]{2})*)?$`),
	}
}

// UUID is the rule of a string that is a UUID (RFC 9562), in lower case.
func UUID() Text {
	return Text{
		Says: "a UUID in lower case, such as 0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e", sql: table.Type{Postgres: "uuid", SQLite: "TEXT"},
		Match: UUIDForm,
	}
}

// UUIDForm matches a UUID in lower case (RFC 9562).
var UUIDForm = regexp.MustCompile(`^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$`)

// Date is the rule of a [Day].
func Date() Text {
	return Text{
		Says: "a date from 0001-01-01 to 9999-12-31", of: reflect.TypeFor[Day](), sql: table.Type{Postgres: "date", SQLite: "TEXT"},
		schema: map[string]any{"type": "string", "format": "date"}, form: func(text string) string {
			if t, err := time.Parse(time.DateOnly, text); err != nil || t.Year() == 0 {
				return ""
			}
			return text
		},
	}
}

// Decimal is the rule of a [Number] with digits before the point, and at most 15 in all: so many are exact
// in SQLite's numbers, which sort.
func Decimal(before, after int) Text {
	if before+after > 15 {
		panic("a decimal number has at most 15 digits")
	}
	match := regexp.MustCompile(fmt.Sprintf(`^-?(0|[1-9][0-9]{0,%d})([.][0-9]{1,%d})?$`, before-1, after))
	return Text{
		Says:   fmt.Sprintf("a decimal number with at most %d digits before and %d after the point", before, after),
		of:     reflect.TypeFor[Number](),
		sql:    table.Type{Postgres: fmt.Sprintf("numeric(%d,%d)", before+after, after), SQLite: "NUMERIC"},
		schema: map[string]any{"type": "string", "pattern": match.String()},
		form:   func(text string) string { return trimZeros(match.FindString(text)) },
	}
}

// Object is the rule of a [JSON] that is an object of at most most bytes.
func Object(most int) Text {
	return jsonText(fmt.Sprintf("an object of at most %d bytes, without U+0000", most), map[string]any{"type": "object"}, func(text string) bool {
		return strings.HasPrefix(text, "{") && len(text) <= most && !nul.MatchString(text)
	})
}

// List is the rule of a [JSON] that is an array of at most most texts with the rule each.
func List(most int, each Text) Text {
	items := each.Schema()
	items["type"] = "string"
	schema := map[string]any{"type": "array", "maxItems": most, "items": items}
	return jsonText(fmt.Sprintf("an array of at most %d texts, which are valid", most), schema, func(text string) bool {
		var texts []*string
		return json.Unmarshal([]byte(text), &texts) == nil && len(texts) <= most && text != "null" &&
			!slices.ContainsFunc(texts, func(text *string) bool { return text == nil || each.Check("", *text) != nil })
	})
}

// nul matches a U+0000 in JSON, which PostgreSQL can store but not read.
var nul = regexp.MustCompile(`(^|[^\\])(\\\\)*\\u0000`)

// jsonText returns the rule of a [JSON] for which isValid holds. It is not a jsonb, which would change numbers.
func jsonText(says string, schema map[string]any, isValid func(string) bool) Text {
	return Text{Says: says, of: reflect.TypeFor[JSON](), sql: table.Type{Postgres: "json", SQLite: "TEXT"}, schema: schema, form: func(text string) string {
		value := jsontext.Value(text)
		if value.Format(jsontext.ReorderRawObjects(true)) != nil || !isValid(string(value)) {
			return ""
		}
		return string(value)
	}}
}
