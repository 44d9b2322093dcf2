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

	"plantstore/tests/service"
)

// schemas are the components of the OpenAPI document.
type schemas map[string]schema

type schema struct {
	Type                any // a string or, with null, a list
	Enum                []any
	Format, Pattern     string
	Minimum, Maximum    json.Number
	MaxLength           int
	Ref                 string `json:"$ref"`
	AllOf, OneOf, AnyOf []schema
	Required            []string
	Properties          schemas
	ReadOnly            bool
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

// texts are formats of the values of a property with a name and a number.
var texts = map[string][]string{
	"":          {"%[1]s %[2]d", "%[1]s-%[2]d", "%[1]s%[2]d", "%[2]d"},
	"date":      {"2001-01-%02[2]d"},
	"date-time": {"2001-01-%02[2]dT00:00:00Z"},
	"email":     {"%[1]s%[2]d@example.org"},
	"uri":       {"https://example.org/%[1]s/%[2]d"},
}

// value returns the nth valid value of a property. Those of n and n+1 differ.
func (d schemas) value(t *testing.T, name string, n int) any {
	t.Helper()
	s := d.resolve(d["NewPlant"].Properties[name])
	switch kind := fmt.Sprint(s.Type); {
	case len(s.Enum) > 1:
		return s.Enum[n%len(s.Enum)]
	case kind == "integer":
		least, _ := s.Minimum.Int64()
		values := int64(math.MaxInt64)
		if most, err := s.Maximum.Int64(); err == nil && most < math.MaxInt64 {
			values = most - least + 1
		}
		return json.Number(strconv.FormatInt(least+int64(n)%values, 10))
	case kind == "number":
		return json.Number(strconv.Itoa(n) + ".5")
	case kind == "boolean":
		return n%2 == 0
	case kind == "string":
		pattern := regexp.MustCompile(regexp.MustCompile(`\\u(\w{4})`).ReplaceAllString(s.Pattern, `\x{$1}`))
		for _, format := range texts[s.Format] {
			text := fmt.Sprintf(format, name, n)
			if pattern.MatchString(text) && (s.MaxLength == 0 || len(text) <= s.MaxLength) {
				return text
			}
		}
	}
	t.Fatalf("property %s: this test cannot make values of %+v: add a format to texts", name, s)
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
	var text strings.Builder
	columns := slices.Sorted(maps.Keys(o))
	var row []string
	for _, column := range columns {
		row = append(row, fmt.Sprint(o[column]))
	}
	service.Must(t, csv.NewWriter(&text).WriteAll([][]string{columns, row}))
	return text.String()
}

// TestEveryFieldSurvives sends each property of a plant that the OpenAPI document
// has through each operation that stores it, and reads it with each that returns it.
func TestEveryFieldSurvives(t *testing.T) {
	t.Parallel()
	service.Each(t, func(t *testing.T, s *service.Service) {
		var document struct{ Components struct{ Schemas schemas } }
		service.Must(t, json.Unmarshal([]byte(s.Get(t, "/openapi.json").Body), &document))
		d := document.Components.Schemas
		all := schemas{}
		for _, name := range []string{"PlantPatch", "PlantReplacement", "NewPlant"} {
			maps.Copy(all, d[name].Properties)
		}
		for _, ignored := range []string{"created_at", "updated_at"} {
			delete(all, ignored)
		}
		maps.DeleteFunc(all, func(_ string, s schema) bool { return s.ReadOnly })
		columns := slices.Sorted(maps.Keys(all))
		content := slices.DeleteFunc(slices.Clone(columns), func(name string) bool { return name == "id" })
		for _, name := range []string{"NewPlant", "PlantReplacement", "PlantPatch", "Plant", "StoredPlant"} {
			for _, column := range content {
				if _, ok := d[name].Properties[column]; !ok {
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
				i := slices.IndexFunc(rows, func(o service.Object) bool { return o["id"] == nil || fmt.Sprint(o["id"]) == fmt.Sprint(want["id"]) })
				if i < 0 {
					t.Fatalf("no plant %v in %v", want["id"], rows)
				}
				for _, column := range columns {
					t.Run(column, func(t *testing.T) {
						value, present := rows[i][column]
						if got, want := fmt.Sprint(value), fmt.Sprint(want[column]); got != want {
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
			compare(t, "GET", service.Objects(t, s.Call(t, "GET", fmt.Sprint("/plants/", want["id"]), "").Body), columns, want)
			compare(t, "list", service.Objects(t, s.Call(t, "GET", "/plants", "").Body), columns, want)
			compare(t, "export as NDJSON", service.Objects(t, s.Export(t, service.InNDJSON)), columns, want)
			compare(t, "export as CSV", csvObjects(t, s.Export(t, service.InCSV)), columns, want)
		}

		longest := next(columns...)
		for _, column := range content { // as long as the document allows, in the bytes of UTF-8, too
			if most := d.resolve(d["NewPlant"].Properties[column]).MaxLength; most > 0 {
				longest[column] = strings.Repeat("🌵", most)
			}
		}
		s.Post(t, encode(t, service.InNDJSON, longest)).RequireOK(t)

		plant := next(columns...)
		id := fmt.Sprint(plant["id"])
		store := func(t *testing.T) { // whichever subtests ran before
			body := maps.Clone(plant)
			delete(body, "id")
			s.Call(t, "PUT", "/plants/"+id, encode(t, service.InNDJSON, body)).RequireOK(t)
		}
		write := func(name, method, path string, body service.Object) {
			t.Run(name, func(t *testing.T) {
				if method == "PATCH" {
					store(t)
				}
				r := s.Call(t, method, path, encode(t, service.InNDJSON, body))
				r.RequireOK(t)
				maps.Copy(plant, body)
				maps.DeleteFunc(plant, func(_ string, v any) bool { return v == nil })
				compare(t, "response", service.Objects(t, r.Body), content, plant)
				read(t, plant)
			})
		}
		write("POST", "POST", "/plants", plant)
		write("PUT", "PUT", "/plants/"+id, next(content...))
		write("PATCH", "PATCH", "/plants/"+id, next(content...))
		for _, column := range content {
			write("PATCH of "+column, "PATCH", "/plants/"+id, next(column))
			if !slices.Contains(d["NewPlant"].Required, column) {
				write("PATCH without "+column, "PATCH", "/plants/"+id, service.Object{column: nil})
				write("PATCH of "+column+" again", "PATCH", "/plants/"+id, next(column))
			}
		}

		conflict := func(name string, o service.Object, code int) {
			t.Run(name, func(t *testing.T) {
				store(t)
				s.Post(t, encode(t, service.InNDJSON, o)).CheckError(t, code)
				for contentType, line := range map[string]int{service.InNDJSON: 1, service.InCSV: 2} {
					r := s.ImportRows(t, "", contentType, encode(t, contentType, o))
					if code == 40901 {
						r.CheckReport(t, code, fmt.Sprintf("1: 0 new, 0 unchanged, 1 rejected; %d 40901", line))
					} else {
						r.CheckReport(t, 0, "1: 0 new, 1 unchanged, 0 rejected, stored")
					}
				}
			})
		}
		conflict("the same content", plant, 40902)
		for _, column := range content {
			other := maps.Clone(plant)
			for other[column] == plant[column] {
				maps.Copy(other, next(column))
			}
			conflict("another "+column, other, 40901)
			if !slices.Contains(d["NewPlant"].Required, column) {
				delete(other, column)
				conflict("no "+column, other, 40901)
			}
		}

		for _, contentType := range []string{service.InNDJSON, service.InCSV} {
			t.Run("import of "+contentType, func(t *testing.T) {
				store(t)
				other := maps.Clone(plant)
				maps.Copy(other, next("id"))
				rows := strings.ReplaceAll(s.Export(t, contentType), id, fmt.Sprint(other["id"]))
				if r := s.ImportRows(t, "", contentType, rows); !strings.Contains(r.Summary(), " 1 new, ") {
					t.Fatalf("got %v, want 1 new plant", r)
				}
				read(t, other)
			})
		}
	})
}
