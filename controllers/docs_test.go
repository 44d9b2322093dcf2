package controllers

import (
	"bytes"
	"encoding/json"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/getkin/kin-openapi/openapi3"

	"plantstore/docs"
	"plantstore/models"
)

func document(t *testing.T) *openapi3.T {
	t.Helper()
	doc, err := openapi3.NewLoader().LoadFromData(docs.OpenAPI)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func TestDocumentIsValid(t *testing.T) {
	doc := document(t)
	if err := doc.Validate(t.Context(), openapi3.EnableExamplesValidation()); err != nil {
		t.Error(err)
	}
	if doc.OpenAPI != "3.1.0" || doc.Info.Version != "1.0.0" {
		t.Errorf("OpenAPI %s, version %s", doc.OpenAPI, doc.Info.Version)
	}
	scheme := doc.Components.SecuritySchemes["BearerAuth"].Value
	if scheme.Type != "http" || scheme.Scheme != "bearer" || len(doc.Security) != 1 {
		t.Errorf("security %+v by %+v", doc.Security, scheme)
	}
}

// TestDocumentKeepsTheSpecification compares the document with the operation that the
// users specified.
func TestDocumentKeepsTheSpecification(t *testing.T) {
	doc := document(t)
	operation := doc.Paths.Find("/plants").Post
	if !operation.RequestBody.Value.Required {
		t.Error("the body is not required")
	}
	if ref := operation.RequestBody.Value.Content["application/json"].Schema.Ref; ref != "#/components/schemas/NewPlant" {
		t.Errorf("the body is %s", ref)
	}
	for status, want := range map[int]string{200: "Plant", 400: "Error", 401: "Error", 409: "Error", 500: "Error", 503: "Error"} {
		response := operation.Responses.Status(status)
		if response == nil || response.Value.Content["application/json"].Schema.Ref != "#/components/schemas/"+want {
			t.Errorf("status %d is not documented as %s", status, want)
		}
	}
	for name, want := range map[string]struct{ fields, required string }{
		"NewPlant": {"id:integer:int64 name:string: tag:string:", "id name"},
		"Plant":    {"name:string: tag:string:", "name"},
		"Error":    {"error:integer:int32 message:string: errors:array:", "error message"},
	} {
		schema := doc.Components.Schemas[name].Value
		if got := strings.Join(schema.Required, " "); got != want.required {
			t.Errorf("%s requires %s, want %s", name, got, want.required)
		}
		for field := range strings.FieldsSeq(want.fields) {
			parts := strings.Split(field, ":")
			if p := schema.Properties[parts[0]]; p == nil || !p.Value.Type.Is(parts[1]) || p.Value.Format != parts[2] {
				t.Errorf("%s: got %+v, want %s", name, p, field)
			}
		}
		if len(schema.Properties) != len(strings.Fields(want.fields)) {
			t.Errorf("%s has %d fields, want %s: a field that the owner of the API has agreed to belongs in this table", name, len(schema.Properties), want.fields)
		}
	}
	// The limits of an int64, which a float64 would round.
	id := regexp.MustCompile(`"NewPlant": \{(?s:.*?)"id": \{[^}]*\}`).Find(docs.OpenAPI)
	for _, limit := range []string{`"minimum": ` + strconv.Itoa(math.MinInt64), `"maximum": ` + strconv.Itoa(math.MaxInt64)} {
		if !bytes.Contains(id, []byte(limit)) {
			t.Errorf("got %s, want %s", id, limit)
		}
	}
}

// TestPatternsFollowRules compares the patterns in the document with the checks of the
// rules, over Unicode's first plane, which has every space and control character, and
// the last character.
func TestPatternsFollowRules(t *testing.T) {
	rules, properties := models.Plant{}.Rules(), document(t).Components.Schemas["NewPlant"].Value.Properties
	for field, rule := range rules {
		rule, isText := rule.(models.Text)
		if !isText {
			continue
		}
		t.Run(field, func(t *testing.T) {
			pattern := compile(t, properties[field].Value.Pattern)
			for r := rune(0); r <= 0x10000; r++ {
				if r == 0x10000 {
					r = utf8.MaxRune
				}
				if !utf8.ValidRune(r) {
					continue
				}
				for _, text := range []string{string(r), "a" + string(r), string(r) + "a"} {
					if valid := rule.Check(field, text) == nil; pattern.MatchString(text) != valid {
						t.Errorf("%q: the rule says %v, the pattern %v", text, valid, !valid)
					}
				}
			}
		})
	}
}

// compile compiles a pattern of ECMA-262, which has other escapes than Go.
func compile(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	return regexp.MustCompile(regexp.MustCompile(`\\u([0-9A-F]{4})`).ReplaceAllString(pattern, `\x{$1}`))
}

// TestExampleBinds binds the example in the document.
func TestExampleBinds(t *testing.T) {
	example := make(map[string]any)
	for field, property := range document(t).Components.Schemas["NewPlant"].Value.Properties {
		if property.Value.Example != nil {
			example[field] = property.Value.Example
		}
	}
	body, err := json.Marshal(example)
	if err != nil {
		t.Fatal(err)
	}
	var in NewPlant
	if err := bind(body, &in); err != nil {
		t.Errorf("%s: %v", body, err)
	}
}

// TestDocumentSuitsGenerators checks what generators of clients, and Swagger UI, stumble over.
func TestDocumentSuitsGenerators(t *testing.T) {
	doc, text := document(t), string(docs.OpenAPI)
	t.Run("files are bytes, CSV first", func(t *testing.T) {
		var files []openapi3.Content
		for path, item := range doc.Paths.Map() {
			switch {
			case strings.HasSuffix(path, "/import"):
				body := item.Post.RequestBody.Value
				if !body.Required {
					t.Errorf("the body of %s is optional", path)
				}
				files = append(files, body.Content)
			case strings.HasSuffix(path, "/export"):
				files = append(files, item.Get.Responses.Status(200).Value.Content)
			}
		}
		for _, content := range files {
			for _, media := range []string{TypeCSV, TypeNDJSON} {
				if schema := content[media].Schema.Value; schema.Format != "binary" || !schema.Type.Is("string") {
					t.Errorf("%s is %v in format %q", media, schema.Type, schema.Format)
				}
			}
		}
		if n := len(regexp.MustCompile(`"content": \{\s+"text/csv"`).FindAllString(text, -1)); n != len(files) || n < 2 {
			t.Errorf("CSV is the first media type %d times, want it in each of the %d imports and exports", n, len(files))
		}
	})
	t.Run("nothing but descriptions beside references", func(t *testing.T) {
		var value any
		if err := json.Unmarshal(docs.OpenAPI, &value); err != nil {
			t.Fatal(err)
		}
		checkReferences(t, value)
	})
	t.Run("responses and headers are shared", func(t *testing.T) {
		inline := make(map[string]string)
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				for status, response := range operation.Responses.Map() {
					name := method + " " + path + " " + status
					for header, h := range response.Value.Headers {
						if h.Ref != "#/components/headers/"+header {
							t.Errorf("%s has a header %s of its own", name, header)
						}
					}
					if response.Ref != "" || status < "400" {
						continue
					}
					content, err := json.Marshal(response.Value)
					if err != nil {
						t.Fatal(err)
					}
					if other := inline[string(content)]; other != "" {
						t.Errorf("%s and %s have the same response, but do not share it", name, other)
					}
					inline[string(content)] = name
				}
			}
		}
		if n := strings.Count(text, "| error | status | when |"); n != 1 {
			t.Errorf("the table of errors occurs %d times, want once", n)
		}
	})
	t.Run("each error has an example", func(t *testing.T) {
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				for status, response := range operation.Responses.Map() {
					if status < "400" {
						continue
					}
					examples := slices.Sorted(maps.Keys(response.Value.Content[TypeJSON].Examples))
					codes := slices.Sorted(slices.Values(regexp.MustCompile(`\b\d{5}\b`).FindAllString(*response.Value.Description, -1)))
					if len(codes) == 0 || !slices.Equal(examples, codes) {
						t.Errorf("%s %s %s has examples of %v, want %v", method, path, status, examples, codes)
					}
				}
			}
		}
		for name := range doc.Components.Responses {
			if strings.ContainsAny(name, "0123456789") {
				t.Errorf("the response %s has a number, want a name", name)
			}
		}
	})
	t.Run("samples for each operation", func(t *testing.T) {
		for path, item := range doc.Paths.Map() {
			for method, operation := range item.Operations() {
				if all, ok := operation.Extensions["x-codeSamples"].([]any); !ok || len(all) != 4 { // tests/clients runs them
					t.Errorf("%s %s has the samples %v, want four", method, path, all)
				}
			}
		}
	})
	t.Run("the license and the pages", func(t *testing.T) {
		if doc.Info.License.Identifier != "MIT" || doc.Info.License.URL != "" { // one excludes the other
			t.Errorf("got the license %+v, want an identifier of SPDX alone", doc.Info.License)
		}
		if _, err := docs.Files.ReadFile(strings.TrimPrefix(doc.ExternalDocs.URL, "/docs/")); err != nil {
			t.Errorf("externalDocs: %v", err)
		}
	})
	t.Run("descriptions of headers need no escapes", func(t *testing.T) {
		for name, header := range doc.Components.Headers {
			if d := header.Value.Description; d == "" || strings.ContainsAny(d, "\"\\<>\n") {
				t.Errorf("%s: %s", name, d)
			}
		}
	})
}

// checkReferences reports objects with a $ref and anything but a description.
func checkReferences(t *testing.T, value any) {
	t.Helper()
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			checkReferences(t, element)
		}
	case map[string]any:
		for name, element := range value {
			if value["$ref"] != nil && name != "$ref" && name != "description" {
				t.Errorf("%v has %s", value["$ref"], name)
			}
			checkReferences(t, element)
		}
	}
}
