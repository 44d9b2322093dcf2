package api

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"plantstore/database/dbtest"
	"plantstore/tests/service"
)

func TestContractAuthentication(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	plant := func() string { return fmt.Sprintf(`{"id":%d,"name":"x"}`, service.IDs.Add(1)) }
	const missing, invalid = `Bearer realm="plantstore"`, `Bearer realm="plantstore", error="invalid_token"`
	for _, test := range []struct {
		header    string
		code      int // 0: accepted
		challenge string
	}{
		{"", 40101, missing},
		{"Bearer", 40101, missing},
		{"Basic dGVzdDp0ZXN0", 40101, missing},
		{service.Token, 40101, missing},
		{"Bearer x", 40102, invalid},
		{"Bearer " + service.Token + "x", 40102, invalid},
		{"Bearer " + service.Token[:len(service.Token)-1], 40102, invalid},
		{"Bearer " + strings.ToUpper(service.Token), 40102, invalid},
		{"Bearer " + service.Token + " " + service.Token, 40102, invalid},
		{"Bearer Bearer " + service.Token, 40102, invalid},
		{"Bearer " + service.Token, 0, ""},
		{"bearer " + service.Token, 0, ""},
		{"BEARER   " + service.Token, 0, ""},
	} {
		t.Run(fmt.Sprintf("%q", test.header), func(t *testing.T) {
			r := s.Post(t, plant(), "Authorization", test.header)
			r.CheckCode(t, test.code)
			r.CheckHeader(t, "WWW-Authenticate", test.challenge)
		})
	}
	// Authentication comes before the body.
	s.Post(t, "{", "Authorization", "Bearer x").CheckError(t, 40102)
	s.Post(t, strings.Repeat(" ", 70000), "Authorization", "Bearer x").CheckError(t, 40102)

	request, err := http.NewRequest(http.MethodPost, s.URL+"/plants", strings.NewReader(plant()))
	service.Must(t, err)
	request.Header["Authorization"] = []string{"Bearer " + service.Token, "Bearer " + service.Token}
	resp, err := http.DefaultClient.Do(request) //nolint:bodyclose // ReadResponse closes it
	service.Must(t, err)
	two, err := service.ReadResponse(resp)
	service.Must(t, err)
	two.CheckError(t, 40102)
	two.CheckHeader(t, "WWW-Authenticate", invalid)
}

// TestIssuedTokenScopes sends each request with tokens of each scope.
func TestIssuedTokenScopes(t *testing.T) {
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := service.Start(t, "DATABASE_URL="+url)
		tokens := make(map[string]string)
		for _, scopes := range []string{"plants:read", "plants:write", "plants:read,plants:write", "admin"} {
			tokens[scopes] = service.Issue(t, url, "--scope", scopes)
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
			{method: "GET", path: "/plants/tags", needs: "plants:read", status: 200},
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
					r := s.Send(t, test.method, test.path, strings.NewReader(test.body), service.As(issued, "Content-Type", contentTypeOf(test.path))...)
					has := strings.Split(scopes, ",")
					if slices.Contains(has, test.needs) || slices.Contains(has, "admin") {
						r.CheckStatus(t, test.status)
						continue
					}
					if test.method == "HEAD" {
						r.CheckEmpty(t, 403)
					} else {
						r.CheckError(t, 40301, test.needs)
					}
					if got, want := r.Header.Values("WWW-Authenticate"), `Bearer error="insufficient_scope", scope="`+test.needs+`"`; len(got) != 1 || got[0] != want {
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
