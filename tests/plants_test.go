package tests

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// oddTexts are texts that something on their way might change.
var oddTexts = []string{
	" x ", "é" + "e\u0301", "🌵", "\u200b\ufeff", `<b>&"\/`, `'; DROP TABLE plants; -- `, `% _ \ $1 ? @name :id {}`,
	"=1+1", "+1", "-1", "@SUM(A1)", "'", "'=1", "''", "'x", "a,b;c", `"`, `""`, `"quoted", and 'so'`, "null", "NULL", `\N`, `\.`, "#x", "\u2028\u00a0x",
	"\ufffd", strings.Repeat("🌵", 255), "x" + strings.Repeat(" ", 254),
}

// quote returns text as the service writes it in JSON.
func quote(text string) string {
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(text) + `"`
}

// TestPlantsIDs walks a plant at each edge of int64 through its life.
func TestPlantsIDs(t *testing.T) {
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
					t.Errorf("PUT answered %s %s, GET %s %s, HEAD %v", put.etag(), put.body, get.etag(), get.body, head.header)
				}
				checkStored(t, s.call(t, "PATCH", path, `{"tag":"y"}`), `{"id":`+id+`,"name":"x","tag":"y"}`)
				checkEmpty(t, s.call(t, "DELETE", path, ""), 204)
				checkError(t, s.call(t, "GET", path, ""), 40401)
				checkError(t, s.call(t, "DELETE", path, ""), 40401)
				created := s.post(t, `{"id":`+id+`,"name":"again"}`)
				if got := s.call(t, "GET", path, ""); created.status != 200 || got.etag() != created.etag() {
					t.Errorf("%s created again: %v with ETag %s, then %s", id, created, created.etag(), got.etag())
				}
			})
		}
	})
}

func TestPlantsBadIDs(t *testing.T) {
	t.Parallel()
	s := start(t)
	bodies := map[string]string{"GET": "", "PUT": `{"name":"x"}`, "PATCH": `{"name":"x"}`, "DELETE": ""}
	for _, id := range []string{
		"9223372036854775808", "-9223372036854775809", "1" + strings.Repeat("0", 400),
		"01", "-01", "-0", "00", "+1", "%2B1", "--1", "1.0", "1e3", "0x1", "1_0", "1,0", "abc", "%20", "1%20", "%201", "%D9%A3", "%00", "%FF",
		"imports", "Export", "1;", "1:", "~",
	} {
		t.Run(id, func(t *testing.T) {
			for method, body := range bodies {
				r := s.call(t, method, "/plants/"+id, body)
				checkError(t, r, 40007, "id must")
			}
		})
	}
	for _, path := range []string{"/plants/", "/plants/1/", "/plants/1/x", "/plants/1%2F2", "//plants/1", "/Plants/1", "/plants/import/", "/plants/EXPORT/x"} {
		t.Run(path, func(t *testing.T) {
			checkError(t, s.call(t, "GET", path, ""), 40402)
		})
	}
}

func TestPlantsMethods(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, test := range []struct{ method, path, allow string }{
		{"POST", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"OPTIONS", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"PROPFIND", "/plants/1", "DELETE GET HEAD PATCH PUT"},
		{"PUT", "/plants", "GET HEAD POST"},
		{"PATCH", "/plants", "GET HEAD POST"},
		{"DELETE", "/plants", "GET HEAD POST"},
		{"POST", "/plants/export", "GET HEAD"},
		{"DELETE", "/plants/export", "GET HEAD"},
		{"GET", "/plants/import", "POST"},
		{"PUT", "/plants/import", "POST"},
	} {
		t.Run(test.method+" "+test.path, func(t *testing.T) {
			r := s.send(t, test.method, test.path, nil) // without a token: the route comes first
			checkError(t, r, 40501)
			allowed := strings.Split(r.header.Get("Allow"), ", ")
			slices.Sort(allowed)
			if got := strings.Join(allowed, " "); got != test.allow {
				t.Errorf("%s %s: Allow has %s, want %s", test.method, test.path, got, test.allow)
			}
		})
	}
}

// TestPlantsAuthentication sends each request as nobody, with bodies and
// parameters that would be refused as well: they come later.
func TestPlantsAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t)
	requireStatus(t, s.post(t, `{"id":1,"name":"x"}`), 200)
	for _, request := range []string{
		"GET /plants", "GET /plants?limit=0", "GET /plants/1", "GET /plants/2", "GET /plants/01", "PUT /plants/1", "PATCH /plants/1", "DELETE /plants/1",
		"POST /plants/import", "POST /plants/import?mode=x", "GET /plants/export",
	} {
		t.Run(request, func(t *testing.T) {
			method, path, _ := strings.Cut(request, " ")
			r := s.call(t, method, path, "{", "Authorization", "")
			checkError(t, r, 40101)
			checkHeader(t, r, "WWW-Authenticate", `Bearer realm="plantstore"`)
			r = s.call(t, method, path, "{", "Authorization", "Bearer x", "If-Match", "x", "If-None-Match", "*")
			checkError(t, r, 40102)
			checkHeader(t, r, "WWW-Authenticate", `Bearer realm="plantstore", error="invalid_token"`)
			if r.etag() != "" {
				t.Errorf("%s with a wrong token: ETag %s", request, r.etag())
			}
			if method == "GET" {
				checkEmpty(t, s.call(t, "HEAD", path, "", "Authorization", ""), 401)
			}
		})
	}
	checkStored(t, s.call(t, "GET", "/plants/1", ""), `{"id":1,"name":"x"}`) // the plant after all of them
}

// TestPlantsTexts stores texts by each of the ways there are, and reads them by
// each.
func TestPlantsTexts(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		for i, text := range oddTexts {
			if strings.TrimSpace(text) == "" {
				t.Fatalf("%q is blank", text)
			}
			for j, want := range []string{`,"name":` + quote(text), `,"name":"x","tag":` + quote(text)} {
				id := strconv.Itoa(2*i + j)
				path, want, body := "/plants/"+id, `{"id":`+id+want+`}`, "{"+want[1:]+"}"
				checkStatus(t, s.post(t, want), 200)
				checkStored(t, s.call(t, "GET", path, ""), want)
				checkStored(t, s.call(t, "PUT", path, body), want)
				checkStored(t, s.call(t, "GET", path, ""), want)
				s.call(t, "PUT", path, `{"name":"x"}`)
				checkStored(t, s.call(t, "PATCH", path, body), want)
				if r := s.call(t, "GET", "/plants?limit=1&after="+strconv.Itoa(2*i+j-1), ""); withoutTimes(r.body) != "["+want+"]" {
					t.Errorf("the list has %s, want %s", r.body, want)
				}
				query := "/plants?q=" + url.QueryEscape(text)
				if j == 1 {
					query = "/plants?tag=" + url.QueryEscape(text)
				}
				if r := s.call(t, "GET", query, ""); !strings.Contains(withoutTimes(r.body), want) {
					t.Errorf("%s does not find %s: %s", query, want, r.body)
				}
			}
		}
	})
}

// TestPlantsWriteBodies walks what a PUT or a PATCH can have in its body, on a
// plant with a name and a tag.
func TestPlantsWriteBodies(t *testing.T) {
	long := strings.Repeat("é", 256)
	const before = `{"id":1,"name":"Monstera","tag":"house"}`
	eachService(t, func(t *testing.T, s *service) {
		for _, test := range []struct {
			name, method, body string
			code               int    // or 0
			want               string // the plant then, or what the message names
		}{
			{name: "the same", method: "PUT", body: `{"name":"Monstera","tag":"house"}`, want: before},
			{name: "no tag", method: "PUT", body: `{"name":"Ficus"}`, want: `{"id":1,"name":"Ficus"}`},
			{name: "an empty tag", method: "PUT", body: `{"tag":"","name":"Ficus"}`, want: `{"id":1,"name":"Ficus","tag":""}`},
			{name: "blanks around", method: "PUT", body: " {\r\n\t\"name\" : \"Ficus\" }\n", want: `{"id":1,"name":"Ficus"}`},
			{name: "nothing", method: "PUT", code: 40001, want: "empty"},
			{name: "an array", method: "PUT", body: `[{"name":"x"}]`, code: 40001, want: "object"},
			{name: "null", method: "PUT", body: `null`, code: 40001, want: "object"},
			{name: "a truncated object", method: "PUT", body: `{"name":"x"`, code: 40001, want: "byte 11"},
			{name: "a second object", method: "PUT", body: `{"name":"x"}{}`, code: 40001, want: "byte 12"},
			{name: "an id", method: "PUT", body: `{"id":1,"name":"x"}`, code: 40002, want: "id"},
			{name: "another id", method: "PUT", body: `{"id":2,"name":"x"}`, code: 40002, want: "id"},
			{name: "a time", method: "PUT", body: `{"name":"x","updated_at":"2026-01-01T00:00:00Z"}`, code: 40002, want: "updated_at"},
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
			{name: "a null tag takes it away", method: "PATCH", body: `{"tag":null}`, want: `{"id":1,"name":"Monstera"}`},
			{name: "a name and a null tag", method: "PATCH", body: `{"tag":null,"name":"Ficus"}`, want: `{"id":1,"name":"Ficus"}`},
			{name: "a tag with the text null", method: "PATCH", body: `{"tag":"null"}`, want: `{"id":1,"name":"Monstera","tag":"null"}`},
			{name: "both", method: "PATCH", body: `{"name":"Ficus","tag":"garden"}`, want: `{"id":1,"name":"Ficus","tag":"garden"}`},
			{name: "nothing at all", method: "PATCH", code: 40001, want: "empty"},
			{name: "an array", method: "PATCH", body: `[]`, code: 40001, want: "object"},
			{name: "a JSON patch", method: "PATCH", body: `[{"op":"remove","path":"/tag"}]`, code: 40001, want: "object"},
			{name: "null", method: "PATCH", body: `null`, code: 40001, want: "object"},
			{name: "a string", method: "PATCH", body: `"x"`, code: 40001, want: "object"},
			{name: "a truncated object", method: "PATCH", body: `{"tag":null`, code: 40001, want: "byte 11"},
			{name: "an id", method: "PATCH", body: `{"id":1}`, code: 40002, want: "id"},
			{name: "a null id", method: "PATCH", body: `{"id":null}`, code: 40002, want: "id"},
			{name: "an unknown field that is null", method: "PATCH", body: `{"colour":null}`, code: 40002, want: "colour"},
			{name: "another case", method: "PATCH", body: `{"Tag":null}`, code: 40002, want: "Tag"},
			{name: "a repeated tag", method: "PATCH", body: `{"tag":null,"tag":"x"}`, code: 40003, want: "tag"},
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
				what := test.method + " " + test.name
				first := s.call(t, "PUT", "/plants/1", `{"name":"Monstera","tag":"house"}`)
				checkStored(t, first, before)
				r := s.call(t, test.method, "/plants/1", test.body)
				then := s.call(t, "GET", "/plants/1", "")
				if test.code == 0 {
					checkStored(t, r, test.want)
					if then.body != r.body || then.etag() != r.etag() {
						t.Errorf("answered %s %s, and then there is %s %s", r.etag(), r.body, then.etag(), then.body)
					}
					if p, q := first.plant(), r.plant(); r.etag() == first.etag() || !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
						t.Errorf("%s became %s: ETag %s, then %s", first.body, r.body, first.etag(), r.etag())
					}
					return
				}
				checkError(t, r, test.code, test.want)
				if then.body != first.body || then.etag() != first.etag() {
					t.Errorf("%s was refused and made %s %s of %s %s", what, then.etag(), then.body, first.etag(), first.body)
				}
			})
		}
	})
}

func TestPlantsContentTypes(t *testing.T) {
	t.Parallel()
	s := start(t)
	for _, test := range []struct {
		method, header, value string
		code                  int // 0: accepted
	}{
		{"PUT", "Content-Type", "", 0},
		{"PUT", "Content-Type", "application/json", 0},
		{"PUT", "Content-Type", "Application/JSON; charset=UTF-8", 0},
		{"PUT", "Content-Type", "application/merge-patch+json", 41501},
		{"PUT", "Content-Type", "text/plain", 41501},
		{"PUT", "Content-Encoding", "gzip", 41501},
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
			r := s.call(t, "PUT", "/plants/1", `{"name":"x"}`)
			if test.method == "PATCH" || test.code != 0 {
				r = s.call(t, test.method, "/plants/1", `{"name":"x"}`, test.header, test.value)
			}
			if test.code != 0 {
				checkError(t, r, test.code)
			} else {
				checkStored(t, r, `{"id":1,"name":"x"}`)
			}
		})
	}
}

// TestPlantsConditions writes under each kind of condition, to a plant that is
// there and to one that is not. In a header's value, NOW is the plant's ETag and
// OLD the one that it had before.
func TestPlantsConditions(t *testing.T) {
	const failed, malformed, absent = 41201, 40007, 40401
	bodies := map[string]string{"PUT": `{"name":"new"}`, "PATCH": `{"name":"new"}`, "DELETE": ""}
	eachService(t, func(t *testing.T, s *service) {
		for _, test := range []struct {
			name    string
			headers []string
			there   int // the code for a plant that is there
			put     int // the code for a PUT of one that is not; the others have absent, or there where that is malformed
		}{
			{"no condition", nil, 0, 0},
			{"the ETag", []string{"If-Match", "NOW"}, 0, failed},
			{"any", []string{"If-Match", "*"}, 0, failed},
			{"the ETag before", []string{"If-Match", "OLD"}, failed, failed},
			{"a list with the ETag", []string{"If-Match", `OLD, "x" ,NOW`}, 0, failed},
			{"a list with empty elements", []string{"If-Match", `NOW, ,,"x",`}, 0, failed},
			{"a list that begins with an empty element", []string{"If-Match", `, NOW`}, 0, failed},
			{"a list with a comma in a tag", []string{"If-Match", `"a,b",NOW`}, 0, failed},
			{"a list with a weak one before the ETag", []string{"If-Match", `W/"x",NOW`}, 0, failed},
			{"a list without the ETag", []string{"If-Match", `"x", OLD, ""`}, failed, failed},
			{"the ETag, weak", []string{"If-Match", "W/NOW"}, failed, failed},
			{"an empty ETag", []string{"If-Match", `""`}, failed, failed},
			{"another's ETag", []string{"If-Match", `"33a64df551425fcc55e4d42a148795d9f25f89d4"`}, failed, failed},
			{"an ETag with bytes beyond ASCII", []string{"If-Match", "\"\xff\""}, failed, failed},
			{"an ETag of SQL", []string{"If-Match", `"'--"`}, failed, failed},
			{"the largest number for an ETag", []string{"If-Match", `"1y2p0ij32e8e7"`}, failed, failed},
			{"a larger one", []string{"If-Match", `"1y2p0ij32e8e8"`}, failed, failed},
			{"the smallest number for an ETag", []string{"If-Match", `"-1y2p0ij32e8e8"`}, failed, failed},
			{"a time that PostgreSQL has not", []string{"If-Match", `"-zzzzzzzzzzzz"`}, failed, failed},
			{"a year of more than four digits", []string{"If-Match", `"zzzzzzzzzzz"`}, failed, failed},
			{"a year before Christ", []string{"If-Match", `"-zzzzzzzzzzz"`}, failed, failed},
			{"a thousand ETags", []string{"If-Match", strings.Repeat(`"1",`, 1000) + "NOW"}, 0, failed},
			{"no quotes", []string{"If-Match", "x"}, malformed, malformed},
			{"no second quote", []string{"If-Match", `"x`}, malformed, malformed},
			{"single quotes", []string{"If-Match", "'x'"}, malformed, malformed},
			{"a blank in a tag", []string{"If-Match", `"a b"`}, malformed, malformed},
			{"no comma", []string{"If-Match", `NOW "x"`}, malformed, malformed},
			{"any in a list", []string{"If-Match", "*, NOW"}, malformed, malformed},
			{"a small w", []string{"If-Match", "w/NOW"}, malformed, malformed},
			{"nothing", []string{"If-Match", " "}, malformed, malformed},
			{"only a comma", []string{"If-Match", ","}, malformed, malformed},
			{"that it is not there", []string{"If-None-Match", "*"}, failed, 0},
			{"that it is there and not", []string{"If-Match", "*", "If-None-Match", "*"}, failed, failed},
			{"that it has the ETag and is not there", []string{"If-Match", "NOW", "If-None-Match", "*"}, failed, failed},
			{"that it has not the ETag", []string{"If-None-Match", "OLD"}, malformed, malformed},
			{"that it has not the ETag, malformed", []string{"If-None-Match", "x"}, malformed, malformed},
		} {
			t.Run(test.name, func(t *testing.T) {
				for method, body := range bodies {
					id := ids.Add(1)
					path := fmt.Sprintf("/plants/%d", id)
					old := s.call(t, "PUT", path, `{"name":"old"}`)
					now := s.call(t, "PUT", path, `{"name":"now"}`)
					if old.status != 200 || now.status != 200 || old.etag() == now.etag() {
						t.Fatalf("%d %s %s, then %d %s %s", old.status, old.body, old.etag(), now.status, now.body, now.etag())
					}
					headers := slices.Clone(test.headers)
					for i := range headers {
						headers[i] = strings.NewReplacer("NOW", now.etag(), "OLD", old.etag()).Replace(headers[i])
					}
					what := method + " on condition of " + test.name

					r, then := s.call(t, method, path, body, headers...), s.call(t, "GET", path, "")
					switch {
					case test.there != 0:
						checkError(t, r, test.there)
						if then.body != now.body || then.etag() != now.etag() {
							t.Errorf("%s was refused, and made %s %s of %s %s", what, then.etag(), then.body, now.etag(), now.body)
						}
					case method == "DELETE":
						checkEmpty(t, r, 204)
						checkError(t, then, 40401)
					default:
						checkStored(t, r, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
						if then.body != r.body || r.etag() == now.etag() {
							t.Errorf("%s: %s %s became %s %s, and then there is %s", what, now.etag(), now.body, r.etag(), r.body, then.body)
						}
					}

					what += " of what is not there"
					s.call(t, "DELETE", path, "")
					r, then = s.call(t, method, path, body, headers...), s.call(t, "GET", path, "")
					switch {
					case method == "PUT" && test.put == 0:
						checkStored(t, r, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
						continue
					case method == "PUT":
						checkError(t, r, test.put)
					case test.there == malformed:
						checkError(t, r, malformed)
					default:
						checkError(t, r, absent)
					}
					checkError(t, then, absent)
				}
			})
		}
		// A plant that was deleted and made again is another.
		gone := s.call(t, "PUT", "/plants/0", `{"name":"x"}`)
		s.call(t, "DELETE", "/plants/0", "")
		s.call(t, "PUT", "/plants/0", `{"name":"x"}`)
		checkError(t, s.call(t, "PUT", "/plants/0", `{"name":"y"}`, "If-Match", gone.etag()), 41201) // PUT with the ETag of the plant before
	})
}

// TestPlantsNotModified gets a plant on condition that it is another than the
// client has.
func TestPlantsNotModified(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		old, now := s.call(t, "PUT", "/plants/1", `{"name":"x"}`), s.call(t, "PUT", "/plants/1", `{"name":"x"}`)
		for _, test := range []struct {
			name, value string
			status      int
		}{
			{"the ETag", "NOW", 304},
			{"the ETag, weak", "W/NOW", 304},
			{"any", "*", 304},
			{"a list with the ETag", `OLD, NOW`, 304},
			{"a list with the weak ETag", `"x",W/NOW,"y"`, 304},
			{"the ETag before", "OLD", 200},
			{"a list without the ETag", `"x", OLD`, 200},
			{"another's", `"33a64df551425fcc"`, 200},
			{"an empty one", `""`, 200},
			{"no quotes", `x`, 400},
			{"no second quote", `"x`, 400},
			{"any in a list", `NOW, *`, 400},
			{"nothing", " ", 400},
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
					if r.header.Get("Content-Type") != "" {
						t.Errorf("Content-Type %q of nothing", r.header.Get("Content-Type"))
					}
				default:
					checkError(t, r, 40007, "If-None-Match")
				}
				if test.status != 400 && (r.etag() != now.etag() || head.etag() != now.etag()) {
					t.Errorf("ETag %q, with HEAD %q, want %q", r.etag(), head.etag(), now.etag())
				}
			})
		}
		checkError(t, s.call(t, "GET", "/plants/2", "", "If-None-Match", "*"), 40401) // what is not there
	})
}

func TestPlantsListParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	if r := s.call(t, "GET", "/plants", ""); r.status != 200 || r.body != "[]" || r.header.Get("Link") != "" || r.header.Get("Content-Type") != "application/json" {
		t.Errorf("nothing to list: %v, %v", r, r.header)
	}
	checkEmpty(t, s.call(t, "HEAD", "/plants", ""), 200) // HEAD of the list
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
		{"tag=a&tag=b", "tag"},
		{"tag&tag", "tag"},
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
		t.Run(test.query, func(t *testing.T) {
			r := s.call(t, "GET", "/plants?"+test.query, "")
			checkError(t, r, 40007, test.mentions)
		})
	}
	for _, query := range []string{"", "?", "?limit=1", "?limit=1000", "?after=-9223372036854775808", "?after=9223372036854775807", "?tag=", "?tag", "?q=+", "?&&q=x&", "?tag=" + long[6:] + "&q=" + long[6:]} {
		t.Run(query, func(t *testing.T) {
			if r := s.call(t, "GET", "/plants"+query, ""); r.status != 200 || r.body != "[]" {
				t.Errorf("got %v", r)
			}
		})
	}
}

// TestPlantsSearch lists plants by their tags and by parts of their names.
func TestPlantsSearch(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
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
		} {
			requireStatus(t, s.call(t, "PUT", fmt.Sprintf("/plants/%d", id), "{"+content+"}"), 200)
		}
		for _, test := range []struct{ name, query, want string }{
			{"everything", "", "-2 -1 0 1 2 3 4 5 6 7 8 9 10"},
			{"a tag", "tag=house", "-2 2"},
			{"a tag is in one case", "tag=House", "-1"},
			{"a tag is whole", "tag=hous", ""},
			{"a tag is not trimmed", "tag=house+", "3"},
			{"an empty tag is not an absent one", "tag=", "0"},
			{"a tag % is no pattern", "tag=%25", "4"},
			{"a tag _ is no pattern", "tag=_", "5"},
			{`a tag \`, "tag=%5C", "6"},
			{"a tag '", "tag='", "7"},
			{"a tag is not normalised", "tag=%C3%A9", "8"},
			{"a tag 🌵", "tag=%F0%9F%8C%B5", "10"},
			{"no such tag", "tag=x", ""},
			{"a name", "q=Ficus", "0 1 2"},
			{"a name in small letters", "q=ficus", "0 1 2"},
			{"a name in capital letters", "q=MONSTERA", "-2 -1"},
			{"the middle of a name in mixed case", "q=ELIcI", "-2"},
			{"a blank", "q=+", "-2 -1 2 4 6 7 10"},
			{"% is no pattern", "q=%25", "2"},
			{"%% is not there", "q=%25%25", ""},
			{"_ is no pattern", "q=_", "3"},
			{"e_p is one name", "q=e_p", "3"},
			{`\ is no escape`, "q=%5C", "5"},
			{`\s`, "q=%5Cs", "5"},
			{`\% is not there`, "q=%5C%25", ""},
			{"' needs no escape", "q='", "6"},
			{"[a-z]* is no pattern", "q=%5Ba-z%5D*", "7"},
			{"?. is no pattern", "q=?.", "7"},
			{"é", "q=%C3%A9", "8"},
			{"e and an accent", "q=e%CC%81", "9"},
			{"🌵", "q=%F0%9F%8C%B5", "10"},
			{"no part of any", "q=zzz", ""},
			{"a tag and a name", "q=ficus&tag=house", "2"},
			{"an empty tag and a name", "q=f&tag=", "0"},
			{"after an id", "after=5", "6 7 8 9 10"},
			{"after an id that is not there", "after=-100", "-2 -1 0 1 2 3 4 5 6 7 8 9 10"},
			{"after the last", "after=10", ""},
			{"the first two", "limit=2", "-2 -1"},
			{"two after 0", "after=0&limit=2", "1 2"},
			{"two by name", "limit=2&q=ficus", "0 1"},
			{"all by name after the first", "after=0&limit=2&q=ficus", "1 2"},
		} {
			t.Run(test.name, func(t *testing.T) {
				r := s.call(t, "GET", "/plants?"+test.query, "")
				if got := r.idsOf(t); r.status != 200 || got != test.want {
					t.Errorf("%s has %q, want %q: %d", test.query, got, test.want, r.status)
				}
				checkHeaders(t, r)
			})
		}
		// The next page is one of the same search.
		r := s.call(t, "GET", "/plants?q=M&tag=house&limit=1", "")
		if next := r.next(); next != "" {
			t.Errorf("the only one has a next page: %s", next)
		}
		var pages []string
		for path := "/plants?q=%20&limit=2"; path != ""; path = r.next() {
			r = s.call(t, "GET", path, "")
			pages = append(pages, r.idsOf(t))
		}
		if got := strings.Join(pages, "|"); got != "-2 -1|2 4|6 7|10" {
			t.Errorf("the pages of a search have %s", got)
		}
	})
}

// TestPlantsPaging reads some hundred plants page by page while others come: it
// must see each of the former, and none twice.
func TestPlantsPaging(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		known := []int64{math.MinInt64, math.MinInt64 + 1, -1, 0, 1, math.MaxInt64 - 1, math.MaxInt64}
		for range 300 {
			known = append(known, int64(rand.Uint64()), rand.Int64N(200_000)-100_000) //nolint:gosec // any id will do
		}
		slices.Sort(known)
		known = slices.Compact(known)
		bodies := &strings.Builder{}
		for _, id := range known {
			fmt.Fprintln(bodies, bodyOf(id))
		}
		requireStatus(t, s.call(t, "POST", "/plants/import", bodies.String(), "Content-Type", "application/x-ndjson"), 200)

		// Without writes, pages are as large as they can be.
		for _, limit := range []int{1000, 50, len(known), len(known) - 1, 7} {
			t.Run(fmt.Sprintf("pages of %d", limit), func(t *testing.T) {
				read, pages := []int64(nil), 0
				for path := fmt.Sprintf("/plants?limit=%d", limit); path != ""; pages++ {
					r := s.call(t, "GET", path, "")
					page := r.plants(t)
					for _, p := range page {
						read = append(read, p.ID)
						if p.Name != nameOf(p.ID) {
							t.Fatalf("plant %d is listed as %q", p.ID, p.Name)
						}
					}
					if path = r.next(); path != "" && len(page) != limit {
						t.Errorf("a page of %d, which is not the last, has %d plants", limit, len(page))
					}
				}
				if !slices.Equal(read, known) || pages != (len(known)+limit-1)/limit {
					t.Errorf("%d plants on %d pages of %d, want %d", len(read), pages, limit, len(known))
				}
			})
		}
		if r := s.call(t, "GET", "/plants", ""); len(r.plants(t)) != 50 {
			t.Errorf("a page has %d plants where no limit is given", len(r.plants(t)))
		}

		stop, wrote := make(chan struct{}), make(chan struct{}, 1) // wrote holds one since it was looked at
		var group sync.WaitGroup
		group.Go(func() {
			transport := &http.Transport{}
			defer transport.CloseIdleConnections()
			for {
				id := rand.Int64N(200_000) - 100_000
				if _, taken := slices.BinarySearch(known, id); !taken {
					s.create(transport, id, strings.NewReader(fmt.Sprintf(`{"id":%d,"name":"late"}`, id)))
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
			r := s.call(t, "GET", path, "")
			for _, p := range r.plants(t) {
				if !first && p.ID <= last {
					t.Errorf("%d comes after %d", p.ID, last)
				}
				last, first = p.ID, false
				if p.Name != "late" {
					read = append(read, p.ID)
				}
			}
			path = r.next()
			// Something is written between one page and the next, now and then.
			if len(read)%10 == 0 {
				for range 2 { // the first may have been written before this page
					<-wrote
				}
			}
		}
		close(stop)
		group.Wait()
		if !slices.Equal(read, known) {
			t.Errorf("while others came, %d of %d plants were read", len(read), len(known))
		}
	})
}

// TestPlantsOneWinner lets clients write at once what only one of them may.
func TestPlantsOneWinner(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		for _, test := range []struct {
			name, method, path, body string
			headers                  func(etag string) []string
			won, lost                int
		}{
			{name: "PATCH with one ETag", method: "PATCH", path: "/plants/1", body: `{"tag":"%d"}`, headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 200, lost: 412},
			{name: "PUT with one ETag", method: "PUT", path: "/plants/1", body: `{"name":"x","tag":"%d"}`, headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 200, lost: 412},
			{name: "PUT of a plant that is not there", method: "PUT", path: "/plants/2", body: `{"name":"x","tag":"%d"}`, headers: func(string) []string { return []string{"If-None-Match", "*"} }, won: 200, lost: 412},
			{name: "DELETE with one ETag", method: "DELETE", path: "/plants/1", headers: func(etag string) []string { return []string{"If-Match", etag} }, won: 204, lost: 404},
			{name: "DELETE", method: "DELETE", path: "/plants/1", headers: func(string) []string { return nil }, won: 204, lost: 404},
		} {
			t.Run(test.name, func(t *testing.T) {
				const writers = 100
				etag := s.call(t, "PUT", "/plants/1", `{"name":"x"}`).etag()
				s.call(t, "DELETE", "/plants/2", "")
				all, begin := make([]response, writers), make(chan struct{})
				var group sync.WaitGroup
				for i := range writers {
					group.Go(func() {
						body := test.body
						if strings.Contains(body, "%d") {
							body = fmt.Sprintf(body, i)
						}
						<-begin
						var err error
						if all[i], err = s.try(test.method, test.path, strings.NewReader(body),
							append([]string{"Authorization", "Bearer " + token}, test.headers(etag)...)...); err != nil {
							t.Error(err)
						}
					})
				}
				close(begin)
				group.Wait()
				winner, losers := -1, 0
				for i, r := range all {
					switch r.status {
					case test.won:
						if winner >= 0 {
							t.Errorf("%d and %d have won", winner, i)
						}
						winner = i
					case test.lost:
						losers++
					default:
						t.Errorf("got %v", r)
					}
				}
				if winner < 0 || losers != writers-1 {
					t.Errorf("winner %d, and %d losers", winner, losers)
					return
				}
				if then := s.call(t, "GET", test.path, ""); test.won == 200 && then.body != all[winner].body {
					t.Errorf("the winner was told %s, and there is %s", all[winner].body, then.body)
				}
			})
		}
	})
}

// TestPlantsCounter counts in the names of plants, by many clients that read, add
// one, write what they have read, and try again where another came first.
func TestPlantsCounter(t *testing.T) {
	const counters, each, plants = 20, 50, 4
	eachService(t, func(t *testing.T, s *service) {
		for id := range plants {
			requireStatus(t, s.call(t, "PUT", fmt.Sprintf("/plants/%d", id), `{"name":"0"}`), 200)
		}
		var late atomic.Int64
		var group sync.WaitGroup
		for counter := range counters {
			group.Go(func() {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				call := func(method, body string, headers ...string) response {
					r, err := s.tryOn(transport, method, fmt.Sprintf("/plants/%d", counter%plants), strings.NewReader(body),
						append(headers, "Authorization", "Bearer "+token)...)
					if err != nil {
						t.Error(err)
					}
					return r
				}
				read := call("GET", "")
				for done := 0; done < each; {
					n, err := strconv.Atoi(read.plant().Name)
					if err != nil {
						t.Errorf("got %v", read)
						return
					}
					r := call("PATCH", fmt.Sprintf(`{"name":"%d"}`, n+1), "If-Match", read.etag())
					switch r.status {
					case 200:
						done++
						read = r
					case 412:
						late.Add(1)
						read = call("GET", "")
					default:
						t.Errorf("got %v", r)
						return
					}
				}
			})
		}
		group.Wait()
		for id := range plants {
			if r := s.call(t, "GET", fmt.Sprintf("/plants/%d", id), ""); r.plant().Name != strconv.Itoa(counters*each/plants) {
				t.Errorf("%d increments counted to %s", counters*each/plants, r.plant().Name)
			}
		}
		if late.Load() == 0 {
			t.Error("the clients were never in each other's way")
		}
		t.Logf("%d attempts came too late", late.Load())
	})
}

// TestPlantsVersionsOnlyGrow writes plants whose last write lies in the future,
// as when a clock was wrong: their versions go on all the same.
func TestPlantsVersionsOnlyGrow(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		table := openTable(t, url)
		for _, written := range []string{
			"2999-01-01 00:00:00+00:00", "2999-01-01 00:00:10+00:00", "2999-01-01 00:00:00.1+00:00", "2999-01-01 00:00:00.123456+00:00",
			"2999-01-01 00:00:00.999+00:00", "2999-01-01 00:00:00.9996+00:00", "2999-01-01 00:00:59.999999+00:00", "2999-12-31 23:59:59.9994+00:00",
			"2999-12-31 23:59:59.999999+00:00", "2999-02-28 23:59:59.009999+00:00", "2999-06-30 12:00:00.09+00:00",
		} {
			t.Run(written, func(t *testing.T) {
				requireStatus(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`), 200)
				if _, err := table.ExecContext(t.Context(), "UPDATE plants SET updated_at = '"+written+"'"); err != nil {
					t.Fatal(err)
				}
				last := s.call(t, "GET", "/plants/1", "")
				if want, err := time.Parse("2006-01-02 15:04:05Z07:00", written); err != nil || !last.plant().UpdatedAt.Equal(want) {
					t.Fatalf("%s is read as %s", written, last.body)
				}
				for i := range 12 {
					method, body := "PATCH", `{}`
					if i%3 == 0 {
						method, body = "PUT", `{"name":"x"}`
					}
					var condition []string
					if i%2 == 0 {
						condition = []string{"If-Match", last.etag()}
					}
					r := s.call(t, method, "/plants/1", body, condition...)
					then := s.call(t, "GET", "/plants/1", "")
					if r.status != 200 || !r.plant().UpdatedAt.After(last.plant().UpdatedAt) || r.etag() == last.etag() ||
						then.body != r.body || then.etag() != r.etag() {
						t.Fatalf("after %s %s, %s %d: answered %d %s %s, and then there is %s %s",
							last.etag(), last.body, method, i, r.status, r.etag(), r.body, then.etag(), then.body)
					}
					if step := r.plant().UpdatedAt.Sub(last.plant().UpdatedAt); step > 2*time.Millisecond {
						t.Errorf("after %s, the next moment is %v later", written, step)
					}
					if !r.plant().CreatedAt.Equal(last.plant().CreatedAt) {
						t.Errorf("%s %d: created at %v, then at %v", method, i, last.plant().CreatedAt, r.plant().CreatedAt)
					}
					checkError(t, s.call(t, "PATCH", "/plants/1", `{}`, "If-Match", last.etag()), 41201)
					last = r
				}
				checkEmpty(t, s.call(t, "DELETE", "/plants/1", "", "If-Match", last.etag()), 204)
			})
		}
	})
}

// TestPlantsSurviveKill kills the service after it has acknowledged writes.
func TestPlantsSurviveKill(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		s.call(t, "PUT", "/plants/3", `{"name":"x"}`)
		put := s.call(t, "PUT", "/plants/1", `{"name":"put"}`)
		s.call(t, "PUT", "/plants/2", `{"name":"put","tag":"x"}`)
		patched := s.call(t, "PATCH", "/plants/2", `{"tag":null}`)
		checkEmpty(t, s.call(t, "DELETE", "/plants/3", ""), 204) // DELETE
		if err := s.process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.wait(t)
		s = start(t, "DATABASE_URL="+url)
		for path, want := range map[string]response{"/plants/1": put, "/plants/2": patched} {
			t.Run(path, func(t *testing.T) {
				if r := s.call(t, "GET", path, ""); want.status != 200 || r.body != want.body || r.etag() != want.etag() {
					t.Errorf("%s was %s %s, and is %s %s", path, want.etag(), want.body, r.etag(), r.body)
				}
			})
		}
		checkError(t, s.call(t, "GET", "/plants/3", ""), 40401) // what was deleted
	})
}

// TestPlantsWithoutDatabase asks for everything while PostgreSQL is down.
func TestPlantsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	requireStatus(t, s.call(t, "PUT", "/plants/1", `{"name":"x"}`), 200)
	if err := server.Stop(); err != nil {
		t.Fatal(err)
	}
	for _, request := range [][]string{
		{"GET", "/plants", ""},
		{"GET", "/plants/1", ""},
		{"PUT", "/plants/1", `{"name":"x"}`},
		{"PUT", "/plants/1", `{"name":"x"}`, "If-Match", `"x"`},
		{"PATCH", "/plants/1", `{}`},
		{"PATCH", "/plants/1", `{}`, "If-None-Match", "*"},
		{"DELETE", "/plants/1", ""},
		{"GET", "/plants/export", ""},
		{"GET", "/plants/export", "", "Accept", "text/csv"},
		{"POST", "/plants/import", bodyOf(2), "Content-Type", "application/x-ndjson"},
	} {
		t.Run(strings.Join(request, " "), func(t *testing.T) {
			r := s.call(t, request[0], request[1], request[2], request[3:]...)
			checkError(t, r, 50302)
			checkHas(t, r, "Retry-After")
		})
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	checkStored(t, s.call(t, "GET", "/plants/1", ""), `{"id":1,"name":"x"}`) // with the database back
}
