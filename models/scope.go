package models

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
)

// Scope is a right that a bearer token gives.
type Scope string

// The scopes there are.
const (
	ScopeRead  Scope = "plants:read"
	ScopeWrite Scope = "plants:write"
	ScopeAdmin Scope = "admin" // implies the others
)

// Scopes are the rights that a bearer token gives. In the database they are one
// text, separated by blanks.
type Scopes []Scope

// AllScopes returns every scope.
func AllScopes() Scopes { return Scopes{ScopeRead, ScopeWrite, ScopeAdmin} }

// Allow reports whether s has what needs scope.
func (s Scopes) Allow(scope Scope) bool {
	return slices.Contains(s, scope) || slices.Contains(s, ScopeAdmin)
}

// String returns the scopes separated by blanks, as RFC 6749, section 3.3, has them.
func (s Scopes) String() string { return strings.Join(s.Names(), " ") }

// Value is what the database stores.
func (s Scopes) Value() (driver.Value, error) { return s.String(), nil }

// Scan reads what the database has stored.
func (s *Scopes) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("scopes of type %T", value)
	}
	*s = KnownScopes(strings.Fields(text))
	return nil
}

// KnownScopes returns those of names that are scopes, each once.
func KnownScopes(names []string) Scopes {
	return slices.DeleteFunc(AllScopes(), func(s Scope) bool { return !slices.Contains(names, string(s)) })
}

// validate reports scopes that there are not, or that there are none.
func (s Scopes) validate() error {
	for _, scope := range s {
		if !slices.Contains(AllScopes(), scope) {
			return invalid("scopes", "must be of %s", strings.Join(AllScopes().Names(), ", "))
		}
	}
	if len(s) == 0 {
		return invalid("scopes", "must not be empty: there are %s", strings.Join(AllScopes().Names(), ", "))
	}
	return nil
}

// Names returns the scopes as texts.
func (s Scopes) Names() []string {
	names := make([]string, len(s))
	for i, scope := range s {
		names[i] = string(scope)
	}
	return names
}
