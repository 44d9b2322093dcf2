// Package docs holds the OpenAPI document, which swag writes from the
// annotations in main.go and controllers: make docs.
package docs

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte
