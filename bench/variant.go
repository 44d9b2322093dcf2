package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// edit replaces a text, wherever it is in a file of the service, or removes the file, if there
// is no text.
type edit struct{ file, old, new string }

var (
	noTracing = []edit{
		{"middleware/trace.go", "trace.Span {\n\tclient :=", "trace.Span {\n\treturn nil\n\tclient :="},
		{"database/trace.go", "trace.Span {\n\tif span :=", "trace.Span {\n\treturn nil\n\tif span :="},
	}
	noMetrics = []edit{
		{"middleware/metrics.go", "duration time.Duration) {\n", "duration time.Duration) {\nreturn\n"},
		{"database/batch.go", "if b.metrics != nil {", "if false {"},
		{"database/metrics.go", "*statement {\n", "*statement {\nreturn new(statement)\n"},
	}
)

// noFeed is the service as it was before the feed.
var noFeed = []edit{
	{file: "database/migrations/postgres/00004_feed.sql"},
	{file: "database/migrations/postgres/00005_feed_index.sql"},
	{file: "database/migrations/postgres/00006_feed_schema.sql"},
	{file: "database/migrations/sqlite/00004_feed.sql"},
	{file: "database/migrations/sqlite/00005_feed_index.sql"},
	{file: "database/migrations/sqlite/00006_feed_schema.sql"},
	{"database/feed.go", "if db.nodes != nil {", "if true {"}, // as on Citus
	{"database/postgres_write.go", "table.Name == feedTable && ", "false && "},
	{"database/sqlite_write.go", "g.changes[0].Table.Name != feedTable ||", "true ||"},
}

// variants are the contenders that are built from an edited source of the service, which
// tells what a part of it costs.
var variants = map[string][]edit{
	untraced:   noTracing,
	unmeasured: append(noMetrics, noTracing...),
	unfed:      noFeed,
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
			return nil, fmt.Errorf("%s has no %q, which bench/variant.go replaces", e.file, e.old)
		default:
			files[path] = strings.ReplaceAll(files[path], e.old, e.new)
		}
	}
	return files, nil
}

// buildVariant compiles a variant of the service into b.folder.
func (b *bench) buildVariant(ctx context.Context, name string) error {
	root, err := exec.CommandContext(ctx, "go", "list", "-m", "-f", "{{.Dir}}").Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	files, err := edited(strings.TrimSpace(string(root)), variants[name])
	if err != nil {
		return err
	}
	folder, err := os.MkdirTemp(b.folder, "variant-*")
	if err != nil {
		return err
	}
	for path, text := range files {
		if text != "" { // in the overlay, a file that is removed has no copy
			files[path] = filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
			err = errors.Join(err, os.WriteFile(files[path], []byte(text), 0o600))
		}
	}
	list, failed := json.Marshal(map[string]any{"Replace": files})
	overlay := filepath.Join(folder, "overlay.json")
	if err := errors.Join(err, failed, os.WriteFile(overlay, list, 0o600)); err != nil {
		return err
	}
	return goBuild(ctx, "-overlay", overlay, "-o", filepath.Join(b.folder, name), "plantstore")
}
