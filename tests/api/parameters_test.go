package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plantstore/tests/service"
)

// TestUnknownParameters sends a parameter that an operation does not have, which must not
// do anything.
func TestUnknownParameters(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
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
			{"GET", "/plants/export?tag=a&tag=b", "", "more than once"},
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
	})
}

// TestPutCreatesOrReplaces: 201 with a Location if the plant is new (RFC 9110, section
// 9.3.4), and 200 otherwise.
func TestPutCreatesOrReplaces(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, id := range []string{"0", "-9223372036854775808", "9223372036854775807"} {
			path := "/plants/" + id
			for round := range 2 { // also after a deletion
				for i, headers := range [][]string{nil, nil, {"If-Match", "*"}, {"If-Match", "LAST"}} {
					if headers != nil && headers[1] == "LAST" {
						headers = []string{"If-Match", s.Call(t, "GET", path, "").ETag()}
					}
					r := s.Call(t, "PUT", path, `{"name":"x"}`, headers...)
					status, location := 200, ""
					if i == 0 {
						status, location = 201, path
					}
					if r.Status != status || r.Header.Get("Location") != location {
						t.Errorf("PUT %d of round %d: got %v with Location %q, want %d", i, round, r, r.Header.Get("Location"), status)
					}
					r.CheckStored(t, `{"id":`+id+`,"name":"x"}`)
				}
				s.Call(t, "DELETE", path, "").CheckEmpty(t, 204)
			}
		}
		s.Post(t, `{"id":1,"name":"x"}`).RequireOK(t)
		s.Call(t, "PUT", "/plants/1", `{"name":"x"}`).CheckStatus(t, 200)
		r := s.Call(t, "PUT", "/plants/2", `{"name":"x"}`, "If-None-Match", "*")
		r.CheckStatus(t, 201)
		r.CheckHeader(t, "Location", "/plants/2")

		const writers = 20
		for id := 10; id < 20; id++ {
			statuses := service.NewTally()
			var group sync.WaitGroup
			for i := range writers {
				group.Go(func() {
					r, err := s.TryOn(service.Connections, "PUT", fmt.Sprintf("/plants/%d", id), strings.NewReader(fmt.Sprintf(`{"name":"%d"}`, i)), service.As(service.Token)...)
					if err != nil {
						t.Error(err)
					}
					statuses.Add(r.Status)
				})
			}
			group.Wait()
			if statuses.Counts[201] != 1 || statuses.Counts[200] != writers-1 {
				t.Errorf("%d concurrent PUTs of plant %d: got the responses %v, want one 201", writers, id, statuses.Counts)
			}
		}
	})
}

// TestWhatWasReadCanBeWritten sends responses back as they are.
func TestWhatWasReadCanBeWritten(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		s.Post(t, `{"id":-3,"name":"a","tag":""}`).RequireOK(t)
		s.Post(t, `{"id":4,"name":"b"}`).RequireOK(t)
		read := s.Call(t, "GET", "/plants/-3", "")
		written := s.Call(t, "PUT", "/plants/-3", read.Body)
		written.CheckStored(t, service.WithoutTimes(read.Body))
		if p, q := read.Plant(), written.Plant(); !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
			t.Errorf("got %v after %v, want a later version", written, read)
		}
		s.Call(t, "PUT", "/plants/4", read.Body).CheckError(t, 40006, "id must be 4")
		s.Call(t, "PUT", "/plants/-3", written.Body, "If-Match", written.ETag()).CheckStatus(t, 200)

		list := s.Call(t, "GET", "/plants", "").Body
		lines := strings.ReplaceAll(strings.Trim(list, "[]"), "},", "}\n")
		s.ImportRows(t, "", service.InNDJSON, lines).CheckReport(t, 0, "2: 0 new, 2 unchanged, 0 rejected, stored")
		other := service.Start(t)
		other.ImportRows(t, "", service.InNDJSON, lines).CheckReport(t, 0, "2: 2 new, 0 unchanged, 0 rejected, stored")
		if got, want := other.Export(t, service.InNDJSON), s.Export(t, service.InNDJSON); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
		if old, got := service.Objects(t, list)[0], service.Objects(t, other.Call(t, "GET", "/plants/-3", "").Body)[0]; old["created_at"] == got["created_at"] {
			t.Errorf("got %v, want the time of the import", got)
		}
		// POST /plants is as strict as the specification.
		for field, body := range map[string]string{"created_at": read.Body, "updated_at": `{"id":9,"name":"x","updated_at":"2026-01-01T00:00:00Z"}`} {
			s.Post(t, body).CheckError(t, 40002, field)
		}
	})
}
