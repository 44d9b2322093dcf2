//go:build recipe

package recipe

import (
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestRename renames the module in a copy of the repository, and installs the program by its new name.
func TestRename(t *testing.T) {
	folder := copyRepository(t)
	root := service.Absolute(t, "../..")
	run(t, folder, "cp -r "+root+"/Makefile "+root+"/.ci "+root+"/.golangci.yml . && make rename MODULE=example.org/garden/plant-store")
	run(t, folder, "go list -tags nomsgpack,recipe -test -deps ./... && gofmt -l . | diff - /dev/null")
	run(t, folder, "GOBIN=$PWD/bin go install -tags nomsgpack example.org/garden/plant-store")
	// Without the flags for which all dependencies would be compiled once more.
	run(t, folder, "make -n --no-print-directory build VERSION=1.2.3 BINARY=bin/built | sed 's/CGO_ENABLED=0//; s/-trimpath//' | sh")
	for program, want := range map[string]string{"plant-store": "plantstore ", "built": "plantstore 1.2.3 "} {
		t.Run(program, func(t *testing.T) {
			version, err := exec.CommandContext(t.Context(), filepath.Join(folder, "bin", program), "--version").Output()
			if err != nil || !strings.HasPrefix(string(version), want) {
				t.Errorf("got %q and %v, want %s…", version, err, want)
			}
		})
	}
	if out, err := exec.CommandContext(t.Context(), "make", "-C", folder, "rename", "MODULE=no path").CombinedOutput(); err == nil || !strings.Contains(string(out), "malformed import path") {
		t.Errorf("got %s and %v, want an error that says what is wrong", out, err)
	}
}
