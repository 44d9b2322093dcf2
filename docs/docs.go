// Package docs holds the generated documents that are part of the program, which docs/gen
// writes (make docs), and our part of the page that shows the OpenAPI document.
package docs

import "embed"

// OpenAPI is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte

// UI has the style and the layout of Swagger UI.
//
//go:embed ui
var UI embed.FS
