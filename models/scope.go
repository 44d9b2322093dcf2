package models

import (
	"database/sql/driver"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Scope is a right that a bearer token gives.
type Scope string // @name Scope

// ScopeAdmin implies all other scopes.
const ScopeAdmin Scope = "admin"

// ReadScope returns the scope for reads of the resource name.
func ReadScope(name string) Scope { return Scope(name + ":read") }

// WriteScope returns the scope for writes of the resource name.
func WriteScope(name string) Scope { return Scope(name + ":write") }

// Scopes are the rights that a bearer token gives. The database stores them as a single
// text, separated by spaces.
type Scopes []Scope

// AllScopes returns every scope.
func AllScopes() Scopes { return slices.Clone(allScopes()) }

var allScopes = sync.OnceValue(func() (all Scopes) {
	for _, t := range Tables() {
		all = append(all, ReadScope(t.Name), WriteScope(t.Name))
	}
	return append(all, ScopeAdmin)
})

// DefaultScopes returns the scopes of a token without scopes of its own: all but ScopeAdmin.
func DefaultScopes() Scopes {
	return slices.DeleteFunc(AllScopes(), func(s Scope) bool { return s == ScopeAdmin })
}

// Allow reports whether s includes scope.
func (s Scopes) Allow(scope Scope) bool {
	return slices.Contains(s, scope) || slices.Contains(s, ScopeAdmin)
}

// String returns the scopes separated by spaces (RFC 6749, section 3.3).
func (s Scopes) String() string { return strings.Join(s.Names(), " ") }

// Value returns the text for the database.
func (s Scopes) Value() (driver.Value, error) { return s.String(), nil }

// Scan reads the text from the database.
func (s *Scopes) Scan(value any) error {
	text, ok := value.(string)
	if !ok {
		return fmt.Errorf("scopes of type %T", value)
	}
	*s = KnownScopes(strings.Fields(text))
	return nil
}

// KnownScopes returns the names that are scopes, each once.
func KnownScopes(names []string) Scopes {
	return slices.DeleteFunc(AllScopes(), func(s Scope) bool { return !slices.Contains(names, string(s)) })
}

// validate rejects unknown scopes, and an empty list.
func (s Scopes) validate() error {
	unknown := slices.ContainsFunc(s, func(scope Scope) bool { return !slices.Contains(AllScopes(), scope) })
	if unknown || len(s) == 0 {
		return invalid("scopes", "must be one or more of %s", strings.Join(AllScopes().Names(), ", "))
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
