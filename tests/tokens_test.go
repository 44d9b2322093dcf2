package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// revocationTime is how long a token may be good after it was revoked.
const revocationTime = 5 * time.Second

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

// as returns the headers of a request with a token, and other headers.
func as(token string, headers ...string) []string {
	return append([]string{"Authorization", "Bearer " + token}, headers...)
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
		if a := s.get("/plants", as(issued)...); a.status != 200 {
			t.Errorf("a token that was issued a moment ago: %d %s", a.status, a.body)
		}
		if a := s.post(bodyOf(1), as(issued)...); a.status != 200 {
			t.Errorf("it may not write: %d %s", a.status, a.body)
		}
		checkError(t, "it may not see tokens", s.get("/tokens", as(issued)...), 403, 40301)
		checkError(t, "mistyped", s.get("/plants", as(mistype(issued))...), 401, 40102)
		checkError(t, "its prefix", s.get("/plants", as(prefixOf(issued))...), 401, 40102)
		checkError(t, "in capitals", s.get("/plants", as(strings.ToUpper(issued))...), 401, 40102)
		checkError(t, "of another service", s.get("/plants", as(issue(t, dbtest.SQLite(t)))...), 401, 40102)

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
		checkCLI(t, "revoke", settings, []string{"token", "revoke", prefixOf(issued)}, 0, "revoked "+prefixOf(issued)+"\n")
		checkCLI(t, "revoke again", settings, []string{"token", "revoke", prefixOf(issued)}, 1, "", prefixOf(issued)+": no such token, or it was revoked before")
		checkCLI(t, "revoke what is not there", settings, []string{"token", "revoke", "pst_aaaaaaaa"}, 1, "", "pst_aaaaaaaa: no such token")
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
		what  string
		args  []string
		names string
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
		database := filepath.Join(t.TempDir(), "plantstore.db")
		stdout, stderr, status := runToEnd(t, []string{"DATABASE_URL=sqlite:" + database}, append([]string{"token"}, test.args...)...)
		if status != 2 || stdout != "" || strings.Count(stderr, "\n") != 1 || !strings.Contains(stderr, test.names) {
			t.Errorf("%s: exit status %d, %q, %q: want 2 and one line that names %s", test.what, status, stdout, stderr, test.names)
		}
		if strings.Contains(stderr, secret[len("pst_abcdefgh"):]) {
			t.Errorf("%s: a token is repeated: %q", test.what, stderr)
		}
		if _, err := os.Stat(database); err == nil {
			t.Errorf("%s: the database was made all the same", test.what)
		}
	}
	_, stderr, status := runToEnd(t, nil, "export", "--token-file", secret)
	if status != 2 || !strings.Contains(stderr, "--token-file") || strings.Contains(stderr, secret) {
		t.Errorf("a token in place of its file: exit status %d, %q", status, stderr)
	}
}

// TestIssuedTokenScopes sends each request with tokens of each scope.
func TestIssuedTokenScopes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		tokens := make(map[string]string)
		for _, scopes := range []string{"plants:read", "plants:write", "plants:read,plants:write", "admin"} {
			tokens[scopes] = issue(t, url, "--scope", scopes)
		}
		for _, test := range []struct {
			method, path, body string
			needs              string
			status             int // where the token may do it
		}{
			{"GET", "/plants", "", "plants:read", 200},
			{"HEAD", "/plants", "", "plants:read", 200},
			{"GET", "/plants/1", "", "plants:read", 404},
			{"GET", "/plants/export", "", "plants:read", 200},
			{"POST", "/plants", "{", "plants:write", 400},
			{"PUT", "/plants/2", "{", "plants:write", 400},
			{"PATCH", "/plants/1", `{"name":"x"}`, "plants:write", 404},
			{"DELETE", "/plants/1", "", "plants:write", 404},
			{"POST", "/plants/import", `{"id":"x"}`, "plants:write", 400},
			{"GET", "/tokens", "", "admin", 200},
			{"POST", "/tokens", "{", "admin", 400},
			{"DELETE", "/tokens/pst_aaaaaaaa", "", "admin", 404},
		} {
			for scopes, issued := range tokens {
				what := fmt.Sprintf("%s %s with %s", test.method, test.path, scopes)
				a := s.send(test.method, test.path, strings.NewReader(test.body), as(issued, "Content-Type", contentTypeOf(test.path))...)
				has := strings.Split(scopes, ",")
				if slices.Contains(has, test.needs) || slices.Contains(has, "admin") {
					if a.status != test.status {
						t.Errorf("%s: got %d %s, want %d", what, a.status, a.body, test.status)
					}
					continue
				}
				if test.method == "HEAD" {
					checkEmpty(t, what, a, 403)
				} else {
					checkError(t, what, a, 403, 40301)
					checkNames(t, what, a, test.needs)
				}
				if got, want := a.header.Values("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+test.needs+`"`; len(got) != 1 || got[0] != want {
					t.Errorf("%s: WWW-Authenticate %q, want %q", what, got, want)
				}
			}
		}
	})
}

// contentTypeOf returns the media type that the body of a request for path has.
func contentTypeOf(path string) string {
	if path == "/plants/import" {
		return "application/x-ndjson"
	}
	return "application/json"
}

// use is one request with a token, and what came of it.
type use struct {
	began, ended time.Time
	answer       answer
	err          error
}

// useUntil sends requests with a token, each after the other, until ctx ends.
func (s *service) useUntil(ctx context.Context, token string) (uses []use) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		u := use{began: time.Now()}
		u.answer, u.err = s.tryOn(transport, "GET", "/plants?limit=1", nil, as(token)...)
		u.ended = time.Now()
		uses = append(uses, u)
	}
	return uses
}

// TestTokensEndOnEveryReplica uses tokens all the time, on two services that share
// a database, while they end.
func TestTokensEndOnEveryReplica(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		// Who goes on with a token that has ended is not to be limited here.
		settings := []string{"DATABASE_URL=" + url, "PLANTSTORE_LIMITS_FAILURES_PER_MINUTE=0"}
		replicas := []*service{start(t, settings...), start(t, settings...)}
		lasting := issue(t, url)
		for _, test := range []struct {
			what string
			args []string // of token create
			// end ends the token, and returns from when on it must not be accepted.
			end func(t *testing.T, issued string) time.Time
		}{
			{"revoked by the command", nil, func(t *testing.T, issued string) time.Time {
				checkCLI(t, "revoke", []string{"DATABASE_URL=" + url}, []string{"token", "revoke", prefixOf(issued)}, 0, "revoked "+prefixOf(issued)+"\n")
				return time.Now().Add(revocationTime)
			}},
			{"revoked by DELETE", nil, func(t *testing.T, issued string) time.Time {
				checkEmpty(t, "DELETE", replicas[0].send("DELETE", "/tokens/"+prefixOf(issued), nil, as(token)...), 204)
				return time.Now().Add(revocationTime)
			}},
			{"expired", []string{"--expires", "4s"}, func(t *testing.T, issued string) time.Time {
				return *issuedToken(t, replicas[1], issued).ExpiresAt
			}},
		} {
			t.Run(test.what, func(t *testing.T) {
				t.Parallel()
				issued := issue(t, url, test.args...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				uses := make([][]use, len(replicas))
				var group sync.WaitGroup
				for i, s := range replicas {
					// Each replica knows the token from here on.
					if a := s.get("/plants", as(issued)...); a.status != 200 {
						t.Fatalf("a new token: %d %s", a.status, a.body)
					}
					group.Go(func() { uses[i] = s.useUntil(ctx, issued) })
				}
				begin := time.Now()
				last := test.end(t, issued)
				revoked := time.Now()
				time.AfterFunc(time.Until(last)+time.Second, stop)
				group.Wait()
				for i := range uses {
					checkEnd(t, fmt.Sprintf("replica %d", i+1), uses[i], begin, revoked, last)
				}
				for i, s := range replicas {
					if a := s.get("/plants", as(lasting)...); a.status != 200 {
						t.Errorf("replica %d: another token: %d %s", i+1, a.status, a.body)
					}
				}
			})
		}
	})
}

// checkEnd checks that a token was accepted at begin, and then refused for good: no
// request that began after last may have been accepted. It logs how long it took from revoked on.
func checkEnd(t *testing.T, what string, uses []use, begin, revoked, last time.Time) {
	t.Helper()
	accepted, refused := 0, 0
	var lastAccepted time.Time
	for _, u := range uses {
		switch {
		case u.err != nil:
			t.Fatalf("%s: %v", what, u.err)
		case u.answer.status == 200:
			accepted++
			lastAccepted = u.ended
			if refused > 0 {
				t.Errorf("%s: accepted after it was refused", what)
			}
			if u.began.After(last) {
				t.Errorf("%s: accepted %v too late", what, u.began.Sub(last))
			}
		default:
			if refused++; refused == 1 || u.answer.code() != 40102 {
				checkError(t, what, u.answer, 401, 40102)
			}
		}
	}
	if accepted == 0 || refused == 0 || lastAccepted.Before(begin) {
		t.Errorf("%s: %d accepted, %d refused, the last accepted %v after the beginning", what, accepted, refused, lastAccepted.Sub(begin))
	}
	t.Logf("%s: %d requests accepted, the last answered %v after the end was told, %v before it must take effect; %d refused",
		what, accepted, lastAccepted.Sub(revoked).Round(time.Millisecond), last.Sub(lastAccepted).Round(time.Millisecond), refused)
}

// tokenRow is what the service says of an issued token.
type tokenRow struct {
	ID, Name   string
	Token      string
	Scopes     []string
	CreatedAt  time.Time  `json:"created_at"`
	ExpiresAt  *time.Time `json:"expires_at"`
	RevokedAt  *time.Time `json:"revoked_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
}

// tokens returns the tokens in an answer.
func (a answer) tokens() (rows []tokenRow) {
	_ = json.Unmarshal([]byte(a.body), &rows)
	return rows
}

// issuedToken returns what GET /tokens says of an issued token.
func issuedToken(t *testing.T, s *service, issued string) tokenRow {
	t.Helper()
	a := s.get("/tokens?limit=1000", as(token)...)
	for _, row := range a.tokens() {
		if row.ID == prefixOf(issued) {
			return row
		}
	}
	t.Fatalf("GET /tokens lacks %s: %d %s", prefixOf(issued), a.status, a.body)
	return tokenRow{}
}

// TestTokensAPI issues, lists and revokes tokens by requests.
func TestTokensAPI(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		if a := s.call("GET", "/tokens", ""); a.status != 200 || a.body != "[]" {
			t.Errorf("no tokens: %d %s", a.status, a.body)
		}
		created := make(map[string]tokenRow)
		for _, test := range []struct {
			what, body string
			scopes     string
			expires    string
		}{
			{"one scope", `{"name":"one","scopes":["plants:read"]}`, "plants:read", ""},
			{"scopes in any order, and twice", `{"name":"one","scopes":["admin","plants:read","admin"]}`, "plants:read admin", ""},
			{"an end", `{"name":"é 🌵","scopes":["plants:write"],"expires_at":"2099-12-31T00:00:00Z"}`, "plants:write", "2099-12-31T00:00:00Z"},
			{"an end elsewhere", `{"name":"x","scopes":["plants:write"],"expires_at":"2099-12-31T00:00:00.123456789+01:00"}`, "plants:write", "2099-12-30T23:00:00.123456Z"},
			{"the last end", `{"name":"x","scopes":["plants:write"],"expires_at":"9999-12-31T23:59:59Z"}`, "plants:write", "9999-12-31T23:59:59Z"},
			{"100 characters of four bytes", `{"name":"` + strings.Repeat("🌵", 100) + `","scopes":["plants:read"]}`, "plants:read", ""},
		} {
			a := s.call("POST", "/tokens", test.body)
			var row tokenRow
			if err := json.Unmarshal([]byte(a.body), &row); err != nil || a.status != 200 {
				t.Errorf("%s: %d %s", test.what, a.status, a.body)
				continue
			}
			checkHeaders(t, test.what, a)
			if !wellFormed.MatchString(row.Token) || row.ID != prefixOf(row.Token) || strings.Join(row.Scopes, " ") != test.scopes ||
				!strings.Contains(test.body, `"name":"`+row.Name+`"`) || time.Since(row.CreatedAt).Abs() > time.Minute {
				t.Errorf("%s: %s", test.what, a.body)
			}
			if test.expires == "" && row.ExpiresAt != nil || test.expires != "" && !strings.Contains(a.body, `"expires_at":"`+test.expires+`"`) {
				t.Errorf("%s: it ends at %v, want %s", test.what, row.ExpiresAt, test.expires)
			}
			want := 403
			if slices.Contains(row.Scopes, "plants:read") {
				want = 200
			}
			if a := s.get("/plants", as(row.Token)...); a.status != want {
				t.Errorf("%s: used at once: %d %s, want %d", test.what, a.status, a.body, want)
			}
			created[row.ID] = row
		}

		// Page by page.
		seen, path := []string{}, "/tokens?limit=2"
		for path != "" && len(seen) <= len(created) {
			a := s.call("GET", path, "")
			for _, row := range a.tokens() {
				seen = append(seen, row.ID)
				want := created[row.ID]
				if row.Token != "" || row.Name != want.Name || !row.CreatedAt.Equal(want.CreatedAt) ||
					(row.ExpiresAt == nil) != (want.ExpiresAt == nil) || row.ExpiresAt != nil && !row.ExpiresAt.Equal(*want.ExpiresAt) {
					t.Errorf("GET %s has %+v, want %+v", path, row, want)
				}
				if strings.Contains(a.body, want.Token[len(row.ID):]) {
					t.Errorf("GET %s has the token", path)
				}
			}
			next := regexp.MustCompile(`^<(/tokens\?.+)>; rel="next"$`).FindStringSubmatch(a.header.Get("Link"))
			if path = ""; next != nil {
				path = next[1]
			}
		}
		if len(seen) != len(created) || !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(created) {
			t.Errorf("the pages have %v, want each of %d once, by ascending id", seen, len(created))
		}

		// The end of one.
		gone := seen[0]
		checkEmpty(t, "revoke", s.call("DELETE", "/tokens/"+gone, ""), 204)
		checkError(t, "revoke again", s.call("DELETE", "/tokens/"+gone, ""), 404, 40403)
		if row := issuedToken(t, s, created[gone].Token); row.RevokedAt == nil || time.Since(*row.RevokedAt).Abs() > time.Minute {
			t.Errorf("what was revoked is %+v", row)
		}
	})
}

// TestTokensAPIErrors walks what requests for tokens can have wrong. After all of
// them there must be no token.
func TestTokensAPIErrors(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		const whole = "pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"
		expires := func(at string) string { return `{"name":"x","scopes":["admin"],"expires_at":` + at + `}` }
		for _, test := range []struct {
			what, method, path, body string
			status, code             int
			names                    string
		}{
			{"no body", "POST", "/tokens", "", 400, 40001, "empty"},
			{"an array", "POST", "/tokens", "[]", 400, 40001, "object"},
			{"an unknown field", "POST", "/tokens", `{"name":"x","scopes":["admin"],"expires":"90d"}`, 400, 40002, "expires"},
			{"an id of one's own", "POST", "/tokens", `{"name":"x","scopes":["admin"],"id":"pst_abcdefgh"}`, 400, 40002, "id"},
			{"a token of one's own", "POST", "/tokens", `{"name":"x","scopes":["admin"],"token":"` + whole + `"}`, 400, 40002, "token"},
			{"scopes twice", "POST", "/tokens", `{"name":"x","scopes":["plants:read"],"scopes":["admin"]}`, 400, 40003, "scopes"},
			{"no name", "POST", "/tokens", `{"scopes":["admin"]}`, 400, 40004, "name"},
			{"no scopes", "POST", "/tokens", `{"name":"x"}`, 400, 40004, "scopes"},
			{"null scopes", "POST", "/tokens", `{"name":"x","scopes":null}`, 400, 40004, "scopes"},
			{"a text for scopes", "POST", "/tokens", `{"name":"x","scopes":"admin"}`, 400, 40004, "scopes"},
			{"a null scope", "POST", "/tokens", `{"name":"x","scopes":[null]}`, 400, 40004, "scopes"},
			{"a number for an end", "POST", "/tokens", expires("4102358400"), 400, 40004, "expires_at"},
			{"a null end", "POST", "/tokens", expires("null"), 400, 40004, "expires_at"},
			{"an empty name", "POST", "/tokens", `{"name":"","scopes":["admin"]}`, 400, 40006, "name"},
			{"a blank name", "POST", "/tokens", `{"name":" \u00a0","scopes":["admin"]}`, 400, 40006, "name"},
			{"a long name", "POST", "/tokens", `{"name":"` + strings.Repeat("é", 101) + `","scopes":["admin"]}`, 400, 40006, "name"},
			{"a control character in the name", "POST", "/tokens", `{"name":"a\u001b[31m","scopes":["admin"]}`, 400, 40006, "name"},
			{"an empty list of scopes", "POST", "/tokens", `{"name":"x","scopes":[]}`, 400, 40006, "scopes"},
			{"an unknown scope", "POST", "/tokens", `{"name":"x","scopes":["plants:read","plants:*"]}`, 400, 40006, "scopes"},
			{"a scope in capitals", "POST", "/tokens", `{"name":"x","scopes":["ADMIN"]}`, 400, 40006, "scopes"},
			{"an end that was", "POST", "/tokens", expires(`"2020-01-01T00:00:00Z"`), 400, 40006, "expires_at"},
			{"an end that is a date", "POST", "/tokens", expires(`"2099-12-31"`), 400, 40006, "expires_at"},
			{"an end without a zone", "POST", "/tokens", expires(`"2099-12-31T00:00:00"`), 400, 40006, "expires_at"},
			{"an end on a day that there is not", "POST", "/tokens", expires(`"2099-02-29T00:00:00Z"`), 400, 40006, "expires_at"},
			{"an empty end", "POST", "/tokens", expires(`""`), 400, 40006, "expires_at"},
			{"an end that is a token", "POST", "/tokens", expires(`"` + whole + `"`), 400, 40006, "expires_at"},
			{"an end in the year 10000 of UTC", "POST", "/tokens", expires(`"9999-12-31T23:59:59-01:00"`), 400, 40006, "expires_at"},
			{"an unknown parameter", "GET", "/tokens?name=x", "", 400, 40007, "name"},
			{"no limit", "GET", "/tokens?limit=0", "", 400, 40007, "limit"},
			{"a large limit", "GET", "/tokens?limit=1001", "", 400, 40007, "limit"},
			{"an id for a place", "GET", "/tokens?after=1", "", 400, 40007, "after"},
			{"a whole token for a place", "GET", "/tokens?after=" + whole, "", 400, 40007, "after"},
			{"another id", "DELETE", "/tokens/1", "", 400, 40007, "id"},
			{"a whole token", "DELETE", "/tokens/" + whole, "", 400, 40007, "id"},
			{"what is not there", "DELETE", "/tokens/pst_abcdefgh", "", 404, 40403, "token"},
			{"a large body", "POST", "/tokens", strings.Repeat(" ", 70000), 400, 41301, "65536"},
		} {
			a := s.call(test.method, test.path, test.body)
			checkError(t, test.what, a, test.status, test.code)
			checkNames(t, test.what, a, test.names)
			if strings.Contains(a.body, whole) {
				t.Errorf("%s: the answer repeats a token: %s", test.what, a.body)
			}
		}
		checkError(t, "no JSON", s.call("POST", "/tokens", "{}", "Content-Type", "text/plain"), 400, 41501)
		a := s.send("PUT", "/tokens", nil)
		checkError(t, "another method", a, 405, 40501)
		if a := s.call("GET", "/tokens", ""); a.status != 200 || a.body != "[]" {
			t.Errorf("after nothing but errors: %d %s", a.status, a.body)
		}
	})
}

// TestTokenLastUse: the last use is written down at the end, at the latest.
func TestTokenLastUse(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		used, refused, unused := issue(t, url), issue(t, url, "--scope", "plants:read"), issue(t, url)
		begin := time.Now().Truncate(time.Microsecond)
		if a := s.get("/plants", as(used)...); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
		checkError(t, "a request that the token does not allow", s.post("{}", as(refused)...), 403, 40301)
		s.stop()
		again := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			what, token string
			used        bool
		}{
			{"used", used, true},
			{"used for what it does not allow", refused, true},
			{"not used", unused, false},
		} {
			at := issuedToken(t, again, test.token).LastUsedAt
			if test.used != (at != nil) || at != nil && (at.Before(begin) || at.After(time.Now())) {
				t.Errorf("%s: last used at %v", test.what, at)
			}
			if listedNever := regexp.MustCompile(`  never  +never  +in force$`).MatchString(listed(t, url, test.token)); listedNever == test.used {
				t.Errorf("%s: token list has %q", test.what, listed(t, url, test.token))
			}
		}
	})
}

// TestTokensWithoutPostgres stops PostgreSQL under the running service: a token
// that is known is still good for a moment, and whoever has a good one is never told
// that it is not.
func TestTokensWithoutPostgres(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL)
	known, unknown := issue(t, server.URL), issue(t, dbtest.SQLite(t))
	// A bad body tells whether the token is accepted, for it needs no database.
	try := func(issued string) answer { return s.post("{", as(issued)...) }
	checkError(t, "a known token", try(known), 400, 40001)
	checkError(t, "an unknown token", try(unknown), 401, 40102)

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	checkError(t, "a known token, just now", try(known), 400, 40001)
	for {
		a := try(known)
		if a.status == 503 {
			checkError(t, "a known token", a, 503, 50302)
			if a.header.Get("Retry-After") == "" || a.header.Get("WWW-Authenticate") != "" {
				t.Errorf("a known token: headers %v", a.header)
			}
			break
		}
		checkError(t, "a known token, for a while", a, 400, 40001)
		if time.Since(stopped) > patience {
			t.Fatal("a token is trusted for ever")
		}
	}
	took := time.Since(stopped)
	t.Logf("without a database, a known token was trusted for %v", took.Round(10*time.Millisecond))
	if took > revocationTime {
		t.Errorf("that is more than %v", revocationTime)
	}
	for _, test := range []struct {
		what, token  string
		status, code int
	}{
		{"a known token", known, 503, 50302},
		{"a token that may have been issued since", unknown, 503, 50302},
		{"a mistyped token", mistype(known), 401, 40102},
		{"what is no token", "x", 401, 40102},
		{"a static token", token, 400, 40001},
	} {
		checkError(t, test.what+" without a database", try(test.token), test.status, test.code)
	}

	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		a := try(known)
		if a.status == 400 {
			break
		}
		checkError(t, "a known token, with the database back", a, 503, 50302)
		if time.Now().After(deadline) {
			t.Fatal("it is not accepted again")
		}
	}
	if a := s.get("/plants", as(known)...); a.status != 200 {
		t.Errorf("all is well again: %d %s", a.status, a.body)
	}
	checkError(t, "an unknown token", try(unknown), 401, 40102)
}

// TestProductionWithoutTokens: tokens can be issued later.
func TestProductionWithoutTokens(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_ENV=production", "PLANTSTORE_AUTH_TOKENS=")
	s.awaitLog("nobody can come in: plantstore token create issues a token")
	if _, err := os.Stat(filepath.Join(s.folder, "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has made a folder for a token of its own: %v", err)
	}
	checkError(t, "anybody", s.post(bodyOf(1)), 401, 40102)
	if a := s.post(bodyOf(1), as(issue(t, url))...); a.status != 200 {
		t.Errorf("whoever was issued a token: %d %s", a.status, a.body)
	}
}
