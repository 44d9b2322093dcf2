package api

import (
	"plantstore/tests/service"
	"strings"
	"testing"
)

// TestPlantsWriteBodies sends valid and invalid bodies of PUT and PATCH to a plant with a
// name and a tag.
func TestPlantsWriteBodies(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("é", 256)
	const before = `{"id":1,"name":"Monstera","tag":"house"}`
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, test := range []struct {
			name, method, body string
			code               int    // 0 for success
			want               string // the plant afterwards, or a part of the message
		}{
			{name: "the same", method: "PUT", body: `{"name":"Monstera","tag":"house"}`, want: before},
			{name: "no tag", method: "PUT", body: `{"name":"Ficus"}`, want: `{"id":1,"name":"Ficus"}`},
			{name: "an empty tag", method: "PUT", body: `{"tag":"","name":"Ficus"}`, want: `{"id":1,"name":"Ficus","tag":""}`},
			{name: "white space around", method: "PUT", body: " {\r\n\t\"name\" : \"Ficus\" }\n", want: `{"id":1,"name":"Ficus"}`},
			{name: "nothing", method: "PUT", code: 40001, want: "empty"},
			{name: "an array", method: "PUT", body: `[{"name":"x"}]`, code: 40001, want: "object"},
			{name: "null", method: "PUT", body: `null`, code: 40001, want: "object"},
			{name: "a truncated object", method: "PUT", body: `{"name":"x"`, code: 40001, want: "byte 11"},
			{name: "a second object", method: "PUT", body: `{"name":"x"}{}`, code: 40001, want: "byte 12"},
			{name: "its id", method: "PUT", body: `{"id":1,"name":"x"}`, want: `{"id":1,"name":"x"}`},
			{name: "another id", method: "PUT", body: `{"id":2,"name":"x"}`, code: 40006, want: "id must be 1"},
			{name: "minus zero", method: "PUT", body: `{"id":-0,"name":"x"}`, code: 40005, want: "id"},
			{name: "an id of 1.0", method: "PUT", body: `{"id":1.0,"name":"x"}`, code: 40005, want: "id"},
			{name: "an id of null", method: "PUT", body: `{"id":null,"name":"x"}`, code: 40004, want: "id"},
			{name: "another case of its id", method: "PUT", body: `{"Id":1,"name":"x"}`, code: 40002, want: "Id"},
			{name: "a time", method: "PUT", body: `{"name":"x","updated_at":"2026-01-01T00:00:00Z"}`, want: `{"id":1,"name":"x"}`},
			{name: "times of RFC 3339", method: "PUT", body: `{"created_at":"2001-01-01t00:00:00.5z","name":"x","updated_at":"0000-01-01T00:00:00-23:59"}`, want: `{"id":1,"name":"x"}`},
			{name: "a time that is none", method: "PUT", body: `{"name":"x","created_at":"yesterday"}`, code: 40006, want: "created_at"},
			{name: "a time without a zone", method: "PUT", body: `{"name":"x","updated_at":"2026-01-01T00:00:00"}`, code: 40006, want: "updated_at"},
			{name: "a time that is a number", method: "PUT", body: `{"name":"x","created_at":1}`, code: 40004, want: "created_at"},
			{name: "a time of null", method: "PUT", body: `{"name":"x","updated_at":null}`, code: 40004, want: "updated_at"},
			{name: "another field", method: "PUT", body: `{"name":"x","deleted_at":"2026-01-01T00:00:00Z"}`, code: 40002, want: "deleted_at"},
			{name: "another case", method: "PUT", body: `{"Name":"x"}`, code: 40002, want: "Name"},
			{name: "a repeated name", method: "PUT", body: `{"name":"x","name":"x"}`, code: 40003, want: "name"},
			{name: "no name", method: "PUT", body: `{"tag":"x"}`, code: 40004, want: "name"},
			{name: "an empty object", method: "PUT", body: `{}`, code: 40004, want: "name"},
			{name: "a null name", method: "PUT", body: `{"name":null}`, code: 40004, want: "name"},
			{name: "a null tag", method: "PUT", body: `{"name":"x","tag":null}`, code: 40004, want: "tag"},
			{name: "a number for a name", method: "PUT", body: `{"name":1}`, code: 40004, want: "name"},
			{name: "a long name", method: "PUT", body: `{"name":"` + long + `"}`, code: 40006, want: "name"},
			{name: "a blank name", method: "PUT", body: `{"name":" \u3000"}`, code: 40006, want: "name"},
			{name: "a control character in a tag", method: "PUT", body: `{"name":"x","tag":"\u0085"}`, code: 40006, want: "tag"},
			{name: "a large body", method: "PUT", body: `{"name":"` + strings.Repeat("x", 65536) + `"}`, code: 41301, want: "65536"},

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
			{name: "nothing at all", method: "PATCH", code: 40001, want: "empty"},
			{name: "an array", method: "PATCH", body: `[]`, code: 40001, want: "object"},
			{name: "a JSON patch", method: "PATCH", body: `[{"op":"remove","path":"/tag"}]`, code: 40001, want: "object"},
			{name: "null", method: "PATCH", body: `null`, code: 40001, want: "object"},
			{name: "a string", method: "PATCH", body: `"x"`, code: 40001, want: "object"},
			{name: "a truncated object", method: "PATCH", body: `{"tag":null`, code: 40001, want: "byte 11"},
			{name: "a second object", method: "PATCH", body: `{"tag":null}{}`, code: 40001, want: "byte 12"},
			{name: "an id", method: "PATCH", body: `{"id":1}`, code: 40002, want: "id"},
			{name: "a time", method: "PATCH", body: `{"updated_at":"2026-01-01T00:00:00Z"}`, code: 40002, want: "updated_at"},
			{name: "a null id", method: "PATCH", body: `{"id":null}`, code: 40002, want: "id"},
			{name: "an unknown field that is null", method: "PATCH", body: `{"colour":null}`, code: 40002, want: "colour"},
			{name: "another case", method: "PATCH", body: `{"Tag":null}`, code: 40002, want: "Tag"},
			{name: "a repeated tag", method: "PATCH", body: `{"tag":null,"tag":"x"}`, code: 40003, want: "tag"},
			{name: "a null tag, twice", method: "PATCH", body: `{"tag":null,"tag":null}`, code: 40003, want: "tag"},
			{name: "a null name", method: "PATCH", body: `{"name":null}`, code: 40004, want: "name"},
			{name: "a null name and a tag", method: "PATCH", body: `{"tag":"x","name":null}`, code: 40004, want: "name"},
			{name: "a number for a tag", method: "PATCH", body: `{"tag":1}`, code: 40004, want: "tag"},
			{name: "an object for a tag", method: "PATCH", body: `{"tag":{"x":null}}`, code: 40004, want: "tag"},
			{name: "an array for a name", method: "PATCH", body: `{"name":["x"]}`, code: 40004, want: "name"},
			{name: "an empty name", method: "PATCH", body: `{"name":""}`, code: 40006, want: "name"},
			{name: "a blank name", method: "PATCH", body: `{"name":"  "}`, code: 40006, want: "name"},
			{name: "a long tag", method: "PATCH", body: `{"tag":"` + long + `"}`, code: 40006, want: "tag"},
			{name: "a good name and a bad tag", method: "PATCH", body: `{"name":"Ficus","tag":"\u0000"}`, code: 40006, want: "tag"},
			{name: "a large body", method: "PATCH", body: `{"name":"` + strings.Repeat("x", 65536) + `"}`, code: 41301, want: "65536"},
		} {
			t.Run(test.method+" "+test.name, func(t *testing.T) {
				first := s.Call(t, "PUT", "/plants/1", `{"name":"Monstera","tag":"house"}`)
				first.CheckStored(t, before)
				r := s.Call(t, test.method, "/plants/1", test.body)
				then := s.Call(t, "GET", "/plants/1", "")
				if test.code == 0 {
					r.CheckStored(t, test.want)
					checkSame(t, then, r)
					if p, q := first.Plant(), r.Plant(); r.ETag() == first.ETag() || !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
						t.Errorf("got %v with ETag %s, want a version after %v with ETag %s", r, r.ETag(), first, first.ETag())
					}
					return
				}
				r.CheckError(t, test.code, test.want)
				checkSame(t, then, first)
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
		{"PATCH", "Content-Encoding", "identity", 41501},
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
