// Package docs holds the generated documents that are part of the program, which docs/gen
// writes (make docs), the pages for people, the first page, and our part of Swagger UI.
package docs

import "embed"

// OpenAPI is the OpenAPI 3.1 document, in JSON.
//
//go:embed openapi.json
var OpenAPI []byte

// Files has the pages in Markdown; in ui, it has the first page, and the style and the layout of Swagger UI.
//
//go:embed *.md ui
var Files embed.FS
