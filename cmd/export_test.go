package cmd

import (
	"io"
	"os"
	"path/filepath"
	"strings"
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

func TestLineCounter(t *testing.T) {
	for _, test := range []struct {
		name, text string
		csv        bool
		want       int
	}{
		{"CSV", "id,name\n1,a\n", true, 2},
		{"CSV with lines in a cell", "id,name\n1,\"a\n\"\"b\"\"\n\"\n2,c\n", true, 3},
		{"NDJSON with a quote", `{"name":"\""}` + "\n{}\n", false, 2},
	} {
		t.Run(test.name, func(t *testing.T) {
			lines := lineCounter{csv: test.csv}
			for part := range strings.SplitAfterSeq(test.text, "a") {
				_, _ = io.WriteString(&lines, part)
			}
			if lines.n != test.want {
				t.Errorf("got %d lines, want %d", lines.n, test.want)
			}
		})
	}
}
