package models

import (
	"errors"
	"reflect"
	"regexp"
	"strconv"
	"testing"
)

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

// TestIntegerRule: what a rule accepts is what its schema says.
func TestIntegerRule(t *testing.T) {
	rule := Integer{Min: -5, Max: 400}
	least, most := rule.Schema()["minimum"].(int64), rule.Schema()["maximum"].(int64)
	for n, field := range map[int64]string{least - 1: "height", least: "", 0: "", most: "", most + 1: "height"} {
		t.Run(strconv.FormatInt(n, 10), func(t *testing.T) {
			checkField(t, rule.check("height", reflect.ValueOf(&n).Elem()), field)
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
