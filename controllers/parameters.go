package controllers

import (
	"cmp"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/google/uuid"

	"plantstore/database"
	"plantstore/middleware"
	"plantstore/models"
)

// rowKey is the type of a resource's keys. The rule of a [models.ID] is [models.UUID].
type rowKey interface{ int64 | models.ID }

// keyOf returns the key that a client has sent for a new row, as it must for an int64, or else a new UUID of
// version 7, which begins with the time, so that an index grows at its end.
func keyOf[K rowKey](sent *K) (key K) {
	if sent != nil {
		return *sent
	}
	*any(&key).(*models.ID) = models.ID(uuid.Must(uuid.NewV7()).String())
	return key
}

// parseKey parses a key in the parameter name.
func parseKey[K rowKey](name, text string) (key K, err error) {
	switch key := any(&key).(type) {
	case *int64:
		*key, err = parseInt64(codeParameter, name, text)
	case *models.ID:
		if *key, err = models.ID(text), models.UUID().Check(name, text); err != nil {
			err = problemf(codeParameter, "%v", err)
		}
	}
	return key, err
}

// location returns the path of the row with key, for a request that creates it.
func location[K rowKey](c *gin.Context, key K) string {
	path := append(make([]byte, 0, 64), strings.TrimSuffix(c.FullPath(), "/:id")+"/"...)
	if n, ok := any(key).(int64); ok { // without an allocation
		path = strconv.AppendInt(path, n, 10)
	} else {
		path = fmt.Append(path, key)
	}
	return middleware.ClientPath(c, string(path))
}

const int64Range = "from -9223372036854775808 to 9223372036854775807"

// parseInt64 parses an int64 in its canonical decimal form. Its error has code and names what
// text is the value of.
func parseInt64(code int32, name, text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || strconv.FormatInt(n, 10) != text {
		return 0, problemf(code, "%s must be an integer literal %s, without a plus sign, leading zeros or spaces", name, int64Range)
	}
	return n, nil
}

var errQuery = problemf(codeParameter, "the query is malformed: percent-encode everything but letters, digits and -._~")

// Query rejects requests with a query that is malformed, has another parameter than names, or repeats a parameter. A
// request may have a parameter whose name ends with *, as in tag*, up to models.MaxValues times. Query panics if a name occurs twice.
func Query(names ...string) middleware.Handler {
	most := make(map[string]int)
	for _, name := range names {
		name, several := strings.CutSuffix(name, "*")
		if most[name] > 0 {
			panic(fmt.Sprintf("the parameter %s occurs twice, perhaps as a filter has the name of another parameter: give the column another name", name))
		}
		if most[name] = 1; several {
			most[name] = models.MaxValues
		}
	}
	valid := cmp.Or(strings.ReplaceAll(strings.Join(names, ", "), "*", ""), "none")
	return func(c *gin.Context) error {
		if len(names) == 0 && c.Request.URL.RawQuery == "" {
			return nil
		}
		query, err := url.ParseQuery(c.Request.URL.RawQuery)
		if err != nil {
			return errQuery
		}
		for _, name := range slices.Sorted(maps.Keys(query)) {
			switch n := len(query[name]); {
			case most[name] == 0:
				return problemf(codeParameter, "unknown parameter %s; valid parameters: %s", quoteName(name), valid)
			case n > 1 && most[name] == 1:
				return problemf(codeParameter, "the parameter %s is given more than once", name)
			case n > most[name]:
				return problemf(codeParameter, "the parameter %s is given %d times: give it up to %d times", name, n, most[name])
			}
		}
		c.Request.Form = query
		return nil
	}
}

// queryOf returns the parameters of the query that Query has checked.
func queryOf(c *gin.Context) url.Values { return c.Request.Form }

// The number of items on a page.
const (
	DefaultLimit = 50
	MaxLimit     = 1000
)

type pageQuery struct {
	url.Values
	limit int  // items on a page
	count bool // of the items on all pages
}

// parsePage returns the query of a list, with the turn of a page of many rows.
func parsePage(c *gin.Context) (q pageQuery, err error) {
	if q, err = parseLimit(c); err == nil {
		err = q.take(c)
	}
	return q, err
}

// take takes the turn of a page that may have many rows.
func (q pageQuery) take(c *gin.Context) error {
	if q.limit <= models.LargePage {
		return nil
	}
	return middleware.TakePage(c)
}

// parseLimit is parsePage without the turn.
func parseLimit(c *gin.Context) (pageQuery, error) {
	q := pageQuery{queryOf(c), DefaultLimit, false}
	return q, cmp.Or(parseCount(q.Values, "limit", MaxLimit, &q.limit), parseSwitch(q.Values, "count", "false", "true", &q.count))
}

// parseCount sets n to a parameter, if it is present: an integer from 1 to most.
func parseCount(query url.Values, name string, most int, n *int) error {
	if !query.Has(name) {
		return nil
	}
	count, err := parseInt64(codeParameter, name, query.Get(name))
	if err != nil || count < 1 || count > int64(most) {
		return problemf(codeParameter, "%s must be an integer from 1 to %d", name, most)
	}
	*n = int(count)
	return nil
}

// parseValue sets a pointer, to which to points, to the value of text. kind is that of the value. Its error
// names what text is the value of.
func parseValue(name, text string, kind reflect.Kind, to any) (err error) {
	switch to := to.(type) {
	case **string:
		*to = &text
	case **int64:
		*to = new(int64)
		**to, err = parseInt64(codeNotInt64, name, text)
	case **time.Time:
		*to = new(time.Time)
		**to, err = models.ParseTime(name, text)
	case **Timestamp:
		*to = new(Timestamp)
		*(*time.Time)(*to), err = models.ParseTime(name, text)
	default:
		if value := reflect.ValueOf(to).Elem(); kind == reflect.String {
			value.Set(reflect.New(value.Type().Elem()))
			value.Elem().SetString(text)
			return nil
		}
		err = json.Unmarshal([]byte(text), to, json.WithUnmarshalers(rejectNull))
		if err != nil || strings.TrimSpace(text) != text { // which JSON ignores
			return problemf(codeMissingOrType, "%s must be %s", name, goKinds[kind])
		}
	}
	return err
}

// parseSwitch sets set to whether a parameter has the value on, not off, which is the default.
func parseSwitch(query url.Values, name, off, on string, set *bool) error {
	value := query.Get(name)
	if query.Has(name) && value != off && value != on {
		return problemf(codeParameter, "%s must be %s or %s", name, off, on)
	}
	*set = value == on
	return nil
}

// Position passes on the Write-Position of a request that reads, and rejects a malformed header.
func Position(c *gin.Context) error {
	lines := c.Request.Header[middleware.PositionHeader]
	if lines == nil {
		return nil
	}
	at, ok := database.ParsePosition(lines[0])
	if !ok || len(lines) > 1 {
		return problemf(codeParameter, "%s must be copied from the response to a write, or with changes", middleware.PositionHeader)
	}
	c.Request = c.Request.WithContext(database.WithPosition(c.Request.Context(), at))
	return nil
}

// setPosition sets Write-Position to the position that an operation has returned, if it did.
func setPosition(c *gin.Context, at database.Position) {
	if at != 0 {
		middleware.SetHeader(c, middleware.PositionHeader, at.String())
	}
}
