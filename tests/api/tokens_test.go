package api

import (
	"encoding/json"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

// TestTokensAPI creates, lists and revokes tokens by requests.
func TestTokensAPI(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		if r := s.Call(t, "GET", "/tokens", ""); r.Status != 200 || r.Body != "[]" {
			t.Errorf("got %v, want no tokens", r)
		}
		created := make(map[string]service.TokenRow)
		for _, test := range []struct {
			name, body string
			scopes     string
			expires    string
		}{
			{"one scope", `{"name":"one","scopes":["plants:read"]}`, "plants:read", ""},
			{"scopes in any order, and twice", `{"name":"one","scopes":["admin","plants:read","admin"]}`, "plants:read admin", ""},
			{"an expiry", `{"name":"é 🌵","scopes":["plants:write"],"expires_at":"2099-12-31T00:00:00Z"}`, "plants:write", "2099-12-31T00:00:00.000000Z"},
			{"an expiry in another zone", `{"name":"x","scopes":["plants:write"],"expires_at":"2099-12-31T00:00:00.123456789+01:00"}`, "plants:write", "2099-12-30T23:00:00.123456Z"},
			{"the last expiry", `{"name":"x","scopes":["plants:write"],"expires_at":"9999-12-31T23:59:59Z"}`, "plants:write", "9999-12-31T23:59:59.000000Z"},
			{"an expiry in lower case", `{"name":"x","scopes":["plants:write"],"expires_at":"2099-12-31t00:00:00.5z"}`, "plants:write", "2099-12-31T00:00:00.500000Z"},
			{"100 characters of four bytes", `{"name":"` + strings.Repeat("🌵", 100) + `","scopes":["plants:read"]}`, "plants:read", ""},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.Call(t, "POST", "/tokens", test.body)
				var row service.TokenRow
				if err := json.Unmarshal([]byte(r.Body), &row); err != nil || r.Status != 200 {
					t.Errorf("got %v, want 200", r)
					return
				}
				r.CheckHeaders(t)
				if !service.WellFormed.MatchString(row.Token) || row.ID != service.PrefixOf(row.Token) || strings.Join(row.Scopes, " ") != test.scopes ||
					!strings.Contains(test.body, `"name":"`+row.Name+`"`) || time.Since(row.CreatedAt).Abs() > time.Minute {
					t.Errorf("got %v, want scopes %s", r, test.scopes)
				}
				if test.expires == "" && row.ExpiresAt != nil || test.expires != "" && !strings.Contains(r.Body, `"expires_at":"`+test.expires+`"`) {
					t.Errorf("got expires_at %v, want %s", row.ExpiresAt, test.expires)
				}
				want := 403
				if slices.Contains(row.Scopes, "plants:read") {
					want = 200
				}
				s.Get(t, "/plants", service.As(row.Token)...).CheckStatus(t, want)
				created[row.ID] = row
			})
		}

		seen, path := []string{}, "/tokens?limit=2"
		for path != "" && len(seen) <= len(created) {
			r := s.Call(t, "GET", path, "")
			for _, row := range r.Tokens() {
				seen = append(seen, row.ID)
				want := created[row.ID]
				if row.Token != "" || row.Name != want.Name || !row.CreatedAt.Equal(want.CreatedAt) ||
					(row.ExpiresAt == nil) != (want.ExpiresAt == nil) || row.ExpiresAt != nil && !row.ExpiresAt.Equal(*want.ExpiresAt) {
					t.Errorf("got %+v, want %+v", row, want)
				}
				if strings.Contains(r.Body, want.Token[len(row.ID):]) {
					t.Errorf("got the token from GET %s", path)
				}
			}
			path = next(r)
		}
		if len(seen) != len(created) || !slices.IsSorted(seen) || len(slices.Compact(slices.Clone(seen))) != len(created) {
			t.Errorf("got the ids %v, want %d in ascending order", seen, len(created))
		}

		gone := seen[0]
		s.Call(t, "DELETE", "/tokens/"+gone, "").CheckEmpty(t, 204)
		s.Get(t, "/plants", service.As(created[gone].Token)...).CheckError(t, 40102) // at once, on this replica
		s.Call(t, "DELETE", "/tokens/"+gone, "").CheckError(t, 40401)
		if row := service.IssuedToken(t, s, created[gone].Token); row.RevokedAt == nil || time.Since(*row.RevokedAt).Abs() > time.Minute {
			t.Errorf("got %+v, want revoked_at", row)
		}
	})
}

// TestTokensAPIErrors sends invalid requests for tokens, after which no tokens exist.
func TestTokensAPIErrors(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	const whole = "pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"
	expires := func(at string) string { return `{"name":"x","scopes":["admin"],"expires_at":` + at + `}` }
	for _, test := range []struct {
		name, method, path, body string
		code                     int
		mentions                 string
	}{
		{name: "no body", method: "POST", path: "/tokens", code: 40001, mentions: "empty"},
		{name: "an unknown field", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["admin"],"expires":"90d"}`, code: 40002, mentions: "expires"},
		{name: "a token", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["admin"],"token":"` + whole + `"}`, code: 40002, mentions: "token"},
		{name: "scopes twice", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["plants:read"],"scopes":["admin"]}`, code: 40003, mentions: "scopes"},
		{name: "no scopes", method: "POST", path: "/tokens", body: `{"name":"x"}`, code: 40004, mentions: "scopes"},
		{name: "an empty name", method: "POST", path: "/tokens", body: `{"name":"","scopes":["admin"]}`, code: 40006, mentions: "name"},
		{name: "a blank name", method: "POST", path: "/tokens", body: `{"name":" \u00a0","scopes":["admin"]}`, code: 40006, mentions: "name"},
		{name: "a long name", method: "POST", path: "/tokens", body: `{"name":"` + strings.Repeat("é", 101) + `","scopes":["admin"]}`, code: 40006, mentions: "name"},
		{name: "a control character in the name", method: "POST", path: "/tokens", body: `{"name":"a\u001b[31m","scopes":["admin"]}`, code: 40006, mentions: "name"},
		{name: "an empty list of scopes", method: "POST", path: "/tokens", body: `{"name":"x","scopes":[]}`, code: 40006, mentions: "scopes"},
		{name: "an unknown scope", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["plants:read","plants:*"]}`, code: 40006, mentions: "scopes"},
		{name: "a scope in capitals", method: "POST", path: "/tokens", body: `{"name":"x","scopes":["ADMIN"]}`, code: 40006, mentions: "scopes"},
		{name: "an expiry in the past", method: "POST", path: "/tokens", body: expires(`"2020-01-01T00:00:00Z"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry without a time", method: "POST", path: "/tokens", body: expires(`"2099-12-31"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry without a zone", method: "POST", path: "/tokens", body: expires(`"2099-12-31T00:00:00"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry on February 29 of 2099", method: "POST", path: "/tokens", body: expires(`"2099-02-29T00:00:00Z"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with an hour of one digit", method: "POST", path: "/tokens", body: expires(`"2099-12-31T1:00:00Z"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with a comma", method: "POST", path: "/tokens", body: expires(`"2099-12-31T01:00:00,5Z"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with an offset of a day", method: "POST", path: "/tokens", body: expires(`"2099-12-31T01:00:00+24:00"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with an offset of 60 minutes", method: "POST", path: "/tokens", body: expires(`"2099-12-31T01:00:00+00:60"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with a space for T", method: "POST", path: "/tokens", body: expires(`"2099-12-31 01:00:00Z"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with an offset without a colon", method: "POST", path: "/tokens", body: expires(`"2099-12-31T01:00:00+0100"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry with a bare point", method: "POST", path: "/tokens", body: expires(`"2099-12-31T01:00:00.Z"`), code: 40006, mentions: "expires_at"},
		{name: "an empty expiry", method: "POST", path: "/tokens", body: expires(`""`), code: 40006, mentions: "expires_at"},
		{name: "a token as expiry", method: "POST", path: "/tokens", body: expires(`"` + whole + `"`), code: 40006, mentions: "expires_at"},
		{name: "an expiry in the year 10000 UTC", method: "POST", path: "/tokens", body: expires(`"9999-12-31T23:59:59-01:00"`), code: 40006, mentions: "expires_at"},
		{name: "an unknown parameter", method: "GET", path: "/tokens?name=x", code: 40007, mentions: "name"},
		{name: "limit 0", method: "GET", path: "/tokens?limit=0", code: 40007, mentions: "limit"},
		{name: "a large limit", method: "GET", path: "/tokens?limit=1001", code: 40007, mentions: "limit"},
		{name: "a number as after", method: "GET", path: "/tokens?after=1", code: 40007, mentions: "after"},
		{name: "a token as after", method: "GET", path: "/tokens?after=" + whole, code: 40007, mentions: "after"},
		{name: "an invalid id", method: "DELETE", path: "/tokens/1", code: 40007, mentions: "id"},
		{name: "a token instead of its id", method: "DELETE", path: "/tokens/" + whole, code: 40007, mentions: "id"},
		{name: "an unknown id", method: "DELETE", path: "/tokens/pst_abcdefgh", code: 40401, mentions: "token"},
		{name: "a large body", method: "POST", path: "/tokens", body: strings.Repeat(" ", 70000), code: 41301, mentions: "65536"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := s.Call(t, test.method, test.path, test.body)
			r.CheckError(t, test.code, test.mentions)
			if strings.Contains(r.Body, whole) {
				t.Errorf("got a token in %v", r)
			}
		})
	}
	s.Call(t, "POST", "/tokens", "{}", "Content-Type", "text/plain").CheckError(t, 41501)
	s.Send(t, "PUT", "/tokens", nil).CheckError(t, 40501)
	if r := s.Call(t, "GET", "/tokens", ""); r.Status != 200 || r.Body != "[]" {
		t.Errorf("got %v, want no tokens", r)
	}
}

// TestTokenLastUse checks that the last use is stored when the service stops, at the
// latest.
func TestTokenLastUse(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		used, rejected, unused, revoked := service.Issue(t, url), service.Issue(t, url, "--scope", "plants:read"), service.Issue(t, url), service.Issue(t, url)
		begin := time.Now().Truncate(time.Microsecond)
		s.Get(t, "/plants", service.As(used)...).RequireOK(t)
		s.Post(t, "{}", service.As(rejected)...).CheckError(t, 40301)
		s.Get(t, "/plants", service.As(revoked)...).RequireOK(t)
		s.Call(t, "DELETE", "/tokens/"+service.PrefixOf(revoked), "").CheckEmpty(t, 204)
		service.Eventually(t, "the end of a token", func() bool { return s.Get(t, "/plants", service.As(revoked)...).Status == 401 })
		s.Stop(t)
		again := service.Start(t, "DATABASE_URL="+url)
		for _, test := range []struct {
			name, token string
			used        bool
		}{
			{"used", used, true},
			{"used without the scope", rejected, true},
			{"used, then revoked", revoked, true},
			{"not used", unused, false},
		} {
			t.Run(test.name, func(t *testing.T) {
				at := service.IssuedToken(t, again, test.token).LastUsedAt
				if test.used != (at != nil) || at != nil && (at.Before(begin) || at.After(time.Now())) {
					t.Errorf("got last_used_at %v", at)
				}
				if listedNever := regexp.MustCompile(`  never  +never  +active$`).MatchString(service.Listed(t, url, test.token)); listedNever == test.used {
					t.Errorf("token list: got %q", service.Listed(t, url, test.token))
				}
			})
		}
	})
}
