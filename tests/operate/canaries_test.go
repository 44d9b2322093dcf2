package operate

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"
)

// canaries are secrets that each belong to one place: one found elsewhere tells how it got
// there.
type canaries struct {
	mu      sync.Mutex
	known   []canary
	letters [utf8.RuneSelf]bool // that known consist of, in either case
}

type canary struct {
	where string
	text  string // in lower case
	// data may be stored and returned to clients; other canaries may not.
	data bool
}

// add makes text, which is ASCII, a canary that belongs to where.
func (c *canaries) add(where, text string) string {
	c.addCanary(canary{where: where, text: text})
	return text
}

// plant returns a new canary, which is also a strong token.
func (c *canaries) plant(where string) string { return c.add(where, newCanary()) }

func newCanary() string { return "canary-" + strings.ToLower(rand.Text()) }

// data returns a new canary that may be in the database and in responses.
func (c *canaries) data(where string) string {
	text := newCanary()
	c.addCanary(canary{where: where, text: text, data: true})
	return text
}

func (c *canaries) addCanary(one canary) {
	c.mu.Lock()
	defer c.mu.Unlock()
	one.text = strings.ToLower(one.text)
	for _, r := range one.text + strings.ToUpper(one.text) {
		c.letters[r] = true
	}
	c.known = append(c.known, one)
}

// piece is the length of a part of a canary that counts as a leak.
const piece = 16

// in returns the canaries with a part in text, in any case.
func (c *canaries) in(text string, dataToo bool) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = strings.ToLower(c.words(text))
	if text == "" {
		return nil
	}
	for _, one := range c.known {
		// The prefix is public: canary-, or pst_ and the id.
		begin, end := one.text[min(len("pst_abcdefgh"), len(one.text)-piece):], one.text[len(one.text)-piece:]
		if (dataToo || !one.data) && (strings.Contains(text, begin[:piece]) || strings.Contains(text, end)) {
			found = append(found, one.where)
		}
	}
	return found
}

// words returns those words of text that are long enough for a piece, and have only letters of
// canaries. They are few in the many files of PostgreSQL.
func (c *canaries) words(text string) string {
	words := strings.FieldsFunc(text, func(r rune) bool { return r >= utf8.RuneSelf || !c.letters[r] })
	words = slices.DeleteFunc(words, func(word string) bool { return len(word) < piece })
	return strings.Join(words, " ")
}

// check reports the canaries in text.
func (c *canaries) check(t *testing.T, where, text string, dataToo bool) {
	t.Helper()
	for _, found := range c.in(text, dataToo) {
		t.Errorf("%s: got the canary of %s", where, found)
	}
}

// checkFiles reports the canaries in the files below folder.
func (c *canaries) checkFiles(t *testing.T, folder string, dataToo bool) {
	t.Helper()
	walkFiles(t, folder, func(path, content string) { c.check(t, path, content, dataToo) })
}

// filesHave reports whether a file below folder has text.
func filesHave(t *testing.T, folder, text string) (found bool) {
	t.Helper()
	c := new(canaries)
	c.add("", text)
	walkFiles(t, folder, func(_, content string) { found = found || len(c.in(content, true)) > 0 })
	return found
}

// walkFiles calls visit with each file below folder.
func walkFiles(t *testing.T, folder string, visit func(path, content string)) {
	t.Helper()
	err := filepath.WalkDir(folder, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		content, err := os.ReadFile(path)
		visit(path, string(content))
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
