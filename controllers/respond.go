package controllers

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"net/http"
	"strconv"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"

	"plantstore/middleware"
	"plantstore/models"
)

// asJSON are the options of all JSON. U+2028 and U+2029 are escaped, as some clients take them for the end of
// a line.
var asJSON = []json.Options{jsontext.EscapeForJS(true)}

// respond writes v as JSON. Text is not escaped for HTML.
func respond(c *gin.Context, status int, v any) error {
	buffer := middleware.Buffer(c)
	if err := json.MarshalWrite(buffer, v, asJSON...); err != nil {
		return fmt.Errorf("encode the response: %w", err)
	}
	return send(c, status, TypeJSON, buffer.Bytes())
}

func send(c *gin.Context, status int, mediaType string, body []byte) error {
	middleware.SetHeader(c, "Content-Type", mediaType)
	middleware.SetHeader(c, "Content-Length", strconv.Itoa(len(body)))
	c.Status(status)
	_, err := c.Writer.Write(body)
	return err
}

// respondPage writes the first q.limit items, compressed for clients that accept it. If
// there are more, Link names the next page: the same path and query, with the parameter after for the
// last item. ETag is a hash of the page.
func respondPage[T any](c *gin.Context, q pageQuery, items []T, after func(last int) string) error {
	if len(items) > q.limit {
		items = items[:q.limit]
		setNext(c, q, after(q.limit-1))
	}
	return sendRows(c, len(items), func() (body []byte, err error) {
		if body, err = json.Marshal(items, asJSON...); err != nil { // c's buffer would have to grow
			return nil, fmt.Errorf("encode the page: %w", err)
		}
		headers, sum := c.Writer.Header(), sha256.New()
		_, _ = sum.Write(body) // never fails
		_, _ = fmt.Fprintf(sum, "%s %s", headers.Get("Link"), headers.Get("X-Total-Count"))
		unchanged, err := setVersion(c, fmt.Sprintf(`W/"%x"`, sum.Sum(nil)[:10])) // weak: also of the compressed form
		if unchanged {
			return nil, err
		}
		return body, err
	})
}

// setNext sets Link to the page after a place.
func setNext(c *gin.Context, q pageQuery, after string) {
	q.Set("after", after)
	c.Header("Link", "<"+middleware.ClientPath(c, c.Request.URL.Path)+"?"+q.Encode()+`>; rel="next"`)
}

// sendRows writes a body in JSON that encode returns, compressed for clients that accept it, unless the body is nil. Its
// rows count towards the rate of requests.
func sendRows(c *gin.Context, rows int, encode func() ([]byte, error)) (err error) {
	var body []byte
	zipped := acceptsGzip(c)
	prepare := func() error {
		if body, err = encode(); err != nil {
			return err
		}
		if zipped = zipped && len(body) >= gzipFrom; zipped {
			body = compress(body)
		}
		return nil
	}
	if rows > models.LargePage {
		err = middleware.Compute(c, prepare)
	} else {
		err = prepare()
	}
	if err != nil {
		return err
	}
	middleware.CountRows(c, rows)
	if body == nil {
		return nil
	}
	if zipped {
		c.Header("Content-Encoding", "gzip")
	}
	return send(c, http.StatusOK, TypeJSON, body)
}

// gzipFrom is the size from which a response is compressed, in bytes: a smaller response fits into a packet.
const gzipFrom = 1 << 10

// gzipWriters keeps compressors, which take a megabyte each.
var gzipWriters = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, 2) // takes half the time of the default for a page, which gets no larger
	return w
}}

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

// mapAll returns convert of each item.
func mapAll[A, B any](items []A, convert func(*A) B) []B {
	converted := make([]B, len(items))
	for i := range items {
		converted[i] = convert(&items[i])
	}
	return converted
}
