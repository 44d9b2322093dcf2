package models_test

import (
	"errors"
	"strings"
	"testing"

	"plantstore/models"
)

func TestPlantValidate(t *testing.T) {
	for _, test := range []struct {
		rule  string
		plant models.Plant
		field string // at fault; empty: none
	}{
		{"a name of one character is enough", models.Plant{Name: "x"}, ""},
		{"zero is an id", models.Plant{ID: 0, Name: "x"}, ""},
		{"a name of 255 characters fits, whatever their bytes", models.Plant{Name: strings.Repeat("🌵", 255)}, ""},
		{"a name of 256 characters does not", models.Plant{Name: strings.Repeat("x", 256)}, "name"},
		{"an empty name is refused", models.Plant{Name: ""}, "name"},
		{"a name of spaces is refused", models.Plant{Name: "   "}, "name"},
		{"a name of Unicode's blanks is refused", models.Plant{Name: "\u00a0\u2003\u3000"}, "name"},
		{"blanks around a name stay", models.Plant{Name: " x "}, ""},
		{"NUL is refused", models.Plant{Name: "a\x00b"}, "name"},
		{"a newline is refused", models.Plant{Name: "a\nb"}, "name"},
		{"DEL is refused", models.Plant{Name: "a\x7fb"}, "name"},
		{"the C1 controls are refused", models.Plant{Name: "a\u0085b"}, "name"},
		{"text that is not UTF-8 is refused", models.Plant{Name: "a\xffb"}, "name"},
		{"the replacement character itself is text", models.Plant{Name: "a\ufffdb"}, ""},
		{"an empty tag is a tag", models.Plant{Name: "x", Tag: new("")}, ""},
		{"a tag of blanks is a tag", models.Plant{Name: "x", Tag: new("  ")}, ""},
		{"a tag of 255 characters fits", models.Plant{Name: "x", Tag: new(strings.Repeat("é", 255))}, ""},
		{"a tag of 256 characters does not", models.Plant{Name: "x", Tag: new(strings.Repeat("é", 256))}, "tag"},
		{"a tab in a tag is refused", models.Plant{Name: "x", Tag: new("a\tb")}, "tag"},
	} {
		t.Run(test.rule, func(t *testing.T) {
			err := test.plant.Validate()
			invalid, _ := errors.AsType[*models.InvalidError](err)
			switch {
			case test.field == "" && err != nil:
				t.Errorf("refused: %v", err)
			case test.field != "" && (invalid == nil || invalid.Field != test.field):
				t.Errorf("got %v, want a fault of %s", err, test.field)
			}
		})
	}
}
