package controllers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/url"
	"path"
	"strings"
	"sync"

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

// Docs serves the OpenAPI document and Swagger UI. The page has relative addresses only, so that it
// works behind any proxy.
type Docs struct {
	files map[string]func() (*file, error) // by path; each is made at its first request
}

// NewDocs returns the handlers of the documentation of the API at basePath.
func NewDocs(basePath string) *Docs {
	d := &Docs{make(map[string]func() (*file, error))}
	d.files["/openapi.json"] = sync.OnceValues(func() (*file, error) {
		document := docs.OpenAPI
		if basePath != "" {
			document = bytes.Replace(document, []byte(`"url": "/"`), fmt.Appendf(nil, `"url": %q`, basePath), 1)
		}
		return newFile(TypeJSON, document), nil
	})
	for _, name := range []string{"index.html", "swagger-initializer.js"} {
		d.files["/swagger/"+name] = sync.OnceValues(func() (*file, error) { return newPage(name), nil })
	}
	for name, read := range map[string]func(string) ([]byte, error){
		"ui/index.css": docs.UI.ReadFile, "ui/swagger-ui-standalone-preset.js": docs.UI.ReadFile,
		"favicon-16x16.png": static.FS.ReadFile, "favicon-32x32.png": static.FS.ReadFile,
		"swagger-ui.css": UIFile, "swagger-ui-bundle.js": UIFile,
	} {
		d.files["/swagger/"+path.Base(name)] = sync.OnceValues(func() (*file, error) {
			content, err := read(name)
			if err != nil {
				return nil, err
			}
			return newFile(mime.TypeByExtension(path.Ext(name)), content), nil
		})
	}
	return d
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

// File serves the file at the path of c's request.
func (d *Docs) File(c *gin.Context) error {
	if load, ok := d.files[c.Request.URL.Path]; ok {
		file, err := load()
		if err != nil {
			return err
		}
		return file.respond(c)
	}
	if c.Param("file") == "/" {
		c.Header("Location", "index.html")
		c.Status(http.StatusFound)
		return nil
	}
	return NoRoute(true)(c)
}

// file is a response that does not change.
type file struct {
	mediaType, version string
	policy             string // instead of the usual Content-Security-Policy, unless empty
	plain, gzipped     []byte // the latter is nil if it is not smaller
}

func newFile(mediaType string, content []byte) *file {
	hash := sha256.Sum256(content)
	// Weak, since it stands for both forms (RFC 9110, section 8.8.1).
	f := &file{mediaType: mediaType, version: fmt.Sprintf(`W/"%x"`, hash[:8]), plain: content}
	if gzipped := compress(content); len(content) >= gzipFrom && len(gzipped) < len(content) {
		f.gzipped = gzipped
	}
	return f
}

// respond responds with the file, compressed for clients that accept that, or with 304 to clients
// that have it.
func (f *file) respond(c *gin.Context) error {
	gzipped := f.gzipped != nil && acceptsGzip(c)
	unchanged, err := setVersion(c, f.version)
	if err != nil {
		return err
	}
	if f.policy != "" { // also in a 304, which updates what the client keeps
		c.Header("Content-Security-Policy", f.policy)
	}
	switch {
	case unchanged:
		return nil
	case gzipped:
		c.Header("Content-Encoding", "gzip")
		return send(c, http.StatusOK, f.mediaType, f.gzipped)
	default:
		return send(c, http.StatusOK, f.mediaType, f.plain)
	}
}

// newPage returns the page called name that gin-swagger writes. It names the document; gin-swagger
// would serve other files over WebDAV.
func newPage(name string) *file {
	e, page := gin.New(), recorder{header: make(http.Header)}
	e.GET("/:name", ginswagger.CustomWrapHandler(&ginswagger.Config{
		Title:                    "Plant Store",
		URL:                      "../openapi.json",
		DocExpansion:             "list",
		DeepLinking:              true,
		DefaultModelsExpandDepth: 1,
		PersistAuthorization:     true,
	}, &webdav.Handler{}))
	e.ServeHTTP(&page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/" + name}, RequestURI: "/" + name})
	f := newFile(page.header.Get("Content-Type"), page.Bytes())
	f.policy = uiPolicy
	return f
}

// recorder keeps a response.
type recorder struct {
	header http.Header
	bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(int) {}

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
