package tests

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// wellFormed is the form of an issued token that the README gives to scanners.
var wellFormed = regexp.MustCompile(`^pst_[a-z2-7]{47}$`)

// issue issues a token in the database at url by the command, and returns it.
func issue(t *testing.T, url string, args ...string) string {
	t.Helper()
	stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + url}, append([]string{"token", "create", "--name", t.Name()}, args...)...)
	issued, ended := strings.CutSuffix(stdout, "\n")
	if status != 0 || !ended || !wellFormed.MatchString(issued) {
		t.Fatalf("token create: exit status %d, %d bytes on standard output, want one token; %q", status, len(stdout), stderr)
	}
	if !strings.Contains(stderr, prefixOf(issued)+" ends it") || strings.Contains(stderr, issued) {
		t.Errorf("token create notes %q", stderr)
	}
	return issued
}

// prefixOf returns that of an issued token which may be shown.
func prefixOf(issued string) string { return issued[:12] }

// mistype returns an issued token with one other character.
func mistype(issued string) string {
	other := "a"
	if strings.HasSuffix(issued, other) {
		other = "b"
	}
	return issued[:len(issued)-1] + other
}

// listed returns the line of token list that has the prefix of an issued token.
func listed(t *testing.T, url, issued string) string {
	t.Helper()
	stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=" + url}, "token", "list")
	if status != 0 || stderr != "" {
		t.Errorf("token list: exit status %d, %q", status, stderr)
	}
	if strings.Contains(stdout, issued) || strings.Contains(stdout, issued[len(prefixOf(issued)):]) {
		t.Error("token list shows a token")
	}
	for line := range strings.Lines(stdout) {
		if strings.HasPrefix(line, prefixOf(issued)+" ") {
			return strings.TrimSpace(line)
		}
	}
	t.Errorf("token list lacks %s:\n%s", prefixOf(issued), stdout)
	return ""
}

// TestTokenCommands issues, lists and revokes tokens for a service that runs.
func TestTokenCommands(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		issued := issue(t, url)
		checkStatus(t, s.get(t, "/plants", as(issued)...), 200)
		checkStatus(t, s.post(t, bodyOf(1), as(issued)...), 200)
		checkError(t, s.get(t, "/tokens", as(issued)...), 40301)                     // it may not see tokens
		checkError(t, s.get(t, "/plants", as(mistype(issued))...), 40102)            // mistyped
		checkError(t, s.get(t, "/plants", as(prefixOf(issued))...), 40102)           // its prefix
		checkError(t, s.get(t, "/plants", as(strings.ToUpper(issued))...), 40102)    // in capitals
		checkError(t, s.get(t, "/plants", as(issue(t, dbtest.SQLite(t)))...), 40102) // of another service

		const minute = `\d{4}-\d\d-\d\dT\d\d:\d\dZ`
		short := issue(t, url, "--scope", "admin, plants:read", "--expires", "90d")
		for _, test := range []struct{ token, want string }{
			{issued, `  TestTokenCommands\S*  plants:read,plants:write  ` + minute + `  never  +never  +in force$`},
			{short, `  TestTokenCommands\S*  plants:read,admin  +` + minute + `  ` + minute + `  never  +in force$`},
		} {
			if line := listed(t, url, test.token); !regexp.MustCompile(`^` + prefixOf(test.token) + test.want).MatchString(line) {
				t.Errorf("token list: %q", line)
			}
		}
		if want := time.Now().UTC().AddDate(0, 0, 90).Format("2006-01-02"); !strings.Contains(listed(t, url, short), want) {
			t.Errorf("token list has no end on %s: %q", want, listed(t, url, short))
		}

		settings := []string{"DATABASE_URL=" + url}
		checkCLI(t, settings, []string{"token", "revoke", prefixOf(issued)}, 0, "revoked "+prefixOf(issued)+"\n")                                 // revoke
		checkCLI(t, settings, []string{"token", "revoke", prefixOf(issued)}, 1, "", prefixOf(issued)+": no such token, or it was revoked before") // revoke again
		checkCLI(t, settings, []string{"token", "revoke", "pst_aaaaaaaa"}, 1, "", "pst_aaaaaaaa: no such token")                                  // revoke what is not there
		if line := listed(t, url, issued); !regexp.MustCompile(`  revoked ` + minute + `$`).MatchString(line) {
			t.Errorf("token list: %q", line)
		}
		if line := listed(t, url, short); !strings.HasSuffix(line, "  in force") {
			t.Errorf("token list, of another token than the one that was revoked: %q", line)
		}
	})
}

// TestTokenUsageErrors: what is wrong with a command line is said before anything
// is done, and without what may be a token.
func TestTokenUsageErrors(t *testing.T) {
	t.Parallel()
	const secret = "pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"
	for _, test := range []struct {
		name     string
		args     []string
		mentions string
	}{
		{"no name", []string{"create"}, `"name"`},
		{"an empty name", []string{"create", "--name", ""}, "name"},
		{"a blank name", []string{"create", "--name", " "}, "name"},
		{"a long name", []string{"create", "--name", strings.Repeat("x", 101)}, "at most 100"},
		{"a line end in the name", []string{"create", "--name", "a\nb"}, "name"},
		{"an unknown scope", []string{"create", "--name", "x", "--scope", "plants:read," + secret}, "scopes must be of"},
		{"no scope", []string{"create", "--name", "x", "--scope", ""}, "scopes"},
		{"an end that is now", []string{"create", "--name", "x", "--expires", "0d"}, "--expires"},
		{"an end that was", []string{"create", "--name", "x", "--expires", "-1h"}, "--expires"},
		{"an end without a unit", []string{"create", "--name", "x", "--expires", "90"}, "--expires"},
		{"an end beyond what a time can have", []string{"create", "--name", "x", "--expires", "36501d"}, "at most 36500d"},
		{"a token for an end", []string{"create", "--name", "x", "--expires", secret}, "--expires"},
		{"a token in place of a flag", []string{"create", secret}, ""},
		{"a flag that there is not", []string{"create", "--name", "x", "--token=" + secret}, "--token"},
		{"a token to list", []string{"list", secret}, ""},
		{"a token for a command", []string{secret}, ""},
		{"nothing to revoke", []string{"revoke"}, "requires at least 1 arg"},
		{"a whole token to revoke", []string{"revoke", secret}, "prefixes of tokens"},
		{"a whole token after a prefix", []string{"revoke", "pst_abcdefgh", secret}, "prefixes of tokens"},
		{"a short prefix", []string{"revoke", "pst_abcdefg"}, "pst_ and 8 characters"},
		{"a prefix in capitals", []string{"revoke", "PST_ABCDEFGH"}, "pst_ and 8 characters"},
	} {
		t.Run(test.name, func(t *testing.T) {
			database := filepath.Join(t.TempDir(), "plantstore.db")
			stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=sqlite:" + database}, append([]string{"token"}, test.args...)...)
			if status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.mentions) {
				t.Errorf("exit status %d, %q, %q: want 2 and one line that names %s", status, stdout, stderr, test.mentions)
			}
			if strings.Contains(stderr, secret[len("pst_abcdefgh"):]) {
				t.Errorf("a token is repeated: %q", stderr)
			}
			if _, err := os.Stat(database); err == nil {
				t.Errorf("the database was made all the same")
			}
		})
	}
	_, stderr, status := runToEnd(t, nil, "export", "--token-file", secret)
	if status != 2 || !strings.Contains(stderr, "--token-file") || strings.Contains(stderr, secret) {
		t.Errorf("a token in place of its file: exit status %d, %q", status, stderr)
	}
}
