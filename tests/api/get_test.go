package api

import (
	"strconv"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestPlantsIDs creates, reads, changes and deletes plants with ids at the edges of int64.
func TestPlantsIDs(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, id := range []string{
			"0", "-1", "1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "-9223372036854775807",
		} {
			t.Run(id, func(t *testing.T) {
				path := "/plants/" + id
				s.Call(t, "GET", path, "").CheckError(t, 40401)
				s.Call(t, "HEAD", path, "").CheckEmpty(t, 404)
				s.Call(t, "PATCH", path, `{"name":"x"}`).CheckError(t, 40401)
				s.Call(t, "DELETE", path, "").CheckError(t, 40401)
				put := s.Call(t, "PUT", path, `{"name":"x"}`)
				put.CheckStored(t, `{"id":`+id+`,"name":"x"}`)
				get := s.Call(t, "GET", path, "")
				get.CheckStored(t, `{"id":`+id+`,"name":"x"}`)
				head := s.Call(t, "HEAD", path, "")
				head.CheckEmpty(t, 200)
				if get.Body != put.Body || get.ETag() != put.ETag() || head.ETag() != put.ETag() ||
					head.Header.Get("Content-Length") != strconv.Itoa(len(get.Body)) {
					t.Errorf("got %v with ETag %s, %v with ETag %s, and HEAD %v, want the same", put, put.ETag(), get, get.ETag(), head.Header)
				}
				s.Call(t, "PATCH", path, `{"tag":"y"}`).CheckStored(t, `{"id":`+id+`,"name":"x","tag":"y"}`)
				s.Call(t, "DELETE", path, "").CheckEmpty(t, 204)
				s.Call(t, "GET", path, "").CheckError(t, 40401)
				s.Call(t, "DELETE", path, "").CheckError(t, 40401)
				created := s.Post(t, `{"id":`+id+`,"name":"again"}`)
				if got := s.Call(t, "GET", path, ""); created.Status != 200 || got.ETag() != created.ETag() {
					t.Errorf("got %v with ETag %s, want ETag %s of %v", got, got.ETag(), created.ETag(), created)
				}
			})
		}
	})
}

// TestPlantsNotModified gets a plant with If-None-Match. NOW is its ETag, OLD the previous
// one.
func TestPlantsNotModified(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		old, now := s.Call(t, "PUT", "/plants/1", `{"name":"x"}`), s.Call(t, "PUT", "/plants/1", `{"name":"x"}`)
		for _, test := range []struct {
			name, value string
			status      int
		}{
			{"the ETag", "NOW", 304},
			{"the ETag, weak", "W/NOW", 304},
			{"*", "*", 304},
			{"a list with the ETag", `OLD, NOW`, 304},
			{"a list with the weak ETag", `"x",W/NOW,"y"`, 304},
			{"the ETag before", "OLD", 200},
			{"a list without the ETag", `"x", OLD`, 200},
			{"an unknown ETag", `"33a64df551425fcc"`, 200},
			{"an empty ETag", `""`, 200},
			{"no quotes", `x`, 400},
			{"no second quote", `"x`, 400},
			{"* in a list", `NOW, *`, 400},
			{"an empty header", " ", 400},
		} {
			t.Run(test.name, func(t *testing.T) {
				value := strings.NewReplacer("NOW", now.ETag(), "OLD", old.ETag()).Replace(test.value)
				r, head := s.Call(t, "GET", "/plants/1", "", "If-None-Match", value), s.Call(t, "HEAD", "/plants/1", "", "If-None-Match", value)
				head.CheckEmpty(t, test.status)
				switch test.status {
				case 200:
					r.CheckStored(t, `{"id":1,"name":"x"}`)
				case 304:
					r.CheckEmpty(t, 304)
					r.CheckHeader(t, "Content-Type", "")
				default:
					r.CheckError(t, 40007, "If-None-Match")
				}
				if test.status != 400 && (r.ETag() != now.ETag() || head.ETag() != now.ETag()) {
					t.Errorf("got ETag %q, and %q with HEAD, want %q", r.ETag(), head.ETag(), now.ETag())
				}
			})
		}
		s.Call(t, "GET", "/plants/2", "", "If-None-Match", "*").CheckError(t, 40401)
	})
}
