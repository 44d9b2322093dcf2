package tests

import (
	"crypto/rand"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// canaries are secrets, each of them for one place: one that turns up elsewhere
// tells how it came there.
type canaries struct {
	mu    sync.Mutex
	known []canary
}

type canary struct {
	where, text string
	// data is what a client stores, and may get back; others are for nobody.
	data bool
}

// add makes text a canary, which is at home where.
func (c *canaries) add(where, text string) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = append(c.known, canary{where: where, text: text})
	return text
}

// plant returns a new canary. It is a strong token, too.
func (c *canaries) plant(where string) string { return c.add(where, newCanary()) }

func newCanary() string { return "canary-" + strings.ToLower(rand.Text()) }

// data returns a new canary that may be in the database and in answers.
func (c *canaries) data(where string) string {
	text := newCanary()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.known = append(c.known, canary{where, text, true})
	return text
}

// piece is how much of a canary must not be seen: a part may do the same harm.
const piece = 16

// in returns which canaries text has, or a piece of, in any case.
func (c *canaries) in(text string, dataToo bool) (found []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = strings.ToLower(text)
	for _, one := range c.known {
		secret := strings.ToLower(one.text)
		// The beginning tells which it is, and has no secret: canary-, or pst_ with the id.
		begin, end := secret[min(len("pst_abcdefgh"), len(secret)-piece):], secret[len(secret)-piece:]
		if (dataToo || !one.data) && (strings.Contains(text, begin[:piece]) || strings.Contains(text, end)) {
			found = append(found, one.where)
		}
	}
	return found
}

// check reports the canaries in text.
func (c *canaries) check(t *testing.T, where, text string, dataToo bool) {
	t.Helper()
	for _, found := range c.in(text, dataToo) {
		t.Errorf("%s: there is the canary of: %s", where, found)
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
