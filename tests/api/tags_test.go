package api

import (
	"fmt"
	"testing"

	"plantstore/tests/service"
)

// TestTags counts the plants with each tag.
func TestTags(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		get := func(query string, headers ...string) service.Response {
			return s.Call(t, "GET", "/plants/tags"+query, "", headers...)
		}
		if r := get(""); r.Status != 200 || r.Body != "[]" {
			t.Errorf("without plants: got %v, want an empty list", r)
		}
		for id, tag := range []string{`,"tag":"herb"`, `,"tag":"tree"`, `,"tag":"tree"`, `,"tag":"shrub"`, `,"tag":""`, ``, ``, ``} {
			s.Call(t, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"x"%s}`, id, tag)).RequireOK(t)
		}
		const most = `{"tag":"tree","plants":2}`
		all := get("")
		for name, test := range map[string]struct {
			r    service.Response
			want string
		}{
			"all":     {all, `[` + most + `,{"tag":"","plants":1},{"tag":"herb","plants":1},{"tag":"shrub","plants":1}]`},
			"limit=1": {get("?limit=1"), `[` + most + `]`},
		} {
			t.Run(name, func(t *testing.T) {
				if test.r.Status != 200 || test.r.Body != test.want {
					t.Errorf("got %v, want %s", test.r, test.want)
				}
			})
		}
		get("", "If-None-Match", all.ETag()).CheckEmpty(t, 304)
		s.Call(t, "DELETE", "/plants/0", "").CheckStatus(t, 204)
		get("", "If-None-Match", all.ETag()).CheckStatus(t, 200)
		get("?limit=0").CheckError(t, 40007, "limit")
		get("?after=1").CheckError(t, 40007, "after")
		s.Call(t, "PUT", "/plants/tags", `{"name":"x"}`).CheckStatus(t, 405)
	})
}
