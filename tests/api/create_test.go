package api

import (
	"fmt"
	"io"
	"strconv"
	"strings"
	"testing"

	"plantstore/tests/service"
)

// TestContractBodies sends an invalid body of each kind, after which nothing is stored, and plant 1 is
// as before. TestBodies of controllers has all of them.
func TestContractBodies(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	long, large := strings.Repeat("é", 256), strings.Repeat("x", 65536)
	first := s.Call(t, "PUT", "/plants/1", before)
	for _, test := range []struct {
		name, method, body string
		code               int
		mentions           string
	}{
		{"a truncated object", "POST", `{"id":100,"name":"x"`, 40001, "byte 20"},
		{"an unknown field", "POST", `{"id":100,"name":"x","colour":"green"}`, 40002, "colour"},
		{"a repeated field", "POST", `{"id":100,"name":"x","name":"y"}`, 40003, "name"},
		{"no name", "POST", `{"id":100}`, 40004, "name"},
		{"a fraction", "POST", `{"id":1.5,"name":"x"}`, 40005, "id"},
		{"an empty name", "POST", `{"id":100,"name":""}`, 40006, "name"},
		{"a blank name", "POST", `{"id":100,"name":" \u00a0\u3000"}`, 40006, "name"},
		{"a long name", "POST", `{"id":100,"name":"` + long + `"}`, 40006, "name"},
		{"a long tag", "POST", `{"id":100,"name":"x","tag":"` + long + `"}`, 40006, "tag"},
		{"NUL in a name", "POST", `{"id":100,"name":"a\u0000"}`, 40006, "name"},
		{"a tab in a tag", "POST", `{"id":100,"name":"x","tag":"a\tb"}`, 40006, "tag"},
		{"a C1 control in a name", "POST", `{"id":100,"name":"\u0085a"}`, 40006, "name"},
		{"a large body", "POST", `{"id":100,"name":"` + large + `"}`, 41301, "65536"},
		{"nothing", "PUT", "", 40001, "empty"},
		{"another id", "PUT", `{"id":2,"name":"x"}`, 40006, "id must be 1"},
		{"minus zero", "PUT", `{"id":-0,"name":"x"}`, 40005, "id"},
		{"a time that is none", "PUT", `{"name":"x","created_at":"yesterday"}`, 40006, "created_at"},
		{"another field", "PUT", `{"name":"x","deleted_at":"2026-01-01T00:00:00Z"}`, 40002, "deleted_at"},
		{"a repeated name", "PUT", `{"name":"x","name":"x"}`, 40003, "name"},
		{"no name", "PUT", `{"tag":"x"}`, 40004, "name"},
		{"a long name", "PUT", `{"name":"` + long + `"}`, 40006, "name"},
		{"a blank name", "PUT", `{"name":" \u3000"}`, 40006, "name"},
		{"a control character in a tag", "PUT", `{"name":"x","tag":"\u0085"}`, 40006, "tag"},
		{"a large body", "PUT", `{"name":"` + large + `"}`, 41301, "65536"},
		{"a JSON patch", "PATCH", `[{"op":"remove","path":"/tag"}]`, 40001, "object"},
		{"an id", "PATCH", `{"id":1}`, 40002, "id"},
		{"a null tag, twice", "PATCH", `{"tag":null,"tag":null}`, 40003, "tag"},
		{"a null name and a tag", "PATCH", `{"tag":"x","name":null}`, 40004, "name"},
		{"an empty name", "PATCH", `{"name":""}`, 40006, "name"},
		{"a blank name", "PATCH", `{"name":"  "}`, 40006, "name"},
		{"a long tag", "PATCH", `{"tag":"` + long + `"}`, 40006, "tag"},
		{"a good name and a bad tag", "PATCH", `{"name":"Ficus","tag":"\u0000"}`, 40006, "tag"},
		{"a large body", "PATCH", `{"name":"` + large + `"}`, 41301, "65536"},
	} {
		t.Run(test.method+" "+test.name, func(t *testing.T) {
			path := "/plants/1"
			if test.method == "POST" {
				path = "/plants"
			}
			s.Call(t, test.method, path, test.body).CheckError(t, test.code, test.mentions)
			checkSame(t, s.Call(t, "GET", "/plants/1", ""), first)
		})
	}
	s.Call(t, "DELETE", "/plants/1", "").CheckEmpty(t, 204)
	for size, code := range map[int]int{65536: 0, 65537: 41301} {
		text := fmt.Sprintf(`{"id":%d,"name":"x"}`, size)
		text += strings.Repeat(" ", size-len(text))
		t.Run(strconv.Itoa(size), func(t *testing.T) {
			s.Send(t, "POST", "/plants", io.MultiReader(strings.NewReader(text)), service.As(service.Token)...).CheckCode(t, code) // chunked
		})
	}
	// If one of them were stored, its id would be taken.
	for _, id := range []string{"100", "1"} {
		s.Post(t, `{"id":`+id+`,"name":"x"}`).CheckStatus(t, 200)
	}
}

func TestContractCreate(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, test := range []struct {
			name, body, want, location string
		}{
			{"a plant with a tag", `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`, `{"name":"Monstera deliciosa","tag":"houseplant"}`, "/plants/1"},
			{"an absent tag stays absent", `{"id":2,"name":"x"}`, `{"name":"x"}`, "/plants/2"},
			{"an empty tag stays empty", `{"id":3,"name":"x","tag":""}`, `{"name":"x","tag":""}`, "/plants/3"},
			{"id 0", `{"id":0,"name":"x"}`, `{"name":"x"}`, "/plants/0"},
			{"-0 in a text", `{"id":-7,"name":"-0","tag":"null"}`, `{"name":"-0","tag":"null"}`, "/plants/-7"},
			{"id -1", `{"id":-1,"name":"x"}`, `{"name":"x"}`, "/plants/-1"},
			{"an id beyond float64", `{"id":9007199254740993,"name":"x"}`, `{"name":"x"}`, "/plants/9007199254740993"},
			{"the largest id", `{"id":9223372036854775807,"name":"x"}`, `{"name":"x"}`, "/plants/9223372036854775807"},
			{"the smallest id", `{"id":-9223372036854775808,"name":"x"}`, `{"name":"x"}`, "/plants/-9223372036854775808"},
			{"white space around", " {\r\n\t\"id\" : 4 , \"name\" : \"x\" }\n", `{"name":"x"}`, "/plants/4"},
			{"text is not trimmed", `{"id":5,"name":" x ","tag":" "}`, `{"name":" x ","tag":" "}`, "/plants/5"},
			{"text is not escaped", `{"id":6,"name":"<b>&\"\\/é"}`, `{"name":"<b>&\"\\/é"}`, "/plants/6"},
			{"text is not normalised", `{"id":7,"name":"é` + "e\u0301" + `"}`, `{"name":"é` + "e\u0301" + `"}`, "/plants/7"},
			{"escapes are read", `{"id":8,"\u006eame":"\ud83c\udf35"}`, `{"name":"🌵"}`, "/plants/8"},
			{"255 characters of four bytes", `{"id":9,"name":"` + strings.Repeat("🌵", 255) + `"}`, `{"name":"` + strings.Repeat("🌵", 255) + `"}`, "/plants/9"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.Post(t, test.body)
				if r.Status != 200 || r.Body != test.want {
					t.Errorf("got %v, want 200 %s", r, test.want)
					return
				}
				r.CheckJSON(t)
				r.CheckHeader(t, "Location", test.location)
				r.CheckETag(t)
			})
		}
	})
}

func TestContractTakenID(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		const plant = `{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`
		s.Post(t, plant).RequireOK(t)
		for _, test := range []struct {
			name, body string
			code       int
		}{
			{"the same", plant, 40902},
			{"the same in another order", `{"tag":"houseplant","name":"Monstera deliciosa","id":1}`, 40902},
			{"another name", `{"id":1,"name":"x","tag":"houseplant"}`, 40901},
			{"a name in another case", `{"id":1,"name":"monstera deliciosa","tag":"houseplant"}`, 40901},
			{"no tag", `{"id":1,"name":"Monstera deliciosa"}`, 40901},
			{"an empty tag", `{"id":1,"name":"Monstera deliciosa","tag":""}`, 40901},
			{"the same after the others", plant, 40902},
		} {
			t.Run(test.name, func(t *testing.T) { s.Post(t, test.body).CheckError(t, test.code) })
		}
		s.Call(t, "GET", "/plants/1", "").CheckStored(t, plant)
	})
}

func TestContractContentType(t *testing.T) {
	t.Parallel()
	s := service.Start(t)
	for _, test := range []struct {
		header, value string
		code          int
	}{
		{"Content-Type", "", 0},
		{"Content-Type", "application/json", 0},
		{"Content-Type", "Application/JSON; charset=UTF-8", 0},
		{"Content-Type", `application/json;charset="utf-8"`, 0},
		{"Content-Type", "application/json; charset=iso-8859-1", 41501},
		{"Content-Type", "text/plain", 41501},
		{"Content-Type", "application/x-www-form-urlencoded", 41501},
		{"Content-Type", "application/jsonx", 41501},
		{"Content-Type", "json", 41501},
		{"Content-Type", ";", 41501},
		{"Content-Encoding", "gzip", 41501},
		{"Content-Type", "application/json; charset=utf8", 0},
		{"Content-Encoding", "identity", 0},
	} {
		t.Run(test.header+": "+test.value, func(t *testing.T) {
			s.Post(t, service.BodyOf(service.IDs.Add(1)), test.header, test.value).CheckCode(t, test.code)
		})
	}
	// The size comes before the type.
	s.Post(t, strings.Repeat(" ", 70000), "Content-Type", "text/plain").CheckError(t, 41301)
}
