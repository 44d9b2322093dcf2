package docs

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestLinks follows the links from each page and from the files in deploy/ to other pages and
// their sections.
func TestLinks(t *testing.T) {
	anchors := make(map[string]map[string]bool) // of each page
	sources := make(map[string]string)
	for _, pattern := range []string{"*.md", "*/*.md", "../*.md", "../tests/*.md", "../bench/*.md", "../deploy/*.*", "../deploy/*/*.*[a-z][a-z]"} { // not the folder of a drop-in
		names, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, name := range names {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			sources[name] = string(text)
			anchors[name] = headings(string(text))
		}
	}
	inPage := regexp.MustCompile(`\]\(([^():#]*)(?:#([^()]*))?\)`)
	inFile := regexp.MustCompile(`\b(docs/[a-z]+\.md)(?:#([a-z0-9-]+))?`)
	for name, text := range sources {
		t.Run(name, func(t *testing.T) {
			links, root := inFile, ".."
			if filepath.Ext(name) == ".md" {
				links, root = inPage, filepath.Dir(name)
			}
			for _, link := range links.FindAllStringSubmatch(text, -1) {
				target := name
				if link[1] != "" {
					target = filepath.Join(root, link[1])
				}
				if err := exists(target, link[2], anchors); err != nil {
					t.Errorf("%s: %v", link[0], err)
				}
			}
		})
	}
}

// exists returns an error if there is no such file, or no such anchor in it.
func exists(file, anchor string, anchors map[string]map[string]bool) error {
	if clean, err := filepath.Rel("../docs", file); err == nil && !strings.HasPrefix(clean, "..") {
		file = clean
	}
	if _, err := os.Stat(file); err != nil {
		return fs.ErrNotExist
	}
	if anchor != "" && !anchors[file][anchor] {
		return fmt.Errorf("no section #%s", anchor)
	}
	return nil
}

// headings returns the anchors of the headings of page, as GitHub and GitLab make them.
func headings(page string) map[string]bool {
	anchors := make(map[string]bool)
	code := false
	for line := range strings.Lines(page) {
		if strings.HasPrefix(strings.TrimSpace(line), "```") {
			code = !code
		}
		heading := strings.TrimLeft(line, "#")
		if code || heading == line || !strings.HasPrefix(heading, " ") {
			continue
		}
		anchor := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), "")
		anchor = strings.ReplaceAll(anchor, " ", "-")
		name := anchor
		for i := 1; anchors[name]; i++ {
			name = fmt.Sprintf("%s-%d", anchor, i)
		}
		anchors[name] = true
	}
	return anchors
}

// TestLengthOfPages: a page that is read at night is short.
func TestLengthOfPages(t *testing.T) {
	for name, most := range map[string]int{
		"../README.md": 150,
		"api.md":       650, "clients.md": 250,
		"operations.md": 250, "deploy.md": 250, "databases.md": 250, "tokens.md": 250, "data.md": 250, "backup.md": 250, "observe.md": 250, "tune.md": 250,
	} {
		t.Run(name, func(t *testing.T) {
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			if lines := strings.Count(string(text), "\n"); lines > most {
				t.Errorf("got %d lines, want at most %d: split it by task", lines, most)
			}
		})
	}
}
