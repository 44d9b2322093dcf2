package main

import (
	"fmt"
	"log"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"plantstore/controllers"
	"plantstore/middleware"
)

func errorTable() string {
	var table strings.Builder
	table.WriteString("| error | status | when |\n| --- | --- | --- |\n")
	for _, row := range controllers.ErrorTable() {
		fmt.Fprintf(&table, "| %d | %d | %s |\n", row.Code, row.Status, row.When)
	}
	return table.String()
}

// addErrors adds the errors of the operation name that follow from its path, parameters
// and body. Annotations take precedence.
func addErrors(name string, operation, body object) {
	refers, isUnique, isReferred := relations(name)
	itemExists := strings.Contains(name, "{id}") && !strings.HasPrefix(name, "PUT")
	applies := func(row controllers.ErrorRow) bool {
		switch {
		case row.Code == 40302: // not in production
			return false
		case row.Code == 40005: // all rows of files have ids
			return operation["requestBody"] != nil && (body == nil || strings.Contains(fmt.Sprint(body), "int64"))
		case row.Code == 40008:
			return refers && operation["requestBody"] != nil
		case row.Code == 40903:
			return isUnique && operation["requestBody"] != nil
		case row.Code == 40904:
			return isReferred && (strings.HasPrefix(name, "DELETE") || strings.HasSuffix(name, "/import"))
		case row.Code == 40001, row.Code == 40007, row.Code == 41301: // unknown parameters; a body that is ignored
			return true
		case row.Status == 400:
			return operation["requestBody"] != nil
		case row.Status == 404:
			return itemExists && row.Code == 40401
		case row.Status == 409: // the client chooses the id
			return strings.HasPrefix(name, "POST") && body != nil && at(body, "properties")["id"] != nil
		case row.Status == 410, row.Status == 501:
			return isFeed(operation)
		case row.Status == 412:
			return parameters(operation)["If-Match"] != nil
		}
		return slices.Contains([]int{401, 403, 429, 500, 503}, row.Status)
	}
	texts := make(map[int][]string)
	for _, row := range controllers.ErrorTable() {
		if applies(row) {
			summary := row.When[:strings.IndexAny(row.When+";", ";:")]
			texts[row.Status] = append(texts[row.Status], fmt.Sprintf("%s (%d)", summary, row.Code))
		}
	}
	for status, texts := range texts {
		response := at(operation, "responses", strconv.Itoa(status))
		if d := response["description"]; d == nil || d == http.StatusText(status) { // swag's default
			text := strings.Join(texts, "; ")
			response["description"] = strings.ToUpper(text[:1]) + text[1:]
		} else {
			for _, text := range texts {
				if strings.Contains(text, "(40903)") || strings.Contains(text, "(40904)") {
					response["description"] = fmt.Sprintf("%s; or %s", response["description"], text)
				}
			}
		}
		if response["content"] == nil {
			at(response, "content", controllers.TypeJSON, "schema")["$ref"] = "#/components/schemas/Error"
		}
	}
}

// relations returns whether rows of the resource in the path of the operation name refer to rows, have unique
// values, and are referred to.
func relations(name string) (refers, isUnique, isReferred bool) {
	path := strings.Split(name, "/")[1]
	for _, r := range resources() {
		for _, rule := range r.Model().Rules() {
			schema := rule.Schema()
			refers = refers || r.Name() == path && schema["x-references"] != nil
			isUnique = isUnique || r.Name() == path && schema["x-unique"] != nil
			isReferred = isReferred || schema["x-references"] == path
		}
	}
	return refers, isUnique, isReferred
}

// headers are the headers that operations share, with their statuses: the listed statuses or, after
// "!", all other statuses. The rate limits do not see requests that are rejected for their token.
var headers = []struct{ statuses, name, kind, description string }{
	{"!", middleware.RequestIDHeader, "string", "The id of the request: the client's, or a new one"},
	{"401 403", "WWW-Authenticate", "string", "The challenge (RFC 6750)"},
	{"429 503", "Retry-After", "integer", "Seconds to wait before the next attempt"},
	{"!401 403", "RateLimit", "string", "The remaining requests, if the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"},
	{"!401 403", "RateLimit-Policy", "string", "The limits"},
}

func header(kind, description string) object {
	return object{"description": description, "schema": object{"type": kind}}
}

// completeResponses adds the headers that operations share, and an example of each error
// code that the description of a response names.
func completeResponses(operation object) {
	examples := object{}
	for _, row := range controllers.ErrorTable() {
		examples[strconv.Itoa(int(row.Code))] = object{"value": object{"error": row.Code, "message": row.Example}}
	}
	for status := range at(operation, "responses") {
		response := at(operation, "responses", status)
		if content, ok := response["content"].(object); ok && content[controllers.TypeEvents] != nil {
			content[controllers.TypeEvents] = object{"schema": object{"type": "string"}}
			content[controllers.TypeCSV] = object{"schema": object{"type": "string"}}
		}
		for _, h := range headers {
			all := at(response, "headers")
			if all[h.name] == nil && strings.Contains(h.statuses, status) != strings.HasPrefix(h.statuses, "!") {
				all[h.name] = header(h.kind, h.description)
			}
		}
		for _, code := range regexp.MustCompile(`\b\d{5}\b`).FindAllString(response["description"].(string), -1) {
			if examples[code] == nil {
				log.Fatalf("%s: the table of errors has no code %s", operation["operationId"], code)
			}
			at(response, "content", controllers.TypeJSON, "examples")[code] = examples[code]
		}
	}
}
