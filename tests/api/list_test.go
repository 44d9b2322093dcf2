package api

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"plantstore/tests/service"
)

func TestPlantsListParameters(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	if r := s.Call(t, "GET", "/plants", ""); r.Status != 200 || r.Body != "[]" || r.Header.Get("Link") != "" || r.Header.Get("Content-Type") != "application/json" {
		t.Errorf("got %v with %v, want an empty list", r, r.Header)
	}
	s.Call(t, "HEAD", "/plants", "").CheckEmpty(t, 200)
	long := strings.Repeat("%C3%A9", 256)
	for _, test := range []struct{ query, mentions string }{
		{"limit=0", "limit"},
		{"limit=-1", "limit"},
		{"limit=1001", "limit"},
		{"limit=99999999999999999999", "limit"},
		{"limit=", "limit"},
		{"limit", "limit"},
		{"limit=abc", "limit"},
		{"limit=01", "limit"},
		{"limit=+1", "limit"},
		{"limit=%2B1", "limit"},
		{"limit=1.0", "limit"},
		{"limit=1e2", "limit"},
		{"limit=%201", "limit"},
		{"limit=1&limit=1", "limit"},
		{"after=", "after"},
		{"after=abc", "after"},
		{"after=01", "after"},
		{"after=-0", "after"},
		{"after=%2B1", "after"},
		{"after=1.5", "after"},
		{"after=9223372036854775808", "after"},
		{"after=-9223372036854775809", "after"},
		{"after=1&after=2", "after"},
		{"tag=%00", "tag"},
		{"tag=a%7F", "tag"},
		{"tag=%FF", "tag"},
		{"tag=%ED%A0%80", "tag"},
		{"tag=" + long, "tag"},
		{"tag=a&tag=%00", "tag"},
		{"tag=a&tag=" + long, "tag"},
		{strings.Repeat("tag=a&", 21), "the parameter tag is given 21 times: give it up to 20 times"},
		{"tag*=a", "unknown parameter tag*"},
		{"q=", "q"},
		{"q", "q"},
		{"q=a%0Ab", "q"},
		{"q=%C0%AF", "q"},
		{"q=" + long, "q"},
		{"q=a&q=a", "q"},
		{"Limit=1", "Limit"},
		{"page=2", "page"},
		{"limit=1&offset=1", "offset"},
		{"name=x", "name"},
		{"=1", `""`},
		{"%00=1", `"\\x00"`},
		{"limit=1;after=2", "query"},
		{"limit=%zz", "query"},
		{"q=100%", "query"},
	} {
		t.Run(test.query, func(t *testing.T) { s.Call(t, "GET", "/plants?"+test.query, "").CheckError(t, 40007, test.mentions) })
	}
	for _, query := range []string{"", "?", "?limit=1", "?limit=1000", "?after=-9223372036854775808", "?after=9223372036854775807", "?tag=", "?tag", "?tag&tag", "?" + strings.Repeat("tag=a&", 20), "?q=+", "?&&q=x&", "?tag=" + long[6:] + "&q=" + long[6:]} {
		t.Run("GET /plants"+query, func(t *testing.T) {
			if r := s.Call(t, "GET", "/plants"+query, ""); r.Status != 200 || r.Body != "[]" {
				t.Errorf("got %v, want an empty list", r)
			}
		})
	}
}

// TestPlantsSearch lists plants by tag and by part of the name.
func TestPlantsSearch(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for id, content := range map[int]string{
			-2: `"name":"Monstera deliciosa","tag":"house"`,
			-1: `"name":"monstera ADANSONII","tag":"House"`,
			0:  `"name":"Ficus","tag":""`,
			1:  `"name":"Ficus"`,
			2:  `"name":"100% Ficus","tag":"house"`,
			3:  `"name":"snake_plant","tag":"house "`,
			4:  `"name":"snake plant","tag":"%"`,
			5:  `"name":"back\\slash","tag":"_"`,
			6:  `"name":"Mother-in-law's tongue","tag":"\\"`,
			7:  `"name":"[a-z]* ?.","tag":"'"`,
			8:  `"name":"Rosé","tag":"é"`,
			9:  `"name":"Rose\u0301","tag":"e\u0301"`,
			10: `"name":"🌵 cactus","tag":"🌵"`,
			11: `"name":"noncharacter \uffff"`,
		} {
			s.Call(t, "PUT", fmt.Sprintf("/plants/%d", id), "{"+content+"}").RequireOK(t)
		}
		for _, test := range []struct{ name, query, want string }{
			{"everything", "", "-2 -1 0 1 2 3 4 5 6 7 8 9 10 11"},
			{"a tag", "tag=house", "-2 2"},
			{"a tag is case-sensitive", "tag=House", "-1"},
			{"a part of a tag", "tag=hous", ""},
			{"a tag is not trimmed", "tag=house+", "3"},
			{"an empty tag is not an absent one", "tag=", "0"},
			{"a tag with % is literal", "tag=%25", "4"},
			{"a tag with _ is literal", "tag=_", "5"},
			{`a tag \`, "tag=%5C", "6"},
			{"a tag '", "tag='", "7"},
			{"a tag is not normalised", "tag=%C3%A9", "8"},
			{"a tag 🌵", "tag=%F0%9F%8C%B5", "10"},
			{"no such tag", "tag=x", ""},
			{"two tags", "tag=house&tag=House", "-2 -1 2"},
			{"the same tag twice", "tag=house&tag=house", "-2 2"},
			{"a tag and an unknown tag", "tag=x&tag=_", "5"},
			{"two unknown tags", "tag=x&tag=y", ""},
			{"an empty tag and another tag", "tag=&tag=house", "-2 0 2"},
			{"twenty tags", "tag=%25&tag=_&tag=%5C&tag='" + strings.Repeat("&tag=x", 16), "4 5 6 7"},
			{"two tags and a name", "tag=&tag=house&q=ficus", "0 2"},
			{"a name", "q=Ficus", "0 1 2"},
			{"a name in small letters", "q=ficus", "0 1 2"},
			{"a name in capital letters", "q=MONSTERA", "-2 -1"},
			{"the middle of a name in mixed case", "q=ELIcI", "-2"},
			{"a space", "q=+", "-2 -1 2 4 6 7 10 11"},
			{"% is literal", "q=%25", "2"},
			{"%% is literal", "q=%25%25", ""},
			{"_ is literal", "q=_", "3"},
			{"e_p is one name", "q=e_p", "3"},
			{`\ is literal`, "q=%5C", "5"},
			{`\s`, "q=%5Cs", "5"},
			{`\% is literal`, "q=%5C%25", ""},
			{"' is literal", "q='", "6"},
			{"[a-z]* is literal", "q=%5Ba-z%5D*", "7"},
			{"?. is literal", "q=?.", "7"},
			{"é", "q=%C3%A9", "8"},
			{"e and an accent", "q=e%CC%81", "9"},
			{"🌵", "q=%F0%9F%8C%B5", "10"},
			{"U+FFFF", "q=%EF%BF%BF", "11"},
			{"U+FFFD is not U+FFFF", "q=%EF%BF%BD", ""},
			{"no such name", "q=zzz", ""},
			{"a tag and a name", "q=ficus&tag=house", "2"},
			{"an empty tag and a name", "q=f&tag=", "0"},
			{"after an id", "after=5", "6 7 8 9 10 11"},
			{"after an unused id", "after=-100", "-2 -1 0 1 2 3 4 5 6 7 8 9 10 11"},
			{"after the last", "after=11", ""},
			{"the first two", "limit=2", "-2 -1"},
			{"two after 0", "after=0&limit=2", "1 2"},
			{"two by name", "limit=2&q=ficus", "0 1"},
			{"two by two tags after the first", "limit=2&tag=house&tag=_&after=-2", "2 5"},
			{"all by name after the first", "after=0&limit=2&q=ficus", "1 2"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.Call(t, "GET", "/plants?"+test.query, "")
				if got := idsOf(t, r); r.Status != 200 || got != test.want {
					t.Errorf("got %v, want the ids %q", r, test.want)
				}
				r.CheckHeaders(t)
			})
		}
		// The links of a search keep its parameters.
		r := s.Call(t, "GET", "/plants?q=M&tag=house&limit=1", "")
		if next := next(r); next != "" {
			t.Errorf("got next page %s, want no next page", next)
		}
		var pages []string
		for path := "/plants?q=%20&limit=2"; path != ""; path = next(r) {
			r = s.Call(t, "GET", path, "")
			pages = append(pages, idsOf(t, r))
		}
		if got := strings.Join(pages, "|"); got != "-2 -1|2 4|6 7|10 11" {
			t.Errorf("got pages %s, want -2 -1|2 4|6 7|10 11", got)
		}
	})
}

// TestPlantsOfSeveralTags reads pages of plants with any of two tags, in each order, while plants change between the pages.
func TestPlantsOfSeveralTags(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, test := range []struct{ sort, want string }{
			{"id", "1 3|4 6|7 9"}, {"-id", "9 7|6 4|3 1"}, {"created_at", "1 3|4 6|7 9"}, {"-created_at", "9 7|6 4|3 1"},
		} {
			t.Run(test.sort, func(t *testing.T) {
				for id := range 9 {
					s.Call(t, "PUT", fmt.Sprintf("/plants/%d", id+1), fmt.Sprintf(`{"name":"x","tag":"%c"}`, "abc"[id%3])).RequireOK(t)
				}
				first := s.Call(t, "GET", "/plants?tag=a&tag=c&limit=2&count=true&sort="+test.sort, "")
				first.CheckHeader(t, "X-Total-Count", "6")
				s.Call(t, "PATCH", "/plants/4", `{"tag":"c"}`).RequireOK(t) // still selected
				s.Call(t, "PATCH", "/plants/1", `{"tag":"b"}`).RequireOK(t)
				s.Call(t, "DELETE", "/plants/9", "").CheckStatus(t, 204)
				s.Call(t, "PATCH", "/plants/5", `{"tag":"b"}`).RequireOK(t)
				second := s.Call(t, "GET", next(first), "")
				s.Call(t, "PATCH", "/plants/1", `{"tag":"c"}`).RequireOK(t)
				s.Call(t, "PUT", "/plants/9", `{"name":"x","tag":"a"}`).RequireOK(t)
				third := s.Call(t, "GET", next(second), "")
				if got := idsOf(t, first) + "|" + idsOf(t, second) + "|" + idsOf(t, third); got != test.want || next(third) != "" {
					t.Errorf("got %s, and then %q, want %s", got, next(third), test.want)
				}
				s.Call(t, "DELETE", "/plants?tag=a&tag=b&tag=c", "").CheckReport(t, 0, "9: 0 new, 9 deleted, 0 unchanged, 0 rejected, stored")
			})
		}
	})
}

// TestPlantsPaging reads pages while clients create plants: each plant that existed is
// read once.
func TestPlantsPaging(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		known := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
		for range 300 {
			known = append(known, int64(rand.Uint64()), rand.Int64N(200_000)-100_000) //nolint:gosec // any id will do
		}
		slices.Sort(known)
		known = slices.Compact(known)
		bodies := &strings.Builder{}
		for _, id := range known {
			fmt.Fprintln(bodies, service.BodyOf(id))
		}
		s.Call(t, "POST", "/plants/import", bodies.String(), "Content-Type", "application/x-ndjson").RequireOK(t)

		for _, limit := range []int{1000, 50, len(known), len(known) - 1, 7} {
			t.Run(fmt.Sprintf("pages of %d", limit), func(t *testing.T) {
				read, pages := []int64(nil), 0
				for path := fmt.Sprintf("/plants?limit=%d", limit); path != ""; pages++ {
					r := s.Call(t, "GET", path, "")
					page := r.Plants(t)
					for _, p := range page {
						read = append(read, p.ID)
						if p.Name != service.NameOf(p.ID) {
							t.Fatalf("got plant %d with name %q, want %q", p.ID, p.Name, service.NameOf(p.ID))
						}
					}
					if path = next(r); path != "" && len(page) != limit {
						t.Errorf("got %d plants on a page before the last, want %d", len(page), limit)
					}
				}
				if !slices.Equal(read, known) || pages != (len(known)+limit-1)/limit {
					t.Errorf("got %d plants on %d pages, want %d", len(read), pages, len(known))
				}
			})
		}
		if r := s.Call(t, "GET", "/plants", ""); len(r.Plants(t)) != 50 {
			t.Errorf("got %d plants without a limit, want 50", len(r.Plants(t)))
		}

		stop, wrote := make(chan struct{}), make(chan struct{}, 1)
		var group sync.WaitGroup
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for {
				id := rand.Int64N(200_000) - 100_000
				if _, taken := slices.BinarySearch(known, id); !taken {
					s.Create(transport, id, strings.NewReader(fmt.Sprintf(`{"id":%d,"name":"late"}`, id)))
				}
				select {
				case wrote <- struct{}{}:
				default:
				}
				select {
				case <-stop:
					return
				default:
				}
			}
		})
		var read []int64
		last, first := int64(0), true
		for path := "/plants?limit=7"; path != ""; {
			r := s.Call(t, "GET", path, "")
			for _, p := range r.Plants(t) {
				if !first && p.ID <= last {
					t.Errorf("got plant %d after %d, want ascending ids", p.ID, last)
				}
				last, first = p.ID, false
				if p.Name != "late" {
					read = append(read, p.ID)
				}
			}
			path = next(r)
			// Plants are created between some of the pages.
			if len(read)%10 == 0 {
				for range 2 { // the first may have been written before this page
					<-wrote
				}
			}
		}
		close(stop)
		group.Wait()
		if !slices.Equal(read, known) {
			t.Errorf("got %d plants, want the %d of the start", len(read), len(known))
		}
	})
}

// idsOf returns the ids in a list, separated by spaces.
func idsOf(t *testing.T, r service.Response) string {
	t.Helper()
	var ids []string
	for _, p := range r.Plants(t) {
		ids = append(ids, strconv.FormatInt(p.ID, 10))
	}
	return strings.Join(ids, " ")
}

// next returns the path of the next page, or an empty string.
func next(r service.Response) string {
	link := regexp.MustCompile(`^<(/\w+\?[!-;=?-~]+)>; rel="next"$`).FindStringSubmatch(r.Header.Get("Link"))
	if link == nil {
		return r.Header.Get("Link")
	}
	return link[1]
}
