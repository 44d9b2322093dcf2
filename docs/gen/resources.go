package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"text/template"
	"time"

	"plantstore/controllers"
	"plantstore/database/table"
	"plantstore/models"
	"plantstore/routes"
)

// resourceText has the types and annotations that each resource has.
//
//go:embed resource.tmpl
var resourceText string

// resource is what resourceText says of a resource.
type resource struct {
	Name        string // garden_beds
	Noun, Nouns string // garden bed, garden beds
	Type, Types string // GardenBed, GardenBeds
	A           string // before the noun: a or an
	Rule        string // gardenbed, as in x-rule
	Key         string // garden_bed, in changes
	ID          id
	Followed    bool
	Sorts       string // the values of the parameter sort
	Filters     []filter
	MaxCount    int
	Parents     []parent
}

// parent is what resourceText says of a resource to which a column refers.
type parent struct {
	Name, Noun, Type, A, Column string
	ID                          id
}

// id is what resourceText says of the key of a resource.
type id struct {
	IsUUID           bool
	Go, Tags         string // the type of the field in Go, and its tags
	Type, Attributes string // of a parameter
	Rule, Example    string
}

func describeID(model models.Model) id {
	if table.OfModel(model).Key.FieldType != reflect.TypeFor[models.ID]() {
		return id{false, "int64", `format:"int64" example:"1"`, "int", "format(int64)", "", "1"}
	}
	const example = "0198c5f0-5b1e-7c3a-9d2e-3f4a5b6c7d8e"
	rule := "x-rule=" + nameOf(model) + ".id"
	return id{true, "string", `extensions:"` + rule + `" example:"` + example + `"`, "string", "extensions(" + rule + ")", rule, example}
}

// filter is what resourceText says of a parameter that selects rows.
type filter struct{ Name, Type, Text, Attributes string }

func describe(r routes.Resource) resource {
	t, model := table.OfModel(r.Model()), reflect.TypeOf(r.Model()).Name()
	var types strings.Builder
	for word := range strings.SplitSeq(r.Name(), "_") {
		types.WriteString(title(word))
	}
	d := resource{
		r.Name(), t.Noun, strings.ReplaceAll(r.Name(), "_", " "), model, types.String(), article(t.Noun), nameOf(r.Model()),
		strings.ReplaceAll(t.Noun, " ", "_"), describeID(r.Model()), t.Feed != "", strings.Join(r.Sorts(), ", "), nil, controllers.MaxCount, nil,
	}
	for _, f := range r.Filters() {
		d.Filters = append(d.Filters, d.describe(f, r.Model().Rules()))
	}
	for _, p := range r.Parents() {
		ref, _ := r.Model().Rules().Ref(p.Column)
		noun := table.NounOf(ref.To)
		d.Parents = append(d.Parents, parent{p.Name, noun, reflect.TypeOf(ref.To).Name(), article(noun), p.Column, describeID(ref.To)})
	}
	return d
}

func (d resource) describe(f controllers.Filter, rules models.Rules) filter {
	column, rule := f.Column.DBName, ""
	if rules[column] != nil {
		rule = "extensions(x-rule=" + d.Rule + "." + column + ")"
	}
	described := filter{f.Name, "string", "", rule}
	switch f.Column.IndirectFieldType.Kind() {
	case reflect.Int64:
		described.Type, described.Attributes = "int", "format(int64) "+rule
	case reflect.Float64:
		described.Type = "number"
	case reflect.Bool:
		described.Type = "bool"
	case reflect.Struct:
		if f.Column.IndirectFieldType == reflect.TypeFor[time.Time]() {
			described.Attributes = "format(date-time) " + rule
		}
	}
	switch f.Operator {
	case "=":
		described.Text = "Only " + d.Nouns + " with exactly this " + column + "; if the parameter is repeated, " + d.Nouns + " with any of the values"
	case models.Contains:
		described.Text = "Only " + d.Nouns + " with this text in their " + column + ", ignoring case (on SQLite, only that of ASCII letters)"
		described.Attributes = "extensions(x-rule=" + d.Rule + "." + column + ".part)"
	case ">":
		described.Text = "Only " + d.Nouns + " whose " + column + " is after this value"
	case "<":
		described.Text = "Only " + d.Nouns + " whose " + column + " is before this value"
	}
	return described
}

// article returns the article of a noun.
func article(noun string) string {
	if strings.ContainsAny(noun[:1], "aeiou") {
		return "an"
	}
	return "a"
}

func title(word string) string { return strings.ToUpper(word[:1]) + word[1:] }

// addTags adds the tag of each resource, in front of the tags in main.go.
func addTags(document object) {
	var tags []any
	for _, r := range resources() {
		d := describe(r)
		tags = append(tags, object{"name": d.Name, "description": "The " + d.Nouns + " in the store"})
	}
	document["tags"] = append(tags, document["tags"].([]any)...)
}

// allRoutes returns the routes, and resources the resources, without a database.
func allRoutes() []routes.Route    { return routes.Table(routes.Options{}) }
func resources() []routes.Resource { return routes.Resources(routes.Options{}) }

// annotate copies the files with annotations to folder, and adds the annotations of each resource,
// as swag reads only files.
func annotate(folder string) error {
	for _, name := range []string{"controllers", "models"} {
		if err := os.CopyFS(filepath.Join(folder, name), os.DirFS(name)); err != nil {
			return err
		}
	}
	for _, name := range []string{"go.mod", "main.go"} {
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), text, 0o600); err != nil {
			return err
		}
	}
	written, err := annotatedRoutes()
	if err != nil {
		return err
	}
	all := template.Must(template.New("").Funcs(template.FuncMap{"title": title}).Parse(resourceText))
	for _, r := range resources() {
		var text strings.Builder
		if err := all.Execute(&text, describe(r)); err != nil {
			return err
		}
		parts := slices.DeleteFunc(strings.SplitAfter(text.String(), "\n\n"), func(part string) bool {
			return slices.Contains(written, routeOf(part))
		})
		name := filepath.Join(folder, "controllers", r.Name()+"_resource.go")
		if err := os.WriteFile(name, []byte(strings.Join(parts, "")), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// annotatedRoutes returns the routes of the operations with annotations of their own.
func annotatedRoutes() (all []string, err error) {
	names, err := filepath.Glob("controllers/*.go")
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		text, err := os.ReadFile(name)
		if err != nil {
			return nil, err
		}
		for _, found := range routeAnnotation.FindAllStringSubmatch(string(text), -1) {
			all = append(all, found[1])
		}
	}
	return all, nil
}

var routeAnnotation = regexp.MustCompile(`//\s+@Router\s+(.+)`)

// routeOf returns the route of an operation, such as "/plants [post]", or nothing.
func routeOf(annotations string) string {
	if found := routeAnnotation.FindStringSubmatch(annotations); found != nil {
		return found[1]
	}
	return ""
}
