package models

import (
	"errors"
	"fmt"
)

// NotFoundError means that a row does not exist.
type NotFoundError struct {
	Noun string // for the row, such as "plant"
}

func (e *NotFoundError) Error() string { return "no such " + e.Noun }

// ExistsError means that a key is taken. The stored row is unchanged.
type ExistsError struct {
	Noun string // for the row, such as "plant"
	Key  any
	// Same is true if the stored row has the same content as the new one: an earlier
	// attempt succeeded.
	Same bool
}

func (e *ExistsError) Error() string {
	content := "different"
	if e.Same {
		content = "the same"
	}
	return fmt.Sprintf("%s %v exists with %s content", e.Noun, e.Key, content)
}

// ErrCondition means that a [Condition] does not hold. Nothing was written.
var ErrCondition = errors.New("the condition does not hold")
