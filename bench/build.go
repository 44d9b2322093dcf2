package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// edit replaces a text in a file of the service, or removes the file if there is no text.
type edit struct{ file, old, new string }

// apply returns the text of the file, below root, with the edit.
func (e edit) apply(root string) (string, error) {
	text, err := os.ReadFile(filepath.Join(root, e.file))
	if err == nil && !strings.Contains(string(text), e.old) {
		err = fmt.Errorf("%s has no %q, which bench/build.go replaces", e.file, e.old)
	}
	return strings.ReplaceAll(string(text), e.old, e.new), err
}

const (
	createRow = "(s *Store[T, K]) Create(ctx context.Context, row *T) (Outcome[T], error) {\n"
	getRow    = "(s *Store[T, K]) Get(ctx context.Context, key K) (row *T, err error) {\n"
)

var noTracing = []edit{
	{"middleware/trace.go", "trace.Span {\n\tclient :=", "trace.Span {\n\treturn nil\n\tclient :="},
	{"database/batch/trace.go", "trace.Span {\n\tif span :=", "trace.Span {\n\treturn nil\n\tif span :="},
}

// variants are the contenders that are built from an edited source of the service, which
// tells what a part of it costs.
var variants = map[string][]edit{
	noStore: {
		{"models/store_create.go", createRow, createRow + "return Outcome[T]{}, s.validate(row, s.table.Data)\n"},
		{"models/store_read.go", getRow, getRow + "return new(T), nil\n"},
	},
	untraced: noTracing,
	unmeasured: slices.Concat(noTracing, []edit{
		{"middleware/metrics.go", "duration time.Duration) {\n", "duration time.Duration) {\nreturn\n"},
		{"database/batch/batch.go", "if b.Items != nil {", "if false {"},
		{"database/batch/batch.go", "if b.Waits != nil {", "if false {"},
		{"database/metrics.go", "*statement {\n", "*statement {\nreturn new(statement)\n"},
	}),
	unfed: { // the service as it was before the feed
		{file: "database/migrations/postgres/00004_feed.sql"},
		{file: "database/migrations/postgres/00005_feed_index.sql"},
		{file: "database/migrations/postgres/00006_feed_schema.sql"},
		{file: "database/migrations/sqlite/00004_feed.sql"},
		{file: "database/migrations/sqlite/00005_feed_index.sql"},
		{file: "database/migrations/sqlite/00006_feed_schema.sql"},
		{"database/feed.go", "if sql == nil {", "if true {"}, // as on Citus
		{"database/postgres/write.go", "t.Name == d.Followed.Table", "false"},
		{"database/sqlite/write.go", "t.Name != d.Followed.Table ||", "true ||"},
	},
}

// build compiles the contenders of c, each from a copy of its source and with the Makefile in it.
func (b *bench) build(ctx context.Context, c comparison) error {
	for _, name := range append([]string{service}, c.contenders...) {
		program, source := b.command(ctx, name).Path, filepath.Join(b.folder, "source")
		if _, err := os.Stat(program); err == nil {
			continue
		}
		script := `mkdir "$source"; tar -c --exclude=./.git --exclude=./release . | tar -x -C "$source"`
		if name == b.against {
			script = `mkdir "$source"; git archive "$revision" | tar -x -C "$source"`
		}
		_, err := output(exec.CommandContext(ctx, "sh", "-ec", script), "source="+source, "revision="+name)
		for _, e := range variants[name] {
			text, failed := e.apply(source)
			err = errors.Join(err, failed, os.Remove(filepath.Join(source, e.file)))
			if e.old != "" {
				err = errors.Join(err, os.WriteFile(filepath.Join(source, e.file), []byte(text), 0o600))
			}
		}
		compile := exec.CommandContext(ctx, "make", "build")
		if slices.Contains(baselines, name) {
			compile = exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=nomsgpack", "-ldflags=-s -w", "-o", "plantstore", "./bench/baseline")
		}
		compile.Dir = source
		if err == nil {
			_, err = output(compile, "CGO_ENABLED=0")
		}
		if err := errors.Join(err, os.Rename(filepath.Join(source, "plantstore"), program), os.RemoveAll(source)); err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// output runs cmd and returns its output, which is also in an error.
func output(cmd *exec.Cmd, env ...string) ([]byte, error) {
	cmd.Env = append(cmd.Environ(), env...)
	text, err := cmd.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w\n%s", filepath.Base(cmd.Path), err, text)
	}
	return text, err
}
