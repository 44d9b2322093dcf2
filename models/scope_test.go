package models

import (
	"slices"
	"testing"
)

func TestScopes(t *testing.T) {
	known := KnownScopes([]string{"admin", "plants:read", "openid", "admin"})
	if known.String() != "plants:read admin" {
		t.Errorf("known are %q", known)
	}
	var read Scopes
	if err := read.Scan("plants:write  plants:read"); err != nil || !slices.Equal(read, Scopes{ScopeRead, ScopeWrite}) {
		t.Errorf("%v, %v", read, err)
	}
	if err := read.Scan(5); err == nil {
		t.Error("a number is read as scopes")
	}
}
