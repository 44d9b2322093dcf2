// Package models holds what is stored and how: the GORM models, the rules their
// values obey, and one store for each that runs its queries. It knows nothing of
// HTTP.
package models

import (
	"errors"
	"fmt"

	"plantstore/database"
)

// ErrUnavailable says that the database could not be reached, or did not answer
// in time. The outcome of a write is then unknown: it may have been stored.
var ErrUnavailable = errors.New("the database is unavailable")

// ErrNotFound says that there is no such row.
var ErrNotFound = errors.New("not found")

// ErrTokenNotFound says that there is no such token, or that it was revoked before.
var ErrTokenNotFound = fmt.Errorf("token %w", ErrNotFound)

// ErrOverloaded says that too much is waiting for the database. Nothing was stored.
var ErrOverloaded = errors.New("too much is waiting")

// ErrCondition says that a [Condition] does not hold. Nothing was written.
var ErrCondition = errors.New("the condition does not hold")

// InvalidError says that a value breaks a rule of its model.
type InvalidError struct {
	Field  string // as clients name it, such as "name"
	Reason string // a predicate, such as "must not be empty"
}

func (e *InvalidError) Error() string { return e.Field + " " + e.Reason }

func invalid(field, format string, args ...any) error {
	return &InvalidError{Field: field, Reason: fmt.Sprintf(format, args...)}
}

// ExistsError says that an id is taken. The stored row is untouched.
type ExistsError struct {
	ID int64
	// Same is true when the stored row has the same content as the one that was
	// to be created: an earlier attempt at the same thing has won.
	Same bool
}

func (e *ExistsError) Error() string {
	if e.Same {
		return fmt.Sprintf("id %d exists with the same content", e.ID)
	}
	return fmt.Sprintf("id %d exists with other content", e.ID)
}

// storeError gives an error of the database the context in which it happened,
// and marks it with ErrUnavailable where trying again may help. No error stays
// none.
func storeError(doing string, err error) error {
	if err == nil {
		return nil
	}
	if database.IsUnavailable(err) {
		return fmt.Errorf("%s: %w: %w", doing, ErrUnavailable, err)
	}
	return fmt.Errorf("%s: %w", doing, err)
}
