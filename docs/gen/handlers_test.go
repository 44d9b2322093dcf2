package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestHandlersHaveTheAnnotations compares the handler of each row in the table of routes with the function whose
// annotations describe the operation: a row with the handler of another operation would do what no page says.
func TestHandlersHaveTheAnnotations(t *testing.T) {
	t.Chdir("../..")
	folder := t.TempDir()
	if err := annotate(folder); err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob(filepath.Join(folder, "controllers", "*.go"))
	if err != nil {
		t.Fatal(err)
	}
	annotated := make(map[string]string) // the names of functions, by their routes
	for _, name := range files {
		file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments)
		if err != nil {
			t.Fatal(err)
		}
		for _, declaration := range file.Decls {
			if function, ok := declaration.(*ast.FuncDecl); ok && function.Doc != nil {
				var text strings.Builder
				for _, line := range function.Doc.List {
					text.WriteString(line.Text + "\n")
				}
				if route := routeOf(text.String()); route != "" {
					annotated[route] = function.Name.Name
				}
			}
		}
	}
	for _, r := range protected() {
		route := r.Path + " [" + strings.ToLower(r.Method) + "]"
		t.Run(route, func(t *testing.T) {
			name := runtime.FuncForPC(reflect.ValueOf(r.Handler).Pointer()).Name()
			name = strings.TrimSuffix(strings.TrimSuffix(name, "-fm"), ".func1") // of a method, or that a method returns
			name = name[strings.LastIndex(name, ".")+1:]
			if name == "Parents" { // which returns the handlers of lists
				name = "List"
			}
			if got := annotated[route]; got == "" || !strings.HasPrefix(strings.ToLower(got), strings.ToLower(name)) {
				t.Errorf("the handler is %s, and the annotations are at %q", name, got)
			}
		})
	}
}
