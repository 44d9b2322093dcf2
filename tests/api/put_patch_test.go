package api

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"plantstore/tests/service"
)

// before is the plant to which TestPlantsWrites and TestContractBodies send PUT and PATCH.
const before = `{"id":1,"name":"Monstera","tag":"house"}`

// TestPlantsWrites sends valid bodies of PUT and PATCH.
func TestPlantsWrites(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, test := range []struct{ name, method, body, want string }{
			{name: "the same", method: "PUT", body: `{"name":"Monstera","tag":"house"}`, want: before},
			{name: "no tag", method: "PUT", body: `{"name":"Ficus"}`, want: `{"id":1,"name":"Ficus"}`},
			{name: "an empty tag", method: "PUT", body: `{"tag":"","name":"Ficus"}`, want: `{"id":1,"name":"Ficus","tag":""}`},
			{name: "white space around", method: "PUT", body: " {\r\n\t\"name\" : \"Ficus\" }\n", want: `{"id":1,"name":"Ficus"}`},
			{name: "its id", method: "PUT", body: `{"id":1,"name":"x"}`, want: `{"id":1,"name":"x"}`},
			{name: "a time", method: "PUT", body: `{"name":"x","updated_at":"2026-01-01T00:00:00Z"}`, want: `{"id":1,"name":"x"}`},
			{name: "times of RFC 3339", method: "PUT", body: `{"created_at":"2001-01-01t00:00:00.5z","name":"x","updated_at":"0000-01-01T00:00:00-23:59"}`, want: `{"id":1,"name":"x"}`},
			{name: "nothing to change", method: "PATCH", body: `{}`, want: before},
			{name: "the same name", method: "PATCH", body: `{"name":"Monstera"}`, want: before},
			{name: "another name", method: "PATCH", body: `{"name":"Ficus"}`, want: `{"id":1,"name":"Ficus","tag":"house"}`},
			{name: "another tag", method: "PATCH", body: `{"tag":"garden"}`, want: `{"id":1,"name":"Monstera","tag":"garden"}`},
			{name: "an empty tag", method: "PATCH", body: `{"tag":""}`, want: `{"id":1,"name":"Monstera","tag":""}`},
			{name: "a null tag deletes it", method: "PATCH", body: `{"tag":null}`, want: `{"id":1,"name":"Monstera"}`},
			{name: "a name and a null tag", method: "PATCH", body: `{"tag":null,"name":"Ficus"}`, want: `{"id":1,"name":"Ficus"}`},
			{name: "a null tag with an escaped name", method: "PATCH", body: `{"t\u0061g":null}`, want: `{"id":1,"name":"Monstera"}`},
			{name: "a tag with the text null", method: "PATCH", body: `{"tag":"null"}`, want: `{"id":1,"name":"Monstera","tag":"null"}`},
			{name: "both", method: "PATCH", body: `{"name":"Ficus","tag":"garden"}`, want: `{"id":1,"name":"Ficus","tag":"garden"}`},
		} {
			t.Run(test.method+" "+test.name, func(t *testing.T) {
				first := s.Call(t, "PUT", "/plants/1", before)
				first.CheckStored(t, before)
				r := s.Call(t, test.method, "/plants/1", test.body)
				r.CheckStored(t, test.want)
				checkSame(t, s.Call(t, "GET", "/plants/1", ""), r)
				if p, q := first.Plant(), r.Plant(); r.ETag() == first.ETag() || !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
					t.Errorf("got %v with ETag %s, want a version after %v with ETag %s", r, r.ETag(), first, first.ETag())
				}
			})
		}
	})
}

func TestPlantsContentTypes(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct {
		method, header, value string
		code                  int
	}{
		{"PUT", "Content-Type", "", 0},
		{"PUT", "Content-Type", "application/json", 0},
		{"PUT", "Content-Type", "Application/JSON; charset=UTF-8", 0},
		{"PUT", "Content-Type", "application/merge-patch+json", 41501},
		{"PUT", "Content-Type", "text/plain", 41501},
		{"PUT", "Content-Encoding", "gzip", 41501},
		{"PUT", "Content-Range", "bytes 0-1/9", 40007},
		{"PATCH", "Content-Type", "", 0},
		{"PATCH", "Content-Type", "application/json", 0},
		{"PATCH", "Content-Type", "application/merge-patch+json", 0},
		{"PATCH", "Content-Type", `Application/Merge-Patch+JSON;charset="utf-8"`, 0},
		{"PATCH", "Content-Type", "application/merge-patch+json; charset=iso-8859-1", 41501},
		{"PATCH", "Content-Type", "application/json-patch+json", 41501},
		{"PATCH", "Content-Type", "application/x-www-form-urlencoded", 41501},
		{"PATCH", "Content-Encoding", "br", 41501},
		{"PATCH", "Content-Encoding", "identity", 0},
	} {
		t.Run(test.method+" with "+test.header+": "+test.value, func(t *testing.T) {
			r := s.Call(t, "PUT", "/plants/1", `{"name":"x"}`)
			if test.method == "PATCH" || test.code != 0 {
				r = s.Call(t, test.method, "/plants/1", `{"name":"x"}`, test.header, test.value)
			}
			if test.code != 0 {
				r.CheckError(t, test.code)
				patch, encoding := "", "" // what is accepted
				switch {
				case test.header == "Content-Encoding":
					encoding = "identity"
				case test.method == "PATCH":
					patch = "application/merge-patch+json, application/json"
				}
				r.CheckHeader(t, "Accept-Patch", patch)
				r.CheckHeader(t, "Accept-Encoding", encoding)
			} else {
				r.CheckStored(t, `{"id":1,"name":"x"}`)
			}
		})
	}
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
