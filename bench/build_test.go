package main

import "testing"

// TestVariants: the texts that the edits replace are still in the source.
func TestVariants(t *testing.T) {
	for name, edits := range variants {
		t.Run(name, func(t *testing.T) {
			for _, e := range edits {
				if _, err := e.apply(".."); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
