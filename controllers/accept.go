package controllers

import (
	"cmp"
	"mime"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
)

// preferred returns which of offers the Accept headers prefer (RFC 9110, section 12.5.1): by quality, then by how
// exactly they name it, then by its position. Otherwise it is the first offer. It tells caches that the response depends on that.
func preferred(c *gin.Context, offers ...string) string {
	c.Writer.Header().Add("Vary", "Accept") // CORS adds Origin
	accept := c.Request.Header["Accept"]
	return slices.MaxFunc(offers, func(a, b string) int {
		x, y := matchOf(accept, a), matchOf(accept, b)
		return cmp.Or(cmp.Compare(x.quality, y.quality), cmp.Compare(x.exact, y.exact), cmp.Compare(x.position, y.position))
	})
}

// match is how a media range matches a media type.
type match struct {
	quality  float64 // 0 if the type is not acceptable: then all is 0
	exact    int     // 3 for the type itself, 2 for text/*, 1 for */*, or for * of Accept-Encoding
	position int     // less for a later range
}

// maxRanges is how many ranges count: HTTP/2 repeats a list of thousands for a few bytes. maxRange is the length of the
// longest range that counts, in bytes: each of its parameters takes time.
const (
	maxRanges = 64
	maxRange  = 256
)

// matchOf returns the match of the range that names mediaType most exactly.
func matchOf(accept []string, mediaType string) (best match) {
	kind, _, _ := strings.Cut(mediaType, "/")
	exactness := map[string]int{mediaType: 3, kind + "/*": 2, "*/*": 1, "*": 1}
	for i, part := range strings.SplitN(strings.Join(accept, ","), ",", maxRanges) {
		if len(part) > maxRange {
			continue
		}
		name, parameters, err := mime.ParseMediaType(part)
		quality := 1.0
		if q, ok := parameters["q"]; ok && err == nil {
			quality, err = strconv.ParseFloat(q, 64)
		}
		if valid := err == nil && quality >= 0 && quality <= 1; valid && exactness[name] > best.exact {
			best = match{quality, exactness[name], -i}
		}
	}
	if best.quality == 0 {
		return match{}
	}
	return best
}

// acceptsGzip reports whether the client likes a compressed response at least as much as a plain
// response (RFC 9110, section 12.5.3). It tells caches that the response depends on that.
func acceptsGzip(c *gin.Context) bool {
	c.Writer.Header().Add("Vary", "Accept-Encoding") // CORS adds Origin
	accept := c.Request.Header["Accept-Encoding"]
	gzipped, plain := matchOf(accept, "gzip").quality, matchOf(accept, "identity").quality
	return gzipped > 0 && gzipped >= plain
}
