package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// edit replaces a text, wherever it is in a file of the service, or removes the file, if there
// is no text.
type edit struct{ file, old, new string }

// handler is the beginning of the handler of a middleware.
const handler = "return func(c *gin.Context) {\n"

var (
	noTracing = []edit{
		{"middleware/trace.go", handler, handler + "return\n"},
		{"database/trace.go", "trace.Span {\n\tif span :=", "trace.Span {\n\treturn nil\n\tif span :="},
	}
	noMetrics = []edit{
		{"middleware/metrics.go", handler, handler + "return\n"},
		{"database/batch.go", "if b.metrics != nil {", "if false {"},
		{"database/metrics.go", "*statement {\n", "*statement {\nreturn new(statement)\n"},
	}
)

// variants are the contenders that are built from an edited source of the service, which
// tells what a part of it costs.
var variants = map[string][]edit{
	untraced:   noTracing,
	unmeasured: append(noMetrics, noTracing...),
	unfed: { // the service as it was before the feed
		{file: "database/migrations/postgres/00004_feed.sql"},
		{file: "database/migrations/postgres/00005_feed_index.sql"},
		{file: "database/migrations/postgres/00006_feed_schema.sql"},
		{file: "database/migrations/sqlite/00004_feed.sql"},
		{file: "database/migrations/sqlite/00005_feed_index.sql"},
		{file: "database/migrations/sqlite/00006_feed_schema.sql"},
		{"database/feed.go", "if db.nodes != nil {", "if true {"}, // as on Citus
		{"database/postgres_write.go", "table.Name == feedTable && ", "false && "},
		{"database/sqlite_write.go", "g.changes[0].Table.Name != feedTable ||", "true ||"},
	},
}

// build compiles the contenders of c into b.folder, unless they are there.
func (b *bench) build(ctx context.Context, c comparison) error {
	for _, name := range append([]string{service}, c.contenders...) {
		program := b.command(ctx, name).Path
		if _, err := os.Stat(program); err == nil {
			continue
		}
		var err error
		switch {
		case slices.Contains(baselines, name):
			err = output(exec.CommandContext(ctx, "go", "build", "-trimpath", "-tags=nomsgpack", "-ldflags=-s -w", "-o", program, "./bench/baseline"), "CGO_ENABLED=0")
		case variants[name] != nil:
			var overlay string
			if overlay, err = writeOverlay(b.folder, variants[name]); err == nil {
				err = output(exec.CommandContext(ctx, "make", "build", "BINARY="+program), "GOFLAGS=-overlay="+overlay)
			}
		case name == b.against:
			err = b.buildRevision(ctx, program)
		default:
			err = output(exec.CommandContext(ctx, "make", "build", "BINARY="+program))
		}
		if err != nil {
			return fmt.Errorf("build %s: %w", name, err)
		}
	}
	return nil
}

// buildRevision compiles the revision b.against with its own Makefile.
func (b *bench) buildRevision(ctx context.Context, program string) error {
	source, err := os.MkdirTemp(b.folder, "revision-*")
	if err != nil {
		return err
	}
	return errors.Join(
		output(exec.CommandContext(ctx, "sh", "-ec", `git archive --output="$2/source.tar" "$1"; cd "$2"; tar -xf source.tar; make build; mv plantstore "$3"`,
			"sh", b.against, source, program)),
		os.RemoveAll(source))
}

// edited returns the edited files below root, by path. Those that are removed are empty.
func edited(root string, edits []edit) (map[string]string, error) {
	files := make(map[string]string)
	for _, e := range edits {
		path := filepath.Join(root, e.file)
		if files[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files[path] = string(text)
		}
		switch {
		case e.old == "":
			files[path] = ""
		case !strings.Contains(files[path], e.old):
			return nil, fmt.Errorf("%s has no %q, which bench/build.go replaces", e.file, e.old)
		default:
			files[path] = strings.ReplaceAll(files[path], e.old, e.new)
		}
	}
	return files, nil
}

// writeOverlay writes the edited files into folder, and returns the name of the list of them for
// go build.
func writeOverlay(folder string, edits []edit) (string, error) {
	root, err := os.Getwd()
	if err != nil {
		return "", err
	}
	files, err := edited(root, edits)
	if err != nil {
		return "", err
	}
	if folder, err = os.MkdirTemp(folder, "variant-*"); err != nil {
		return "", err
	}
	for path, text := range files {
		if text != "" { // in the overlay, a file that is removed has no copy
			files[path] = filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
			err = errors.Join(err, os.WriteFile(files[path], []byte(text), 0o600))
		}
	}
	list, failed := json.Marshal(map[string]any{"Replace": files})
	overlay := filepath.Join(folder, "overlay.json")
	return overlay, errors.Join(err, failed, os.WriteFile(overlay, list, 0o600))
}

// output runs cmd and returns an error with its output, if it fails.
func output(cmd *exec.Cmd, env ...string) error {
	cmd.Env = append(cmd.Environ(), env...)
	if text, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", cmd.Args[0], err, text)
	}
	return nil
}
