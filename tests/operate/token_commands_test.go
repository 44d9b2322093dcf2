package operate

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestTokenListIsPlain: a terminal obeys nothing in the names of tokens.
func TestTokenListIsPlain(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Call(t, "POST", "/tokens", `{"name":"x \u202ey 🌵","scopes":["plants:read"]}`).CheckStatus(t, 200)
	stdout, _, _ := service.RunToEnd(t, []string{"DATABASE_URL=sqlite:" + filepath.Join(s.Folder, "data", "plantstore.db")}, "token", "list")
	if want := "  x \uFFFDy 🌵  plants:read  "; !strings.Contains(stdout, want) {
		t.Errorf("got %q, want %q in it", stdout, want)
	}
}

// TestTokenCommands creates, lists and revokes tokens of a running service.
func TestTokenCommands(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		issued := service.Issue(t, url)
		s.Get(t, "/plants", service.As(issued)...).CheckStatus(t, 200)
		s.Post(t, service.BodyOf(1), service.As(issued)...).CheckStatus(t, 200)
		s.Get(t, "/tokens", service.As(issued)...).CheckError(t, 40301)
		for name, wrong := range map[string]string{
			"mistyped": service.Mistype(issued), "prefix": service.PrefixOf(issued), "capitals": strings.ToUpper(issued), "another service": service.IssueElsewhere(t),
		} {
			t.Run(name, func(t *testing.T) { s.Get(t, "/plants", service.As(wrong)...).CheckError(t, 40102) })
		}

		const minute = `\d{4}-\d\d-\d\dT\d\d:\d\dZ`
		const day = "2006-01-02"
		earliest := time.Now().UTC().AddDate(0, 0, 90).Format(day)
		short := service.Issue(t, url, "--scope", "admin, plants:read", "--expires", "90d")
		latest := time.Now().UTC().AddDate(0, 0, 90).Format(day) // the other one at midnight
		for _, test := range []struct{ name, token, want string }{
			{"lists a lasting token", issued, `  TestTokenCommands\S*  ` + "plants:read,plants:write" + `  ` + minute + `  never  +never  +active$`},
			{"lists an expiring token", short, `  TestTokenCommands\S*  plants:read,admin  +` + minute + `  ` + minute + `  never  +active$`},
		} {
			t.Run(test.name, func(t *testing.T) {
				if line := service.Listed(t, url, test.token); !regexp.MustCompile(`^` + service.PrefixOf(test.token) + test.want).MatchString(line) {
					t.Errorf("got %q, want %s", line, test.want)
				}
			})
		}
		if long := service.Issue(t, url, "--expires", "2000000d"); !regexp.MustCompile(`  [78]\d{3}-\d\d-\d\dT`).MatchString(service.Listed(t, url, long)) {
			t.Errorf("token list: got %q, want an expiry in thousands of years", service.Listed(t, url, long))
		}
		if line := service.Listed(t, url, short); !strings.Contains(line, earliest) && !strings.Contains(line, latest) {
			t.Errorf("token list: got %q, want expiry on %s", line, latest)
		}

		tomorrow := time.Now().UTC().AddDate(0, 0, 1)
		if line := service.Listed(t, url, service.Issue(t, url, "--expires", tomorrow.Format(day))); !strings.Contains(line, tomorrow.AddDate(0, 0, 1).Format(day)+"T00:00Z") {
			t.Errorf("token list: got %q, want the end of %s as expiry", line, tomorrow.Format(day))
		}
		settings := []string{"DATABASE_URL=" + url}
		byDefault, _, _ := service.RunToEnd(t, settings, "token", "create", "--name", "x")
		if line := service.Listed(t, url, strings.TrimSpace(byDefault)); !slices.Equal(strings.Fields(line)[1:3], []string{"x", "plants:read"}) {
			t.Errorf("token list: got %q, want the scope plants:read alone", line)
		}
		other := service.Issue(t, url)
		service.CheckCLI(t, settings, []string{"token", "revoke", service.PrefixOf(other), service.PrefixOf(issued)}, 0,
			"revoked "+service.PrefixOf(other)+" in "+service.NameOfDatabase(url)+"\nrevoked "+service.PrefixOf(issued)+" in "+service.NameOfDatabase(url)+"\n", "revoked a token")
		service.CheckCLI(t, settings, []string{"token", "revoke", service.PrefixOf(issued)}, 1, "", service.PrefixOf(issued)+": no such token")
		service.CheckCLI(t, settings, []string{"token", "revoke", "pst_aaaaaaaa"}, 1, "", "pst_aaaaaaaa: no such token")
		if line := service.Listed(t, url, issued); !regexp.MustCompile(`  revoked ` + minute + `$`).MatchString(line) {
			t.Errorf("token list: got %q", line)
		}
		if line := service.Listed(t, url, short); !strings.HasSuffix(line, "  active") {
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
		{"a day in the past", []string{"create", "--name", "x", "--expires", "2026-11-01"}, "--expires must be a duration such as 90d or 12h, or a day such as 2027-03-31 that has not ended"},
		{"no day", []string{"create", "--name", "x", "--expires", "2027-02-29"}, "--expires"},
		{"an expiry without a unit", []string{"create", "--name", "x", "--expires", "90"}, "--expires"},
		{"an expiry in the year 10000", []string{"create", "--name", "x", "--expires", "3000000d"}, "expires_at must be before the year 10000"},
		{"an expiry beyond all years", []string{"create", "--name", "x", "--expires", "9999999999d"}, "--expires"},
		{"a token as expiry", []string{"create", "--name", "x", "--expires", secret}, "--expires"},
		{"a token instead of a flag", []string{"create", secret}, ""},
		{"an unknown flag", []string{"create", "--name", "x", "--token=" + secret}, "--token"},
		{"a token for list", []string{"list", secret}, ""},
		{"a token instead of a command", []string{secret}, ""},
		{"nothing to revoke", []string{"revoke"}, "takes PREFIX"},
		{"a token to revoke", []string{"revoke", secret}, "prefixes"},
		{"a token after a prefix", []string{"revoke", "pst_abcdefgh", secret}, "prefixes"},
		{"a short prefix", []string{"revoke", "pst_abcdefg"}, "pst_"},
		{"a prefix in capitals", []string{"revoke", "PST_ABCDEFGH"}, "pst_"},
	} {
		t.Run(test.name, func(t *testing.T) {
			database := filepath.Join(t.TempDir(), "plantstore.db")
			stdout, stderr, status := service.RunToEnd(t, []string{"DATABASE_URL=sqlite:" + database}, append([]string{"token"}, test.args...)...)
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
	_, stderr, status := service.RunToEnd(t, nil, "export", "--token-file", secret)
	if status != 2 || !strings.Contains(stderr, "--token-file") || strings.Contains(stderr, secret) {
		t.Errorf("got exit status %d, %q, want 2 without the token", status, stderr)
	}
}
