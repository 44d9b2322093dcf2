package controllers

import (
	"bytes"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

// bind runs bindJSON on a request with body.
func bind(body []byte, v any) error {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPost, "/", bytes.NewReader(body))
	return bindJSON(c, v)
}

// FuzzBindJSON compares bindJSON to the standard library, which must read the same from
// each body that bindJSON accepts. Each rejection must be a fault of the client.
func FuzzBindJSON(f *testing.F) {
	for _, seed := range []string{
		`{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`,
		`{"id":-9223372036854775808,"name":"","tag":""}`,
		`{"id":1.0,"name":"x"}`, `{"id":"1"}`, `{"ID":1,"name":"x"}`, `{"id":1,"id":2}`, `{"id":1,"name":null}`,
		`{"id":1,"name":"x"}{}`, `[1,2]`, `null`, ``, `{"id":1,"name":"\ud83c\udf35"}`, "{\"name\":\"\xff\"}", "\ufeff{}",
		`{"a":{"b":[1,{"c":null}]}}`, `{"":0}`, `{"i\u0064":0,"name":"\u0000"}`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		var got NewPlant
		if err := bind(body, &got); err != nil {
			p, ok := errors.AsType[*problem](err)
			if !ok || p.Code < codeMalformed || p.Code > codeNotInt64 {
				t.Fatalf("%q: %v is not a fault of the client", body, err)
			}
			if len(p.Message) > 500 {
				t.Fatalf("%q: got a message of %d bytes, want at most 500", body, len(p.Message))
			}
			if p.Code != codeMalformed && !json.Valid(body) {
				t.Fatalf("%q is malformed: got %d %s, want %d", body, p.Code, p.Message, codeMalformed)
			}
			return
		}
		var want struct {
			ID   *int64  `json:"id"`
			Name *string `json:"name"`
			Tag  *string `json:"tag"`
		}
		if err := json.Unmarshal(body, &want); err != nil {
			t.Fatalf("%q: got no error, but the standard library has %v", body, err)
		}
		if got.ID == nil || got.Content.Name == nil || *got.ID != *want.ID || *got.Content.Name != *want.Name ||
			(got.Content.Tag == nil) != (want.Tag == nil) || got.Content.Tag != nil && *got.Content.Tag != *want.Tag {
			t.Fatalf("%q: got %+v, want %+v", body, got, want)
		}
	})
}

// TestBodies binds invalid bodies as the operations do.
func TestBodies(t *testing.T) {
	type binder func(c *gin.Context) error
	var (
		create  binder = func(c *gin.Context) error { return bindJSON(c, new(NewPlant)) }
		replace binder = func(c *gin.Context) error { return bindJSON(c, new(PlantReplacement)) }
		patch   binder = func(c *gin.Context) error { _, err := bindPatch(c, new(PlantPatch)); return err }

		createToken binder = func(c *gin.Context) error { return bindJSON(c, new(NewToken)) }
	)
	for _, test := range []struct {
		bind       binder
		name, body string
		code       int32
		mentions   string
	}{
		{create, "nothing", "", 40001, "empty"},
		{create, "only white space", " \n", 40001, "empty"},
		{create, "null", "null", 40001, "object"},
		{create, "a string", `"x"`, 40001, "object"},
		{create, "a number", "1", 40001, "object"},
		{create, "an array", `[{"id":100,"name":"x"}]`, 40001, "object"},
		{create, "a form", "id=100&name=x", 40001, "byte 0"},
		{create, "a truncated object", `{"id":100,"name":"x"`, 40001, "byte 20"},
		{create, "a truncated object with a wrong type", `{"id":"100","name":"x"`, 40001, "byte 22"},
		{create, "a truncated object with an unknown field", `{"a":1,"name":"x"`, 40001, "byte 17"},
		{create, "trailing data", `{"id":100,"name":"x"}x`, 40001, "byte 21"},
		{create, "a second object", `{"id":100,"name":"x"} {}`, 40001, "byte 22"},
		{create, "a trailing comma", `{"id":100,"name":"x",}`, 40001, "byte 20"},
		{create, "single quotes", `{'id':100}`, 40001, "byte 1"},
		{create, "a comment", `{"id":100,/**/"name":"x"}`, 40001, "byte 10"},
		{create, "a leading zero", `{"id":0100,"name":"x"}`, 40001, "byte 7"},
		{create, "a plus sign", `{"id":+100,"name":"x"}`, 40001, "byte 6"},
		{create, "not a number", `{"id":NaN,"name":"x"}`, 40001, "byte 6"},
		{create, "a byte order mark", "\ufeff" + `{"id":100,"name":"x"}`, 40001, "byte 0"},
		{create, "bad UTF-8 in a value", "{\"id\":100,\"name\":\"a\xff\"}", 40001, "byte 19"},
		{create, "bad UTF-8 in a name", "{\"id\":100,\"na\xffme\":\"a\"}", 40001, "byte 13"},
		{create, "an overlong encoding", "{\"id\":100,\"name\":\"\xc0\xaf\"}", 40001, "byte 18"},
		{create, "an encoded surrogate", "{\"id\":100,\"name\":\"\xed\xa0\x80\"}", 40001, "byte 18"},
		{create, "a lone high surrogate", `{"id":100,"name":"\ud83c"}`, 40001, "byte 18"},
		{create, "a lone low surrogate", `{"id":100,"name":"\udf35"}`, 40001, "byte 18"},
		{create, "a bad escape", `{"id":100,"name":"\x41"}`, 40001, "byte 18"},
		{create, "a raw newline in a string", "{\"id\":100,\"name\":\"a\nb\"}", 40001, "byte 19"},
		{create, "too deep", `{"id":100,"name":` + strings.Repeat("[", 20000) + strings.Repeat("]", 20000) + "}", 40001, "byte 10016"},
		{create, "UTF-16", "\x00{\x00}", 40001, "byte 0"},
		{create, "an unknown field", `{"id":100,"name":"x","colour":"green"}`, 40002, "colour"},
		{create, "a field of the stored plant", `{"id":100,"name":"x","created_at":"2026-01-01T00:00:00Z"}`, 40002, "created_at"},
		{create, "another case", `{"ID":100,"name":"x"}`, 40002, "ID"},
		{create, "an unknown field with repeated names inside", `{"a":{"b":1,"b":2},"id":100,"name":"x"}`, 40002, "a"},
		{create, "an empty field name", `{"":1,"id":100,"name":"x"}`, 40002, `""`},
		{create, "a repeated field", `{"id":100,"name":"x","name":"y"}`, 40003, "name"},
		{create, "a repeated id", `{"id":100,"id":100,"name":"x"}`, 40003, "id"},
		{create, "a repeated field, escaped", `{"id":100,"name":"x","n\u0061me":"y"}`, 40003, "name"},
		{create, "no field", `{}`, 40004, "id"},
		{create, "no id", `{"name":"x"}`, 40004, "id"},
		{create, "no name", `{"id":100}`, 40004, "name"},
		{create, "a null id", `{"id":null,"name":"x"}`, 40004, "id"},
		{create, "a null name", `{"id":100,"name":null}`, 40004, "name"},
		{create, "a null tag", `{"id":100,"name":"x","tag":null}`, 40004, "tag"},
		{create, "a boolean id", `{"id":true,"name":"x"}`, 40004, "id"},
		{create, "an array id", `{"id":[100],"name":"x"}`, 40004, "id"},
		{create, "an object id", `{"id":{},"name":"x"}`, 40004, "id"},
		{create, "a number name", `{"id":100,"name":1}`, 40004, "name"},
		{create, "an array name, deep", `{"id":100,"name":` + strings.Repeat("[", 900) + strings.Repeat("]", 900) + "}", 40004, "name"},
		{create, "a boolean tag", `{"id":100,"name":"x","tag":false}`, 40004, "tag"},
		{create, "a fraction", `{"id":1.5,"name":"x"}`, 40005, "id"},
		{create, "a fraction of zero", `{"id":1.0,"name":"x"}`, 40005, "id"},
		{create, "minus zero", `{"id":-0,"name":"x"}`, 40005, "id"},
		{create, "minus zero beside null and -0", `{"id":-0,"name":"-0 null"}`, 40005, "id"},
		{create, "minus zero with a fraction", `{"id":-0.0,"name":"x"}`, 40005, "id"},
		{create, "a null name beside minus zero", `{"name":null,"id":-0}`, 40004, "name"},
		{create, "an exponent", `{"id":1e3,"name":"x"}`, 40005, "id"},
		{create, "a quoted integer", `{"id":"1","name":"x"}`, 40005, "id"},
		{create, "one above int64", `{"id":9223372036854775808,"name":"x"}`, 40005, "id"},
		{create, "one below int64", `{"id":-9223372036854775809,"name":"x"}`, 40005, "id"},
		{create, "far above int64", `{"id":1` + strings.Repeat("0", 400) + `,"name":"x"}`, 40005, "id"},

		{replace, "nothing", "", 40001, "empty"},
		{replace, "an array", `[{"name":"x"}]`, 40001, "object"},
		{replace, "null", `null`, 40001, "object"},
		{replace, "a truncated object", `{"name":"x"`, 40001, "byte 11"},
		{replace, "a second object", `{"name":"x"}{}`, 40001, "byte 12"},
		{replace, "minus zero", `{"id":-0,"name":"x"}`, 40005, "id"},
		{replace, "an id of 1.0", `{"id":1.0,"name":"x"}`, 40005, "id"},
		{replace, "an id of null", `{"id":null,"name":"x"}`, 40004, "id"},
		{replace, "another case of its id", `{"Id":1,"name":"x"}`, 40002, "Id"},
		{replace, "a time that is none", `{"name":"x","created_at":"yesterday"}`, 40006, "created_at"},
		{replace, "a time without a zone", `{"name":"x","updated_at":"2026-01-01T00:00:00"}`, 40006, "updated_at"},
		{replace, "a time that is a number", `{"name":"x","created_at":1}`, 40004, "created_at"},
		{replace, "a time of null", `{"name":"x","updated_at":null}`, 40004, "updated_at"},
		{replace, "another field", `{"name":"x","deleted_at":"2026-01-01T00:00:00Z"}`, 40002, "deleted_at"},
		{replace, "another case", `{"Name":"x"}`, 40002, "Name"},
		{replace, "a repeated name", `{"name":"x","name":"x"}`, 40003, "name"},
		{replace, "no name", `{"tag":"x"}`, 40004, "name"},
		{replace, "an empty object", `{}`, 40004, "name"},
		{replace, "a null name", `{"name":null}`, 40004, "name"},
		{replace, "a null tag", `{"name":"x","tag":null}`, 40004, "tag"},
		{replace, "a number for a name", `{"name":1}`, 40004, "name"},

		{patch, "nothing at all", "", 40001, "empty"},
		{patch, "an array", `[]`, 40001, "object"},
		{patch, "a JSON patch", `[{"op":"remove","path":"/tag"}]`, 40001, "object"},
		{patch, "null", `null`, 40001, "object"},
		{patch, "a string", `"x"`, 40001, "object"},
		{patch, "a truncated object", `{"tag":null`, 40001, "byte 11"},
		{patch, "a second object", `{"tag":null}{}`, 40001, "byte 12"},
		{patch, "an id", `{"id":1}`, 40002, "id"},
		{patch, "a time", `{"updated_at":"2026-01-01T00:00:00Z"}`, 40002, "updated_at"},
		{patch, "a null id", `{"id":null}`, 40002, "id"},
		{patch, "an unknown field that is null", `{"colour":null}`, 40002, "colour"},
		{patch, "another case", `{"Tag":null}`, 40002, "Tag"},
		{patch, "a repeated tag", `{"tag":null,"tag":"x"}`, 40003, "tag"},
		{patch, "a null tag, twice", `{"tag":null,"tag":null}`, 40003, "tag"},
		{patch, "a null name", `{"name":null}`, 40004, "name"},
		{patch, "a null name and a tag", `{"tag":"x","name":null}`, 40004, "name"},
		{patch, "a number for a tag", `{"tag":1}`, 40004, "tag"},
		{patch, "an object for a tag", `{"tag":{"x":null}}`, 40004, "tag"},
		{patch, "an array for a name", `{"name":["x"]}`, 40004, "name"},

		{createToken, "an array", "[]", 40001, "object"},
		{createToken, "an id", `{"name":"x","scopes":["admin"],"id":"pst_abcdefgh"}`, 40002, "id"},
		{createToken, "no name", `{"scopes":["admin"]}`, 40004, "name"},
		{createToken, "null scopes", `{"name":"x","scopes":null}`, 40004, "scopes"},
		{createToken, "a text for scopes", `{"name":"x","scopes":"admin"}`, 40004, "scopes"},
		{createToken, "a null scope", `{"name":"x","scopes":[null]}`, 40004, "scopes"},
		{createToken, "a number for an expiry", `{"name":"x","scopes":["admin"],"expires_at":4102358400}`, 40004, "expires_at"},
		{createToken, "a null expiry", `{"name":"x","scopes":["admin"],"expires_at":null}`, 40004, "expires_at"},
	} {
		t.Run(test.name, func(t *testing.T) {
			c, _ := gin.CreateTestContext(httptest.NewRecorder())
			c.Request = httptest.NewRequest(http.MethodPost, "/", strings.NewReader(test.body))
			err := test.bind(c)
			if err == nil {
				t.Fatal("got no error")
			}
			if p := describe(nil, err); p.Code != test.code || !strings.Contains(p.Message, test.mentions) {
				t.Errorf("got %d %s, want error %d with %s", p.Code, p.Message, test.code, test.mentions)
			}
		})
	}
}

// TestBindJSONOfAnotherResource: the names in an error are those of the struct.
func TestBindJSONOfAnotherResource(t *testing.T) {
	type pot struct {
		Width *int64  `json:"width_mm" binding:"required"`
		Clay  *bool   `json:"clay,omitzero"`
		Label *string `json:"label,omitzero"`
	}
	for body, want := range map[string]string{
		`{}`:                          "width_mm is required",
		`{"width_mm":true}`:           "width_mm must be an integer",
		`{"width_mm":1,"clay":"yes"}`: "clay must be true or false",
		`{"width_mm":1,"label":3}`:    "label must be a string",
		`{"width_mm":1,"label":null}`: "label must not be null",
	} {
		t.Run(want, func(t *testing.T) {
			if err := bind([]byte(body), &pot{}); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", body, err, want)
			}
		})
	}
}

// TestMalformedJSON: the message gives the byte, and what to do.
func TestMalformedJSON(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "the line is empty: send a JSON object"},
		{` [1]`, "the line must be a JSON object, but the value at byte 1 is not one"},
		{`null`, "the line must be a JSON object, but the value at byte 0 is not one"},
		{`1 2`, "unexpected data after the JSON value at byte 2"},
		{"\ufeff{}", "the line is not well-formed JSON at byte 0: "},
		{`{"id":1,}`, "the line is not well-formed JSON at byte 7: "},
		{`{"id":1`, "the line is not well-formed JSON: it ends early, at byte 7"},
	} {
		t.Run(test.text, func(t *testing.T) {
			if err := decodeJSON("line", []byte(test.text), &NewPlant{}, false); err == nil || !strings.HasPrefix(err.Error(), test.want) {
				t.Errorf("got %v, want %s", err, test.want)
			}
		})
	}
}

func TestBindJSONCutsLongNames(t *testing.T) {
	err := bind([]byte(`{"`+strings.Repeat("ü", 30000)+`":1}`), &NewPlant{})
	if err == nil || len(err.Error()) > 300 {
		t.Errorf("got %v, want at most 300 bytes", err)
	}
}

type brokenBody struct{}

func (brokenBody) Read([]byte) (int, error) { return 0, errors.New("reset") }

func TestBindJSONBrokenBody(t *testing.T) {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPost, "/", brokenBody{})
	err := bindJSON(c, &NewPlant{})
	if p, ok := errors.AsType[*problem](err); !ok || p.Code != codeMalformed {
		t.Errorf("got %v, want error %d", err, codeMalformed)
	}
}

func BenchmarkBindJSON(b *testing.B) {
	body := []byte(`{"id":1,"name":"Monstera deliciosa","tag":"houseplant"}`)
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	reader := bytes.NewReader(body)
	c.Request = httptest.NewRequest(http.MethodPost, "/", reader)
	b.ReportAllocs()
	for b.Loop() {
		reader.Reset(body)
		if err := bindJSON(c, &NewPlant{}); err != nil {
			b.Fatal(err)
		}
	}
}
