package controllers

import (
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"

	"plantstore/database/limit"
	"plantstore/middleware"
	"plantstore/models"
)

// Receive prepares the bodies of imports. With Content-Encoding: gzip, a body may have up to bytes of
// content: a compressed file of a megabyte may have millions of rows.
func Receive(bytes int64) middleware.Handler {
	return func(c *gin.Context) error {
		c.Request.Body = received{c.Request.Body, middleware.TurnOf(c)}
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
		c.Request.Body = http.MaxBytesReader(c.Writer, body, bytes)
		return nil
	}
}

// rowsInTurn is how many rows an import parses before other requests have a turn.
const rowsInTurn = 64

// inTurn returns rows, which are parsed in turns of c's client.
func inTurn[T any](c *gin.Context, rows iter.Seq2[models.ImportRow[T], error]) iter.Seq2[models.ImportRow[T], error] {
	turn := middleware.TurnOf(c)
	return func(yield func(models.ImportRow[T], error) bool) {
		turn.Take()
		defer turn.Give()
		n := 0
		for row, err := range rows {
			if !yield(row, err) {
				return
			}
			if n++; n%rowsInTurn == 0 {
				turn.Give()
				turn.Take()
			}
		}
	}
}

// received is the body of an import that is parsed in a turn, which it gives back while it waits for the client.
type received struct {
	io.ReadCloser
	turn *limit.Turn
}

func (r received) Read(p []byte) (int, error) {
	r.turn.Give()
	defer r.turn.Take()
	return r.ReadCloser.Read(p)
}
