package tests

import (
	"strconv"
	"strings"
	"testing"
)

// TestPlantsIDs creates, reads, changes and deletes plants with ids at the edges of int64.
func TestPlantsIDs(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		for _, id := range []string{
			"0", "-1", "1", "9007199254740993", "9223372036854775807", "-9223372036854775808", "-9223372036854775807",
		} {
			t.Run(id, func(t *testing.T) {
				path := "/plants/" + id
				checkError(t, s.call(t, "GET", path, ""), 40401)
				checkEmpty(t, s.call(t, "HEAD", path, ""), 404)
				checkError(t, s.call(t, "PATCH", path, `{"name":"x"}`), 40401)
				checkError(t, s.call(t, "DELETE", path, ""), 40401)
				put := s.call(t, "PUT", path, `{"name":"x"}`)
				checkStored(t, put, `{"id":`+id+`,"name":"x"}`)
				get := s.call(t, "GET", path, "")
				checkStored(t, get, `{"id":`+id+`,"name":"x"}`)
				head := s.call(t, "HEAD", path, "")
				checkEmpty(t, head, 200)
				if get.body != put.body || get.etag() != put.etag() || head.etag() != put.etag() ||
					head.header.Get("Content-Length") != strconv.Itoa(len(get.body)) {
					t.Errorf("got %v with ETag %s, %v with ETag %s, and HEAD %v, want the same", put, put.etag(), get, get.etag(), head.header)
				}
				checkStored(t, s.call(t, "PATCH", path, `{"tag":"y"}`), `{"id":`+id+`,"name":"x","tag":"y"}`)
				checkEmpty(t, s.call(t, "DELETE", path, ""), 204)
				checkError(t, s.call(t, "GET", path, ""), 40401)
				checkError(t, s.call(t, "DELETE", path, ""), 40401)
				created := s.post(t, `{"id":`+id+`,"name":"again"}`)
				if got := s.call(t, "GET", path, ""); created.status != 200 || got.etag() != created.etag() {
					t.Errorf("got %v with ETag %s, want ETag %s of %v", got, got.etag(), created.etag(), created)
				}
			})
		}
	})
}

// TestPlantsNotModified gets a plant with If-None-Match. NOW is its ETag, OLD the previous
// one.
func TestPlantsNotModified(t *testing.T) {
	t.Parallel()
	eachService(t, func(t *testing.T, s *service) {
		old, now := s.call(t, "PUT", "/plants/1", `{"name":"x"}`), s.call(t, "PUT", "/plants/1", `{"name":"x"}`)
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
				value := strings.NewReplacer("NOW", now.etag(), "OLD", old.etag()).Replace(test.value)
				r, head := s.call(t, "GET", "/plants/1", "", "If-None-Match", value), s.call(t, "HEAD", "/plants/1", "", "If-None-Match", value)
				checkEmpty(t, head, test.status)
				switch test.status {
				case 200:
					checkStored(t, r, `{"id":1,"name":"x"}`)
				case 304:
					checkEmpty(t, r, 304)
					checkHeader(t, r, "Content-Type", "")
				default:
					checkError(t, r, 40007, "If-None-Match")
				}
				if test.status != 400 && (r.etag() != now.etag() || head.etag() != now.etag()) {
					t.Errorf("got ETag %q, and %q with HEAD, want %q", r.etag(), head.etag(), now.etag())
				}
			})
		}
		checkError(t, s.call(t, "GET", "/plants/2", "", "If-None-Match", "*"), 40401)
	})
}
