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
			{method: "GET", path: "/plants", needs: "plants:read", status: 200},
			{method: "HEAD", path: "/plants", needs: "plants:read", status: 200},
			{method: "GET", path: "/plants/1", needs: "plants:read", status: 404},
			{method: "GET", path: "/plants/export", needs: "plants:read", status: 200},
			{method: "POST", path: "/plants", body: "{", needs: "plants:write", status: 400},
			{method: "PUT", path: "/plants/2", body: "{", needs: "plants:write", status: 400},
			{method: "PATCH", path: "/plants/1", body: `{"name":"x"}`, needs: "plants:write", status: 404},
			{method: "DELETE", path: "/plants/1", needs: "plants:write", status: 404},
			{method: "POST", path: "/plants/import", body: `{"id":"x"}`, needs: "plants:write", status: 400},
			{method: "GET", path: "/tokens", needs: "admin", status: 200},
			{method: "POST", path: "/tokens", body: "{", needs: "admin", status: 400},
			{method: "DELETE", path: "/tokens/pst_aaaaaaaa", needs: "admin", status: 404},
		} {
			t.Run(test.method+" "+test.path, func(t *testing.T) {
				for scopes, issued := range tokens {
					what := fmt.Sprintf("%s %s with %s", test.method, test.path, scopes)
					r := s.send(t, test.method, test.path, strings.NewReader(test.body), as(issued, "Content-Type", contentTypeOf(test.path))...)
					has := strings.Split(scopes, ",")
					if slices.Contains(has, test.needs) || slices.Contains(has, "admin") {
						if r.status != test.status {
							t.Errorf("%s: got %v, want %d", what, r, test.status)
						}
						continue
					}
					if test.method == "HEAD" {
						checkEmpty(t, r, 403)
					} else {
						checkError(t, r, 40301, test.needs)
					}
					if got, want := r.header.Values("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+test.needs+`"`; len(got) != 1 || got[0] != want {
						t.Errorf("%s: WWW-Authenticate %q, want %q", what, got, want)
					}
				}
			})
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
	response     response
	err          error
}

// useUntil sends requests with a token, each after the other, until ctx ends.
func (s *service) useUntil(ctx context.Context, token string) (uses []use) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		u := use{began: time.Now()}
		u.response, u.err = s.tryOn(transport, "GET", "/plants?limit=1", nil, as(token)...)
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
			name string
			args []string // of token create
			// end ends the token, and returns from when on it must not be accepted.
			end func(t *testing.T, issued string) time.Time
		}{
			{"revoked by the command", nil, func(t *testing.T, issued string) time.Time {
				checkCLI(t, []string{"DATABASE_URL=" + url}, []string{"token", "revoke", prefixOf(issued)}, 0, "revoked "+prefixOf(issued)+"\n")
				return time.Now().Add(revocationTime)
			}},
			{"revoked by DELETE", nil, func(t *testing.T, issued string) time.Time {
				checkEmpty(t, replicas[0].send(t, "DELETE", "/tokens/"+prefixOf(issued), nil, as(token)...), 204)
				return time.Now().Add(revocationTime)
			}},
			{"expired", []string{"--expires", "4s"}, func(t *testing.T, issued string) time.Time {
				return *issuedToken(t, replicas[1], issued).ExpiresAt
			}},
		} {
			t.Run(test.name, func(t *testing.T) {
				t.Parallel()
				issued := issue(t, url, test.args...)
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				uses := make([][]use, len(replicas))
				var group sync.WaitGroup
				for i, s := range replicas {
					// Each replica knows the token from here on.
					requireStatus(t, s.get(t, "/plants", as(issued)...), 200)
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
				for _, s := range replicas {
					checkStatus(t, s.get(t, "/plants", as(lasting)...), 200)
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
		case u.response.status == 200:
			accepted++
			lastAccepted = u.ended
			if refused > 0 {
				t.Errorf("%s: accepted after it was refused", what)
			}
			if u.began.After(last) {
				t.Errorf("%s: accepted %v too late", what, u.began.Sub(last))
			}
		default:
			if refused++; refused == 1 || u.response.code() != 40102 {
				checkError(t, u.response, 40102)
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
func (r response) tokens() (rows []tokenRow) {
	_ = json.Unmarshal([]byte(r.body), &rows)
	return rows
}

// issuedToken returns what GET /tokens says of an issued token.
func issuedToken(t *testing.T, s *service, issued string) tokenRow {
	t.Helper()
	r := s.get(t, "/tokens?limit=1000", as(token)...)
	for _, row := range r.tokens() {
		if row.ID == prefixOf(issued) {
			return row
		}
	}
	t.Fatalf("GET /tokens lacks %s: %v", prefixOf(issued), r)
	return tokenRow{}
}

// TestTokensAPI issues, lists and revokes tokens by requests.
func TestTokensAPI(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		if r := s.call(t, "GET", "/tokens", ""); r.status != 200 || r.body != "[]" {
			t.Errorf("no tokens: %v", r)
		}
		created := make(map[string]tokenRow)
		for _, test := range []struct {
			name, body string
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
			t.Run(test.name, func(t *testing.T) {
				r := s.call(t, "POST", "/tokens", test.body)
				var row tokenRow
				if err := json.Unmarshal([]byte(r.body), &row); err != nil || r.status != 200 {
					t.Errorf("got %v", r)
					return
				}
				checkHeaders(t, r)
				if !wellFormed.MatchString(row.Token) || row.ID != prefixOf(row.Token) || strings.Join(row.Scopes, " ") != test.scopes ||
					!strings.Contains(test.body, `"name":"`+row.Name+`"`) || time.Since(row.CreatedAt).Abs() > time.Minute {
					t.Errorf("%s", r.body)
				}
				if test.expires == "" && row.ExpiresAt != nil || test.expires != "" && !strings.Contains(r.body, `"expires_at":"`+test.expires+`"`) {
					t.Errorf("it ends at %v, want %s", row.ExpiresAt, test.expires)
				}
				want := 403
				if slices.Contains(row.Scopes, "plants:read") {
					want = 200
				}
				checkStatus(t, s.get(t, "/plants", as(row.Token)...), want)
				created[row.ID] = row
			})
		}

		// Page by page.
		seen, path := []string{}, "/tokens?limit=2"
		for path != "" && len(seen) <= len(created) {
			r := s.call(t, "GET", path, "")
			for _, row := range r.tokens() {
				seen = append(seen, row.ID)
				want := created[row.ID]
				if row.Token != "" || row.Name != want.Name || !row.CreatedAt.Equal(want.CreatedAt) ||
					(row.ExpiresAt == nil) != (want.ExpiresAt == nil) || row.ExpiresAt != nil && !row.ExpiresAt.Equal(*want.ExpiresAt) {
					t.Errorf("GET %s has %+v, want %+v", path, row, want)
				}
				if strings.Contains(r.body, want.Token[len(row.ID):]) {
					t.Errorf("GET %s has the token", path)
				}
			}
			next := regexp.MustCompile(`^<(/tokens\?.+)>; rel="next"$`).FindStringSubmatch(r.header.Get("Link"))
			if path = ""; next != nil {
				path = next[1]
			}
		}
		if len(seen) != len(created) || !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(created) {
			t.Errorf("the pages have %v, want each of %d once, by ascending id", seen, len(created))
		}

		// The end of one.
		gone := seen[0]
		checkEmpty(t, s.call(t, "DELETE", "/tokens/"+gone, ""), 204)   // revoke
		checkError(t, s.call(t, "DELETE", "/tokens/"+gone, ""), 40403) // revoke again
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
			name, method, path, body string
			code                     int
			mentions                 string
		}{
			{name: "no body", method: "POST", path: "/tokens", code: 40001, mentions: "empty"},
			{name: "an array", method: "POST", path: "/tokens", body: "[]", code: 40001, mentions: "object"},
			{name: "an unknown field", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["admin"],"expires":"90d"}`, code: 40002, mentions: "expires"},
			{name: "an id of one's own", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["admin"],"id":"pst_abcdefgh"}`, code: 40002, mentions: "id"},
			{name: "a token of one's own", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["admin"],"token":"` + whole + `"}`, code: 40002, mentions: "token"},
			{name: "scopes twice", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["plants:read"],"scopes":["admin"]}`, code: 40003, mentions: "scopes"},
			{name: "no name", method: "POST", path: "/tokens", body: `{"scopes":["admin"]}`, code: 40004, mentions: "name"},
			{name: "no scopes", method: "POST", path: "/tokens", body: `{"name":"x"}`, code: 40004, mentions: "scopes"},
			{name: "null scopes", method: "POST", path: "/tokens", body: `{"name":"x","scopes":null}`, code: 40004, mentions: "scopes"},
			{name: "a text for scopes", method: "POST", path: "/tokens", body: `{"name":"x","scopes":"admin"}`, code: 40004, mentions: "scopes"},
			{name: "a null scope", method: "POST", path: "/tokens", body: `{"name":"x","scopes":[null]}`, code: 40004, mentions: "scopes"},
			{name: "a number for an end", method: "POST", path: "/tokens", body: expires("4102358400"), code: 40004, mentions: "expires_at"},
			{name: "a null end", method: "POST", path: "/tokens", body: expires("null"), code: 40004, mentions: "expires_at"},
			{name: "an empty name", method: "POST", path: "/tokens", body: `{"name":"","scopes":["admin"]}`, code: 40006, mentions: "name"},
			{name: "a blank name", method: "POST", path: "/tokens", body: `{"name":" \u00a0","scopes":["admin"]}`, code: 40006, mentions: "name"},
			{name: "a long name", method: "POST", path: "/tokens", body: `{"name":"` + strings.Repeat("é", 101) + `","scopes":["admin"]}`, code: 40006, mentions: "name"},
			{name: "a control character in the name", method: "POST", path: "/tokens", body: `{"name":"a\u001b[31m","scopes":["admin"]}`, code: 40006, mentions: "name"},
			{name: "an empty list of scopes", method: "POST", path: "/tokens", body: `{"name":"x","scopes":[]}`, code: 40006, mentions: "scopes"},
			{name: "an unknown scope", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["plants:read","plants:*"]}`, code: 40006, mentions: "scopes"},
			{name: "a scope in capitals", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["ADMIN"]}`, code: 40006, mentions: "scopes"},
			{name: "an end that was", method: "POST", path: "/tokens", body: expires(`"2020-01-01T00:00:00Z"`), code: 40006, mentions: "expires_at"},
			{name: "an end that is a date", method: "POST", path: "/tokens", body: expires(`"2099-12-31"`), code: 40006, mentions: "expires_at"},
			{name: "an end without a zone", method: "POST", path: "/tokens", body: expires(`"2099-12-31T00:00:00"`), code: 40006, mentions: "expires_at"},
			{name: "an end on a day that there is not", method: "POST", path: "/tokens", body: expires(`"2099-02-29T00:00:00Z"`), code: 40006, mentions: "expires_at"},
			{name: "an empty end", method: "POST", path: "/tokens", body: expires(`""`), code: 40006, mentions: "expires_at"},
			{name: "an end that is a token", method: "POST", path: "/tokens", body: expires(`"` + whole + `"`), code: 40006, mentions: "expires_at"},
			{name: "an end in the year 10000 of UTC", method: "POST", path: "/tokens", body: expires(`"9999-12-31T23:59:59-01:00"`), code: 40006, mentions: "expires_at"},
			{name: "an unknown parameter", method: "GET", path: "/tokens?name=x", code: 40007, mentions: "name"},
			{name: "no limit", method: "GET", path: "/tokens?limit=0", code: 40007, mentions: "limit"},
			{name: "a large limit", method: "GET", path: "/tokens?limit=1001", code: 40007, mentions: "limit"},
			{name: "an id for a place", method: "GET", path: "/tokens?after=1", code: 40007, mentions: "after"},
			{name: "a whole token for a place", method: "GET", path: "/tokens?after=" + whole, code: 40007, mentions: "after"},
			{name: "another id", method: "DELETE", path: "/tokens/1", code: 40007, mentions: "id"},
			{name: "a whole token", method: "DELETE", path: "/tokens/" + whole, code: 40007, mentions: "id"},
			{name: "what is not there", method: "DELETE", path: "/tokens/pst_abcdefgh", code: 40403, mentions: "token"},
			{name: "a large body", method: "POST", path: "/tokens", body: strings.Repeat(" ", 70000), code: 41301, mentions: "65536"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.call(t, test.method, test.path, test.body)
				checkError(t, r, test.code, test.mentions)
				if strings.Contains(r.body, whole) {
					t.Errorf("the answer repeats a token: %s", r.body)
				}
			})
		}
		checkError(t, s.call(t, "POST", "/tokens", "{}", "Content-Type", "text/plain"), 41501) // no JSON
		r := s.send(t, "PUT", "/tokens", nil)
		checkError(t, r, 40501) // another method
		if r := s.call(t, "GET", "/tokens", ""); r.status != 200 || r.body != "[]" {
			t.Errorf("after nothing but errors: %v", r)
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
		requireStatus(t, s.get(t, "/plants", as(used)...), 200)
		checkError(t, s.post(t, "{}", as(refused)...), 40301) // a request that the token does not allow
		s.stop(t)
		again := start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, token string
			used        bool
		}{
			{"used", used, true},
			{"used for what it does not allow", refused, true},
			{"not used", unused, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				at := issuedToken(t, again, test.token).LastUsedAt
				if test.used != (at != nil) || at != nil && (at.Before(begin) || at.After(time.Now())) {
					t.Errorf("last used at %v", at)
				}
				if listedNever := regexp.MustCompile(`  never  +never  +in force$`).MatchString(listed(t, url, test.token)); listedNever == test.used {
					t.Errorf("token list has %q", listed(t, url, test.token))
				}
			})
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
	try := func(issued string) response { return s.post(t, "{", as(issued)...) }
	checkError(t, try(known), 40001)   // a known token
	checkError(t, try(unknown), 40102) // an unknown token

	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	stopped := time.Now()
	checkError(t, try(known), 40001) // a known token, just now
	for {
		r := try(known)
		if r.status == 503 {
			checkError(t, r, 50302) // a known token
			if r.header.Get("Retry-After") == "" || r.header.Get("WWW-Authenticate") != "" {
				t.Errorf("a known token: headers %v", r.header)
			}
			break
		}
		checkError(t, r, 40001) // a known token, for a while
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
		name, token string
		code        int
	}{
		{"a known token", known, 50302},
		{"a token that may have been issued since", unknown, 50302},
		{"a mistyped token", mistype(known), 40102},
		{"what is no token", "x", 40102},
		{"a static token", token, 40001},
	} {
		t.Run(test.name, func(t *testing.T) {
			checkError(t, try(test.token), test.code)
		})
	}

	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	for deadline := time.Now().Add(patience); ; {
		r := try(known)
		if r.status == 400 {
			break
		}
		checkError(t, r, 50302) // a known token, with the database back
		if time.Now().After(deadline) {
			t.Fatal("it is not accepted again")
		}
	}
	checkStatus(t, s.get(t, "/plants", as(known)...), 200)
	checkError(t, try(unknown), 40102) // an unknown token
}

// TestProductionWithoutTokens: tokens can be issued later.
func TestProductionWithoutTokens(t *testing.T) {
	t.Parallel()
	url := dbtest.SQLite(t)
	s := start(t, "DATABASE_URL="+url, "PLANTSTORE_ENV=production", "PLANTSTORE_AUTH_TOKENS=")
	s.awaitLog(t, "nobody can come in: plantstore token create issues a token")
	if _, err := os.Stat(filepath.Join(s.folder, "data")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("it has made a folder for a token of its own: %v", err)
	}
	checkError(t, s.post(t, bodyOf(1)), 40102) // anybody
	checkStatus(t, s.post(t, bodyOf(1), as(issue(t, url))...), 200)
}
