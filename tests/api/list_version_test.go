package api

import (
	"testing"

	"plantstore/tests/service"
)

// TestListsHaveVersions: the ETag of a list changes with the page, its Link and its count.
func TestListsHaveVersions(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for id := range int64(2) {
			s.Post(t, service.BodyOf(id)).RequireOK(t)
		}
		get := func(path, version string) service.Response {
			return s.Get(t, path, service.As(service.Token, "If-None-Match", version)...)
		}
		const page, counted = "/plants?limit=2", "/plants?limit=2&count=true"
		first, count := s.Get(t, page, service.As(service.Token)...), s.Get(t, counted, service.As(service.Token)...)
		for name, r := range map[string]service.Response{
			"unchanged": get(page, first.ETag()), "counted": get(counted, count.ETag()), "any": get(page, "*"), "compressed": s.Get(t, page, service.As(service.Token, "If-None-Match", first.ETag(), "Accept-Encoding", "gzip")...),
		} {
			t.Run(name, func(t *testing.T) { r.CheckEmpty(t, 304) })
		}
		for name, r := range map[string]service.Response{
			"another version": get(page, `"x"`), "another count": get(counted, first.ETag()), "another page": get("/plants?limit=1", first.ETag()), "tokens": get("/tokens", first.ETag()),
		} {
			t.Run(name, func(t *testing.T) {
				r.RequireOK(t)
				r.CheckHeader(t, "Cache-Control", "private, no-cache")
			})
		}
		get(page, "x").CheckError(t, 40007, "If-None-Match")
		s.Post(t, service.BodyOf(2)).RequireOK(t)
		if next := get(page, first.ETag()); next.Status != 200 || next.Body != first.Body || next.Header.Get("Link") == "" {
			t.Errorf("got %v, want the same page with a Link", next)
		}
		s.Call(t, "PATCH", "/plants/1", `{"tag":"t"}`).CheckStatus(t, 200)
		get(page, first.ETag()).CheckStatus(t, 200)
	})
}
