package controllers

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"reflect"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
)

func TestBindPatch(t *testing.T) {
	for _, test := range []struct {
		name, body string
		fields     []string
		want       PlantContent
		code       int32 // of the error, if any
	}{
		{name: "a field", body: `{"tag":"t"}`, fields: []string{"tag"}, want: PlantContent{Tag: new("t")}},
		{name: "all fields, in the order of the struct", body: `{"tag":"","name":"n"}`, fields: []string{"name", "tag"}, want: PlantContent{Name: new("n"), Tag: new("")}},
		{name: "no field", body: `{}`},
		{name: "null clears an optional field", body: `{"tag":null}`, fields: []string{"tag"}},
		{name: "null beside another field", body: `{"name":"n","tag":null}`, fields: []string{"name", "tag"}, want: PlantContent{Name: new("n")}},
		{name: "an escaped name", body: `{"t\u0061g":null}`, fields: []string{"tag"}},
		{name: "null is rejected for a required field", body: `{"name":null}`, code: codeMissingOrType},
		{name: "null for an unknown field is rejected", body: `{"unknown":null}`, code: codeUnknownField},
		{name: "a key is an unknown field", body: `{"id":1}`, code: codeUnknownField},
		{name: "a name in another case is unknown", body: `{"Tag":null}`, code: codeUnknownField},
		{name: "a duplicate field is rejected", body: `{"tag":"a","tag":"b"}`, code: codeDuplicateField},
		{name: "a duplicate null is rejected", body: `{"tag":null,"tag":null}`, code: codeDuplicateField},
		{name: "another type is rejected", body: `{"name":5}`, code: codeMissingOrType},
		{name: "null in an object is rejected as the object", body: `{"tag":{"a":null}}`, code: codeMissingOrType},
		{name: "a body of null is rejected", body: `null`, code: codeMalformed},
		{name: "an array is rejected", body: `[{"op":"remove","path":"/tag"}]`, code: codeMalformed},
		{name: "an empty body is rejected", body: ``, code: codeMalformed},
		{name: "data after the object is rejected", body: `{"tag":null}{}`, code: codeMalformed},
		{name: "malformed JSON is rejected", body: `{"tag":nul}`, code: codeMalformed},
	} {
		t.Run(test.name, func(t *testing.T) {
			var got PlantPatch
			fields, err := patch(test.body, "", &got)
			if test.code != 0 {
				if p, ok := errors.AsType[*problem](err); !ok || p.Code != test.code {
					t.Errorf("got %v, want error %d", err, test.code)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(fields, test.fields) || !reflect.DeepEqual(got.PlantContent, test.want) {
				t.Errorf("got %v, %+v, %v, want %v, %+v", fields, got, err, test.fields, test.want)
			}
		})
	}
}

func TestTypesOfAPatch(t *testing.T) {
	for mediaType, valid := range map[string]bool{
		"application/merge-patch+json": true, "application/merge-patch+json; charset=UTF-8": true, "application/json": true,
		"application/json-patch+json": false, "text/plain": false, "application/merge-patch+json; charset=latin1": false,
	} {
		name := mediaType + " is valid"
		if !valid {
			name = mediaType + " is rejected"
		}
		t.Run(name, func(t *testing.T) {
			_, err := patch(`{}`, mediaType, &PlantPatch{})
			if p, rejected := errors.AsType[*problem](err); rejected == valid || rejected && p.Code != codeContentType {
				t.Errorf("got %v", err)
			}
		})
	}
}

// patch runs bindPatch on a request with body.
func patch(body, mediaType string, v any) (fields []string, err error) {
	c, _ := gin.CreateTestContext(httptest.NewRecorder())
	c.Request = httptest.NewRequest(http.MethodPatch, "/", strings.NewReader(body))
	if mediaType != "" {
		c.Request.Header.Set("Content-Type", mediaType)
	}
	return bindPatch(c, v)
}
