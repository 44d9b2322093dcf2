package feed

import (
	"net/url"
	"strings"
	"testing"
	"time"

	"plantstore/tests/service"
)

// TestChangesSince reads the changes since a time, in JSON, as a table and as a stream.
func TestChangesSince(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		s.Post(t, service.BodyOf(1)).RequireOK(t)
		s.Post(t, `{"id":2,"name":"=2","tag":"x"}`).RequireOK(t)
		s.Send(t, "DELETE", "/plants/1", nil, service.As(service.Token)...).CheckEmpty(t, 204)
		yesterday := time.Now().Add(-24 * time.Hour)
		for _, after := range []string{yesterday.UTC().Format(time.RFC3339), yesterday.In(time.FixedZone("", -5*3600)).Format("2006-01-02T15:04:05.999999999Z07:00")} {
			await(t, s, url.QueryEscape(after), "2 -1")
			if c := s.Stream(t, "after="+url.QueryEscape(after)).Await("2 -1"); c.Cursor == "" {
				t.Errorf("a stream from %s has no cursor", after)
			}
		}
		for _, after := range []string{"2026-11-25", "2026-02-30T00:00:00Z", "2026-11-25T00:00:00", "2026-11-25T24:00:00Z"} {
			s.Get(t, "/plants/changes?after="+after, service.As(service.Token)...).CheckError(t, 40007, "a time such as")
		}
		t.Run("a table", func(t *testing.T) {
			r := s.Get(t, "/plants/changes?after="+yesterday.UTC().Format(time.RFC3339), service.As(service.Token, "Accept", "text/csv")...)
			r.RequireOK(t)
			plant := service.Objects(t, s.Get(t, "/plants/2", service.As(service.Token)...).Body)[0]
			want := "id,name,tag,created_at,updated_at,etag\n2,'=2,x," + plant["created_at"].(string) + "," + plant["updated_at"].(string) + `,"""` + strings.Trim(s.Get(t, "/plants/2", service.As(service.Token)...).ETag(), `"`) + `"""` + "\n1,,,,,\n"
			if r.Body != want || !strings.HasPrefix(r.Header.Get("Content-Type"), "text/csv") {
				t.Errorf("got %v, want %s", r, want)
			}
			next, isNext := strings.CutSuffix(strings.TrimPrefix(r.Header.Get("Link"), "<"), `>; rel="next"`)
			r = s.Get(t, next, service.As(service.Token, "Accept", "text/csv")...)
			if r.RequireOK(t); !isNext || r.Body != "id,name,tag,created_at,updated_at,etag\n" || r.Header.Get("Link") != "<"+next+`>; rel="next"` {
				t.Errorf("the next changes at %s: got %v", next, r)
			}
			r = s.Get(t, "/plants/changes?limit=1&after="+yesterday.UTC().Format(time.RFC3339), service.As(service.Token, "Accept", "text/csv")...)
			if strings.Count(r.Body, "\n") != 2 || !strings.Contains(r.Header.Get("Link"), "limit=1") {
				t.Errorf("with limit=1: got %v", r)
			}
		})
	})
}
