package api

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestPlantsTexts stores and reads texts by each operation.
func TestPlantsTexts(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for i, text := range service.OddTexts {
			t.Run(fmt.Sprintf("%.20q", text), func(t *testing.T) {
				if strings.TrimSpace(text) == "" {
					t.Fatal("blank text")
				}
				for j, want := range []string{`,"name":` + service.Quote(text), `,"name":"x","tag":` + service.Quote(text)} {
					id := strconv.Itoa(2*i + j)
					path, want, body := "/plants/"+id, `{"id":`+id+want+`}`, "{"+want[1:]+"}"
					s.Post(t, want).CheckStatus(t, 200)
					s.Call(t, "GET", path, "").CheckStored(t, want)
					s.Call(t, "PUT", path, body).CheckStored(t, want)
					s.Call(t, "GET", path, "").CheckStored(t, want)
					s.Call(t, "PUT", path, `{"name":"x"}`)
					s.Call(t, "PATCH", path, body).CheckStored(t, want)
					if r := s.Call(t, "GET", "/plants?limit=1&after="+strconv.Itoa(2*i+j-1), ""); service.WithoutTimes(r.Body) != "["+want+"]" {
						t.Errorf("got %v, want %s", r, want)
					}
					query := "/plants?q=" + url.QueryEscape(text)
					if j == 1 {
						query = "/plants?tag=" + url.QueryEscape(text)
					}
					if r := s.Call(t, "GET", query, ""); !strings.Contains(service.WithoutTimes(r.Body), want) {
						t.Errorf("got %v, want %s", r, want)
					}
				}
			})
		}
	})
}
