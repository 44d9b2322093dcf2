// Gen writes the generated files: docs/openapi.json, the table of errors in docs/api.md,
// docs/configuration.md, docs/licenses.txt and configs/config.yaml. Run it in the root of the repository,
// as make docs does.
package main

import (
	"bytes"
	"encoding/json"
	"io"
	"log"
	"os"

	"github.com/swaggo/swag/v2"
)

func main() {
	log.SetFlags(0)
	log.SetPrefix("docs/gen: ")
	files, err := generate()
	if err != nil {
		log.Fatal(err)
	}
	for name, text := range files {
		if err := os.WriteFile(name, text, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}

// generate returns the generated files by name.
func generate() (files map[string][]byte, err error) {
	files = configuration()
	if files["docs/openapi.json"], err = openAPI(); err != nil {
		return nil, err
	}
	if files["docs/licenses.txt"], err = licenses(); err != nil {
		return nil, err
	}
	files["docs/api.md"], err = pageWithErrors("docs/api.md")
	return files, err
}

// openAPI returns the OpenAPI document: the annotations, completed from the rules
// of the models, the table of routes and the table of errors.
func openAPI() ([]byte, error) {
	parser := swag.New(
		swag.GenerateOpenAPI3Doc(true),
		swag.SetExcludedDirsAndFiles("docs,tests,bench"),
		swag.SetDebugger(log.New(io.Discard, "", 0)),
	)
	if err := parser.ParseAPI(".", "main.go", 1); err != nil {
		return nil, err
	}
	text, err := json.Marshal(parser.GetOpenAPI())
	if err != nil {
		return nil, err
	}
	var document object
	if err := json.Unmarshal(text, &document); err != nil {
		return nil, err
	}
	delete(document, "externalDocs") // swag adds an empty one
	walk(document, completeSchema)
	paths, components := at(document, "paths"), at(document, "components")
	completeOperations(document)
	shareHeaders(paths, at(components, "headers"))
	shareResponses(paths, at(components, "responses"))
	info := at(document, "info")
	info["description"] = info["description"].(string) + "\n\n<details><summary>All error codes</summary>\n\n" + errorTable() + "\n</details>"

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err = encoder.Encode(document)
	return out.Bytes(), err
}
