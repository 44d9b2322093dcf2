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
		if got.ID == nil || got.Name == nil || *got.ID != *want.ID || *got.Name != *want.Name ||
			(got.Tag == nil) != (want.Tag == nil) || got.Tag != nil && *got.Tag != *want.Tag {
			t.Fatalf("%q: got %+v, want %+v", body, got, want)
		}
	})
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
		`{"width_mm":true}`:           "width_mm must be an integer, not a boolean",
		`{"width_mm":1,"clay":"yes"}`: "clay must be true or false, not a string",
		`{"width_mm":1,"label":3}`:    "label must be a string, not a number",
		`{"width_mm":1,"label":{}}`:   "label must be a string, not an object",
		`{"width_mm":1,"label":null}`: "label must not be null",
	} {
		t.Run(want, func(t *testing.T) {
			if err := bind([]byte(body), &pot{}); err == nil || err.Error() != want {
				t.Errorf("%s: got %v, want %s", body, err, want)
			}
		})
	}
}

// TestBindJSONReadOnlyFields: a field that responses have is not called unknown.
func TestBindJSONReadOnlyFields(t *testing.T) {
	for _, test := range []struct {
		to         any
		body, want string
	}{
		{new(PlantPatch), `{"id":1}`, "id cannot be set here: leave it out"},
		{new(PlantPatch), `{"ID":1}`, "unknown field ID; names are case-sensitive"},
		{new(NewPlant), `{"id":1,"name":"x","created_at":"2026-11-21T10:00:00Z"}`, "created_at cannot be set here: leave it out"},
		{new(NewPlant), `{"id":1,"name":"x","color":"red"}`, "unknown field color; names are case-sensitive"},
	} {
		t.Run(test.body, func(t *testing.T) {
			err := bind([]byte(test.body), test.to)
			if p, ok := errors.AsType[*problem](err); !ok || p.Code != codeUnknownField || p.Message != test.want {
				t.Errorf("got %v, want %s", err, test.want)
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
		{"\ufeff{}", "the line begins with a byte order mark, at byte 0: save it as UTF-8 without one"},
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
