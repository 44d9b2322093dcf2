package controllers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"io/fs"
	"mime"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzip"
	"github.com/swaggest/swgui/v5/static"
	ginswagger "github.com/swaggo/gin-swagger"
	"golang.org/x/net/webdav"

	"plantstore/auth"
	"plantstore/docs"
	"plantstore/middleware"
)

// UIPath is the first page of Swagger UI.
const UIPath = "/swagger/index.html"

// uiPolicy lets a browser run and show the files served here, and call the API. Swagger
// UI adds styles to its elements and embeds its pictures.
const uiPolicy = "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; connect-src 'self'; " +
	"base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

// Docs serves the first page, the pages in Markdown, the OpenAPI document and Swagger UI, which has
// relative addresses only, so that it works behind any proxy.
type Docs struct {
	files     map[string]func() (*file, error) // by path; each is made at its first request
	redirects map[string]string                // by path
	signIn    *SignIn
	document  func() (*file, error) // while the endpoints of signIn are known
}

// SignIn is how people sign in on the page: as a public client of the issuer of JWTs, with PKCE (RFC 7636).
type SignIn struct {
	ClientID, Audience string
	Scopes             []string               // that the page asks for, with the issuer's names
	Endpoints          func() *auth.Endpoints // or nil, if they are unknown
}

// NewDocs returns the handlers of the documentation of the API at basePath. signIn may be nil.
func NewDocs(basePath string, signIn *SignIn) *Docs {
	d := &Docs{files: make(map[string]func() (*file, error)), signIn: signIn}
	// Relative locations also suit a proxy that has removed a prefix.
	d.redirects = map[string]string{"/swagger": strings.TrimPrefix(UIPath, "/"), "/swagger/": path.Base(UIPath)}
	add := func(folder string, read func(name string) ([]byte, error), names ...string) {
		for _, name := range names {
			d.files[folder+path.Base(name)] = made(name, read)
		}
	}
	document := docs.OpenAPI
	if basePath != "" {
		d.redirects["/swagger"] = basePath + UIPath
		document = bytes.Replace(document, []byte(`"url": "/"`), fmt.Appendf(nil, `"url": %q`, basePath), 1)
		document = bytes.ReplaceAll(document, []byte(`"url": "/docs/`), fmt.Appendf(nil, `"url": "%s/docs/`, basePath))
	}
	add("/", func(string) ([]byte, error) { return document, nil }, "openapi.json")
	d.document = made("openapi.json", func(string) ([]byte, error) { return signIn.extend(document), nil })
	d.files["/"] = made("ui/home.html", func(name string) ([]byte, error) {
		page, err := docs.Files.ReadFile(name)
		if basePath != "" { // a client may send it without a / after it, which relative addresses need
			page = bytes.ReplaceAll(page, []byte(`"./`), []byte(`"`+basePath+`/`))
		}
		return page, err
	})
	pages, _ := fs.Glob(docs.Files, "*.md") // the pattern is valid
	add("/docs/", docs.Files.ReadFile, append(pages, "ui/home.css", "ui/home.js")...)
	add("/swagger/", docs.Files.ReadFile, "ui/index.css", "ui/swagger-ui-standalone-preset.js")
	add("/swagger/", static.FS.ReadFile, "favicon-16x16.png", "favicon-32x32.png")
	add("/swagger/", unzip, "swagger-ui.css", "swagger-ui-bundle.js")
	add("/swagger/", readPage, "index.html", "swagger-initializer.js")
	if signIn != nil {
		add("/swagger/", unzip, "oauth2-redirect.html", "oauth2-redirect.js")
	}
	return d
}

// made returns a function that makes the file called name of what read returns, at its first call.
func made(name string, read func(name string) ([]byte, error)) func() (*file, error) {
	return sync.OnceValues(func() (*file, error) {
		content, err := read(name)
		hash := sha256.Sum256(content)
		mediaType := mime.TypeByExtension(path.Ext(name))
		if path.Ext(name) == ".md" { // which browsers would only offer to save
			mediaType = "text/plain; charset=utf-8"
		}
		// Weak, since it stands for both forms (RFC 9110, section 8.8.1).
		return &file{mediaType, fmt.Sprintf(`W/"%x"`, hash[:8]), content, compress(content)}, err
	})
}

// File serves the file at the path of c's request, compressed for clients that accept that, or with 304 to clients that
// have it, or redirects to Swagger UI.
func (d *Docs) File(c *gin.Context) error {
	at := c.Request.URL.Path
	if location := d.redirects[at]; location != "" {
		c.Header("Location", location)
		c.Status(http.StatusFound)
		return nil
	}
	open, policy := d.files[at], uiPolicy
	if open == nil {
		return NoRoute(true)(c)
	}
	if s := d.signIn; s != nil && at != "/" && s.Endpoints() != nil { // the first page has no sign-in
		token, _, _ := strings.Cut(s.Endpoints().Token, "?") // a policy has no queries
		policy = strings.Replace(policy, "connect-src 'self'", "connect-src 'self' "+token, 1)
		if at == "/openapi.json" {
			open = d.document
		}
	}
	f, err := open()
	if err != nil {
		return err
	}
	isGzip := acceptsGzip(c) && len(f.plain) >= gzipFrom // which sets Vary, also in a 304
	if strings.HasPrefix(f.mediaType, "text/html") {     // also in a 304, which updates what the client keeps
		c.Header("Content-Security-Policy", policy)
	}
	if unchanged, err := setVersion(c, f.version); err != nil || unchanged {
		return err
	}
	body := f.plain
	if isGzip {
		c.Header("Content-Encoding", "gzip")
		body = f.gzipped
	}
	defer middleware.Moved(c, int64(len(body))) // the request needs no token
	return send(c, http.StatusOK, f.mediaType, body)
}

type file struct {
	mediaType, version string
	plain, gzipped     []byte
}

// extend returns document with the scheme OAuth2 beside the bearer scheme. Redocly knows its extensions, too.
func (s *SignIn) extend(document []byte) []byte {
	const bearer = "\"type\": \"http\"\n      }" // the end of the scheme
	e, scopes := s.Endpoints(), make([]string, len(s.Scopes))
	document = regexp.MustCompile(`\{\s*"BearerAuth": \[[^\]]*\]\s*\}`).ReplaceAll(document, []byte(`$0, {"OAuth2": []}`))
	for i, scope := range s.Scopes {
		scopes[i] = fmt.Sprintf(`%q: ""`, scope)
		required := regexp.MustCompile(`("` + regexp.QuoteMeta(path.Base(scope)) + `"\s*\]\s*\}, \{"OAuth2": \[)\]`) // Entra and Cognito write a URL before it
		document = required.ReplaceAll(document, fmt.Appendf(nil, `${1}%q]`, scope))
	}
	base, query, _ := strings.Cut(e.Authorization, "?")
	// Auth0 needs the audience; issuers ignore unknown parameters (RFC 6749, section 3.1).
	base = strings.TrimSuffix(base+"?audience="+url.QueryEscape(s.Audience)+"&"+query, "&")
	scheme := fmt.Appendf([]byte(bearer), `,
      "OAuth2": {
        "description": "Sign in at the identity provider, which opens in another tab, instead of pasting a token.",
        "flows": {"authorizationCode": {"authorizationUrl": %q, "scopes": {%s}, "tokenUrl": %q, "x-defaultClientId": %q, "x-usePkce": true}},
        "type": "oauth2"
      }`, base, strings.Join(scopes, ", "), e.Token, s.ClientID)
	return bytes.Replace(document, []byte(bearer), scheme, 1)
}

// readPage returns the page called name that gin-swagger writes. It names the document; gin-swagger
// would serve other files over WebDAV.
func readPage(name string) ([]byte, error) {
	e, page := gin.New(), httptest.NewRecorder()
	e.GET("/:name", ginswagger.CustomWrapHandler(&ginswagger.Config{
		Title:                    "Plant Store",
		URL:                      "../openapi.json",
		DocExpansion:             "list",
		DeepLinking:              true,
		DefaultModelsExpandDepth: 1,
		PersistAuthorization:     true,
	}, &webdav.Handler{}))
	e.ServeHTTP(page, &http.Request{Method: http.MethodGet, URL: &url.URL{Path: "/" + name}, RequestURI: "/" + name})
	return page.Body.Bytes(), nil
}

// unzip returns a script or a style of Swagger UI.
func unzip(name string) ([]byte, error) {
	compressed, err := static.FS.ReadFile(name + ".gz")
	if err != nil {
		return nil, err
	}
	file, err := gzip.NewReader(bytes.NewReader(compressed))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(file)
}
