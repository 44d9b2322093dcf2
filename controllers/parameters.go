package controllers

import (
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// pathID returns the id in the path: an int64 in its one decimal form.
func pathID(c *gin.Context) (int64, error) { return parseID("id", c.Param("id")) }

// parseInt64 reads an int64 in its one decimal form: without a plus sign, zeros or
// blanks before it.
func parseInt64(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

func parseID(name, text string) (int64, error) {
	id, ok := parseInt64(text)
	if !ok {
		return 0, problemf(codeParameter, "%s must be an integer from -9223372036854775808 to 9223372036854775807, "+
			"without a plus sign or zeros before it", name)
	}
	return id, nil
}

// queryOf returns the parameters of the query, each of which must be one of names
// and given once.
func queryOf(c *gin.Context, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, problemf(codeParameter, "the query is malformed: percent-encode what is not a letter, a digit or one of -._~")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(names, name):
			return nil, problemf(codeParameter, "%s is not a parameter: there are %s", oddName(name), strings.Join(names, ", "))
		case len(values) > 1:
			return nil, problemf(codeParameter, "%s is given more than once", name)
		}
	}
	return query, nil
}

// How many items a page has: where the client asks for no number, and at most.
const (
	standardPage = 50
	largestPage  = 1000
)

// parseLimit returns how many items a page may have.
func parseLimit(query url.Values) (int, error) {
	if !query.Has("limit") {
		return standardPage, nil
	}
	limit, ok := parseInt64(query.Get("limit"))
	if !ok || limit < 1 || limit > largestPage {
		return 0, problemf(codeParameter, "limit must be an integer from 1 to %d", largestPage)
	}
	return int(limit), nil
}

// linkNext says where the page is that begins after the id last: at path, with the
// rest of the query as it was.
func linkNext(c *gin.Context, path string, query url.Values, last string) {
	query.Set("after", last)
	c.Header("Link", "<"+path+"?"+query.Encode()+`>; rel="next"`)
}

// checkParameter refuses a text that no plant can have.
func checkParameter(name, text string, shortest, longest int) error {
	if n := utf8.RuneCountInString(text); n < shortest || n > longest {
		return problemf(codeParameter, "%s must have %d to %d characters", name, shortest, longest)
	}
	if !utf8.ValidString(text) || strings.ContainsFunc(text, unicode.IsControl) {
		return problemf(codeParameter, "%s must be UTF-8 without control characters", name)
	}
	return nil
}

// parseChoice returns the value of a parameter that must be one of choices, of
// which the first is what it is when not given.
func parseChoice(query url.Values, name string, choices ...string) (string, error) {
	if !query.Has(name) {
		return choices[0], nil
	}
	value := query.Get(name)
	if !slices.Contains(choices, value) {
		return "", problemf(codeParameter, "%s must be %s", name, strings.Join(choices, " or "))
	}
	return value, nil
}

// etag returns the strong entity tag (RFC 9110, section 8.8.3) of a row that was
// last written at updatedAt: the microseconds since 1970, which every write of a
// row moves forward.
func etag(updatedAt time.Time) string {
	return `"` + strconv.FormatInt(updatedAt.UnixMicro(), 36) + `"`
}

// conditionOf returns what the headers If-Match and If-None-Match of a write ask
// for (RFC 9110, section 13.1). If-None-Match can only be *.
func conditionOf(c *gin.Context) (models.Condition, error) {
	var condition models.Condition
	if c.Request.Header["If-Match"] != nil {
		tags, wildcard, err := parseETags(c, "If-Match")
		if err != nil {
			return condition, err
		}
		condition.Exists = wildcard
		if !wildcard {
			condition.Versions = make([]time.Time, 0, len(tags))
			for _, tag := range tags {
				if version, ok := versionOf(tag); ok {
					condition.Versions = append(condition.Versions, version)
				}
			}
		}
	}
	if c.Request.Header["If-None-Match"] != nil {
		_, wildcard, err := parseETags(c, "If-None-Match")
		if err != nil {
			return condition, err
		}
		if !wildcard {
			return condition, problemf(codeParameter, "If-None-Match must be * where something is written")
		}
		condition.Absent = true
	}
	return condition, nil
}

// versionOf returns the time behind an entity tag that etag has made. Others,
// and weak ones, match no row. Neither do times that a database has not, which
// PostgreSQL would not even compare.
func versionOf(tag string) (time.Time, bool) {
	micros, err := strconv.ParseInt(strings.Trim(tag, `"`), 36, 64)
	version := time.UnixMicro(micros).UTC()
	return version, err == nil && etag(version) == tag && 1 <= version.Year() && version.Year() <= 9999
}

// unchanged reports whether If-None-Match has tag, which makes the answer to a
// read 304 (RFC 9110, section 13.1.2: the comparison is weak).
func unchanged(c *gin.Context, tag string) (bool, error) {
	if c.Request.Header["If-None-Match"] == nil {
		return false, nil
	}
	tags, wildcard, err := parseETags(c, "If-None-Match")
	return wildcard || slices.ContainsFunc(tags, func(t string) bool { return strings.TrimPrefix(t, "W/") == tag }), err
}

// entityTag is the start of a text that is an entity tag (RFC 9110, section 8.8.3),
// whose bytes beyond ASCII need not be UTF-8.
var entityTag = regexp.MustCompile(`^(W/)?"[^\x00-\x20"\x7f]*"`)

// parseETags returns the entity tags that a header lists, or that it is *.
func parseETags(c *gin.Context, header string) (tags []string, wildcard bool, err error) {
	list := strings.TrimSpace(strings.Join(c.Request.Header[header], ","))
	if list == "*" {
		return nil, true, nil
	}
	malformed := problemf(codeParameter, `%s must be * or a list of entity tags, such as "hocywg299e"`, header)
	for rest := strings.TrimLeft(list, ", \t"); ; {
		tag := entityTag.FindString(rest)
		if tag == "" {
			return nil, false, malformed
		}
		tags = append(tags, tag)
		rest = strings.TrimLeft(rest[len(tag):], " \t")
		if rest != "" && rest[0] != ',' {
			return nil, false, malformed
		}
		// RFC 9110, section 5.6.1: empty elements of a list are ignored.
		if rest = strings.TrimLeft(rest, ", \t"); rest == "" {
			return tags, false, nil
		}
	}
}
