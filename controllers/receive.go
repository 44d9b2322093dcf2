package controllers

import (
	"io"
	"iter"
	"net/http"
	"runtime"
	"strings"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// parsers limits how many imports parse rows at a time, so that other requests have a processor:
// a compressed file of a megabyte may have millions of rows.
type parsers chan struct{}

// parsersKey is the key of the parsers in a request's context.
type parsersKey struct{}

// Receive prepares the bodies of imports, which share half of the processors: an import holds a
// parser while it decompresses and parses, but not while it receives. With Content-Encoding: gzip, a
// body may have up to limit bytes of content.
func Receive(limit int64) middleware.Handler {
	all := make(parsers, max(runtime.GOMAXPROCS(0)/2, 1))
	return func(c *gin.Context) error {
		c.Set(parsersKey{}, all)
		c.Request.Body = received{c.Request.Body, all}
		codings := c.Request.Header["Content-Encoding"]
		switch {
		case isPlain(codings):
			return nil
		case len(codings) > 1 || !strings.EqualFold(codings[0], "gzip"):
			c.Header("Accept-Encoding", "gzip") // RFC 9110, section 12.5.3
			return problemf(codeContentType, "Content-Encoding must be gzip, or absent")
		}
		c.Request.Header.Del("Content-Encoding")
		body := &gunzipBody{ReadCloser: c.Request.Body}
		c.Request.Body = http.MaxBytesReader(c.Writer, body, limit)
		return nil
	}
}

// inTurn returns rows, which are parsed while c's request holds a parser: its route has [Receive].
func inTurn[T any](c *gin.Context, rows iter.Seq2[models.ImportRow[T], error]) iter.Seq2[models.ImportRow[T], error] {
	all := c.MustGet(parsersKey{}).(parsers)
	return func(yield func(models.ImportRow[T], error) bool) {
		all <- struct{}{}
		defer func() { <-all }()
		rows(yield)
	}
}

// received is the body of an import that holds a parser, except while it waits for the client.
type received struct {
	io.ReadCloser
	parsers parsers
}

func (r received) Read(p []byte) (int, error) {
	<-r.parsers
	defer func() { r.parsers <- struct{}{} }()
	return r.ReadCloser.Read(p)
}
