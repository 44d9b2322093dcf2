package controllers

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/gin-gonic/gin"

	"plantstore/database"
	"plantstore/database/table"
	"plantstore/middleware"
	"plantstore/models"
)

// Resource handles the requests for the rows of the model T, whose key is of type K. C is the content of a row: a
// struct with a pointer for each field of T but ID, CreatedAt and UpdatedAt, under the same name, which is a *Timestamp
// for a time.Time. The pointer's JSON name is that of the column. Clients set the content, except the columns
// with the rule [models.Server].
//
// docs/gen/resource.tmpl describes the operations. A resource replaces an operation by a method of
// its own with annotations.
type Resource[T models.Model, K rowKey, C any] struct {
	store   *models.Store[T, K]
	table   *table.Table
	rules   models.Rules
	lists   Lists
	filters []Filter
	sorts   []string // the values of the parameter sort

	id, created, updated uintptr        // offsets of the fields of T that are not in C
	fields, server       []contentField // that clients set, and that the server sets
	exported             []jsonField    // in CSV, the ETag last
}

// contentField is a field of the model T and of the content C. To set a content by offsets takes a third
// of the time that package reflect needs.
type contentField struct {
	model, content uintptr // offsets
	index          int     // in T
	name           string  // of the column
	optional       bool    // the model's field is also a pointer
}

// NewResource returns the handlers for the rows in db. Without a database, they only describe themselves.
// It panics if K, C or lists do not fit T.
func NewResource[T models.Model, K rowKey, C any](db *database.DB, lists Lists) *Resource[T, K, C] {
	r := &Resource[T, K, C]{lists: lists}
	r.table, r.rules = models.Declare[T, K]()
	r.declareLists()
	if r.table.Feed != "" && reflect.TypeFor[K]() != reflect.TypeFor[int64]() {
		panic(fmt.Sprintf("%T has a feed, which has only keys that are int64s: remove its method Feed", r.Model()))
	}
	if db != nil {
		r.store = models.NewStore[T, K](db)
	}
	model, content, rules := reflect.TypeFor[T](), reflect.TypeFor[C](), r.rules
	for i := range model.NumField() {
		f := model.Field(i)
		if place, ok := map[string]*uintptr{"ID": &r.id, "CreatedAt": &r.created, "UpdatedAt": &r.updated}[f.Name]; ok {
			*place = f.Offset
			continue
		}
		want, optional := f.Type, f.Type.Kind() == reflect.Pointer
		if !optional {
			want = reflect.PointerTo(want)
		}
		if want == reflect.TypeFor[*time.Time]() {
			want = reflect.TypeFor[*Timestamp]()
		}
		in, ok := content.FieldByName(f.Name)
		if !ok || in.Type != want {
			panic(fmt.Sprintf("%v needs the field %s of type %v, as %v has it; if clients do not set it, its rule is a models.Server", content, f.Name, want, model))
		}
		name, option, _ := strings.Cut(in.Tag.Get("json"), ",")
		field := contentField{f.Offset, in.Offset, i, name, optional}
		switch {
		case name == "etag" || r.table.Feed != "" && (name == "changed" || name == r.feedName()):
			panic(fmt.Sprintf("%v.%s: the name %s is taken by the version of a row, or by the feed of changes: choose another name", content, f.Name, name))
		case !rules.Server(name):
			r.fields = append(r.fields, field)
		case option != "omitzero" || in.Tag.Get("binding") != "":
			panic(fmt.Sprintf("%v.%s must have omitzero and no binding, as it is only in responses: clients do not set it", content, f.Name))
		default:
			r.server = append(r.server, field)
		}
	}
	if len(r.fields)+len(r.server) != content.NumField() {
		panic(fmt.Sprintf("%v has a field that %v does not have", content, model))
	}
	r.exported = slices.DeleteFunc(slices.Clone(jsonFields(reflect.TypeFor[importedRow[K, C]]())), func(f jsonField) bool {
		return rules.Server(f.name) || r.table.IsTimestamp(r.table.Column(f.name))
	})
	return r
}

// Model returns the model of a row.
func (r *Resource[T, K, C]) Model() models.Model { return *new(T) }

// Name returns the name of the resource, which is also in its path and its scopes: plants.
func (r *Resource[T, K, C]) Name() string { return r.table.Name }

// The bodies of requests and responses: C adds the fields of the content.
type (
	newRow[K rowKey, C any] struct {
		ID      *K `json:"id" binding:"required"`
		Content C  `json:",embed"`
	}
	storedRow[K rowKey, C any] struct {
		ID      K `json:"id"`
		Content C `json:",embed"`
		Timestamps
	}
	replacement[K rowKey, C any] struct {
		ID      *K `json:"id,omitzero"`
		Content C  `json:",embed"`
		EchoedTimestamps
	}
	importedRow[K rowKey, C any] struct {
		ID      *K `json:"id" binding:"required"`
		Content C  `json:",embed"`
		EchoedTimestamps
		ETag *string `json:"etag,omitzero"`
	}
)

// fieldAt returns a pointer to the field of type F at an offset in row, or in a content.
func fieldAt[F, S any](row *S, offset uintptr) *F {
	return (*F)(unsafe.Add(unsafe.Pointer(row), offset))
}

// row sets row to the row with id and content, which a patch gives only in part.
func (r *Resource[T, K, C]) row(row *T, id K, content *C) *T {
	*fieldAt[K](row, r.id) = id
	value := reflect.ValueOf(row).Elem()
	for _, f := range r.fields {
		from := *fieldAt[unsafe.Pointer](content, f.content)
		if f.optional {
			*fieldAt[unsafe.Pointer](row, f.model) = from
		} else if to := value.Field(f.index); from != nil {
			to.Set(reflect.NewAt(to.Type(), from).Elem())
		}
	}
	return row
}

// copyFields sets fields of content to those of row, with which it shares the values.
func copyFields[T, C any](content *C, row *T, fields []contentField) {
	for _, f := range fields {
		from := fieldAt[unsafe.Pointer](row, f.model)
		if f.optional {
			*fieldAt[unsafe.Pointer](content, f.content) = *from
		} else {
			*fieldAt[unsafe.Pointer](content, f.content) = unsafe.Pointer(from)
		}
	}
}

func (r *Resource[T, K, C]) setStored(stored *storedRow[K, C], row *T) {
	stored.ID = *fieldAt[K](row, r.id)
	stored.CreatedAt = *fieldAt[Timestamp](row, r.created)
	stored.UpdatedAt = *fieldAt[Timestamp](row, r.updated)
	copyFields(&stored.Content, row, r.fields)
	copyFields(&stored.Content, row, r.server)
}

// checkSettable rejects content with a column of the server.
func (r *Resource[T, K, C]) checkSettable(content *C) error {
	for _, f := range r.server {
		if *fieldAt[unsafe.Pointer](content, f.content) != nil {
			return serverSets(f.name)
		}
	}
	return nil
}

func serverSets(name string) error {
	return problemf(codeUnknownField, "the server sets %s: leave it out", name)
}

func (r *Resource[T, K, C]) respond(c *gin.Context, status int, row *T) error {
	stored := new(storedRow[K, C])
	r.setStored(stored, row)
	return respondVersion(c, status, *fieldAt[time.Time](row, r.updated), stored)
}

// respondOutcome writes the row with id as a write has stored it, or returns the write's error.
func (r *Resource[T, K, C]) respondOutcome(c *gin.Context, id K, outcome models.Outcome[T], err error) error {
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	status := http.StatusOK
	if outcome.Created {
		middleware.SetHeader(c, "Location", location(c, id))
		status = http.StatusCreated
	}
	return r.respond(c, status, outcome.Row)
}

// Create stores a new row and responds with it.
func (r *Resource[T, K, C]) Create(c *gin.Context) error {
	row, _, err := r.create(c)
	if err != nil {
		return err
	}
	return r.respond(c, http.StatusCreated, row)
}

// create stores the row in the body of c and sets the headers that tell of it. It returns the row and its
// content.
func (r *Resource[T, K, C]) create(c *gin.Context) (*T, *C, error) {
	made := new(struct { // a single object
		newRow[K, C]
		row T
	})
	if err := cmp.Or(bindJSON(c, &made.newRow), r.checkSettable(&made.Content)); err != nil {
		return nil, nil, withFaults[newRow[K, C]](c, err, r.rules)
	}
	id := keyOf(made.ID)
	row, place := r.row(&made.row, id, &made.Content), location(c, id)
	middleware.RequestOf(c).CreatedID = place[strings.LastIndexByte(place, '/')+1:]
	outcome, err := r.store.Create(middleware.ContextOf(c), row)
	if err != nil {
		return nil, nil, withFaults[newRow[K, C]](c, err, r.rules)
	}
	setPosition(c, outcome.Position)
	middleware.SetHeader(c, "Location", place)
	return row, &made.Content, nil
}

// Get responds with a row.
func (r *Resource[T, K, C]) Get(c *gin.Context) error {
	id, err := parseKey[K]("id", c.Param("id"))
	if err != nil {
		return err
	}
	row, err := r.store.Get(middleware.ContextOf(c), id)
	if err != nil {
		return err
	}
	return r.respond(c, http.StatusOK, row)
}

// Put creates or replaces a row.
func (r *Resource[T, K, C]) Put(c *gin.Context) (err error) {
	defer func() { err = withFaults[replacement[K, C]](c, err, r.rules) }()
	id, condition, err := r.parseTarget(c)
	if err != nil {
		return err
	}
	if c.Request.Header["Content-Range"] != nil { // RFC 9110, section 14.5
		return problemf(codeParameter, "Content-Range is not supported: send the whole content")
	}
	var in replacement[K, C]
	if err := bindJSON(c, &in); err != nil {
		return err
	}
	if in.ID != nil && *in.ID != id {
		return &models.InvalidError{Field: "id", Reason: fmt.Sprintf("must be %v as in the path, or absent", id)}
	}
	outcome, err := r.store.Put(middleware.ContextOf(c), r.row(new(T), id, &in.Content), condition)
	return r.respondOutcome(c, id, outcome, err)
}

// Patch changes a row.
func (r *Resource[T, K, C]) Patch(c *gin.Context) (err error) {
	defer func() { err = withFaults[C](c, err, r.rules) }()
	id, condition, err := r.parseTarget(c)
	if err != nil {
		return err
	}
	var in C
	fields, err := bindPatch(c, &in)
	if err := cmp.Or(err, r.checkSettable(&in)); err != nil {
		return err
	}
	outcome, err := r.store.Patch(middleware.ContextOf(c), r.row(new(T), id, &in), fields, condition)
	return r.respondOutcome(c, id, outcome, err)
}

// Delete removes a row.
func (r *Resource[T, K, C]) Delete(c *gin.Context) error {
	id, condition, err := r.parseTarget(c)
	if err != nil {
		return err
	}
	outcome, err := r.store.Delete(middleware.ContextOf(c), id, condition)
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	c.Status(http.StatusNoContent)
	return nil
}

// PatchAll changes the rows that the query selects.
func (r *Resource[T, K, C]) PatchAll(c *gin.Context) (err error) {
	defer func() { err = withFaults[C](c, err, r.rules) }()
	var in C
	fields, err := bindPatch(c, &in)
	if err := cmp.Or(err, r.checkSettable(&in)); err != nil {
		return err
	}
	return r.edit(c, r.row(new(T), *new(K), &in), models.Edit{Kind: models.Merge, Columns: strings.Join(fields, ",")})
}

// DeleteAll removes the rows that the query selects.
func (r *Resource[T, K, C]) DeleteAll(c *gin.Context) error {
	return r.edit(c, new(T), models.Edit{Kind: models.Delete})
}

// edit does with the rows that the query selects what e says, and responds with the report.
func (r *Resource[T, K, C]) edit(c *gin.Context, row *T, e models.Edit) error {
	var o models.ImportOptions
	query := queryOf(c)
	filter, err := r.filter(query, true)
	filter.Limit = MaxLimit
	err = cmp.Or(err, parseSwitch(query, "dry_run", "false", "true", &o.DryRun), parseCount(query, "max", MaxCount, &filter.Limit))
	switch {
	case err != nil:
		return err
	case c.Request.Header["If-Match"] != nil || c.Request.Header["If-None-Match"] != nil:
		return problemf(codeParameter, "If-Match and If-None-Match are not supported here: import the rows with their etag")
	case filter.Where == nil:
		return problemf(codeParameter, "at least one of these parameters is required, to select %s: %s", r.Name(), strings.Join(mapAll(r.filters, func(f *Filter) string { return f.Name }), ", "))
	}
	report, err := r.store.Edit(middleware.ContextOf(c), filter, row, e, o)
	switch {
	case err != nil:
		return err
	case report.Rows > filter.Limit:
		return problemf(codeParameter, "the parameters select more than %d %s, and nothing was written: select fewer, or raise max, up to %d", filter.Limit, r.Name(), MaxCount)
	case report.Rejected > 0:
		if _, changed := errors.AsType[*models.VersionError](report.Errors[0].Err); changed {
			return problemf(codePrecondition, "other clients write the selected %s again and again, and nothing was written: repeat the request", r.Name())
		}
		return report.Errors[0].Err
	}
	return respondReport(c, &report, nil, false, nil)
}

// Import stores many rows.
func (r *Resource[T, K, C]) Import(c *gin.Context) error {
	name := r.feedName()
	if r.table.Column(name) != nil { // a row has it as well
		name = ""
	}
	options, kind, err := parseImport(queryOf(c))
	if err != nil {
		return err
	}
	reader, lines, err := openRows(c, name, jsonFields(reflect.TypeFor[importedRow[K, C]]()))
	if err != nil {
		return err
	}
	rows := readRows(middleware.TurnOf(c), reader, kind, r.setImported)
	report, err := r.store.Import(middleware.ContextOf(c), rows, options)
	return respondReport(c, &report, lines.warnings, options.Partial, err)
}

func (r *Resource[T, K, C]) feedName() string { return strings.ReplaceAll(r.table.Noun, " ", "_") }

// setImported sets row to what a client has sent.
func (r *Resource[T, K, C]) setImported(in *importedRow[K, C], row *models.ImportRow[T]) {
	r.row(&row.Row, keyOf(in.ID), &in.Content)
	if in.ETag != nil {
		version, _ := versionOf(*in.ETag)
		row.Version = &version
	}
}

// Export responds with rows as of a single moment.
func (r *Resource[T, K, C]) Export(c *gin.Context) error {
	query := queryOf(c)
	filter, err := r.filter(query, false)
	if err := cmp.Or(err, parseSwitch(query, "etag", "false", "true", &filter.Versions)); err != nil {
		return err
	}
	columns := r.exported
	if !filter.Versions {
		columns = columns[:len(columns)-1]
	}
	var out importedRow[K, C] // for all rows: each is written before the next is converted
	convert := func(row *T) importedRow[K, C] {
		out.ID = fieldAt[K](row, r.id)
		copyFields(&out.Content, row, r.fields)
		if filter.Versions {
			out.ETag = new(etag(*fieldAt[time.Time](row, r.updated)))
		}
		return out
	}
	return respondRows(c, preferred(c, TypeNDJSON, TypeCSV), r.Name(), columns, convert, func(yield func([]T) error) error {
		return r.store.Export(middleware.ContextOf(c), filter, yield)
	})
}
