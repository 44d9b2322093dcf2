package tests

import (
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"plantstore/database/dbtest"
)

// connections are kept for the requests of call.
var connections = &http.Transport{MaxIdleConnsPerHost: 4}

// call sends a request with the token and, in pairs, with headers.
func (s *service) call(method, path, body string, headers ...string) answer {
	s.t.Helper()
	a, err := s.tryOn(connections, method, path, strings.NewReader(body), append([]string{"Authorization", "Bearer " + token}, headers...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	return a
}

// storedPlant is what the service says of a plant that it has stored.
type storedPlant struct {
	ID        int64
	Name      string
	Tag       *string
	CreatedAt time.Time `json:"created_at"`
	UpdatedAt time.Time `json:"updated_at"`
}

// plant returns the StoredPlant in an answer.
func (a answer) plant() (p storedPlant) {
	_ = json.Unmarshal([]byte(a.body), &p)
	return p
}

func (a answer) etag() string { return a.header.Get("ETag") }

// times are the end of a StoredPlant, which every run has others of.
var times = regexp.MustCompile(`,"created_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)","updated_at":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d{1,6})?Z)"\}`)

// checkStored checks an answer with the StoredPlant that has content, which is
// its JSON without the times.
func checkStored(t *testing.T, what string, a answer, content string) {
	t.Helper()
	if got := times.ReplaceAllString(a.body, "}"); a.status != 200 || got != content {
		t.Errorf("%s: got %d %s, want 200 %s with its times", what, a.status, a.body, content)
		return
	}
	checkHeaders(t, what, a)
	if got := a.header.Get("Content-Type"); got != "application/json" {
		t.Errorf("%s: Content-Type %q", what, got)
	}
	if !regexp.MustCompile(`^"[!#-~]+"$`).MatchString(a.etag()) {
		t.Errorf("%s: ETag %q is not a strong one", what, a.etag())
	}
}

// checkEmpty checks an answer that has no body.
func checkEmpty(t *testing.T, what string, a answer, status int) {
	t.Helper()
	if a.status != status || a.body != "" {
		t.Errorf("%s: got %d %q, want %d without a body", what, a.status, a.body, status)
	}
	checkHeaders(t, what, a)
}

// checkNames checks that an error's message names something.
func checkNames(t *testing.T, what string, a answer, names string) {
	t.Helper()
	if !strings.Contains(a.body, strings.ReplaceAll(names, `"`, `\"`)) {
		t.Errorf("%s: the message does not name %s: %s", what, names, a.body)
	}
}

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
			path := "/plants/" + id
			checkError(t, id+" is not there", s.call("GET", path, ""), 404, 40401)
			checkEmpty(t, "HEAD of what is not there", s.call("HEAD", path, ""), 404)
			checkError(t, id+" cannot be changed", s.call("PATCH", path, `{"name":"x"}`), 404, 40401)
			checkError(t, id+" cannot be deleted", s.call("DELETE", path, ""), 404, 40401)
			put := s.call("PUT", path, `{"name":"x"}`)
			checkStored(t, "PUT "+id, put, `{"id":`+id+`,"name":"x"}`)
			get := s.call("GET", path, "")
			checkStored(t, "GET "+id, get, `{"id":`+id+`,"name":"x"}`)
			head := s.call("HEAD", path, "")
			checkEmpty(t, "HEAD "+id, head, 200)
			if get.body != put.body || get.etag() != put.etag() || head.etag() != put.etag() ||
				head.header.Get("Content-Length") != strconv.Itoa(len(get.body)) {
				t.Errorf("%s: PUT answered %s %s, GET %s %s, HEAD %v", id, put.etag(), put.body, get.etag(), get.body, head.header)
			}
			checkStored(t, "PATCH "+id, s.call("PATCH", path, `{"tag":"y"}`), `{"id":`+id+`,"name":"x","tag":"y"}`)
			checkEmpty(t, "DELETE "+id, s.call("DELETE", path, ""), 204)
			checkError(t, id+" is gone", s.call("GET", path, ""), 404, 40401)
			checkError(t, id+" is deleted already", s.call("DELETE", path, ""), 404, 40401)
			created := s.post(`{"id":` + id + `,"name":"again"}`)
			if got := s.call("GET", path, ""); created.status != 200 || got.etag() != created.etag() {
				t.Errorf("%s created again: %d %s with ETag %s, then %s", id, created.status, created.body, created.etag(), got.etag())
			}
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
		for method, body := range bodies {
			what := method + " /plants/" + id
			a := s.call(method, "/plants/"+id, body)
			checkError(t, what, a, 400, 40007)
			checkNames(t, what, a, "id must")
		}
	}
	for _, path := range []string{"/plants/", "/plants/1/", "/plants/1/x", "/plants/1%2F2", "//plants/1", "/Plants/1", "/plants/import/", "/plants/EXPORT/x"} {
		checkError(t, "GET "+path, s.call("GET", path, ""), 404, 40402)
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
		a := s.send(test.method, test.path, nil) // without a token: the route comes first
		checkError(t, test.method+" "+test.path, a, 405, 40501)
		allowed := strings.Split(a.header.Get("Allow"), ", ")
		slices.Sort(allowed)
		if got := strings.Join(allowed, " "); got != test.allow {
			t.Errorf("%s %s: Allow has %s, want %s", test.method, test.path, got, test.allow)
		}
	}
}

// TestPlantsAuthentication sends each request as nobody, with bodies and
// parameters that would be refused as well: they come later.
func TestPlantsAuthentication(t *testing.T) {
	t.Parallel()
	s := start(t)
	if a := s.post(`{"id":1,"name":"x"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
	for _, request := range []string{
		"GET /plants", "GET /plants?limit=0", "GET /plants/1", "GET /plants/2", "GET /plants/01", "PUT /plants/1", "PATCH /plants/1", "DELETE /plants/1",
		"POST /plants/import", "POST /plants/import?mode=x", "GET /plants/export",
	} {
		method, path, _ := strings.Cut(request, " ")
		a := s.call(method, path, "{", "Authorization", "")
		checkError(t, request+" without a token", a, 401, 40101)
		if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="plantstore"` {
			t.Errorf("%s without a token: WWW-Authenticate %q", request, got)
		}
		a = s.call(method, path, "{", "Authorization", "Bearer x", "If-Match", "x", "If-None-Match", "*")
		checkError(t, request+" with a wrong token", a, 401, 40102)
		if got := a.header.Get("WWW-Authenticate"); got != `Bearer realm="plantstore", error="invalid_token"` {
			t.Errorf("%s with a wrong token: WWW-Authenticate %q", request, got)
		}
		if a.etag() != "" {
			t.Errorf("%s with a wrong token: ETag %s", request, a.etag())
		}
		if method == "GET" {
			checkEmpty(t, "HEAD "+path+" without a token", s.call("HEAD", path, "", "Authorization", ""), 401)
		}
	}
	checkStored(t, "the plant after all of them", s.call("GET", "/plants/1", ""), `{"id":1,"name":"x"}`)
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
				if a := s.post(want); a.status != 200 {
					t.Errorf("POST of %q: %d %s", text, a.status, a.body)
				}
				checkStored(t, "GET of what POST stored", s.call("GET", path, ""), want)
				checkStored(t, "PUT over another", s.call("PUT", path, body), want)
				checkStored(t, "GET of what PUT stored", s.call("GET", path, ""), want)
				s.call("PUT", path, `{"name":"x"}`)
				checkStored(t, "PATCH", s.call("PATCH", path, body), want)
				if a := s.call("GET", "/plants?limit=1&after="+strconv.Itoa(2*i+j-1), ""); times.ReplaceAllString(a.body, "}") != "["+want+"]" {
					t.Errorf("the list has %s, want %s", a.body, want)
				}
				query := "/plants?q=" + url.QueryEscape(text)
				if j == 1 {
					query = "/plants?tag=" + url.QueryEscape(text)
				}
				if a := s.call("GET", query, ""); !strings.Contains(times.ReplaceAllString(a.body, "}"), want) {
					t.Errorf("%s does not find %s: %s", query, want, a.body)
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
			what, method, body string
			code               int    // or 0
			want               string // the plant then, or what the message names
		}{
			{"the same", "PUT", `{"name":"Monstera","tag":"house"}`, 0, before},
			{"no tag", "PUT", `{"name":"Ficus"}`, 0, `{"id":1,"name":"Ficus"}`},
			{"an empty tag", "PUT", `{"tag":"","name":"Ficus"}`, 0, `{"id":1,"name":"Ficus","tag":""}`},
			{"blanks around", "PUT", " {\r\n\t\"name\" : \"Ficus\" }\n", 0, `{"id":1,"name":"Ficus"}`},
			{"nothing", "PUT", "", 40001, "empty"},
			{"an array", "PUT", `[{"name":"x"}]`, 40001, "object"},
			{"null", "PUT", `null`, 40001, "object"},
			{"a truncated object", "PUT", `{"name":"x"`, 40001, "byte 11"},
			{"a second object", "PUT", `{"name":"x"}{}`, 40001, "byte 12"},
			{"an id", "PUT", `{"id":1,"name":"x"}`, 40002, "id"},
			{"another id", "PUT", `{"id":2,"name":"x"}`, 40002, "id"},
			{"a time", "PUT", `{"name":"x","updated_at":"2026-01-01T00:00:00Z"}`, 40002, "updated_at"},
			{"another case", "PUT", `{"Name":"x"}`, 40002, "Name"},
			{"a repeated name", "PUT", `{"name":"x","name":"x"}`, 40003, "name"},
			{"no name", "PUT", `{"tag":"x"}`, 40004, "name"},
			{"an empty object", "PUT", `{}`, 40004, "name"},
			{"a null name", "PUT", `{"name":null}`, 40004, "name"},
			{"a null tag", "PUT", `{"name":"x","tag":null}`, 40004, "tag"},
			{"a number for a name", "PUT", `{"name":1}`, 40004, "name"},
			{"a long name", "PUT", `{"name":"` + long + `"}`, 40006, "name"},
			{"a blank name", "PUT", `{"name":" \u3000"}`, 40006, "name"},
			{"a control character in a tag", "PUT", `{"name":"x","tag":"\u0085"}`, 40006, "tag"},
			{"a large body", "PUT", `{"name":"` + strings.Repeat("x", 65536) + `"}`, 41301, "65536"},

			{"nothing to change", "PATCH", `{}`, 0, before},
			{"the same name", "PATCH", `{"name":"Monstera"}`, 0, before},
			{"another name", "PATCH", `{"name":"Ficus"}`, 0, `{"id":1,"name":"Ficus","tag":"house"}`},
			{"another tag", "PATCH", `{"tag":"garden"}`, 0, `{"id":1,"name":"Monstera","tag":"garden"}`},
			{"an empty tag", "PATCH", `{"tag":""}`, 0, `{"id":1,"name":"Monstera","tag":""}`},
			{"a null tag takes it away", "PATCH", `{"tag":null}`, 0, `{"id":1,"name":"Monstera"}`},
			{"a name and a null tag", "PATCH", `{"tag":null,"name":"Ficus"}`, 0, `{"id":1,"name":"Ficus"}`},
			{"a tag with the text null", "PATCH", `{"tag":"null"}`, 0, `{"id":1,"name":"Monstera","tag":"null"}`},
			{"both", "PATCH", `{"name":"Ficus","tag":"garden"}`, 0, `{"id":1,"name":"Ficus","tag":"garden"}`},
			{"nothing at all", "PATCH", "", 40001, "empty"},
			{"an array", "PATCH", `[]`, 40001, "object"},
			{"a JSON patch", "PATCH", `[{"op":"remove","path":"/tag"}]`, 40001, "object"},
			{"null", "PATCH", `null`, 40001, "object"},
			{"a string", "PATCH", `"x"`, 40001, "object"},
			{"a truncated object", "PATCH", `{"tag":null`, 40001, "byte 11"},
			{"an id", "PATCH", `{"id":1}`, 40002, "id"},
			{"a null id", "PATCH", `{"id":null}`, 40002, "id"},
			{"an unknown field that is null", "PATCH", `{"colour":null}`, 40002, "colour"},
			{"another case", "PATCH", `{"Tag":null}`, 40002, "Tag"},
			{"a repeated tag", "PATCH", `{"tag":null,"tag":"x"}`, 40003, "tag"},
			{"a null name", "PATCH", `{"name":null}`, 40004, "name"},
			{"a null name and a tag", "PATCH", `{"tag":"x","name":null}`, 40004, "name"},
			{"a number for a tag", "PATCH", `{"tag":1}`, 40004, "tag"},
			{"an object for a tag", "PATCH", `{"tag":{"x":null}}`, 40004, "tag"},
			{"an array for a name", "PATCH", `{"name":["x"]}`, 40004, "name"},
			{"an empty name", "PATCH", `{"name":""}`, 40006, "name"},
			{"a blank name", "PATCH", `{"name":"  "}`, 40006, "name"},
			{"a long tag", "PATCH", `{"tag":"` + long + `"}`, 40006, "tag"},
			{"a good name and a bad tag", "PATCH", `{"name":"Ficus","tag":"\u0000"}`, 40006, "tag"},
			{"a large body", "PATCH", `{"name":"` + strings.Repeat("x", 65536) + `"}`, 41301, "65536"},
		} {
			what := test.method + " " + test.what
			first := s.call("PUT", "/plants/1", `{"name":"Monstera","tag":"house"}`)
			checkStored(t, "before "+what, first, before)
			a := s.call(test.method, "/plants/1", test.body)
			then := s.call("GET", "/plants/1", "")
			if test.code == 0 {
				checkStored(t, what, a, test.want)
				if then.body != a.body || then.etag() != a.etag() {
					t.Errorf("%s: answered %s %s, and then there is %s %s", what, a.etag(), a.body, then.etag(), then.body)
				}
				if p, q := first.plant(), a.plant(); a.etag() == first.etag() || !p.CreatedAt.Equal(q.CreatedAt) || !q.UpdatedAt.After(p.UpdatedAt) {
					t.Errorf("%s: %s became %s: ETag %s, then %s", what, first.body, a.body, first.etag(), a.etag())
				}
				continue
			}
			checkError(t, what, a, 400, test.code)
			checkNames(t, what, a, test.want)
			if then.body != first.body || then.etag() != first.etag() {
				t.Errorf("%s was refused and made %s %s of %s %s", what, then.etag(), then.body, first.etag(), first.body)
			}
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
		what := test.method + " with " + test.header + ": " + test.value
		a := s.call("PUT", "/plants/1", `{"name":"x"}`)
		if test.method == "PATCH" || test.code != 0 {
			a = s.call(test.method, "/plants/1", `{"name":"x"}`, test.header, test.value)
		}
		if test.code != 0 {
			checkError(t, what, a, 400, test.code)
		} else {
			checkStored(t, what, a, `{"id":1,"name":"x"}`)
		}
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
			what    string
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
			for method, body := range bodies {
				id := ids.Add(1)
				path := fmt.Sprintf("/plants/%d", id)
				old := s.call("PUT", path, `{"name":"old"}`)
				now := s.call("PUT", path, `{"name":"now"}`)
				if old.status != 200 || now.status != 200 || old.etag() == now.etag() {
					t.Fatalf("%d %s %s, then %d %s %s", old.status, old.body, old.etag(), now.status, now.body, now.etag())
				}
				headers := slices.Clone(test.headers)
				for i := range headers {
					headers[i] = strings.NewReplacer("NOW", now.etag(), "OLD", old.etag()).Replace(headers[i])
				}
				what := method + " on condition of " + test.what

				a, then := s.call(method, path, body, headers...), s.call("GET", path, "")
				switch {
				case test.there != 0:
					checkError(t, what, a, test.there/100, test.there)
					if then.body != now.body || then.etag() != now.etag() {
						t.Errorf("%s was refused, and made %s %s of %s %s", what, then.etag(), then.body, now.etag(), now.body)
					}
				case method == "DELETE":
					checkEmpty(t, what, a, 204)
					checkError(t, "after "+what, then, 404, 40401)
				default:
					checkStored(t, what, a, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
					if then.body != a.body || a.etag() == now.etag() {
						t.Errorf("%s: %s %s became %s %s, and then there is %s", what, now.etag(), now.body, a.etag(), a.body, then.body)
					}
				}

				what += " of what is not there"
				s.call("DELETE", path, "")
				a, then = s.call(method, path, body, headers...), s.call("GET", path, "")
				switch {
				case method == "PUT" && test.put == 0:
					checkStored(t, what, a, fmt.Sprintf(`{"id":%d,"name":"new"}`, id))
					continue
				case method == "PUT":
					checkError(t, what, a, test.put/100, test.put)
				case test.there == malformed:
					checkError(t, what, a, 400, malformed)
				default:
					checkError(t, what, a, 404, absent)
				}
				checkError(t, "after "+what, then, 404, absent)
			}
		}
		// A plant that was deleted and made again is another.
		gone := s.call("PUT", "/plants/0", `{"name":"x"}`)
		s.call("DELETE", "/plants/0", "")
		s.call("PUT", "/plants/0", `{"name":"x"}`)
		checkError(t, "PUT with the ETag of the plant before", s.call("PUT", "/plants/0", `{"name":"y"}`, "If-Match", gone.etag()), 412, 41201)
	})
}

// TestPlantsNotModified gets a plant on condition that it is another than the
// client has.
func TestPlantsNotModified(t *testing.T) {
	eachService(t, func(t *testing.T, s *service) {
		old, now := s.call("PUT", "/plants/1", `{"name":"x"}`), s.call("PUT", "/plants/1", `{"name":"x"}`)
		for _, test := range []struct {
			what, value string
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
			value := strings.NewReplacer("NOW", now.etag(), "OLD", old.etag()).Replace(test.value)
			a, head := s.call("GET", "/plants/1", "", "If-None-Match", value), s.call("HEAD", "/plants/1", "", "If-None-Match", value)
			checkEmpty(t, "HEAD "+test.what, head, test.status)
			switch test.status {
			case 200:
				checkStored(t, test.what, a, `{"id":1,"name":"x"}`)
			case 304:
				checkEmpty(t, test.what, a, 304)
				if a.header.Get("Content-Type") != "" {
					t.Errorf("%s: Content-Type %q of nothing", test.what, a.header.Get("Content-Type"))
				}
			default:
				checkError(t, test.what, a, 400, 40007)
				checkNames(t, test.what, a, "If-None-Match")
			}
			if test.status != 400 && (a.etag() != now.etag() || head.etag() != now.etag()) {
				t.Errorf("%s: ETag %q, with HEAD %q, want %q", test.what, a.etag(), head.etag(), now.etag())
			}
		}
		checkError(t, "what is not there", s.call("GET", "/plants/2", "", "If-None-Match", "*"), 404, 40401)
	})
}

func TestPlantsListParameters(t *testing.T) {
	t.Parallel()
	s := start(t)
	if a := s.call("GET", "/plants", ""); a.status != 200 || a.body != "[]" || a.header.Get("Link") != "" || a.header.Get("Content-Type") != "application/json" {
		t.Errorf("nothing to list: %d %s, %v", a.status, a.body, a.header)
	}
	checkEmpty(t, "HEAD of the list", s.call("HEAD", "/plants", ""), 200)
	long := strings.Repeat("%C3%A9", 256)
	for _, test := range []struct{ query, names string }{
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
		a := s.call("GET", "/plants?"+test.query, "")
		checkError(t, test.query, a, 400, 40007)
		checkNames(t, test.query, a, test.names)
	}
	for _, query := range []string{"", "?", "?limit=1", "?limit=1000", "?after=-9223372036854775808", "?after=9223372036854775807", "?tag=", "?tag", "?q=+", "?&&q=x&", "?tag=" + long[6:] + "&q=" + long[6:]} {
		if a := s.call("GET", "/plants"+query, ""); a.status != 200 || a.body != "[]" {
			t.Errorf("%s: %d %s", query, a.status, a.body)
		}
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
			if a := s.call("PUT", fmt.Sprintf("/plants/%d", id), "{"+content+"}"); a.status != 200 {
				t.Fatalf("%s: %d %s", content, a.status, a.body)
			}
		}
		for _, test := range []struct{ what, query, want string }{
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
			a := s.call("GET", "/plants?"+test.query, "")
			if got := a.idsOf(t); a.status != 200 || got != test.want {
				t.Errorf("%s: %s has %q, want %q: %d", test.what, test.query, got, test.want, a.status)
			}
			checkHeaders(t, test.what, a)
		}
		// The next page is one of the same search.
		a := s.call("GET", "/plants?q=M&tag=house&limit=1", "")
		if next := a.next(); next != "" {
			t.Errorf("the only one has a next page: %s", next)
		}
		var pages []string
		for path := "/plants?q=%20&limit=2"; path != ""; path = a.next() {
			a = s.call("GET", path, "")
			pages = append(pages, a.idsOf(t))
		}
		if got := strings.Join(pages, "|"); got != "-2 -1|2 4|6 7|10" {
			t.Errorf("the pages of a search have %s", got)
		}
	})
}

// plants returns the list in an answer.
func (a answer) plants(t *testing.T) (plants []storedPlant) {
	t.Helper()
	if err := json.Unmarshal([]byte(a.body), &plants); err != nil {
		t.Fatalf("%d %s: %v", a.status, a.body, err)
	}
	return plants
}

// idsOf returns the ids in a list, with blanks between them.
func (a answer) idsOf(t *testing.T) string {
	t.Helper()
	var ids []string
	for _, p := range a.plants(t) {
		ids = append(ids, strconv.FormatInt(p.ID, 10))
	}
	return strings.Join(ids, " ")
}

// next returns the path of the next page, or nothing.
func (a answer) next() string {
	link := regexp.MustCompile(`^<(/plants\?[!-;=?-~]+)>; rel="next"$`).FindStringSubmatch(a.header.Get("Link"))
	if link == nil {
		return a.header.Get("Link")
	}
	return link[1]
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
		if a := s.call("POST", "/plants/import", bodies.String(), "Content-Type", "application/x-ndjson"); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}

		// Without writes, pages are as large as they can be.
		for _, limit := range []int{1000, 50, len(known), len(known) - 1, 7} {
			read, pages := []int64(nil), 0
			for path := fmt.Sprintf("/plants?limit=%d", limit); path != ""; pages++ {
				a := s.call("GET", path, "")
				page := a.plants(t)
				for _, p := range page {
					read = append(read, p.ID)
					if p.Name != nameOf(p.ID) {
						t.Fatalf("plant %d is listed as %q", p.ID, p.Name)
					}
				}
				if path = a.next(); path != "" && len(page) != limit {
					t.Errorf("a page of %d, which is not the last, has %d plants", limit, len(page))
				}
			}
			if !slices.Equal(read, known) || pages != (len(known)+limit-1)/limit {
				t.Errorf("%d plants on %d pages of %d, want %d", len(read), pages, limit, len(known))
			}
		}
		if a := s.call("GET", "/plants", ""); len(a.plants(t)) != 50 {
			t.Errorf("a page has %d plants where no limit is given", len(a.plants(t)))
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
			a := s.call("GET", path, "")
			for _, p := range a.plants(t) {
				if !first && p.ID <= last {
					t.Errorf("%d comes after %d", p.ID, last)
				}
				last, first = p.ID, false
				if p.Name != "late" {
					read = append(read, p.ID)
				}
			}
			path = a.next()
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
			what, method, path, body string
			headers                  func(etag string) []string
			won, lost                int
		}{
			{"PATCH with one ETag", "PATCH", "/plants/1", `{"tag":"%d"}`, func(etag string) []string { return []string{"If-Match", etag} }, 200, 412},
			{"PUT with one ETag", "PUT", "/plants/1", `{"name":"x","tag":"%d"}`, func(etag string) []string { return []string{"If-Match", etag} }, 200, 412},
			{"PUT of a plant that is not there", "PUT", "/plants/2", `{"name":"x","tag":"%d"}`, func(string) []string { return []string{"If-None-Match", "*"} }, 200, 412},
			{"DELETE with one ETag", "DELETE", "/plants/1", "", func(etag string) []string { return []string{"If-Match", etag} }, 204, 404},
			{"DELETE", "DELETE", "/plants/1", "", func(string) []string { return nil }, 204, 404},
		} {
			const writers = 100
			etag := s.call("PUT", "/plants/1", `{"name":"x"}`).etag()
			s.call("DELETE", "/plants/2", "")
			all, begin := make([]answer, writers), make(chan struct{})
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
			for i, a := range all {
				switch a.status {
				case test.won:
					if winner >= 0 {
						t.Errorf("%s: %d and %d have won", test.what, winner, i)
					}
					winner = i
				case test.lost:
					losers++
				default:
					t.Errorf("%s: %d %s", test.what, a.status, a.body)
				}
			}
			if winner < 0 || losers != writers-1 {
				t.Errorf("%s: winner %d, and %d losers", test.what, winner, losers)
				continue
			}
			if then := s.call("GET", test.path, ""); test.won == 200 && then.body != all[winner].body {
				t.Errorf("%s: the winner was told %s, and there is %s", test.what, all[winner].body, then.body)
			}
		}
	})
}

// TestPlantsCounter counts in the names of plants, by many clients that read, add
// one, write what they have read, and try again where another came first.
func TestPlantsCounter(t *testing.T) {
	const counters, each, plants = 20, 50, 4
	eachService(t, func(t *testing.T, s *service) {
		for id := range plants {
			if a := s.call("PUT", fmt.Sprintf("/plants/%d", id), `{"name":"0"}`); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
		}
		var late atomic.Int64
		var group sync.WaitGroup
		for counter := range counters {
			group.Go(func() {
				transport := &http.Transport{}
				defer transport.CloseIdleConnections()
				call := func(method, body string, headers ...string) answer {
					a, err := s.tryOn(transport, method, fmt.Sprintf("/plants/%d", counter%plants), strings.NewReader(body),
						append(headers, "Authorization", "Bearer "+token)...)
					if err != nil {
						t.Error(err)
					}
					return a
				}
				read := call("GET", "")
				for done := 0; done < each; {
					n, err := strconv.Atoi(read.plant().Name)
					if err != nil {
						t.Errorf("%d %s", read.status, read.body)
						return
					}
					a := call("PATCH", fmt.Sprintf(`{"name":"%d"}`, n+1), "If-Match", read.etag())
					switch a.status {
					case 200:
						done++
						read = a
					case 412:
						late.Add(1)
						read = call("GET", "")
					default:
						t.Errorf("%d %s", a.status, a.body)
						return
					}
				}
			})
		}
		group.Wait()
		for id := range plants {
			if a := s.call("GET", fmt.Sprintf("/plants/%d", id), ""); a.plant().Name != strconv.Itoa(counters*each/plants) {
				t.Errorf("%d increments counted to %s", counters*each/plants, a.plant().Name)
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
			if a := s.call("PUT", "/plants/1", `{"name":"x"}`); a.status != 200 {
				t.Fatalf("%d %s", a.status, a.body)
			}
			if _, err := table.ExecContext(t.Context(), "UPDATE plants SET updated_at = '"+written+"'"); err != nil {
				t.Fatal(err)
			}
			last := s.call("GET", "/plants/1", "")
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
				a := s.call(method, "/plants/1", body, condition...)
				then := s.call("GET", "/plants/1", "")
				if a.status != 200 || !a.plant().UpdatedAt.After(last.plant().UpdatedAt) || a.etag() == last.etag() ||
					then.body != a.body || then.etag() != a.etag() {
					t.Fatalf("after %s %s, %s %d: answered %d %s %s, and then there is %s %s",
						last.etag(), last.body, method, i, a.status, a.etag(), a.body, then.etag(), then.body)
				}
				if step := a.plant().UpdatedAt.Sub(last.plant().UpdatedAt); step > 2*time.Millisecond {
					t.Errorf("after %s, the next moment is %v later", written, step)
				}
				if !a.plant().CreatedAt.Equal(last.plant().CreatedAt) {
					t.Errorf("%s %d: created at %v, then at %v", method, i, last.plant().CreatedAt, a.plant().CreatedAt)
				}
				checkError(t, "with the version before", s.call("PATCH", "/plants/1", `{}`, "If-Match", last.etag()), 412, 41201)
				last = a
			}
			checkEmpty(t, "DELETE with the version", s.call("DELETE", "/plants/1", "", "If-Match", last.etag()), 204)
		}
	})
}

// TestPlantsSurviveKill kills the service after it has acknowledged writes.
func TestPlantsSurviveKill(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, url string) {
		t.Parallel()
		s := start(t, "DATABASE_URL="+url)
		s.call("PUT", "/plants/3", `{"name":"x"}`)
		put := s.call("PUT", "/plants/1", `{"name":"put"}`)
		s.call("PUT", "/plants/2", `{"name":"put","tag":"x"}`)
		patched := s.call("PATCH", "/plants/2", `{"tag":null}`)
		checkEmpty(t, "DELETE", s.call("DELETE", "/plants/3", ""), 204)
		if err := s.process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = s.wait()
		s = start(t, "DATABASE_URL="+url)
		for path, want := range map[string]answer{"/plants/1": put, "/plants/2": patched} {
			if a := s.call("GET", path, ""); want.status != 200 || a.body != want.body || a.etag() != want.etag() {
				t.Errorf("%s was %s %s, and is %s %s", path, want.etag(), want.body, a.etag(), a.body)
			}
		}
		checkError(t, "what was deleted", s.call("GET", "/plants/3", ""), 404, 40401)
	})
}

// TestPlantsWithoutDatabase asks for everything while PostgreSQL is down.
func TestPlantsWithoutDatabase(t *testing.T) {
	t.Parallel()
	server := ownServer(t)
	s := start(t, "DATABASE_URL="+server.URL, "PLANTSTORE_DATABASE_TIMEOUT=1s")
	if a := s.call("PUT", "/plants/1", `{"name":"x"}`); a.status != 200 {
		t.Fatalf("%d %s", a.status, a.body)
	}
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
		a := s.call(request[0], request[1], request[2], request[3:]...)
		checkError(t, strings.Join(request, " "), a, 503, 50302)
		if a.header.Get("Retry-After") == "" {
			t.Errorf("%v: no Retry-After", request)
		}
	}
	if err := server.Start(); err != nil {
		t.Fatal(err)
	}
	checkStored(t, "with the database back", s.call("GET", "/plants/1", ""), `{"id":1,"name":"x"}`)
}
