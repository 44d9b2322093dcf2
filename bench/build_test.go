package main

import "testing"

// TestVariants: the texts that the edits replace are still in the source.
func TestVariants(t *testing.T) {
	for name, edits := range variants {
		t.Run(name, func(t *testing.T) {
			if _, err := edited("..", edits); err != nil {
				t.Error(err)
			}
		})
	}
}
