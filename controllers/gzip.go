package controllers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/gzip"
)

// gzipFrom is the size from which a response is compressed, in bytes: a smaller response fits into a packet.
const gzipFrom = 1 << 10

// gzipWriters keeps compressors, which take a megabyte each.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, 2) // takes half the time of the default for a page, which gets no larger
	return w
}}

// acceptsGzip reports whether the client likes a compressed response at least as much as a plain
// response (RFC 9110, section 12.5.3). It tells caches that the response depends on that.
func acceptsGzip(c *gin.Context) bool {
	c.Writer.Header().Add("Vary", "Accept-Encoding") // CORS adds Origin
	accept := c.Request.Header["Accept-Encoding"]
	gzipped, plain := matchOf(accept, "gzip").quality, matchOf(accept, "identity").quality
	return gzipped > 0 && gzipped >= plain
}

// compress returns body compressed, all at once: a compressor for as long as the client
// reads would let many slow clients take much memory.
func compress(body []byte) []byte {
	var out bytes.Buffer
	w := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(w)
	w.Reset(&out)
	_, _ = w.Write(body) // a bytes.Buffer does not fail
	_ = w.Close()
	return out.Bytes()
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
