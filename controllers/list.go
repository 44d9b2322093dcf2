package controllers

import (
	"cmp"
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
)

// Lists declares the parameters of a resource's lists by columns. The columns in Equal and Sort need an index,
// TABLE_COLUMN, on the column and the key.
type Lists struct {
	Equal     []string // parameters with the names of the columns
	Unindexed []string // as Equal, but a list looks at one row after another until its page is full
	Search    string   // q is a part of this text, in rows that a list looks at one after another; or empty
	// Sort has the columns, besides the key, by which lists can be sorted. Columns of times, dates and numbers, such as
	// created_at, also have the parameters created_after and created_before.
	Sort []string
}

// Filter is a parameter of lists and exports that selects rows by a column. If Operator is =, a request may have it
// several times, for the rows with any of the values.
type Filter struct {
	Name     string
	Column   *table.Column
	Operator string      // as in a [models.Comparison]
	rule     models.Rule // of the parameter, or nil
}

// MaxCount is the largest number in X-Total-Count.
const MaxCount = 10_000

// declareLists sets the filters and orders of lists.
func (r *Resource[T, K, C]) declareLists() {
	lists, rules, key, notCompared := r.lists, r.rules, r.table.Key.DBName, reflect.TypeFor[models.JSON]()
	add := func(name, column, operator string) {
		f := Filter{name, r.table.Column(column), operator, rules[column]}
		if f.Column == nil || f.Column.IndirectFieldType == notCompared {
			panic(fmt.Sprintf("%s cannot have the parameter %s: it has no column %s, or a column in JSON", r.table.Name, name, column))
		}
		if operator == models.Contains {
			f.rule = rules.Text(column).Part()
		}
		r.filters = append(r.filters, f)
	}
	for _, column := range slices.Concat(lists.Equal, lists.Unindexed) {
		add(column, column, "=")
	}
	if lists.Search != "" {
		add("q", lists.Search, models.Contains)
	}
	r.sorts = []string{key, "-" + key}
	for _, column := range lists.Sort {
		c, name := r.table.Column(column), strings.TrimSuffix(column, "_at")
		if c == nil || c.FieldType.Kind() == reflect.Pointer || c.FieldType == notCompared {
			panic(fmt.Sprintf("%s cannot be sorted by %s: there is no such column, or it can be without a value, or is JSON", r.table.Name, column))
		}
		r.sorts = append(r.sorts, column, "-"+column)
		if c.FieldType != reflect.TypeFor[string]() && c.FieldType != reflect.TypeFor[bool]() {
			add(name+"_after", column, ">")
			add(name+"_before", column, "<")
		}
	}
}

// Lists returns what the resource declares of its lists.
func (r *Resource[T, K, C]) Lists() Lists { return r.lists }

// Filters returns the parameters that select rows.
func (r *Resource[T, K, C]) Filters() []Filter { return r.filters }

// Sorts returns the values of the parameter sort.
func (r *Resource[T, K, C]) Sorts() []string { return r.sorts }

// Parent is a resource to whose rows a column in [Lists.Equal] refers.
type Parent struct {
	Name   string
	Column string
	List   func(*gin.Context) error // of the rows that refer to the row in the path
}

// Parents returns the resources that have lists of the rows, each with the first column that refers to it.
func (r *Resource[T, K, C]) Parents() (all []Parent) {
	for _, column := range r.lists.Equal {
		if ref, ok := r.rules.Ref(column); ok {
			name := table.OfModel(ref.To).Name
			if !slices.ContainsFunc(all, func(p Parent) bool { return p.Name == name }) {
				all = append(all, Parent{name, column, func(c *gin.Context) error { return r.list(c, column) }})
			}
		}
	}
	return all
}

// List responds with a page of rows.
func (r *Resource[T, K, C]) List(c *gin.Context) error { return r.list(c, "") }

// list responds with a page of rows: if of names a column, of the rows that have the id in the path there.
func (r *Resource[T, K, C]) list(c *gin.Context, of string) error {
	q, err := parsePage(c)
	if err != nil {
		return err
	}
	query := q.Values
	if of != "" {
		query = maps.Clone(query)
		query.Set(of, c.Param("id"))
	}
	filter, err := r.filter(query, true)
	if err != nil {
		return err
	}
	if q.count {
		filter.Limit = MaxCount + 1
		n, err := r.store.Count(middleware.ContextOf(c), filter)
		if err != nil {
			return err
		}
		c.Header("X-Total-Count", strings.Replace(strconv.Itoa(n), strconv.Itoa(MaxCount+1), strconv.Itoa(MaxCount)+"+", 1))
	}
	filter.Limit = q.limit + 1 // one more tells whether there is a next page
	rows, err := r.store.List(middleware.ContextOf(c), filter)
	if err != nil {
		return err
	}
	page := make([]storedRow[K, C], len(rows))
	for i := range rows {
		r.setStored(&page[i], &rows[i])
	}
	return respondPage(c, q, page, func(last int) string {
		id := page[last].ID
		if filter.Sort == "" {
			return fmt.Sprint(id)
		}
		value, _ := json.Marshal(r.table.Column(filter.Sort).Of(reflect.ValueOf(&rows[last]).Elem()).Interface()) // which was JSON, or is a time
		return base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, "%v %s", id, value))
	})
}

// filter returns the filter that query asks for: of a list, with its order, or of an export.
func (r *Resource[T, K, C]) filter(query url.Values, list bool) (f models.Filter[K], err error) {
	sort := query.Get("sort")
	if query.Has("sort") && !slices.Contains(r.sorts, sort) {
		return f, problemf(codeParameter, "sort must be one of %s", strings.Join(r.sorts, ", "))
	}
	for _, p := range r.filters {
		var values []any
		for _, text := range query[p.Name] {
			value := reflect.New(reflect.PointerTo(p.Column.IndirectFieldType))
			err := parseValue(p.Name, text, p.Column.IndirectFieldType.Kind(), value.Interface())
			if err == nil {
				err = models.Check(p.rule, p.Name, value.Elem().Elem())
			}
			if err != nil {
				return f, problemf(codeParameter, "%v", err)
			}
			if v := value.Elem().Elem().Interface(); !slices.Contains(values, v) {
				values = append(values, v)
			}
		}
		if values == nil {
			continue
		}
		f.Where = append(f.Where, models.Comparison{Column: p.Column.DBName, Operator: p.Operator, Values: values})
		if list && sort == "" && (p.Operator == ">" || p.Operator == "<") {
			sort = p.Column.DBName // whose index finds the rows
		}
	}
	if f.Sort, f.Descending = strings.CutPrefix(sort, "-"); f.Sort == r.table.Key.DBName {
		f.Sort = ""
	}
	f.Scan = slices.ContainsFunc(f.Where, func(c models.Comparison) bool {
		return c.Column != f.Sort && (f.Sort != "" || !slices.Contains(r.lists.Equal, c.Column))
	})
	if after := query.Get("after"); query.Has("after") && f.Sort != "" {
		err = r.parseCursor(after, &f)
	} else if query.Has("after") {
		f.After = new(K)
		*f.After, err = parseKey[K]("after", after)
	}
	return f, err
}

// parseCursor sets the row behind which f begins.
func (r *Resource[T, K, C]) parseCursor(cursor string, f *models.Filter[K]) error {
	text, malformed := base64.RawURLEncoding.DecodeString(cursor)
	id, of, _ := strings.Cut(string(text), " ")
	after, noID := parseKey[K]("after", id)
	value := reflect.New(r.table.Column(f.Sort).FieldType)
	noValue := json.Unmarshal([]byte(of), value.Interface())
	if err := cmp.Or(malformed, noID, noValue, models.Check(r.rules[f.Sort], "after", value.Elem())); err != nil {
		return problemf(codeParameter, "after must be copied from the Link of a list with the same sort")
	}
	f.After, f.Value = &after, value.Elem().Interface()
	return nil
}
