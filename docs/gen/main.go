// Gen writes docs/openapi.json from swag's annotations: run it from the
// project's folder, as make docs does.
package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"os"
	"path"
	"path/filepath"
	"regexp"

	"github.com/swaggo/swag/v2/gen"
)

func main() {
	if err := run("docs/openapi.json"); err != nil {
		fmt.Fprintln(os.Stderr, "docs/gen:", err)
		os.Exit(1)
	}
}

func run(target string) error {
	folder, err := os.MkdirTemp("", "openapi-*")
	if err != nil {
		return err
	}
	defer os.RemoveAll(folder)

	err = gen.New().Build(&gen.Config{
		Debugger:            log.New(io.Discard, "", 0),
		SearchDir:           ".",
		Excludes:            "docs,tests,bench",
		MainAPIFile:         "main.go",
		OutputDir:           folder,
		OutputTypes:         []string{"json"},
		ParseDepth:          1,
		GenerateOpenAPI3Doc: true,
	})
	if err != nil {
		return err
	}
	text, err := os.ReadFile(filepath.Join(folder, "swagger.json"))
	if err != nil {
		return err
	}
	text, err = finish(text)
	if err != nil {
		return err
	}
	return os.WriteFile(target, text, 0o644)
}

// object is a JSON object.
type object = map[string]any

// finish says in the document what no annotation can say: a request's body may
// have no fields besides those named, each error code that a response names has
// an example, and there is no document besides this one.
func finish(text []byte) ([]byte, error) {
	var document object
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.UseNumber() // the limits of an int64 do not fit a float64
	if err := decoder.Decode(&document); err != nil {
		return nil, err
	}
	delete(document, "externalDocs") // swag's, and empty

	schemas := document["components"].(object)["schemas"].(object)
	codes := document["info"].(object)["description"].(string)
	for _, operations := range document["paths"].(object) {
		for _, operation := range operations.(object) {
			if body, ok := operation.(object)["requestBody"].(object); ok {
				refuseUnknown(schemas, body)
			}
			for _, response := range operation.(object)["responses"].(object) {
				addExamples(response.(object), codes)
			}
		}
	}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(document)
	return out.Bytes(), err
}

// refuseUnknown refuses unknown fields in the schemas of a request's body.
func refuseUnknown(schemas, body object) {
	for _, media := range body["content"].(object) {
		if ref, ok := media.(object)["schema"].(object)["$ref"].(string); ok {
			schemas[path.Base(ref)].(object)["additionalProperties"] = false
		}
	}
}

// addExamples adds to a response an example of each error code that its
// description names, with the words of the table of codes.
func addExamples(response object, codes string) {
	examples := object{}
	for _, code := range regexp.MustCompile(`\b\d{5}\b`).FindAllString(response["description"].(string), -1) {
		row := regexp.MustCompile(`\| ` + code + ` \| \d+ \| (.*) \|`).FindStringSubmatch(codes)
		if row == nil {
			continue // the document's test finds the code that the table lacks
		}
		examples[code] = object{"value": object{"error": json.Number(code), "message": row[1]}}
	}
	if len(examples) > 0 {
		response["content"].(object)["application/json"].(object)["examples"] = examples
	}
}
