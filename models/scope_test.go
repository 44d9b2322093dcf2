package models

import (
	"slices"
	"testing"
)

func TestScopes(t *testing.T) {
	t.Run("unknown and repeated names are dropped", func(t *testing.T) {
		if got := KnownScopes([]string{"admin", "plants:read", "openid", "admin"}).String(); got != "plants:read admin" {
			t.Errorf("got %q, want plants:read admin", got)
		}
	})
	var read Scopes
	t.Run("a text is read", func(t *testing.T) {
		if err := read.Scan("plants:write  plants:read"); err != nil || !slices.Equal(read, Scopes{ScopePlantsRead, ScopePlantsWrite}) {
			t.Errorf("got %v, %v", read, err)
		}
	})
	t.Run("a number is rejected", func(t *testing.T) {
		if err := read.Scan(5); err == nil {
			t.Error("got nil, want an error")
		}
	})
}
