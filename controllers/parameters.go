package controllers

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// pathID returns the id in the path.
func pathID(c *gin.Context) (int64, error) { return parseID("id", c.Param("id")) }

// parseInt64 parses an int64 in its canonical decimal form: without a plus sign, leading
// zeros or spaces.
func parseInt64(text string) (n int64, ok bool) {
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == text
}

func parseID(name, text string) (int64, error) {
	id, ok := parseInt64(text)
	if !ok {
		return 0, problemf(codeParameter, "%s must be an integer from -9223372036854775808 to 9223372036854775807, "+
			"without a plus sign or leading zeros", name)
	}
	return id, nil
}

// parseQuery returns the parameters of the query, each of which must be one of names
// and given once.
func parseQuery(c *gin.Context, names ...string) (url.Values, error) {
	query, err := url.ParseQuery(c.Request.URL.RawQuery)
	if err != nil {
		return nil, problemf(codeParameter, "the query is malformed: percent-encode everything but letters, digits and -._~")
	}
	for name, values := range query {
		switch {
		case !slices.Contains(names, name):
			return nil, problemf(codeParameter, "unknown parameter %s; valid parameters: %s", quoteName(name), strings.Join(names, ", "))
		case len(values) > 1:
			return nil, problemf(codeParameter, "the parameter %s is given more than once", name)
		}
	}
	return query, nil
}

// The number of items on a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

// pageQuery is the query of a list.
type pageQuery struct {
	url.Values
	limit int // items on a page
}

// parsePage returns the query of a list, with the parameters limit, after and names.
func parsePage(c *gin.Context, names ...string) (q pageQuery, err error) {
	if q.Values, err = parseQuery(c, append([]string{"limit", "after"}, names...)...); err != nil {
		return q, err
	}
	q.limit = DefaultLimit
	if q.Has("limit") {
		limit, ok := parseInt64(q.Get("limit"))
		if !ok || limit < 1 || limit > MaxLimit {
			return q, problemf(codeParameter, "limit must be an integer from 1 to %d", MaxLimit)
		}
		q.limit = int(limit)
	}
	return q, nil
}

// parseIDPage is parsePage for rows with int64 ids. It also returns the filter that the
// query asks for, without names; it allows one row more than a page, to tell whether
// there is a next page.
func parseIDPage(c *gin.Context, names ...string) (q pageQuery, f models.Filter[int64], err error) {
	if q, err = parsePage(c, names...); err != nil {
		return q, f, err
	}
	f = models.Filter[int64]{Limit: q.limit + 1, Equal: map[string]any{}, Contains: map[string]string{}}
	if q.Has("after") {
		var after int64
		after, err = parseID("after", q.Get("after"))
		f.After = &after
	}
	return q, f, err
}

// respondPage writes the first q.limit items. If there are more, Link names the next
// page: the same path and query, after the id of the last item.
func respondPage[T any](c *gin.Context, q pageQuery, items []T, id func(T) any) error {
	if len(items) > q.limit {
		items = items[:q.limit]
		q.Set("after", fmt.Sprint(id(items[q.limit-1])))
		c.Header("Link", "<"+c.FullPath()+"?"+q.Encode()+`>; rel="next"`)
	}
	return respond(c, http.StatusOK, items)
}

// mapAll returns convert of each item.
func mapAll[A, B any](items []A, convert func(*A) B) []B {
	converted := make([]B, len(items))
	for i := range items {
		converted[i] = convert(&items[i])
	}
	return converted
}

// parseText returns a parameter that follows rule.
func parseText(query url.Values, name string, rule models.Text) (string, error) {
	text := query.Get(name)
	if err := rule.Check(name, text); err != nil {
		return "", problemf(codeParameter, "%v", err)
	}
	return text, nil
}

// parseChoice returns a parameter that is one of choices; the first is the default.
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
