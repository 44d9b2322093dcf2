package main

import (
	_ "embed"
	"fmt"
	"log"
	"maps"
	"net/http"
	"slices"
	"strings"
	"text/template"

	"plantstore/controllers"
)

// samplesText has a template for each language.
//
//go:embed samples.tmpl
var samplesText string

var samples = template.Must(template.New("").Parse(samplesText))

// sample is a request as the templates of samples need it.
type sample struct {
	Method, Path string
	Default      string // curl's method
	Headers      []struct{ Name, Value string }
	JSON         string // the body, which is also valid between quotes, or nothing
	File         string // whose content is the body, or nothing
}

// addSamples adds programs that send the operation, with the example of its body's schema, to the address BASE_URL, with the token TOKEN of the
// environment: x-codeSamples, which tools show beside the operation.
func addSamples(method, path string, operation, schema object) {
	s := sample{Method: strings.ToUpper(method), Path: path, Default: http.MethodGet}
	for name, p := range parameters(operation) {
		if p.(object)["in"] == "path" {
			s.Path = strings.ReplaceAll(s.Path, "{"+name+"}", fmt.Sprint(p.(object)["example"]))
		}
	}
	if isFeed(operation) {
		s.Path += "?after=0"
	}
	if all := parameters(operation); all["max"] != nil { // the query must select rows
		filter := slices.Sorted(maps.Keys(all))[0] // created_after of plants
		value := "houseplant"
		if at(all[filter].(object), "schema")["format"] == "date-time" {
			value = "2026-01-01T00:00:00Z"
		}
		s.Path += "?" + filter + "=" + value + "&dry_run=true"
	}
	header := func(name, value string) { s.Headers = append(s.Headers, struct{ Name, Value string }{name, value}) }
	collection := strings.Split(path, "/")[1]
	success, _ := at(operation, "responses")["200"].(object)
	switch body, ok := operation["requestBody"].(object); {
	case !ok && isFile(success):
		header("Accept", controllers.TypeCSV)
	case !ok:
	case isFile(body):
		s.Default, s.File = http.MethodPost, collection+".csv"
		header("Content-Type", controllers.TypeCSV)
	default:
		s.Default = http.MethodPost
		media := controllers.TypeJSON
		if at(body, "content")["application/merge-patch+json"] != nil {
			media = "application/merge-patch+json"
		}
		header("Content-Type", media)
		s.JSON = strings.NewReplacer("'", `\u0027`, "`", `\u0060`).Replace(encode(exampleOf(schema)))
	}
	var all []any
	for _, language := range []struct{ name, label string }{{"Shell", "curl"}, {"Python", "Python"}, {"JavaScript", "JavaScript"}, {"Go", "Go"}} {
		var source strings.Builder
		if err := samples.ExecuteTemplate(&source, language.label, s); err != nil {
			log.Fatal(err)
		}
		all = append(all, object{"lang": language.name, "label": language.label, "source": source.String()})
	}
	operation["x-codeSamples"] = all
}
