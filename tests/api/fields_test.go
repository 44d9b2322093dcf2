package api

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"unicode/utf8"

	"plantstore/tests/service"
)

// schemas are the components of the OpenAPI document.
type schemas map[string]schema

type schema struct {
	Type                any // a string or, with null, a list
	Enum                []any
	Example             any
	Format, Pattern     string
	Minimum, Maximum    json.Number
	MinLength           int
	MaxLength           int
	ReadOnly            bool
	References          string `json:"x-references"` // the name of a resource
	Unique              bool   `json:"x-unique"`
	Ref                 string `json:"$ref"`
	AllOf, OneOf, AnyOf []schema
	Required            []string
	Properties          schemas
}

// resolve follows references and picks the first alternative that is not null.
func (d schemas) resolve(s schema) schema {
	for _, alternative := range slices.Concat(s.AllOf, s.OneOf, s.AnyOf) {
		if alternative = d.resolve(alternative); alternative.Type != "null" {
			return alternative
		}
	}
	if s.Ref != "" {
		return d.resolve(d[path.Base(s.Ref)])
	}
	return s
}

// accepts reports whether a text follows the limits and the pattern of s.
func (s schema) accepts(text string) bool {
	n := utf8.RuneCountInString(text)
	pattern := regexp.MustCompile(escapes.ReplaceAllString(s.Pattern, `\x{$1}`))
	return pattern.MatchString(text) && n >= s.MinLength && (s.MaxLength == 0 || n <= s.MaxLength)
}

// escapes matches the characters in a pattern that ECMA-262 writes in another way than Go.
var escapes = regexp.MustCompile(`\\u(\w{4})`)

// texts are formats of the values of a property with a name and a number.
var texts = map[string][]string{
	"":          {"%[1]s %[2]d", "%[1]s-%[2]d", "%[1]s%[2]d", "%[2]d", "00000000-0000-7000-8000-%012[2]d"},
	"date":      {"%04[2]d-01-01"},
	"date-time": {"%04[2]d-01-01T00:00:00.000000Z"},
	"email":     {"%[1]s%[2]d@example.org"},
	"uri":       {"https://example.org/%[1]s/%[2]d"},
}

// resource is a resource that the OpenAPI document describes.
type resource struct {
	schemas
	service    *service.Service
	path, kind string // /plants, Plant
}

// resourcesOf returns the resources of a service: what it imports.
func resourcesOf(t *testing.T, s *service.Service) (all []*resource) {
	t.Helper()
	var document struct {
		Paths      map[string]map[string]struct{ OperationID string }
		Components struct{ Schemas schemas }
	}
	service.Must(t, json.Unmarshal([]byte(s.Get(t, "/openapi.json").Body), &document))
	for _, path := range slices.Sorted(maps.Keys(document.Paths)) {
		if path, ok := strings.CutSuffix(path, "/import"); ok {
			kind := strings.TrimPrefix(document.Paths[path]["post"].OperationID, "create")
			all = append(all, &resource{document.Components.Schemas, s, path, kind})
		}
	}
	if len(all) == 0 {
		t.Fatal("the document has no resources")
	}
	return all
}

// property returns the schema of a property of a new row.
func (d *resource) property(name string) schema {
	return d.resolve(d.schemas["New"+d.kind].Properties[name])
}

// isRequired reports whether each row has the property name.
func (d *resource) isRequired(name string) bool {
	return slices.Contains(d.schemas["New"+d.kind].Required, name)
}

// stored returns the id of a row of the resource, which exists.
func (d *resource) stored(t *testing.T, n int) any {
	t.Helper()
	row := service.Object{"id": d.value(t, "id", n)}
	for _, name := range d.schemas["New"+d.kind].Required {
		row[name] = d.value(t, name, n)
	}
	d.service.Call(t, "PUT", fmt.Sprint(d.path, "/", row["id"]), encode(t, service.InNDJSON, row)).RequireOK(t)
	return row["id"]
}

// export returns an export of the resource.
func (d *resource) export(t *testing.T, accept string) string {
	t.Helper()
	r := d.service.Call(t, "GET", d.path+"/export", "", "Accept", accept)
	r.RequireOK(t)
	return r.Body
}

// importRows imports rows.
func (d *resource) importRows(t *testing.T, contentType, rows string) service.Response {
	t.Helper()
	return d.service.Call(t, "POST", d.path+"/import", rows, "Content-Type", contentType)
}

// text returns a value as in a cell of CSV.
func text(value any) string {
	if text, ok := value.(string); ok || value == nil {
		return text
	}
	text, _ := json.Marshal(value) // which was read from JSON, or made
	return string(text)
}

// value returns the nth valid value of a property. Those of n and n+1 differ.
func (d *resource) value(t *testing.T, name string, n int) any {
	t.Helper()
	s := d.property(name)
	switch kind := fmt.Sprint(s.Type); {
	case s.References != "":
		all := resourcesOf(t, d.service)
		i := slices.IndexFunc(all, func(r *resource) bool { return r.path == "/"+s.References })
		return all[i].stored(t, 1_000_000+n%2)
	case len(s.Enum) > 1:
		return s.Enum[n%len(s.Enum)]
	case kind == "integer":
		least, _ := s.Minimum.Int64()
		values := int64(math.MaxInt64)
		if most, err := s.Maximum.Int64(); err == nil && most < math.MaxInt64 {
			values = most - least + 1
		}
		return json.Number(strconv.FormatInt(least+int64(n)%values, 10))
	case kind == "number" && s.Minimum != "":
		least, _ := s.Minimum.Float64()
		most, _ := s.Maximum.Float64()
		return json.Number(strconv.FormatFloat(least+(most-least)*float64(n%97)/97, 'f', -1, 64))
	case kind == "number":
		return json.Number(strconv.Itoa(n) + ".5")
	case kind == "boolean":
		return n%2 == 0
	case kind == "object":
		return service.Object{name: json.Number(strconv.Itoa(n))}
	case kind == "array":
		return []any{strconv.Itoa(n)}
	case kind == "string":
		var candidates []string
		if strings.HasPrefix(s.Format, "date") { // years have four digits
			n = 1 + n%9999
		}
		for _, format := range texts[s.Format] {
			candidates = append(candidates, fmt.Sprintf(format, name, n))
		}
		if example, ok := s.Example.(string); ok && example != "" { // with another last character
			for _, characters := range []string{"abcdefghij", "ABCDEFGHIJ", "0123456789"} {
				candidates = append(candidates, example[:len(example)-1]+string(characters[n%10]))
			}
		}
		for _, text := range candidates {
			if s.accepts(text) {
				return text
			}
		}
	}
	t.Fatalf("property %s: this test cannot make values of %+v: give it an example, or add a format to texts", name, s)
	return nil
}

// csvObjects returns the rows of CSV.
func csvObjects(t *testing.T, text string) (rows []service.Object) {
	t.Helper()
	all := service.Cells(t, text)
	for _, row := range all[1:] {
		o := service.Object{}
		for i, cell := range row {
			if cell != "" {
				o[all[0][i]] = cell
			}
		}
		rows = append(rows, o)
	}
	return rows
}

// encode returns o in NDJSON or CSV.
func encode(t *testing.T, contentType string, o service.Object) string {
	t.Helper()
	if contentType == service.InNDJSON {
		text, err := json.Marshal(o)
		service.Must(t, err)
		return string(text)
	}
	var table strings.Builder
	columns := slices.Sorted(maps.Keys(o))
	var row []string
	for _, column := range columns {
		row = append(row, text(o[column]))
	}
	service.Must(t, csv.NewWriter(&table).WriteAll([][]string{columns, row}))
	return table.String()
}

// TestEveryFieldSurvives sends each property of each resource in the OpenAPI document through each operation
// that stores it, and reads it with each that returns it.
func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		for _, d := range resourcesOf(t, s) {
			t.Run(d.path[1:], func(t *testing.T) { testFields(t, d) })
		}
	})
}

func testFields(t *testing.T, d *resource) {
	s, created := d.service, "New"+d.kind
	all := schemas{}
	for _, name := range []string{d.kind + "Patch", d.kind + "Replacement", created} {
		maps.Copy(all, d.schemas[name].Properties)
	}
	maps.DeleteFunc(all, func(name string, s schema) bool {
		return name == "created_at" || name == "updated_at" || d.resolve(s).ReadOnly
	})
	columns := slices.Sorted(maps.Keys(all))
	content := slices.DeleteFunc(slices.Clone(columns), func(name string) bool { return name == "id" })
	for _, name := range []string{created, d.kind + "Replacement", d.kind + "Patch", d.kind, "Stored" + d.kind} {
		for _, column := range content {
			if _, ok := d.schemas[name].Properties[column]; !ok && d.schemas[name].Properties != nil {
				t.Errorf("schema %s lacks the property %s", name, column)
			}
		}
	}
	n := 0
	next := func(names ...string) service.Object {
		n++
		o := service.Object{}
		for _, name := range names {
			o[name] = d.value(t, name, n+slices.Index(columns, name))
		}
		return o
	}
	compare := func(t *testing.T, operation string, rows []service.Object, columns []string, want service.Object) {
		t.Run(operation, func(t *testing.T) {
			i := slices.IndexFunc(rows, func(o service.Object) bool { return o["id"] == nil || text(o["id"]) == text(want["id"]) })
			if i < 0 {
				t.Fatalf("no row %v in %v", want["id"], rows)
			}
			for _, column := range columns {
				t.Run(column, func(t *testing.T) {
					value, present := rows[i][column]
					if got, want := text(value), text(want[column]); got != want {
						t.Errorf("property %s: got %s, want %s", column, got, want)
					}
					if present && value == nil {
						t.Errorf("property %s: got null, want it absent", column)
					}
				})
			}
		})
	}
	read := func(t *testing.T, want service.Object) {
		compare(t, "GET", service.Objects(t, s.Call(t, "GET", fmt.Sprint(d.path, "/", want["id"]), "").Body), columns, want)
		compare(t, "list", service.Objects(t, s.Call(t, "GET", d.path, "").Body), columns, want)
		compare(t, "export as NDJSON", service.Objects(t, d.export(t, service.InNDJSON)), columns, want)
		compare(t, "export as CSV", csvObjects(t, d.export(t, service.InCSV)), columns, want)
	}

	longest := next(columns...)
	for _, column := range content { // as long as the document allows, in the bytes of UTF-8, too
		s := d.property(column)
		if text := strings.Repeat("🌵", s.MaxLength); text != "" && s.accepts(text) {
			longest[column] = text
		}
	}
	s.Call(t, "POST", d.path, encode(t, service.InNDJSON, longest)).RequireOK(t)

	row := next(columns...)
	id := fmt.Sprint(row["id"])
	store := func(t *testing.T) { // whichever subtests ran before
		body := maps.Clone(row)
		delete(body, "id")
		s.Call(t, "PUT", d.path+"/"+id, encode(t, service.InNDJSON, body)).RequireOK(t)
	}
	write := func(name, method, path string, body service.Object) {
		t.Run(name, func(t *testing.T) {
			if method == "PATCH" {
				store(t)
			}
			r := s.Call(t, method, path, encode(t, service.InNDJSON, body))
			r.RequireOK(t)
			maps.Copy(row, body)
			maps.DeleteFunc(row, func(_ string, v any) bool { return v == nil })
			compare(t, "response", service.Objects(t, r.Body), content, row)
			read(t, row)
		})
	}
	write("POST", "POST", d.path, row)
	write("PUT", "PUT", d.path+"/"+id, next(content...))
	write("PATCH", "PATCH", d.path+"/"+id, next(content...))
	for _, column := range content {
		write("PATCH of "+column, "PATCH", d.path+"/"+id, next(column))
		if !d.isRequired(column) {
			write("PATCH without "+column, "PATCH", d.path+"/"+id, service.Object{column: nil})
			write("PATCH of "+column+" again", "PATCH", d.path+"/"+id, next(column))
		}
	}

	conflict := func(name string, o service.Object, code int) {
		t.Run(name, func(t *testing.T) {
			store(t)
			s.Call(t, "POST", d.path, encode(t, service.InNDJSON, o)).CheckError(t, code)
			for contentType, line := range map[string]int{service.InNDJSON: 1, service.InCSV: 2} {
				r := d.importRows(t, contentType, encode(t, contentType, o))
				if code == 40901 {
					r.CheckReport(t, code, fmt.Sprintf("1: 0 new, 0 unchanged, 1 rejected; %d 40901", line))
				} else {
					r.CheckReport(t, 0, "1: 0 new, 1 unchanged, 0 rejected, stored")
				}
			}
		})
	}
	conflict("the same content", row, 40902)
	for _, column := range content {
		other := maps.Clone(row)
		for text(other[column]) == text(row[column]) {
			maps.Copy(other, next(column))
		}
		conflict("another "+column, other, 40901)
		if !d.isRequired(column) {
			delete(other, column)
			conflict("no "+column, other, 40901)
		}
	}

	for _, contentType := range []string{service.InNDJSON, service.InCSV} {
		t.Run("import of "+contentType, func(t *testing.T) {
			store(t)
			rows := d.export(t, contentType)
			s.Call(t, "DELETE", d.path+"/"+id, "").CheckEmpty(t, 204)
			if r := d.importRows(t, contentType, rows); !strings.Contains(r.Summary(), " 1 new, ") {
				t.Fatalf("got %v, want 1 new row", r)
			}
			read(t, row)
		})
	}
}
