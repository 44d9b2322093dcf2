package controllers

import (
	"bufio"
	"errors"
	"io"
	"iter"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzip"

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

// MaxRatio is how many times as large as its compressed form a body of more than RatioFrom bytes may
// be. Plants reach 10 to 30; a megabyte of gzip can be a gigabyte, which takes a minute to read.
const (
	MaxRatio  = 100
	RatioFrom = 1 << 20
)

// gunzipBody is the content of a compressed body.
type gunzipBody struct {
	io.ReadCloser              // the compressed body
	content       *gzip.Reader // nil before the first read
	in, out       int64        // bytes that were read
	inErr         error        // of the compressed body, other than io.EOF
}

// compressedBody is the compressed form of a gunzipBody, which counts its bytes.
type compressedBody struct{ *gunzipBody }

func (b compressedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.in += int64(n)
	if !errors.Is(err, io.EOF) {
		b.inErr = err
	}
	return n, err
}

func (b *gunzipBody) Read(p []byte) (n int, err error) {
	if b.content == nil {
		b.content, err = gzip.NewReader(bufio.NewReader(compressedBody{b}))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil {
		n, err = b.content.Read(p)
	}
	b.out += int64(n)
	switch {
	case b.out > RatioFrom && b.out > MaxRatio*b.in:
		return 0, problemf(codeBodyTooLarge, "the body is more than %d times as large as its compressed form: send it uncompressed", MaxRatio)
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case b.inErr != nil:
		return n, b.inErr
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, problemf(codeMalformed, "the gzip data of the body ends early: compress the file again, and send all of it")
	}
	return n, problemf(codeMalformed, "the body is damaged, or is not gzip as its Content-Encoding says")
}
