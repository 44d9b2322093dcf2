package controllers

import (
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// etag returns the strong entity tag (RFC 9110, section 8.8.3) of a row that was
// last written at updatedAt: the microseconds since 1970, which every write moves
// forward.
func etag(updatedAt time.Time) string {
	tag := make([]byte, 0, 16)
	return string(append(strconv.AppendInt(append(tag, '"'), updatedAt.UnixMicro(), 36), '"'))
}

// parseTarget returns the key of the row that a request writes, and the condition in its headers (RFC 9110,
// section 13.1).
func (*Resource[T, K, C]) parseTarget(c *gin.Context) (key K, condition models.Condition, err error) {
	if key, err = parseKey[K]("id", c.Param("id")); err != nil {
		return key, condition, err
	}
	var tags []string
	if tags, condition.Exists, err = parseETags(c, "If-Match"); err != nil {
		return key, condition, err
	}
	if tags != nil {
		slices.Sort(tags)
		tags = slices.Compact(tags)
		condition.Versions = make([]time.Time, 0, len(tags))
	}
	if len(tags) > MaxVersions {
		return key, condition, problemf(codeParameter, "If-Match must have at most %d different entity tags", MaxVersions)
	}
	for _, tag := range tags {
		if version, ok := versionOf(tag); ok {
			condition.Versions = append(condition.Versions, version)
		}
	}
	tags, condition.Absent, err = parseETags(c, "If-None-Match")
	if err == nil && tags != nil {
		err = problemf(codeParameter, "If-None-Match must be * in a request that writes")
	}
	return key, condition, err
}

// MaxVersions is how many versions a condition may have: each is a part of the statement that
// writes the batch.
const MaxVersions = 64

// versionOf returns the time in an entity tag that etag has made. Other tags, and weak
// tags, match no row; neither do years that PostgreSQL could not even compare.
func versionOf(tag string) (time.Time, bool) {
	micros, err := strconv.ParseInt(strings.Trim(tag, `"`), 36, 64)
	version := time.UnixMicro(micros).UTC()
	return version, err == nil && etag(version) == tag && 1 <= version.Year() && version.Year() <= 9999
}

// respondVersion writes v with status: the row that was last written at updatedAt, with its
// version. The response to a read is 304 if the client has that version (RFC 9110, section 13.1.2:
// the comparison is weak).
func respondVersion(c *gin.Context, status int, updatedAt time.Time, v any) error {
	unchanged, err := setVersion(c, etag(updatedAt))
	if err != nil || unchanged {
		return err
	}
	return respond(c, status, v)
}

// revalidated lets only the client keep a response, and not use it before the service has
// confirmed it. Responses share the value.
var revalidated = []string{"private, no-cache"}

// setVersion sets the ETag of a response. If the request is a read of a client that has this
// version, it responds with 304.
func setVersion(c *gin.Context, version string) (unchanged bool, err error) {
	if isRead(c) {
		tags, wildcard, err := parseETags(c, "If-None-Match")
		if err != nil {
			return false, err
		}
		opaque := strings.TrimPrefix(version, "W/")
		unchanged = wildcard || slices.ContainsFunc(tags, func(tag string) bool { return strings.TrimPrefix(tag, "W/") == opaque })
	}
	middleware.SetHeader(c, "ETag", version)
	c.Writer.Header()["Cache-Control"] = revalidated
	if unchanged {
		c.Status(http.StatusNotModified)
	}
	return unchanged, nil
}

func isRead(c *gin.Context) bool {
	return c.Request.Method == http.MethodGet || c.Request.Method == http.MethodHead
}

// parseETags returns the entity tags (RFC 9110, section 8.8.3) in a header, which may be absent, or
// whether it is *. A regular expression would take ten times as long, and a request may have thousands.
func parseETags(c *gin.Context, header string) (tags []string, wildcard bool, err error) {
	values := c.Request.Header[header]
	list := strings.Trim(strings.Join(values, ","), " \t")
	if values == nil || list == "*" {
		return nil, list == "*", nil
	}
	const separators = ", \t" // empty elements of a list are ignored: RFC 9110, section 5.6.1
	for rest := strings.Trim(list, separators); ; rest = strings.TrimLeft(rest, separators) {
		quoted, hasQuote := strings.CutPrefix(strings.TrimPrefix(rest, "W/"), `"`)
		opaque, after, isClosed := strings.Cut(quoted, `"`)
		if !hasQuote || !isClosed || strings.ContainsFunc(opaque, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
			break
		}
		tags = append(tags, rest[:len(rest)-len(after)])
		if rest = strings.TrimLeft(after, " \t"); rest == "" {
			return tags, false, nil
		}
		if rest[0] != ',' {
			break
		}
	}
	return nil, false, problemf(codeParameter, `%s must be * or a list of entity tags, such as "hocywg299e"`, header)
}
