// Package docs holds the generated documents that are part of the program. docs/gen writes
// them: make docs.
package docs

import _ "embed"

// OpenAPI is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte

// Licenses are the licenses of all that is linked into the program.
//
//go:embed licenses.txt
var Licenses string
