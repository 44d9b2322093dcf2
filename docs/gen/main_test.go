package main

import (
	"bytes"
	"os"
	"testing"
)

func TestGeneratedFilesAreFresh(t *testing.T) {
	t.Chdir("../..")
	files, err := generate()
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range files {
		t.Run(name, func(t *testing.T) {
			if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, want) {
				t.Errorf("%s is out of date (%v): run make docs and commit it", name, err)
			}
		})
	}
}
