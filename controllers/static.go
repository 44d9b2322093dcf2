package controllers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"maps"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
)

// Static keeps the response of h for each path, which must not depend on anything else. It
// is compressed for clients that accept that, and 304 for those that have it.
func Static(h middleware.Handler) middleware.Handler {
	var files sync.Map // by path: few have a response with status 200
	return func(c *gin.Context) error {
		known, ok := files.Load(c.Request.URL.Path)
		if !ok {
			r, err := record(c, h)
			if err != nil {
				return err
			}
			if r.status != http.StatusOK {
				maps.Copy(c.Writer.Header(), r.header)
				c.Status(r.status)
				_, err := c.Writer.Write(r.body.Bytes())
				return err
			}
			known, _ = files.LoadOrStore(c.Request.URL.Path, newFile(r))
		}
		return known.(*file).respond(c)
	}
}

// file is a response that does not change.
type file struct {
	header         http.Header
	version        string
	plain, gzipped []byte // the latter is nil if it is not smaller
}

func newFile(r *recorder) *file {
	hash := sha256.Sum256(r.body.Bytes())
	// Weak, since it stands for both forms (RFC 9110, section 8.8.1).
	f := &file{header: r.header, version: fmt.Sprintf(`W/"%x"`, hash[:8]), plain: r.body.Bytes()}
	for _, name := range []string{"Accept-Ranges", "Cache-Control", "Content-Length", "Vary"} { // there are no ranges; respond sets the others
		f.header.Del(name)
	}
	if gzipped := compress(f.plain); len(f.plain) >= gzipFrom && len(gzipped) < len(f.plain) {
		f.gzipped = gzipped
	}
	return f
}

func (f *file) respond(c *gin.Context) error {
	header, body := c.Writer.Header(), f.plain
	gzipped := f.gzipped != nil && acceptsGzip(c)
	unchanged, err := setVersion(c, f.version)
	if err != nil {
		return err
	}
	maps.Copy(header, f.header) // a 304 updates those that the client keeps, such as the policy
	if unchanged {
		header.Del("Content-Type")
		return nil
	}
	if gzipped {
		header.Set("Content-Encoding", "gzip")
		body = f.gzipped
	}
	return send(c, http.StatusOK, header.Get("Content-Type"), body)
}

// record returns the response of h to an unconditional GET.
func record(c *gin.Context, h middleware.Handler) (*recorder, error) {
	writer, request := c.Writer, c.Request
	defer func() { c.Writer, c.Request = writer, request }()
	get := *request
	get.Method, get.Header = http.MethodGet, make(http.Header)
	r := &recorder{ResponseWriter: writer, header: make(http.Header), status: http.StatusOK}
	c.Writer, c.Request = r, &get
	return r, h(c)
}

// recorder keeps a response.
type recorder struct {
	gin.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

func (r *recorder) Header() http.Header { return r.header }

func (r *recorder) WriteHeader(status int) { r.status = status }

func (r *recorder) WriteHeaderNow() {}

func (r *recorder) Write(p []byte) (int, error) { return r.body.Write(p) }

func (r *recorder) WriteString(s string) (int, error) { return r.body.WriteString(s) }
