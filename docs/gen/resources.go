package main

import (
	_ "embed"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"text/template"

	"plantstore/controllers"
	"plantstore/routes"
)

// resourceText has the types and annotations that each resource has.
//
//go:embed resource.tmpl
var resourceText string

// resource is what resourceText says of a resource.
type resource struct {
	Noun, Nouns string // plant, plants
	Type        string // Plant
	Filters     []controllers.Filter
}

// table returns the routes, and resources the resources, without stores.
func table() []routes.Route        { return routes.Table(parts()) }
func resources() []routes.Resource { return routes.Resources(parts()) }
func parts() routes.Options        { return routes.Options{Plants: controllers.NewPlants(nil)} }

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
	all := template.Must(template.New("").Parse(resourceText))
	for _, r := range resources() {
		var text strings.Builder
		noun := r.Noun()
		if err := all.Execute(&text, resource{noun, r.Name, strings.ToUpper(noun[:1]) + noun[1:], r.Filters()}); err != nil {
			return err
		}
		parts := slices.DeleteFunc(strings.SplitAfter(text.String(), "\n\n"), func(part string) bool {
			return slices.Contains(written, routeOf(part))
		})
		name := filepath.Join(folder, "controllers", r.Name+"_resource.go")
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
