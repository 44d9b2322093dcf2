package main

import (
	"fmt"
	"log"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"plantstore/controllers"
)

// eachResponse calls visit for each response of an operation in paths, in the order of paths, methods and
// statuses.
func eachResponse(paths object, visit func(operation, responses object, status string)) {
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		for _, method := range slices.Sorted(maps.Keys(at(paths, path))) {
			responses := at(paths, path, method, "responses")
			for _, status := range slices.Sorted(maps.Keys(responses)) {
				visit(at(paths, path, method), responses, status)
			}
		}
	}
}

// shareHeaders moves the headers of all responses to shared. It ends the program if two
// headers have the same name but another description.
func shareHeaders(paths, shared object) {
	eachResponse(paths, func(_, responses object, status string) {
		headers := at(responses, status, "headers")
		for name, h := range headers {
			if shared[name] == nil {
				shared[name] = h
			}
			if !reflect.DeepEqual(shared[name], h) {
				log.Fatalf("two annotations describe the header %s in different words", name)
			}
			headers[name] = object{"$ref": "#/components/headers/" + name}
		}
	})
}

// shareResponses moves the unsuccessful responses that several operations have in common
// to shared.
func shareResponses(paths, shared object) {
	users, names := make(map[string]int), make(map[string]string) // by content
	eachResponse(paths, func(_, responses object, status string) { users[fmt.Sprint(responses[status])]++ })
	eachResponse(paths, func(operation, responses object, status string) {
		content := fmt.Sprint(responses[status])
		code, err := strconv.Atoi(status)
		if err != nil || code < http.StatusBadRequest || users[content] == 1 {
			return
		}
		if names[content] == "" {
			name := nameOfResponse(code, responses[status].(object))
			if shared[name] != nil {
				name += "Of" + title(operation["operationId"].(string))
			}
			names[content], shared[name] = name, responses[status]
		}
		responses[status] = object{"$ref": "#/components/responses/" + names[content]}
	})
}

// nameOfResponse returns the name of a response with the status code: its text and, for errors of a body, what
// the operations read.
func nameOfResponse(code int, response object) string {
	name, errors := strings.ReplaceAll(http.StatusText(code), " ", ""), at(response, "content", controllers.TypeJSON, "examples")
	for _, has := range []struct{ code, name string }{{"40002", "Body"}, {"40005", "WithID"}, {"40008", "WithReference"}} {
		if errors[has.code] != nil {
			name += has.name
		}
	}
	return name
}
