package api

import (
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestUnknownParameters sends a parameter that an operation does not have, which must not
// do anything.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	s.Post(t, `{"id":1,"name":"x"}`).RequireOK(t)
	before := s.Call(t, "GET", "/plants/1", "")
	for _, test := range []struct{ method, path, body, mentions string }{
		{"POST", "/plants?dry_run=true", `{"id":2,"name":"x"}`, "dry_run"},
		{"POST", "/plants?id=2", `{"id":2,"name":"x"}`, "id"},
		{"GET", "/plants?Tag=x", "", "Tag"},
		{"GET", "/plants/1?fields=name", "", "fields"},
		{"HEAD", "/plants/1?fields=name", "", ""},
		{"PUT", "/plants/1?dry_run=true", `{"name":"y"}`, "dry_run"},
		{"PUT", "/plants/2?", `{"name":"y"`, "byte 11"}, // an empty query has none
		{"PATCH", "/plants/1?dry_run=true", `{"name":"y"}`, "dry_run"},
		{"DELETE", "/plants/1?dry_run=true", "", "dry_run"},
		{"DELETE", "/plants/1?x", "", "x"},
		{"DELETE", "/plants/1?%zz", "", "malformed"},
		{"POST", "/plants/import?dryrun=true", service.BodyOf(2), "dryrun"},
		{"POST", "/plants/import?mode=all&mode=all", service.BodyOf(2), "more than once"},
		{"GET", "/plants/export?limit=1", "", "limit"},
		{"GET", "/plants/export?format=csv", "", "format"},
		{"HEAD", "/plants/export?format=csv", "", ""},
		{"GET", "/plants/export?q=a&q=b", "", "more than once"},
		{"GET", "/plants/export?after=-0", "", "after"},
		{"GET", "/plants/export?q=", "", "q"},
		{"GET", "/plants/export?tag=%07", "", "tag"},
		{"HEAD", "/plants/export?after=x", "", ""},
		{"POST", "/tokens?dry_run=true", `{"name":"x","scopes":["admin"]}`, "dry_run"},
		{"GET", "/tokens?name=x", "", "name"},
		{"DELETE", "/tokens/pst_abcdefgh?dry_run=true", "", "dry_run"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			r := s.Call(t, test.method, test.path, test.body)
			switch {
			case test.method == "HEAD":
				r.CheckStatus(t, 400)
			case strings.HasSuffix(test.path, "?"):
				r.CheckError(t, 40001, test.mentions)
			default:
				r.CheckError(t, 40007, test.mentions)
			}
		})
	}
	checkSame(t, s.Call(t, "GET", "/plants/1", ""), before)
	if got := s.Export(t, service.InNDJSON); got != `{"id":1,"name":"x"}`+"\n" {
		t.Errorf("got the plants %s, want the one before", got)
	}
	if got := s.Call(t, "GET", "/tokens", "").Body; got != "[]" {
		t.Errorf("got the tokens %s, want none", got)
	}
	// Probes and pages have no such check: proxies and browsers add parameters.
	for _, path := range []string{"/healthz?x=1", "/readyz?x=1", "/openapi.json?x=1", "/swagger/index.html?x=1"} {
		t.Run(path, func(t *testing.T) { s.Get(t, path).CheckStatus(t, 200) })
	}
}
