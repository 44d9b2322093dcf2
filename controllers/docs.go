package controllers

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzip"
	"github.com/swaggest/swgui/v5/static"
	ginswagger "github.com/swaggo/gin-swagger"
	"golang.org/x/net/webdav"

	"plantstore/docs"
	"plantstore/middleware"
)

// UIPath is the first page of Swagger UI.
const UIPath = "/swagger/index.html"

// uiPolicy lets a browser run and show the files served here, and call the API. Swagger
// UI adds styles to its elements and embeds its pictures.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Docs serves the OpenAPI document and Swagger UI, by way of [Static]. The page has relative
// addresses only, so that it works behind any proxy.
type Docs struct {
	document []byte
	pages    gin.HandlerFunc
}

// NewDocs returns the handlers of the documentation of the API at basePath.
func NewDocs(basePath string) *Docs {
	document := docs.OpenAPI
	if basePath != "" {
		document = bytes.Replace(document, []byte(`"url": "/"`), fmt.Appendf(nil, `"url": %q`, basePath), 1)
	}
	// gin-swagger writes the pages that name the document. It would serve the other
	// files over WebDAV; [Docs.UI] serves them as files.
	return &Docs{document, ginswagger.CustomWrapHandler(&ginswagger.Config{
		Title:                    "Plant Store",
		URL:                      "../openapi.json",
		DocExpansion:             "list",
		DeepLinking:              true,
		DefaultModelsExpandDepth: 1,
		PersistAuthorization:     true,
	}, &webdav.Handler{})}
}

// Home redirects to Swagger UI. Its path has at most one segment, but a client may have sent the
// base path alone, without a / after it.
func (*Docs) Home(c *gin.Context) error {
	location := middleware.ClientPath(c, UIPath)
	if location == UIPath { // no base path is set, but a proxy may have removed one
		location = strings.TrimPrefix(UIPath, "/")
	}
	c.Header("Location", location)
	c.Status(http.StatusFound)
	return nil
}

// OpenAPI serves the OpenAPI 3.1 document.
func (d *Docs) OpenAPI(c *gin.Context) error {
	return send(c, http.StatusOK, TypeJSON, d.document)
}

// UI serves the file of Swagger UI that the parameter file names: one that the page needs.
func (d *Docs) UI(c *gin.Context) error {
	switch name := strings.TrimPrefix(c.Param("file"), "/"); name {
	case "":
		c.Header("Location", "index.html")
		c.Status(http.StatusFound)
	case "index.html", "swagger-initializer.js":
		c.Header("Content-Security-Policy", uiPolicy)
		d.page(c, name)
	case "index.css", "swagger-ui-standalone-preset.js": // instead of those that gin-swagger's page expects
		http.ServeFileFS(c.Writer, c.Request, docs.UI, "ui/"+name)
	case "favicon-16x16.png", "favicon-32x32.png":
		http.ServeFileFS(c.Writer, c.Request, static.FS, name)
	case "swagger-ui.css", "swagger-ui-bundle.js":
		content, err := UIFile(name)
		if err != nil {
			return err
		}
		http.ServeContent(c.Writer, c.Request, name, time.Time{}, bytes.NewReader(content))
	default:
		return NoRoute(true)(c)
	}
	return nil
}

// UIFile returns a script or a style of Swagger UI.
func UIFile(name string) ([]byte, error) {
	compressed, err := fs.ReadFile(static.FS, name+".gz")
	if err != nil {
		return nil, err
	}
	file, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}

// page writes the page name with gin-swagger, which reads the name from the request's
// target, in which a query would mislead it.
func (d *Docs) page(c *gin.Context, name string) {
	original := c.Request
	request := *original
	request.RequestURI = "/swagger/" + name
	c.Request = &request
	d.pages(c)
	c.Request = original
}
