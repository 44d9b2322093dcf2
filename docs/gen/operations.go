package main

import (
	"encoding/csv"
	"encoding/json"
	"fmt"
	"log"
	"maps"
	"net/http"
	"path"
	"slices"
	"strings"

	"plantstore/controllers"
	"plantstore/database"
	"plantstore/middleware"
	"plantstore/models"
	"plantstore/routes"
)

// protected returns the routes that need a token, with paths as in the document.
func protected() (all []routes.Route) {
	for _, r := range allRoutes() {
		if r.Scope != routes.Public {
			r.Path = strings.ReplaceAll(r.Path, ":id", "{id}")
			all = append(all, r)
		}
	}
	return all
}

// operationTable returns the table of operations in Markdown, with links to their sections of page,
// docs/api.md, whose headings are their summaries. The sections of plants are also about other resources;
// an operation that only another resource has is described by its annotations alone.
func operationTable(document object, page string) string {
	operation := func(r routes.Route, path string) object {
		o, _ := at(document, "paths")[path].(object)
		o, _ = o[strings.ToLower(r.Method)].(object)
		return o
	}
	var table strings.Builder
	table.WriteString("| operation | scope | |\n| --- | --- | --- |\n")
	for _, r := range protected() {
		o := operation(r, r.Path)
		text := fmt.Sprintf("%s: %s", o["summary"], o["description"])
		_, rest, _ := strings.Cut(r.Path[1:], "/")
		for _, described := range []object{operation(r, path.Join("/plants", rest)), o} {
			if heading, ok := described["summary"].(string); ok && strings.Contains(page, "\n### "+heading+"\n") {
				text = fmt.Sprintf("[%s](#%s)", o["summary"], strings.ReplaceAll(strings.ToLower(heading), " ", "-"))
			}
		}
		fmt.Fprintf(&table, "| `%s %s` | `%s` | %s |\n", r.Method, r.Path, r.Scope, text)
	}
	return table.String()
}

// completeOperations completes each operation of document from its row in the table of routes, its
// parameters and its body. Each row with a scope must have an operation, and
// each operation such a row, and a tag.
func completeOperations(document object) {
	paths, schemas := at(document, "paths"), at(document, "components", "schemas")
	tags := make(map[any]bool)
	for _, tag := range document["tags"].([]any) {
		tags[tag.(object)["name"]] = true
	}
	rows := make(map[string]routes.Route)
	for _, r := range protected() {
		rows[r.Method+" "+r.Path] = r
	}
	for path := range paths {
		for method := range at(paths, path) {
			name, o := strings.ToUpper(method)+" "+path, at(paths, path, method)
			row, ok := rows[name]
			if !ok {
				log.Fatalf("%s has annotations, but no row with a scope in routes.Table", name)
			}
			tag := strings.Split(path, "/")[1]
			if !tags[tag] {
				log.Fatalf("%s needs a @tag.name %s in main.go", name, tag)
			}
			o["tags"] = []any{tag}
			o["security"] = []any{object{"BearerAuth": []any{row.Scope}}}
			delete(rows, name)
			addPosition(o, row)
			completeParameters(o, row.Query)
			checkQuery(name, o, row.Query)
			body := completeBody(o, schemas)
			addErrors(name, o, body)
			completeResponses(o)
			addSamples(method, path, o, body)
			describeFiles(o, paths, schemas, "/"+tag)
			addLinks(o, path, paths)
		}
	}
	for name := range rows {
		log.Fatalf("%s is in routes.Table, but has no annotations", name)
	}
}

// addPosition adds the header with a position to the responses of an operation that writes or reads
// changes, and to the parameters of other reads. Tokens are never read from a standby.
func addPosition(operation object, row routes.Route) {
	switch {
	case row.Scope == models.ScopeAdmin:
	case row.Method != http.MethodGet, isFeed(operation):
		for status := range at(operation, "responses") {
			if strings.HasPrefix(status, "2") {
				at(operation, "responses", status, "headers")[middleware.PositionHeader] = header("string",
					"A position in the database that has this write, or these changes, if the service reads from standbys: see the parameter of the same name")
			}
		}
	default:
		all, _ := operation["parameters"].([]any)
		operation["parameters"] = append(all, object{
			"name": middleware.PositionHeader, "in": "header", "schema": object{"type": "string", "pattern": database.PositionPattern.String()},
			"description": "The header of the same name in the response to a write, or with changes: the read sees these, whoever wrote them. Only needed if the service reads from standbys, and for a response to another token, or through another replica of the service",
		})
	}
}

// parameters returns the parameters of an operation, by name.
func parameters(operation object) object {
	all := object{}
	if list, ok := operation["parameters"].([]any); ok {
		for _, p := range list {
			all[p.(object)["name"].(string)] = p
		}
	}
	return all
}

// isFeed reports whether an operation reads the feed of changes.
func isFeed(operation object) bool { return parameters(operation)["wait"] != nil }

// checkQuery ends the program if the annotations of an operation have other parameters of
// the query than its row.
func checkQuery(name string, operation object, query []string) {
	var annotated []string
	for parameter, p := range parameters(operation) {
		if p.(object)["in"] == "query" {
			annotated = append(annotated, parameter)
		}
	}
	slices.Sort(annotated)
	row := make([]string, len(query))
	for i, parameter := range query {
		row[i] = strings.TrimSuffix(parameter, "*")
	}
	if slices.Sort(row); !slices.Equal(annotated, row) {
		log.Fatalf("%s has the parameters %v in annotations, and %v in routes.Table", name, annotated, row)
	}
}

// A header with entity tags (RFC 9110, section 8.8.3), or *.
const (
	entityTag  = `(W/)?"[\u0021\u0023-\u007E\u0080-\u00FF]*"`
	entityTags = `^(\*|` + entityTag + `([ \t]*,[ \t,]*` + entityTag + `)*[ \t,]*)$`
)

// completeParameters adds to the parameters of an operation what only the program knows. query is that of its row.
func completeParameters(operation object, query []string) {
	all := parameters(operation)
	walk(all, limitInt64)
	for name := range all {
		schema := at(all, name, "schema")
		switch {
		case strings.HasSuffix(name, "-Match") && schema["enum"] == nil:
			schema["pattern"] = entityTags
			if name == "If-Match" {
				p := at(all, name)
				p["description"] = fmt.Sprintf("%s. At most %d different ETags", p["description"], controllers.MaxVersions)
			}
		case isFeed(operation) && name == "after":
			schema["pattern"] = database.CursorPattern.String()
		case isFeed(operation) && (name == "Last-Event-ID" || name == "lastEventId"): // empty before the first event
			schema["pattern"] = "^$|" + database.CursorPattern.String()
		case name == "wait":
			schema["pattern"] = controllers.WaitPattern.String()
		case slices.Contains(query, name+"*"):
			p := at(all, name)
			p["schema"] = object{"type": "array", "items": schema, "minItems": 1, "maxItems": models.MaxValues}
			p["style"], p["explode"] = "form", true
		case name == "max":
			schema["minimum"], schema["maximum"], schema["default"] = 1, controllers.MaxCount, controllers.MaxLimit
		case name == "limit":
			schema["minimum"], schema["maximum"], schema["default"] = 1, controllers.MaxLimit, controllers.DefaultLimit
			if all["after"] != nil {
				at(operation, "responses", "200", "headers")["Link"] = header("string", "The address of the next page, if there is one, with rel=next (RFC 8288)")
			}
		}
	}
}

// fileContent is the content of a body that is a file. Its schema says that it is bytes: tools take
// x-ndjson for JSON, and would send a string with its quotes. CSV is in front: the first media type
// is the default of tools, and spreadsheets are more common than NDJSON.
type fileContent struct {
	CSV    object `json:"text/csv"`
	NDJSON object `json:"application/x-ndjson"`
}

// describeFiles sets the content of the bodies of operation that are files. Their example is a row:
// that of the body of POST at collection.
func describeFiles(operation, paths, schemas object, collection string) {
	walk(operation, func(body object) {
		if isFile(body) {
			created := at(paths, collection, "post", "requestBody", "content", controllers.TypeJSON, "schema")
			body["content"] = exampleFiles(schemaOf(created, schemas))
		}
	})
}

// exampleFiles returns the content of files with a single row, the example of schema.
func exampleFiles(schema object) fileContent {
	row := exampleOf(schema)
	names := slices.Sorted(maps.Keys(row))
	var cells []string
	for _, name := range names {
		cell, isText := row[name].(string)
		if !isText {
			cell = encode(row[name])
		}
		cells = append(cells, cell)
	}
	var table strings.Builder
	if err := csv.NewWriter(&table).WriteAll([][]string{names, cells}); err != nil {
		log.Fatal(err)
	}
	file := func(example string) object {
		return object{"schema": object{"type": "string", "format": "binary"}, "example": example}
	}
	return fileContent{CSV: file(table.String()), NDJSON: file(encode(row) + "\n")}
}

// schemaOf returns the schema to which reference refers.
func schemaOf(reference, schemas object) object {
	return at(schemas, path.Base(reference["$ref"].(string)))
}

// isFile reports whether a body, of a request or a response, is a file.
func isFile(body object) bool {
	content, ok := body["content"].(object)
	return ok && content[controllers.TypeNDJSON] != nil
}

func encode(v any) string {
	text, err := json.Marshal(v)
	if err != nil {
		log.Fatal(err)
	}
	return string(text)
}

// completeBody gives all media types of JSON the same schema, and returns it: unknown
// fields are invalid; in a JSON Merge Patch (RFC 7396), fields may be absent, and null
// removes an optional value.
func completeBody(operation, schemas object) (schema object) {
	if operation["requestBody"] == nil || isFile(at(operation, "requestBody")) {
		return nil
	}
	content := at(operation, "requestBody", "content")
	for media := range content {
		content[media] = content[controllers.TypeJSON]
		schema = schemaOf(at(content, media, "schema"), schemas)
	}
	if schema["additionalProperties"] == false { // another operation has the same body
		return schema
	}
	walk(schema, limitInt64)
	schema["additionalProperties"] = false
	addExample(schema)
	if content["application/merge-patch+json"] != nil {
		required, _ := schema["required"].([]any)
		for name := range at(schema, "properties") {
			if property := at(schema, "properties", name); !slices.Contains(required, any(name)) {
				property["type"] = []any{property["type"], "null"}
				if values, ok := property["enum"].([]string); ok {
					nullable := []any{nil}
					for _, v := range values {
						nullable = append(nullable, v)
					}
					property["enum"] = nullable
				}
			}
		}
		delete(schema, "required")
	}
	return schema
}

// addExample gives schema an example without the properties with x-echo, which a client
// sends only because it has read them. Swagger UI starts with the example.
func addExample(schema object) {
	properties := at(schema, "properties")
	if example := exampleOf(schema); len(example) < len(properties) {
		schema["examples"] = []any{example}
	}
	for name := range properties {
		delete(at(properties, name), "x-echo")
	}
}

// exampleOf returns the example of schema, whose properties with x-echo it lacks.
func exampleOf(schema object) object {
	example := object{}
	for name := range at(schema, "properties") {
		if property := at(schema, "properties", name); property["x-echo"] == nil && property["example"] != nil {
			example[name] = property["example"]
		}
	}
	return example
}

// addLinks links a response that has the version of an item with the operations on it.
func addLinks(operation object, path string, paths object) {
	id := "$request.path.id"
	collection, _, isItem := strings.Cut(path, "/{id}")
	if path = collection + "/{id}"; !isItem {
		id = "$request.body#/id"
	}
	for _, status := range []string{"200", "201"} {
		success, ok := at(operation, "responses")[status].(object)
		if !ok || at(success, "headers")["ETag"] == nil || parameters(operation)["limit"] != nil {
			continue
		}
		for method := range at(paths, path) {
			next, arguments := at(paths, path, method), object{"path.id": id}
			if parameters(next)["If-Match"] != nil {
				arguments["header.If-Match"] = "$response.header.ETag"
			}
			name := next["operationId"].(string)
			at(success, "links")[name] = object{"operationId": name, "parameters": arguments}
		}
	}
}
