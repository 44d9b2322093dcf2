package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
		{"database/metrics.go", "if m != nil {", "if false {"},
		{"database/metrics.go", "*statement {\n", "*statement {\nreturn new(statement)\n"},
	}
)

// noFeed is the service as it was before the feed.
var noFeed = []edit{
	{file: "database/migrations/postgres/00004_feed.sql"},
	{file: "database/migrations/postgres/00005_feed_index.sql"},
	{file: "database/migrations/sqlite/00004_feed.sql"},
	{file: "database/migrations/sqlite/00005_feed_index.sql"},
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
		if e.old == "" {
			if _, err := os.Stat(path); err != nil {
				return nil, err
			}
			files[path] = ""
			continue
		}
		if files[path] == "" {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			files[path] = string(text)
		}
		if !strings.Contains(files[path], e.old) {
			return nil, fmt.Errorf("%s has no %q, which bench/variant.go replaces", e.file, e.old)
		}
		files[path] = strings.ReplaceAll(files[path], e.old, e.new)
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
	overlay := struct{ Replace map[string]string }{make(map[string]string)}
	for path, text := range files {
		if text == "" {
			overlay.Replace[path] = ""
			continue
		}
		copied := filepath.Join(folder, strings.ReplaceAll(path, "/", "_"))
		if err := os.WriteFile(copied, []byte(text), 0o600); err != nil {
			return err
		}
		overlay.Replace[path] = copied
	}
	list, err := json.Marshal(overlay)
	if err != nil {
		return err
	}
	listFile := filepath.Join(folder, "overlay.json")
	if err := os.WriteFile(listFile, list, 0o600); err != nil {
		return err
	}
	return goBuild(ctx, "-overlay", listFile, "-o", filepath.Join(b.folder, name), "plantstore")
}
