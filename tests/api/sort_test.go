package api

import (
	"encoding/base64"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"plantstore/tests/service"
)

// TestPlantsSort lists plants in each order, whole and in pages.
func TestPlantsSort(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		var rows strings.Builder
		for _, id := range []int{7, -3, 5} { // with the same time of creation
			fmt.Fprintf(&rows, `{"id":%d,"name":"Ficus %[1]d","tag":"tree"}`+"\n", id)
		}
		s.Call(t, "POST", "/plants/import", rows.String(), "Content-Type", "application/x-ndjson").RequireOK(t)
		for _, id := range []int{20, 0, 10} {
			s.Call(t, "POST", "/plants", fmt.Sprintf(`{"id":%d,"name":"Aloe %[1]d"}`, id)).RequireOK(t)
		}
		s.Call(t, "PATCH", "/plants/20", `{"tag":"tree"}`).RequireOK(t) // the time of creation stays
		created := s.Call(t, "GET", "/plants/20", "").Plant().CreatedAt
		at := func(add time.Duration) string {
			return url.QueryEscape(created.Add(add).In(time.FixedZone("", 2*60*60)).Format(time.RFC3339Nano))
		}
		for _, test := range []struct{ query, want string }{
			{"sort=id", "-3 0 5 7 10 20"},
			{"sort=-id", "20 10 7 5 0 -3"},
			{"sort=created_at", "-3 5 7 20 0 10"},
			{"sort=-created_at", "10 0 20 7 5 -3"},
			{"sort=-id&after=7", "5 0 -3"},
			{"sort=-created_at&tag=tree", "20 7 5 -3"},
			{"sort=-created_at&tag=tree&tag=x", "20 7 5 -3"},
			{"sort=created_at&tag=tree&tag=x", "-3 5 7 20"},
			{"sort=-id&tag=x&tag=tree", "20 7 5 -3"},
			{"sort=created_at&q=ALOE", "20 0 10"},
			{"created_after=" + at(0), "0 10"},
			{"created_after=" + at(999), "0 10"},
			{"created_after=" + at(-time.Microsecond), "20 0 10"},
			{"created_before=" + at(0), "-3 5 7"},
			{"created_before=" + at(999), "-3 5 7"},
			{"created_before=" + at(time.Microsecond), "-3 5 7 20"},
			{"created_after=" + at(-time.Microsecond) + "&created_before=" + at(time.Microsecond), "20"},
			{"created_after=" + at(-time.Microsecond) + "&sort=-created_at", "10 0 20"},
			{"created_before=" + at(time.Microsecond) + "&sort=-created_at", "20 7 5 -3"},
			{"created_after=" + at(-time.Microsecond) + "&sort=id", "0 10 20"},
			{"created_before=" + at(time.Microsecond) + "&sort=-id&tag=tree", "20 7 5 -3"},
			{"created_before=" + at(time.Microsecond) + "&q=aloe", "20"},
			{"created_before=" + at(time.Microsecond) + "&tag=tree&tag=", "-3 5 7 20"},
			{"created_after=0000-01-01t00:00:00z", "-3 5 7 20 0 10"},
			{"created_before=0000-01-01T00:00:00Z", ""},
			{"created_after=9999-12-31T23:59:59z", ""},
		} {
			t.Run(test.query, func(t *testing.T) {
				r := s.Call(t, "GET", "/plants?count=true&"+test.query, "")
				if got := idsOf(t, r); r.Status != 200 || got != test.want {
					t.Errorf("got %v, want the ids %q", r, test.want)
				}
				if count := strconv.Itoa(len(strings.Fields(test.want))); !strings.Contains(test.query, "after=7") {
					r.CheckHeader(t, "X-Total-Count", count)
				}
				for _, limit := range []int{1, 2} {
					var pages []string
					for path := fmt.Sprintf("/plants?limit=%d&%s", limit, test.query); path != ""; path = next(r) {
						r = s.Call(t, "GET", path, "")
						pages = append(pages, strings.Fields(idsOf(t, r))...)
					}
					if got := strings.Join(pages, " "); got != test.want {
						t.Errorf("got %q in pages of %d, want %q", got, limit, test.want)
					}
				}
			})
		}
		t.Run("an export is by id", func(t *testing.T) {
			r := s.Call(t, "GET", "/plants/export?tag=tree&created_before="+at(time.Microsecond), "")
			if got := service.Objects(t, r.Body); len(got) != 4 || fmt.Sprintf("%v %v", got[0]["id"], got[3]["id"]) != "-3 20" {
				t.Errorf("got %v", r)
			}
		})
		cursor := func(text string) string { return base64.RawURLEncoding.EncodeToString([]byte(text)) }
		for _, test := range []struct{ query, mentions string }{
			{"sort=", "sort must be one of id, -id, created_at, -created_at"},
			{"sort=name", "sort"},
			{"sort=%2Bid", "sort"},
			{"sort=ID", "sort"},
			{"sort=id,created_at", "sort"},
			{"sort=id&sort=-id", "sort"},
			{"sort=created_at&after=5", "after"},
			{"created_after=2026-01-01T00:00:00Z&after=5", "after"},
			{"sort=id&after=" + cursor(`5 "2026-01-01T00:00:00Z"`), "after"},
			{"sort=created_at&after=", "after"},
			{"sort=created_at&after=" + cursor(`5 "2026-01-01T00:00:00Z"`) + "=", "after"},
			{"sort=created_at&after=" + cursor(`5 "2026-01-01"`), "after"},
			{"sort=created_at&after=" + cursor(`05 "2026-01-01T00:00:00Z"`), "after"},
			{"sort=created_at&after=" + cursor("5"), "after"},
			{"created_after=", "created_after must be a time of RFC 3339"},
			{"created_after=2026-01-01", "created_after"},
			{"created_before=1767225600", "created_before"},
			{"created_before=2026-01-01T00:00:00+00:00", "created_before"}, // the + is a space
			{"created_after=9999-12-31T23:59:59-01:00", "created_after"},
			{"created_before=0000-01-01T00:00:00%2B23:59", "created_before"},
			{"updated_after=2026-01-01T00:00:00Z", "updated_after"},
			{"count=", "count must be false or true"},
			{"count=1", "count"},
		} {
			t.Run(test.query, func(t *testing.T) {
				s.Call(t, "GET", "/plants?"+test.query, "").CheckError(t, 40007, test.mentions)
			})
		}
		t.Run("sort and count are not parameters of an export", func(t *testing.T) {
			s.Call(t, "GET", "/plants/export?sort=id", "").CheckError(t, 40007, "sort")
			s.Call(t, "GET", "/plants/export?count=true", "").CheckError(t, 40007, "count")
		})
		t.Run("while plants come and go", func(t *testing.T) {
			r := s.Call(t, "GET", "/plants?sort=-created_at&limit=2", "")
			s.Call(t, "DELETE", "/plants/0", "") // the last of this page
			s.Call(t, "POST", "/plants", `{"id":1,"name":"late"}`).RequireOK(t)
			s.Call(t, "PUT", "/plants/7", `{"name":"renamed"}`).RequireOK(t)
			if got := idsOf(t, r) + "|" + idsOf(t, s.Call(t, "GET", next(r), "")); got != "10 0|20 7" {
				t.Errorf("got %s, want 10 0|20 7", got)
			}
		})
	})
}

// TestPlantsCount counts up to 10,000 plants.
func TestPlantsCount(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		var rows strings.Builder
		for id := range 10_001 {
			fmt.Fprintf(&rows, `{"id":%d,"name":"Plant %[1]d","tag":"%d"}`+"\n", id, min(id, 1))
		}
		s.Call(t, "POST", "/plants/import", rows.String(), "Content-Type", "application/x-ndjson").RequireOK(t)
		for query, want := range map[string]string{
			"":                              "",
			"count=false":                   "",
			"count=true":                    "10000+",
			"count=true&limit=1&after=9000": "10000+",
			"count=true&tag=1":              "10000",
			"count=true&tag=0":              "1",
			"count=true&tag=2":              "0",
			"count=true&tag=0&tag=1":        "10000+",
			"count=true&tag=0&tag=2":        "1",
			"count=true&q=plant+99":         "111",
			"count=true&created_after=2026-01-01T00:00:00Z": "10000+",
		} {
			for _, method := range []string{"GET", "HEAD"} {
				t.Run(method+" "+query, func(t *testing.T) {
					r := s.Call(t, method, "/plants?"+query, "")
					if got := strings.Join(r.Header.Values("X-Total-Count"), "|"); r.Status != 200 || got != want {
						t.Errorf("got %d with %q, want %q", r.Status, got, want)
					}
				})
			}
		}
		t.Run("the next page counts again", func(t *testing.T) {
			r := s.Call(t, "GET", "/plants?count=true&tag=1&limit=2", "")
			if again := s.Call(t, "GET", next(r), ""); !slices.Equal(again.Header.Values("X-Total-Count"), []string{"10000"}) {
				t.Errorf("got %v", again.Header)
			}
		})
	})
}
