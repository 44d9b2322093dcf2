package tests

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"plantstore/database/dbtest"
)

func TestContractAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t)
	plant := func() string { return fmt.Sprintf(`{"id":%d,"name":"x"}`, ids.Add(1)) }
	const missing, invalid = `Bearer realm="plantstore"`, `Bearer realm="plantstore", error="invalid_token"`
	for _, test := range []struct {
		header    string
		code      int // 0: accepted
		challenge string
	}{
		{"", 40101, missing},
		{"Bearer", 40101, missing},
		{"Basic dGVzdDp0ZXN0", 40101, missing},
		{token, 40101, missing},
		{"Bearer x", 40102, invalid},
		{"Bearer " + token + "x", 40102, invalid},
		{"Bearer " + token[:len(token)-1], 40102, invalid},
		{"Bearer " + strings.ToUpper(token), 40102, invalid},
		{"Bearer " + token + " " + token, 40102, invalid},
		{"Bearer Bearer " + token, 40102, invalid},
		{"Bearer " + token, 0, ""},
		{"bearer " + token, 0, ""},
		{"BEARER   " + token, 0, ""},
	} {
		t.Run(fmt.Sprintf("%q", test.header), func(t *testing.T) {
			r := s.post(t, plant(), "Authorization", test.header)
			checkCode(t, r, test.code)
			checkHeader(t, r, "WWW-Authenticate", test.challenge)
		})
	}
	// Authentication comes before the body.
	checkError(t, s.post(t, "{", "Authorization", "Bearer x"), 40102)
	checkError(t, s.post(t, strings.Repeat(" ", 70000), "Authorization", "Bearer x"), 40102)

	request, err := http.NewRequest(http.MethodPost, s.url+"/plants", strings.NewReader(plant()))
	must(t, err)
	request.Header["Authorization"] = []string{"Bearer " + token, "Bearer " + token}
	resp, err := http.DefaultClient.Do(request)
	must(t, err)
	two, err := readResponse(resp)
	must(t, err)
	checkError(t, two, 40102)
	checkHeader(t, two, "WWW-Authenticate", invalid)
}

// TestIssuedTokenScopes sends each request with tokens of each scope.
func TestIssuedTokenScopes(t *testing.T) {
	t.Parallel()
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
			status             int // if the token has the scope
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
					r := s.send(t, test.method, test.path, strings.NewReader(test.body), as(issued, "Content-Type", contentTypeOf(test.path))...)
					has := strings.Split(scopes, ",")
					if slices.Contains(has, test.needs) || slices.Contains(has, "admin") {
						checkStatus(t, r, test.status)
						continue
					}
					if test.method == "HEAD" {
						checkEmpty(t, r, 403)
					} else {
						checkError(t, r, 40301, test.needs)
					}
					if got, want := r.header.Values("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+test.needs+`"`; len(got) != 1 || got[0] != want {
						t.Errorf("with %s: got WWW-Authenticate %q, want %q", scopes, got, want)
					}
				}
			})
		}
	})
}

func contentTypeOf(path string) string {
	if path == "/plants/import" {
		return "application/x-ndjson"
	}
	return "application/json"
}
