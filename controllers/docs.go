package controllers

import (
	"bytes"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	swaggerfiles "github.com/swaggo/files/v2"
	ginswagger "github.com/swaggo/gin-swagger"
	"golang.org/x/net/webdav"

	"plantstore/docs"
)

// uiPath is the first page of Swagger UI.
const uiPath = "/swagger/index.html"

// uiPolicy is what a browser may do with Swagger UI: run and show what comes from
// here, and call the API. The library puts styles into its elements, and has its
// pictures in itself.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Docs serves the OpenAPI document and Swagger UI.
type Docs struct{ pages gin.HandlerFunc }

// NewDocs returns the handlers of the documentation.
func NewDocs() *Docs {
	// gin-swagger writes the pages that name the document. It would serve the
	// rest over WebDAV; [Docs.UI] serves that as what it is, files.
	return &Docs{pages: ginswagger.CustomWrapHandler(&ginswagger.Config{
		Title:                    "Plant Store",
		URL:                      "/openapi.json",
		DocExpansion:             "list",
		DeepLinking:              true,
		DefaultModelsExpandDepth: 1,
	}, &webdav.Handler{})}
}

// Home leads to Swagger UI.
func (*Docs) Home(c *gin.Context) { c.Redirect(http.StatusFound, uiPath) }

// whole takes away the conditions and ranges of a request for a file, whose refusals
// net/http would answer by itself, and not with an Error.
func whole(c *gin.Context) *http.Request {
	for _, header := range []string{"Range", "If-Range", "If-Match", "If-Unmodified-Since"} {
		c.Request.Header.Del(header)
	}
	return c.Request
}

// OpenAPI answers the OpenAPI 3.1 document.
func (*Docs) OpenAPI(c *gin.Context) {
	c.Header("Content-Type", "application/json")
	http.ServeContent(c.Writer, whole(c), "", time.Time{}, bytes.NewReader(docs.OpenAPI))
}

// UI answers the file of Swagger UI that the parameter file names.
func (d *Docs) UI(c *gin.Context) {
	name := strings.TrimPrefix(c.Param("file"), "/")
	switch name {
	case "index.html", "index.css", "swagger-initializer.js":
		c.Header("Content-Security-Policy", uiPolicy)
		d.page(c, name)
		return
	}
	if info, err := fs.Stat(swaggerfiles.FS, name); err != nil || info.IsDir() || strings.HasSuffix(name, ".map") {
		NoRoute(true)(c)
		return
	}
	c.Header("Cache-Control", "public, max-age=3600")
	http.ServeFileFS(c.Writer, whole(c), swaggerfiles.FS, name)
}

// page has gin-swagger write the page name. It looks for the name in the
// request's target, where a query or another folder would mislead it, and knows
// GET alone; for HEAD, net/http leaves the body out.
func (d *Docs) page(c *gin.Context, name string) {
	original := c.Request
	request := *original
	request.Method, request.RequestURI = http.MethodGet, "/swagger/"+name
	c.Request = &request
	d.pages(c)
	c.Request = original
}
