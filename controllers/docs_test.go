package controllers

import (
	"encoding/json"
	"maps"
	"math"
	"os"
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

// TestDocumentKeepsTheSpecification holds the document against the operation as
// the users have specified it.
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
		"NewPlant": {"id:int64 name tag", "id name"},
		"Plant":    {"name tag", "name"},
		"Error":    {"error:int32 message", "error message"},
	} {
		schema := doc.Components.Schemas[name].Value
		if got := strings.Join(schema.Required, " "); got != want.required {
			t.Errorf("%s requires %s, want %s", name, got, want.required)
		}
		for field := range strings.FieldsSeq(want.fields) {
			field, format, _ := strings.Cut(field, ":")
			if property := schema.Properties[field]; property == nil || property.Value.Format != format {
				t.Errorf("%s.%s is %+v", name, field, property)
			}
		}
		if len(schema.Properties) != len(strings.Fields(want.fields)) {
			t.Errorf("%s has %d fields", name, len(schema.Properties))
		}
	}
}

// TestDocumentSaysWhatTheModelDoes compares the limits in the document with the
// model's rules, over all of Unicode's first plane, which has every blank and
// control character, and the last character of all.
func TestDocumentSaysWhatTheModelDoes(t *testing.T) {
	schema := document(t).Components.Schemas["NewPlant"].Value
	id, name, tag := schema.Properties["id"].Value, schema.Properties["name"].Value, schema.Properties["tag"].Value
	if *name.MaxLength != models.MaxNameLength || name.MinLength != 1 || *tag.MaxLength != models.MaxTagLength || tag.MinLength != 0 {
		t.Error("the lengths differ")
	}
	if *id.Min != math.MinInt64 || *id.Max != math.MaxInt64 { // as float64; TestDocumentHasExactLimits has the digits
		t.Error("the limits of id differ")
	}
	namePattern, tagPattern := compile(t, name.Pattern), compile(t, tag.Pattern)
	for r := rune(0); r <= 0x10000; r++ {
		if r == 0x10000 {
			r = utf8.MaxRune
		}
		if !utf8.ValidRune(r) {
			continue
		}
		for _, text := range []string{string(r), "a" + string(r)} {
			wantName := (&models.Plant{Name: text}).Validate() == nil
			wantTag := (&models.Plant{Name: "x", Tag: &text}).Validate() == nil
			if namePattern.MatchString(text) != wantName || tagPattern.MatchString(text) != wantTag {
				t.Errorf("%q: the document says %v for a name and %v for a tag, the model %v and %v", text,
					namePattern.MatchString(text), tagPattern.MatchString(text), wantName, wantTag)
			}
		}
	}
}

// compile compiles a pattern of ECMA-262, whose escapes Go spells otherwise.
func compile(t *testing.T, pattern string) *regexp.Regexp {
	t.Helper()
	return regexp.MustCompile(regexp.MustCompile(`\\u([0-9A-F]{4})`).ReplaceAllString(pattern, `\x{$1}`))
}

func TestDocumentHasExactLimits(t *testing.T) {
	for _, limit := range []int64{math.MinInt64, math.MaxInt64} {
		if !strings.Contains(string(docs.OpenAPI), strconv.FormatInt(limit, 10)) {
			t.Errorf("%d is not in the document", limit)
		}
	}
}

// TestCodesAreDocumented holds the list of error codes in the code against those
// in the document and in the README.
func TestCodesAreDocumented(t *testing.T) {
	source, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	description, examples := document(t).Info.Description, make(openapi3.Examples)
	for _, path := range document(t).Paths.Map() {
		for _, operation := range path.Operations() {
			for _, response := range operation.Responses.Map() {
				if content := response.Value.Content["application/json"]; content != nil {
					maps.Copy(examples, content.Examples)
				}
			}
		}
	}
	found := 0
	for _, match := range regexp.MustCompile(`(?m)^\tcode\w+ += (\d{5})`).FindAllStringSubmatch(string(source), -1) {
		found++
		row := "| " + match[1] + " | "
		if _, ok := examples[match[1]]; !ok && match[1] != "40402" && match[1] != "40501" { // those of no operation
			t.Errorf("error %s has no example", match[1])
		}
		if !strings.Contains(description, row) || !strings.Contains(string(readme), row) {
			t.Errorf("error %s is not documented", match[1])
		}
	}
	if documented := strings.Count(description, "\n| ") - 2; documented != found {
		t.Errorf("%d codes are documented, the code has %d", documented, found)
	}
}

// TestScopesAreDocumented holds the scopes there are against those in the document
// and in the README.
func TestScopesAreDocumented(t *testing.T) {
	doc := document(t)
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, schema := range []string{"NewToken", "Token", "IssuedToken"} {
		var documented []string
		for _, scope := range doc.Components.Schemas[schema].Value.Properties["scopes"].Value.Items.Value.Enum {
			documented = append(documented, scope.(string))
		}
		if !slices.Equal(documented, models.AllScopes().Names()) {
			t.Errorf("%s has the scopes %v", schema, documented)
		}
	}
	for _, scope := range models.AllScopes().Names() {
		if !strings.Contains(doc.Components.SecuritySchemes["BearerAuth"].Value.Description, scope) || !strings.Contains(string(readme), "`"+scope+"`") {
			t.Errorf("%s is not described", scope)
		}
	}
}

// TestExampleBinds sends the document's own example through the binding.
func TestExampleBinds(t *testing.T) {
	example := make(map[string]any)
	for field, property := range document(t).Components.Schemas["NewPlant"].Value.Properties {
		example[field] = property.Value.Example
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
