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

// uiPolicy lets a browser run and show the files served here, and call the API. Swagger
// UI adds styles to its elements and embeds its pictures.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Docs serves the OpenAPI document and Swagger UI.
type Docs struct{ pages gin.HandlerFunc }

// NewDocs returns the handlers of the documentation.
func NewDocs() *Docs {
	// gin-swagger writes the pages that name the document. It would serve the other
	// files over WebDAV; [Docs.UI] serves them as files.
	return &Docs{pages: ginswagger.CustomWrapHandler(&ginswagger.Config{
		Title:                    "Plant Store",
		URL:                      "/openapi.json",
		DocExpansion:             "list",
		DeepLinking:              true,
		DefaultModelsExpandDepth: 1,
	}, &webdav.Handler{})}
}

// Home redirects to Swagger UI.
func (*Docs) Home(c *gin.Context) error {
	c.Redirect(http.StatusFound, uiPath)
	return nil
}

// unconditional removes the headers of a request for a file that net/http would reject
// by itself, without an Error.
func unconditional(r *http.Request) *http.Request {
	for _, header := range []string{"Range", "If-Range", "If-Match", "If-Unmodified-Since"} {
		r.Header.Del(header)
	}
	return r
}

// OpenAPI serves the OpenAPI 3.1 document.
func (*Docs) OpenAPI(c *gin.Context) error {
	c.Header("Content-Type", typeJSON)
	http.ServeContent(c.Writer, unconditional(c.Request), "", time.Time{}, bytes.NewReader(docs.OpenAPI))
	return nil
}

// UI serves the file of Swagger UI that the parameter file names.
func (d *Docs) UI(c *gin.Context) error {
	name := strings.TrimPrefix(c.Param("file"), "/")
	switch name {
	case "index.html", "index.css", "swagger-initializer.js":
		c.Header("Content-Security-Policy", uiPolicy)
		d.page(c, name)
		return nil
	}
	if info, err := fs.Stat(swaggerfiles.FS, name); err != nil || info.IsDir() || strings.HasSuffix(name, ".map") {
		return NoRoute(true)(c)
	}
	c.Header("Cache-Control", "public, max-age=3600")
	http.ServeFileFS(c.Writer, unconditional(c.Request), swaggerfiles.FS, name)
	return nil
}

// page writes the page name with gin-swagger, which reads the name from the request's
// target, in which a query would mislead it, and serves GET only; for HEAD, net/http drops
// the body.
func (d *Docs) page(c *gin.Context, name string) {
	original := c.Request
	request := *original
	request.Method, request.RequestURI = http.MethodGet, "/swagger/"+name
	c.Request = &request
	d.pages(c)
	c.Request = original
}
