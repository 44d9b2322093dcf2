package controllers

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// gzipFrom is the size from which a response is compressed, in bytes: a smaller one fits
// into one packet as it is.
const gzipFrom = 1 << 10

// gzipWriters keeps compressors, which take a megabyte each, for responses that need one
// for a moment.
var gzipWriters = sync.Pool{New: func() any { return gzip.NewWriter(nil) }}

// acceptsGzip reports whether the client accepts a compressed response, and prefers it at
// least as much as a plain one (RFC 9110, section 12.5.3). It tells caches that the response
// depends on that.
func acceptsGzip(c *gin.Context) bool {
	c.Writer.Header().Add("Vary", "Accept-Encoding") // CORS adds Origin
	list := strings.ToLower(strings.Join(c.Request.Header["Accept-Encoding"], ","))
	accept := []string{strings.ReplaceAll(list, "x-gzip", "gzip")} // which are the same: section 8.4.1.3
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

// gzipStream compresses a response while it is written, unless the first part, which is
// then all of it, is small. Only a response that is complete may be closed: without that,
// the client sees that the rest is missing.
type gzipStream struct {
	c     *gin.Context
	begun bool
	gzip  *gzip.Writer // nil if the response is not compressed
}

func (s *gzipStream) Write(p []byte) (int, error) {
	if !s.begun && len(p) >= gzipFrom {
		s.c.Header("Content-Encoding", "gzip")
		s.gzip = gzip.NewWriter(s.c.Writer)
	}
	s.begun = true
	if s.gzip == nil {
		return s.c.Writer.Write(p)
	}
	return s.gzip.Write(p)
}

func (s *gzipStream) close() error {
	if s.gzip == nil {
		return nil
	}
	return s.gzip.Close()
}

// MaxRatio is how many times as large as its compressed form a body of more than RatioFrom bytes may be.
// Plants are compressed to a tenth, or a thirtieth if they are alike; a megabyte of gzip
// can be a gigabyte, which takes a minute to read.
const (
	MaxRatio  = 100
	RatioFrom = 1 << 20
)

// gunzipBody is the content of a compressed body, of one or more members (RFC 1952, section 2.2).
type gunzipBody struct {
	io.ReadCloser
	from    *bufio.Reader // the compressed body; nil before the first read
	content *gzip.Reader  // a member
	in, out int64         // bytes that were read
	ended   bool          // the compressed body, where it should
}

// compressedBody is the compressed form of a gunzipBody, which counts it.
type compressedBody struct{ *gunzipBody }

func (b compressedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.in += int64(n)
	b.ended = err == io.EOF
	return n, err
}

func (b *gunzipBody) Read(p []byte) (n int, err error) {
	if b.from == nil {
		b.from, b.content = bufio.NewReader(compressedBody{b}), new(gzip.Reader)
		err = b.nextMember()
	}
	for n == 0 && err == nil {
		n, err = b.content.Read(p)
		if err == io.EOF { //nolint:errorlint // as an io.Reader returns it: the end of a member
			if err = b.skipZeros(); err == nil {
				err = b.nextMember()
			}
		}
	}
	if b.out += int64(n); b.out > RatioFrom && b.out > MaxRatio*b.in {
		return 0, errRatio
	}
	if _, corrupt := errors.AsType[flate.CorruptInputError](err); corrupt || errors.Is(err, gzip.ErrHeader) || errors.Is(err, gzip.ErrChecksum) {
		err = errNotGzip
	}
	if b.ended && errors.Is(err, io.ErrUnexpectedEOF) {
		err = errPartOfGzip
		if b.in == 0 {
			err = errNoGzip
		}
	}
	return n, err
}

// skipZeros skips zeros behind a member, which tapes have, and gzip -d ignores, too. It returns
// io.EOF if nothing else is left.
func (b *gunzipBody) skipZeros() error {
	for {
		if next, err := b.from.ReadByte(); err != nil {
			return err
		} else if next != 0 {
			return b.from.UnreadByte()
		}
	}
}

// nextMember begins the next member. The reader alone would take a body that breaks off in
// the name of a file for complete.
func (b *gunzipBody) nextMember() error {
	err := b.content.Reset(b.from)
	b.content.Multistream(false)
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return err
}

var (
	errNotGzip    = problemf(codeMalformed, "the body is damaged, or is not gzip as its Content-Encoding says")
	errNoGzip     = problemf(codeMalformed, "the body is empty, and not gzip as its Content-Encoding says")
	errPartOfGzip = problemf(codeMalformed, "the gzip data of the body ends early, or has bytes after its end: compress the file again, and send all of it")
	errRatio      = problemf(codeBodyTooLarge, "the body is more than %d times as large as its compressed form: send it uncompressed", MaxRatio)
)
