package controllers

import (
	"bufio"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzip"

	"plantstore/database/limit"
	"plantstore/middleware"
)

// Receive prepares the bodies of imports. With Content-Encoding: gzip, a body may have up to bytes of
// content: a compressed file of a megabyte may have millions of rows.
func Receive(bytes int64) middleware.Handler {
	return func(c *gin.Context) error {
		body := &received{ReadCloser: c.Request.Body, turn: middleware.TurnOf(c)}
		c.Request.Body = body
		codings := c.Request.Header["Content-Encoding"]
		switch {
		case isPlain(codings):
			return nil
		case len(codings) > 1 || !strings.EqualFold(codings[0], "gzip"):
			c.Header("Accept-Encoding", "gzip") // RFC 9110, section 12.5.3
			return problemf(codeContentType, "Content-Encoding must be gzip, or absent")
		}
		c.Request.Header.Del("Content-Encoding")
		c.Request.Body = http.MaxBytesReader(c.Writer, &gunzipBody{received: body}, bytes)
		return nil
	}
}

// received is the body of an import as the client sends it. The body is parsed in a turn, which received gives back while
// it waits for the client.
type received struct {
	io.ReadCloser
	turn *limit.Turn
	size int64 // bytes that were read
	err  error // other than io.EOF
}

func (r *received) Read(p []byte) (int, error) {
	r.turn.Give()
	defer r.turn.Take()
	n, err := r.ReadCloser.Read(p)
	r.size += int64(n)
	if !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}

// MaxRatio is how many times as large as its compressed form a body of more than RatioFrom bytes may
// be. Plants reach 10 to 30; a megabyte of gzip can be a gigabyte, which takes a minute to read.
const (
	MaxRatio  = 100
	RatioFrom = 1 << 20
)

// gunzipBody is the content of a compressed body.
type gunzipBody struct {
	*received              // the compressed body
	content   *gzip.Reader // nil before the first read
	out       int64        // bytes of the content that were read
}

func (b *gunzipBody) Read(p []byte) (n int, err error) {
	if b.content == nil {
		b.content, err = gzip.NewReader(bufio.NewReader(b.received))
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
	}
	if err == nil {
		n, err = b.content.Read(p)
	}
	b.out += int64(n)
	switch {
	case b.out > RatioFrom && b.out > MaxRatio*b.size:
		return 0, problemf(codeBodyTooLarge, "the body is more than %d times as large as its compressed form: send it uncompressed", MaxRatio)
	case err == nil || errors.Is(err, io.EOF):
		return n, err
	case b.err != nil:
		return n, b.err
	case errors.Is(err, io.ErrUnexpectedEOF):
		return n, problemf(codeMalformed, "the gzip data of the body ends early: compress the file again, and send all of it")
	}
	return n, problemf(codeMalformed, "the body is damaged, or is not gzip as its Content-Encoding says")
}
