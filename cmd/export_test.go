package cmd

import (
	"io"
	"os"
	"path/filepath"
	"testing"
)

// TestWriteFileKeepsPermissions: an export that replaces a private file is private, too.
func TestWriteFileKeepsPermissions(t *testing.T) {
	path := filepath.Join(t.TempDir(), "plants.csv")
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := writeFile(path, func(w io.Writer) error {
		_, err := io.WriteString(w, "id,name,tag\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	if got := info.Mode(); got != 0o600 || info.Size() == 0 {
		t.Errorf("got mode %v and %d bytes, want mode 600", got, info.Size())
	}
}
