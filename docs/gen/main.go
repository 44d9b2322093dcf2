// Gen writes docs/openapi.json from swag's annotations: run it from the
// project's folder, as make docs does.
package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/swaggo/swag/v2/gen"
)

func main() {
	if err := errors.Join(run("docs/openapi.json"), writeConfiguration()); err != nil {
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
// have no fields besides those named, whatever its media type, and which of them
// may be null; an error is JSON, whatever a success is; each error code that a
// response names has an example; and there is no document besides this one.
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
			addPatterns(operation.(object))
			addLinks(operation.(object))
			if body, ok := operation.(object)["requestBody"].(object); ok {
				shareSchema(body["content"].(object))
				refuseUnknown(schemas, body)
			}
			for status, response := range operation.(object)["responses"].(object) {
				if content, ok := response.(object)["content"].(object); ok && content[stream] != nil {
					separate(content, strings.HasPrefix(status, "2"))
				}
				addExamples(response.(object), codes)
			}
		}
	}
	for _, schema := range schemas {
		allowNull(schema.(object))
	}

	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", "  ")
	err := encoder.Encode(document)
	return out.Bytes(), err
}

// stream is the media type of the answers that are no JSON documents.
const stream = "application/x-ndjson"

// separate leaves JSON out of the media types of a success, and all others out of
// those of an error.
func separate(content object, success bool) {
	maps.DeleteFunc(content, func(media string, _ any) bool { return (media == "application/json") == success })
}

// bodies are examples of those that are no JSON documents.
var bodies = map[string]string{
	stream:     `{"id":2001,"name":"Monstera deliciosa","tag":"houseplant"}` + "\n",
	"text/csv": "id,name,tag\n2001,Monstera deliciosa,houseplant\n",
}

// shareSchema gives every media type of a body what swag gives one alone, the
// schema, and to those that are no JSON documents an example.
func shareSchema(content object) {
	delete(content, "text/plain") // which is swag's name for any text
	for media, body := range content {
		if example, ok := bodies[media]; ok {
			body.(object)["example"] = example
		}
	}
	if shared, ok := content["application/json"].(object); ok {
		for media := range content {
			content[media] = shared
		}
	}
}

// patterns are those of the parameters that are not any text, by name, or by operation
// and name: there is no annotation for them.
var patterns = map[string]string{
	"tag":              noControls,
	"q":                noControls,
	"If-Match":         entityTags,
	"If-None-Match":    entityTags,
	"revokeToken id":   tokenID,
	"listTokens after": tokenID,
}

const (
	noControls = `^[^\u0000-\u001F\u007F-\u009F]*$`
	entityTag  = `(W/)?"[\u0021\u0023-\u007E\u0080-\u00FF]*"`
	tokenID    = `^pst_[a-z2-7]{8}$`
	entityTags = `^(\*|` + entityTag + `([ \t]*,[ \t,]*` + entityTag + `)*[ \t,]*)$`
)

// addPatterns adds their patterns to the parameters of an operation.
func addPatterns(operation object) {
	parameters, _ := operation["parameters"].([]any)
	for _, parameter := range parameters {
		parameter := parameter.(object)
		schema := parameter["schema"].(object)
		name := parameter["name"].(string)
		pattern := cmp.Or(patterns[operation["operationId"].(string)+" "+name], patterns[name])
		if pattern != "" && schema["enum"] == nil {
			schema["pattern"] = pattern
		}
	}
}

// ids say where an answer or its request has the id of a plant, by operation.
var ids = map[string]string{
	"createPlant": "$request.body#/id",
	"getPlant":    "$request.path.id",
	"putPlant":    "$request.path.id",
	"patchPlant":  "$request.path.id",
}

// addLinks links the success of an operation on a plant with those that can
// follow, the writes on condition that the plant is still in that version.
func addLinks(operation object) {
	id, ok := ids[operation["operationId"].(string)]
	if !ok {
		return
	}
	success := operation["responses"].(object)["200"].(object)
	links := object{}
	for _, next := range []string{"getPlant", "putPlant", "patchPlant", "deletePlant"} {
		parameters := object{"path.id": id}
		if next != "getPlant" {
			parameters["header.If-Match"] = "$response.header.ETag"
		}
		links[next] = object{"operationId": next, "parameters": parameters}
	}
	success["links"] = links
}

// allowNull turns x-nullable, which OpenAPI 3.1 does not know, into a type.
func allowNull(schema object) {
	properties, _ := schema["properties"].(object)
	for _, property := range properties {
		if property := property.(object); property["x-nullable"] == true {
			delete(property, "x-nullable")
			property["type"] = []any{property["type"], "null"}
		}
	}
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
