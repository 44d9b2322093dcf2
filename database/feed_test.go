package database_test

import (
	"strings"
	"testing"

	"plantstore/database"
)

func TestParseCursor(t *testing.T) {
	for text, ok := range map[string]bool{
		"0": true, "abc.1": true, "abc.1.-5": true, "abc.0.5.7": true, "abc.0.-9223372036854775808.7": true,
		"": false, "1": false, "abc": false, ".1": false, "abc.-1": false, "abc.01": false, "abc.1.x": false, "abc.1.2.-3": false,
		"abc.1.2.3.4": false, "abc.1.2.0": false, strings.Repeat("a", 41) + ".1": false,
	} {
		t.Run(text, func(t *testing.T) {
			c, got := database.ParseCursor(text)
			if got != ok || ok && c.String() != text {
				t.Errorf("got %v, %v, want %v", c, got, ok)
			}
		})
	}
	// As the pattern in the OpenAPI document allows them, they are cursors of another database.
	for _, text := range []string{"abc.1.-9223372036854775808", "abc.1.9999999999999999999"} {
		t.Run(text, func(t *testing.T) {
			if _, ok := database.ParseCursor(text); !ok {
				t.Error("got no cursor")
			}
		})
	}
}
