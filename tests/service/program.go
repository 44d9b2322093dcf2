package service

import (
	"flag"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime/debug"
	"slices"
	"sync"
	"testing"

	"plantstore/database/dbtest"
)

// Program is the path of the program under test.
var Program string

// Main builds the program and runs the tests of a package:
// func TestMain(m *testing.M) { os.Exit(service.Main(m)) }.
func Main(m *testing.M) int {
	flag.Parse()
	folder, err := os.MkdirTemp("", "plantstore-tests-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(folder)
	Program = filepath.Join(folder, "plantstore")
	if err := Build(Program, instruments()...); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return dbtest.Main(m)
}

// instruments returns the build flags of the tests: -race, with its -gcflags, and -cover.
func instruments() (flags []string) {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range info.Settings {
			if setting.Key == "-race" || setting.Key == "-gcflags" {
				flags = append(flags, setting.Key+"="+setting.Value)
			}
		}
	}
	if coverageFolder() != "" {
		flags = append(flags, "-cover", "-covermode=atomic")
	}
	return flags
}

// noteSources stats the sources of the program, so that a change to them invalidates
// cached test results. Go notes only what tests do, and nothing that Main does before them.
var noteSources = sync.OnceValue(func() error {
	return filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Name() == ".git" && entry.IsDir() {
			return fs.SkipDir
		}
		if slices.Contains([]string{".go", ".json", ".mod", ".sql", ".yaml"}, filepath.Ext(path)) {
			_, err = os.Stat(path)
		}
		return err
	})
})

// Build writes the program to target. Unlike go build, go run keeps linked programs in the
// build cache: only the first package that needs the program links it.
func Build(target string, flags ...string) error {
	cmd := exec.Command("go", slices.Concat([]string{"run", "-exec=cp", "-tags=nomsgpack"}, flags, []string{"../..", target})...)
	output, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("go run: %w\n%s", err, output)
	}
	return nil
}

// coverageFolder is the folder for coverage data, or empty.
func coverageFolder() string {
	if f := flag.Lookup("test.gocoverdir"); f != nil {
		return f.Value.String()
	}
	return ""
}

// PlainProgram returns the path of the program without instruments, and builds it the first time.
var PlainProgram = sync.OnceValues(func() (string, error) {
	if len(instruments()) == 0 {
		return Program, nil
	}
	path := Program + "-plain"
	return path, Build(path)
})
