// Package docs holds the OpenAPI document. docs/gen writes it: make docs.
package docs

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte
