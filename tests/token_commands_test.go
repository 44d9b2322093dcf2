package tests

import (
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/models"
)

// wellFormed is the format of issued tokens in the README, for secret scanners.
var wellFormed = regexp.MustCompile(`^pst_[a-z2-7]{47}$`)

// issue creates a token in the database at url.
func issue(t *testing.T, url string, args ...string) string {
	t.Helper()
	stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + url}, append([]string{"token", "create", "--name", t.Name()}, args...)...)
	issued, ended := strings.CutSuffix(stdout, "\n")
	if status != 0 || !ended || !wellFormed.MatchString(issued) {
		t.Fatalf("token create: got exit status %d and %d bytes of output, want one token; %q", status, len(stdout), stderr)
	}
	if !strings.Contains(stderr, "token revoke "+prefixOf(issued)) || strings.Contains(stderr, issued) {
		t.Errorf("token create: got standard error %q, want the prefix only", stderr)
	}
	return issued
}

// migrateUp creates the tables of the database at url, and its file if there is none.
func migrateUp(t *testing.T, url string) {
	t.Helper()
	if _, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + url}, "migrate", "up"); status != 0 {
		t.Fatalf("migrate up: got exit status %d, %q", status, stderr)
	}
}

// issueElsewhere creates a token in a database of its own.
func issueElsewhere(t *testing.T) string {
	t.Helper()
	url := dbtest.SQLite(t)
	migrateUp(t, url)
	return issue(t, url)
}

// prefixOf returns the public part of an issued token, its id.
func prefixOf(issued string) string { return issued[:12] }

// mistype returns an issued token with another last character.
func mistype(issued string) string {
	other := "a"
	if strings.HasSuffix(issued, other) {
		other = "b"
	}
	return issued[:len(issued)-1] + other
}

// nameOfDatabase returns the name by which commands call the database at databaseURL.
func nameOfDatabase(databaseURL string) string {
	if path, ok := strings.CutPrefix(databaseURL, "sqlite:"); ok {
		return path
	}
	u, err := url.Parse(databaseURL)
	if err != nil {
		return err.Error()
	}
	return u.Host + u.Path
}

// listed returns the line of token list about an issued token.
func listed(t *testing.T, url, issued string) string {
	t.Helper()
	stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + url}, "token", "list")
	if status != 0 || stderr != "" {
		t.Errorf("token list: got exit status %d, %q, want 0", status, stderr)
	}
	if strings.Contains(stdout, issued) || strings.Contains(stdout, issued[len(prefixOf(issued)):]) {
		t.Error("token list: got a token")
	}
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, prefixOf(issued)+" ") {
			return strings.TrimSpace(line)
		}
	}
	t.Errorf("token list: got no %s in\n%s", prefixOf(issued), stdout)
	return ""
}

// TestTokenListIsPlain: a terminal obeys nothing in the names of tokens.
func TestTokenListIsPlain(t *testing.T) {
	t.Parallel()
	s := start(t)
	checkStatus(t, s.call(t, "POST", "/tokens", `{"name":"x \u202ey 🌵","scopes":["plants:read"]}`), 200)
	stdout, _, _ := runToEnd(t, []string{"DATABASE_URL=sqlite:" + filepath.Join(s.folder, "data", "plantstore.db")}, "token", "list")
	if want := `  x \u202ey 🌵  plants:read  `; !strings.Contains(stdout, want) {
		t.Errorf("got %q, want %q in it", stdout, want)
	}
}

// TestTokenCommands creates, lists and revokes tokens of a running service.
func TestTokenCommands(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		issued := issue(t, url)
		checkStatus(t, s.get(t, "/plants", as(issued)...), 200)
		checkStatus(t, s.post(t, bodyOf(1), as(issued)...), 200)
		checkError(t, s.get(t, "/tokens", as(issued)...), 40301)
		for name, wrong := range map[string]string{
			"mistyped": mistype(issued), "prefix": prefixOf(issued), "capitals": strings.ToUpper(issued), "another service": issueElsewhere(t),
		} {
			t.Run(name, func(t *testing.T) { checkError(t, s.get(t, "/plants", as(wrong)...), 40102) })
		}

		const minute = `\d{4}-\d\d-\d\dT\d\d:\d\dZ`
		const day = "2006-01-02"
		earliest := time.Now().UTC().AddDate(0, 0, 90).Format(day)
		short := issue(t, url, "--scope", "admin, plants:read", "--expires", "90d")
		latest := time.Now().UTC().AddDate(0, 0, 90).Format(day) // the other one at midnight
		for _, test := range []struct{ name, token, want string }{
			{"lists a lasting token", issued, `  TestTokenCommands\S*  ` + strings.Join(models.DefaultScopes().Names(), ",") + `  ` + minute + `  never  +never  +active$`},
			{"lists an expiring token", short, `  TestTokenCommands\S*  plants:read,admin  +` + minute + `  ` + minute + `  never  +active$`},
		} {
			t.Run(test.name, func(t *testing.T) {
				if line := listed(t, url, test.token); !regexp.MustCompile(`^` + prefixOf(test.token) + test.want).MatchString(line) {
					t.Errorf("got %q, want %s", line, test.want)
				}
			})
		}
		if long := issue(t, url, "--expires", "2000000d"); !regexp.MustCompile(`  [78]\d{3}-\d\d-\d\dT`).MatchString(listed(t, url, long)) {
			t.Errorf("token list: got %q, want an expiry in thousands of years", listed(t, url, long))
		}
		if line := listed(t, url, short); !strings.Contains(line, earliest) && !strings.Contains(line, latest) {
			t.Errorf("token list: got %q, want expiry on %s", line, latest)
		}

		settings := []string{"DATABASE_URL=" + url}
		other := issue(t, url)
		checkCLI(t, settings, []string{"token", "revoke", prefixOf(other), prefixOf(issued)}, 0,
			"revoked "+prefixOf(other)+" in "+nameOfDatabase(url)+"\nrevoked "+prefixOf(issued)+" in "+nameOfDatabase(url)+"\n", "revoked a token")
		checkCLI(t, settings, []string{"token", "revoke", prefixOf(issued)}, 1, "", prefixOf(issued)+": no such token")
		checkCLI(t, settings, []string{"token", "revoke", "pst_aaaaaaaa"}, 1, "", "pst_aaaaaaaa: no such token")
		if line := listed(t, url, issued); !regexp.MustCompile(`  revoked ` + minute + `$`).MatchString(line) {
			t.Errorf("token list: got %q", line)
		}
		if line := listed(t, url, short); !strings.HasSuffix(line, "  active") {
			t.Errorf("token list: got %q, want the other token active", line)
		}
	})
}

// TestTokenUsageErrors checks that invalid command lines are rejected before any change,
// with messages that do not repeat a token.
func TestTokenUsageErrors(t *testing.T) {
	t.Parallel()
	const secret = "pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"
	for _, test := range []struct {
		name     string
		args     []string
		mentions string
	}{
		{"no name", []string{"create"}, "--name"},
		{"an empty name", []string{"create", "--name", ""}, "name"},
		{"a blank name", []string{"create", "--name", " "}, "name"},
		{"a long name", []string{"create", "--name", strings.Repeat("x", 101)}, "1 to 100 characters"},
		{"a newline in the name", []string{"create", "--name", "a\nb"}, "name"},
		{"an unknown scope", []string{"create", "--name", "x", "--scope", "plants:read," + secret}, "scopes"},
		{"no scope", []string{"create", "--name", "x", "--scope", ""}, "scopes"},
		{"an expiry now", []string{"create", "--name", "x", "--expires", "0d"}, "--expires"},
		{"an expiry in the past", []string{"create", "--name", "x", "--expires", "-1h"}, "--expires"},
		{"an expiry without a unit", []string{"create", "--name", "x", "--expires", "90"}, "--expires"},
		{"an expiry in the year 10000", []string{"create", "--name", "x", "--expires", "3000000d"}, "expires_at must be before the year 10000"},
		{"an expiry beyond all years", []string{"create", "--name", "x", "--expires", "9999999999d"}, "--expires"},
		{"a token as expiry", []string{"create", "--name", "x", "--expires", secret}, "--expires"},
		{"a token instead of a flag", []string{"create", secret}, ""},
		{"an unknown flag", []string{"create", "--name", "x", "--token=" + secret}, "--token"},
		{"a token for list", []string{"list", secret}, ""},
		{"a token instead of a command", []string{secret}, ""},
		{"nothing to revoke", []string{"revoke"}, "needs PREFIX"},
		{"a token to revoke", []string{"revoke", secret}, "prefixes"},
		{"a token after a prefix", []string{"revoke", "pst_abcdefgh", secret}, "prefixes"},
		{"a short prefix", []string{"revoke", "pst_abcdefg"}, "pst_"},
		{"a prefix in capitals", []string{"revoke", "PST_ABCDEFGH"}, "pst_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			database := filepath.Join(t.TempDir(), "plantstore.db")
			stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=sqlite:" + database}, append([]string{"token"}, test.args...)...)
			if status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) {
				t.Errorf("got exit status %d, %q, %q, want 2 and one line with %s", status, stdout, stderr, test.mentions)
			}
			if strings.Contains(stderr, secret[len("pst_abcdefgh"):]) {
				t.Errorf("got a token in %q", stderr)
			}
			if _, err := os.Stat(database); err == nil {
				t.Error("got a database, want no changes")
			}
		})
	}
	_, stderr, status := runToEnd(t, nil, "export", "--token-file", secret)
	if status != 2 || !strings.Contains(stderr, "--token-file") || strings.Contains(stderr, secret) {
		t.Errorf("got exit status %d, %q, want 2 without the token", status, stderr)
	}
}
