package controllers

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/auth"
	"plantstore/database/limit"
	"plantstore/middleware"
	"plantstore/models"
)

// bindJSON reads the body of the request, of type application/json, into the struct to
// which v points. It is stricter than encoding/json: names are case-sensitive, unknown and
// duplicate names and null are rejected, and the body is a single JSON object in UTF-8 with nothing
// after it (RFC 8259). Optional fields, and required fields with a valid zero value, must be pointers.
func bindJSON(c *gin.Context, v any) error {
	body, err := readBody(c, TypeJSON)
	if err != nil {
		return err
	}
	if err := decodeJSON("body", body, v, false); err != nil {
		return err
	}
	return checkFields(v, false)
}

// bindPatch reads a JSON Merge Patch (RFC 7396) of the struct to which v points, and returns the
// names of the fields that it has. null sets a field to nil, unless the field is required.
func bindPatch(c *gin.Context, v any) (fields []string, err error) {
	body, err := readBody(c, typeMergePatch, TypeJSON)
	if err != nil {
		return nil, err
	}
	return decodePatch("body", body, v)
}

// decodePatch is bindPatch for text, which errors call what.
func decodePatch(what string, text []byte, v any) (fields []string, err error) {
	if err := decodeJSON(what, text, v, true); err != nil {
		return nil, err
	}
	var raw map[string]jsontext.Value
	if bytes.Contains(text, []byte("null")) { // the decoded struct does not tell null from absent
		if err := json.Unmarshal(text, &raw); err != nil || raw == nil {
			return nil, notObject(what, text)
		}
	}
	value := reflect.ValueOf(v).Elem()
	for _, f := range jsonFields(value.Type()) {
		isNull := raw[f.name].Kind() == jsontext.KindNull
		if isNull && f.required {
			return nil, problemf(codeMissingOrType, "%s must not be null", f.name)
		}
		if isNull || !value.FieldByIndex(f.index).IsZero() {
			fields = append(fields, f.name)
		}
	}
	return fields, nil
}

// jsonField is a field of a struct that is read from JSON.
type jsonField struct {
	name     string
	required bool
	index    []int // for reflect.Value.FieldByIndex
	kind     reflect.Kind
}

// jsonFieldCache has the result of jsonFields by type, as encoding/json caches it.
var jsonFieldCache sync.Map

// jsonFields returns the fields of a struct, embedded fields included, in their order.
func jsonFields(t reflect.Type) []jsonField {
	if cached, ok := jsonFieldCache.Load(t); ok {
		return cached.([]jsonField)
	}
	var fields []jsonField
	for _, f := range reflect.VisibleFields(t) {
		if !f.Anonymous {
			name, option, _ := strings.Cut(f.Tag.Get("json"), ",")
			if option == "embed" {
				for _, inner := range jsonFields(f.Type) {
					inner.index = slices.Concat(f.Index, inner.index)
					fields = append(fields, inner)
				}
				continue
			}
			fields = append(fields, jsonField{name, f.Tag.Get("binding") == "required" && (f.Name != "ID" || f.Type != reflect.TypeFor[*models.ID]()), f.Index, kindOf(f.Type)})
		}
	}
	jsonFieldCache.Store(t, fields)
	return fields
}

// readBody returns the whole body, whose type must be in types, in c's buffer. The middleware limits its size.
func readBody(c *gin.Context, types ...string) ([]byte, error) {
	if _, err := contentType(c, types...); err != nil {
		return nil, err // before a client that expects 100 Continue sends it
	}
	buffer := middleware.Buffer(c) // takes memory only for what was sent
	if _, err := buffer.ReadFrom(c.Request.Body); err != nil {
		return nil, bodyError(err)
	}
	return buffer.Bytes(), nil
}

// SkipBody reads an unwanted body, as net/http would do before it sends the response. It must precede
// Stream and Bulk, which lift the time limit for receiving a request.
func SkipBody(c *gin.Context) error {
	if _, err := io.Copy(io.Discard, c.Request.Body); err != nil {
		return bodyError(err)
	}
	c.Request.Body = http.NoBody
	return nil
}

// bodyError explains why a body could not be read: a fault of the client.
func bodyError(err error) error {
	_, isLong := errors.AsType[*http.MaxBytesError](err)
	if _, isProblem := errors.AsType[*problem](err); isLong || isProblem || errors.Is(err, limit.ErrShare) {
		return err
	}
	return problemf(codeMalformed, "the body ended early, took too long, or is not valid HTTP: send as many bytes as Content-Length says, or valid chunks")
}

// The media types of requests and responses.
const (
	TypeJSON       = "application/json"
	typeMergePatch = "application/merge-patch+json"
	TypeNDJSON     = "application/x-ndjson"
	TypeCSV        = "text/csv"
)

// aliases are other names of the media types of imports, as browsers and spreadsheets send them.
var aliases = map[string]string{
	"application/csv": TypeCSV, "text/x-csv": TypeCSV, "application/vnd.ms-excel": TypeCSV,
	"application/ndjson": TypeNDJSON, "application/jsonl": TypeNDJSON, "application/x-jsonlines": TypeNDJSON,
}

// isPlain reports whether the values of Content-Encoding say that a body is as it is.
func isPlain(codings []string) bool {
	return len(codings) == 0 || len(codings) == 1 && strings.EqualFold(codings[0], "identity")
}

// contentType returns which of accepted the body is, in UTF-8: the last of them without a
// Content-Type. For any other type, the response has headers with what would be accepted.
func contentType(c *gin.Context, accepted ...string) (string, error) {
	header := c.Request.Header
	if !isPlain(header["Content-Encoding"]) {
		c.Header("Accept-Encoding", "identity") // RFC 9110, section 12.5.3
		return "", problemf(codeContentType, "Content-Encoding is not supported: send the body without one")
	}
	types := header["Content-Type"]
	if len(types) == 0 {
		return accepted[len(accepted)-1], nil
	}
	if len(types) == 1 && slices.Contains(accepted, types[0]) {
		return types[0], nil
	}
	kind, params, err := mime.ParseMediaType(types[0])
	kind = cmp.Or(aliases[kind], kind)
	charset, hasCharset := params["charset"]
	isUTF8 := !hasCharset || strings.EqualFold(charset, "utf-8") || strings.EqualFold(charset, "utf8")
	if len(types) > 1 || err != nil || !slices.Contains(accepted, kind) || !isUTF8 {
		if c.Request.Method == http.MethodPatch {
			c.Header("Accept-Patch", strings.Join(accepted, ", ")) // RFC 5789, section 2.2
		}
		return "", problemf(codeContentType, "Content-Type must be %s, with no charset other than utf-8", strings.Join(accepted, " or "))
	}
	return kind, nil
}

var (
	errNull      = errors.New("null")
	errMinusZero = errors.New("minus zero")

	strict = json.RejectUnknownMembers(true)
	// rejectNull rejects null, which the decoder would treat as an absent value.
	rejectNull = json.UnmarshalFromFunc(func(dec *jsontext.Decoder, _ any) error {
		if dec.PeekKind() == jsontext.KindNull {
			return errNull
		}
		return errors.ErrUnsupported // the decoder continues by itself
	})
	// rejectMinusZero rejects -0, which the decoder would treat as 0.
	rejectMinusZero = json.UnmarshalFunc(func(text []byte, n *int64) error {
		if string(text) == "-0" {
			return errMinusZero
		}
		return json.Unmarshal(text, n)
	})
)

// decodeJSON reads text into the struct to which v points. what names the text in errors: body or line.
func decodeJSON(what string, text []byte, v any, allowNull bool) error {
	options := strict
	var checks []*json.Unmarshalers // of every value, which most bodies do not need
	if !allowNull && bytes.Contains(text, []byte("null")) {
		checks = append(checks, rejectNull)
	}
	if bytes.Contains(text, []byte("-0")) {
		checks = append(checks, rejectMinusZero)
	}
	if checks != nil {
		options = json.JoinOptions(strict, json.WithUnmarshalers(json.JoinUnmarshalers(checks...)))
	}
	err := json.Unmarshal(text, v, options)
	if err == nil {
		return nil
	}
	// Malformed JSON is reported before faults in the part that precedes it.
	if syntax := checkSyntax(what, text); syntax != nil {
		return syntax
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		// Only a duplicate name is well-formed and still a syntactic error.
		return problemf(codeDuplicateField, "duplicate field %s", fieldName(syntactic.JSONPointer))
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return fmt.Errorf("decode the %s: %w", what, err)
	}
	field, kind := fieldName(semantic.JSONPointer), kindOf(semantic.GoType)
	invalid, isInvalid := errors.AsType[*models.InvalidError](err)
	switch {
	case semantic.JSONPointer == "":
		return notObject(what, text)
	case isInvalid:
		return &models.InvalidError{Field: field, Reason: invalid.Reason}
	case errors.Is(err, errNull):
		return problemf(codeMissingOrType, "%s must not be null", field)
	case errors.Is(err, errMinusZero):
		return problemf(codeNotInt64, "%s must not be -0: write 0", field)
	case errors.Is(err, json.ErrUnknownName):
		return problemf(codeUnknownField, "unknown field %s; names are case-sensitive", field)
	case kind == reflect.Int64 && (semantic.JSONKind == jsontext.KindNumber || semantic.JSONKind == jsontext.KindString):
		return problemf(codeNotInt64, "%s must be an integer literal %s, without fraction, exponent or quotes", field, int64Range)
	}
	return problemf(codeMissingOrType, "%s must be %s", field, goKinds[kind])
}

// spaces are what JSON allows between values (RFC 8259, section 2).
const spaces = " \t\r\n"

// notObject returns the error of a JSON value that is no object.
func notObject(what string, text []byte) error {
	return problemf(codeMalformed, "the %s must be a JSON object, but the value at byte %d is not one", what, len(text)-len(bytes.TrimLeft(text, spaces)))
}

// checkSyntax reports the first byte at which text is not a single well-formed JSON value. It
// ignores duplicate names.
func checkSyntax(what string, text []byte) error {
	dec := jsontext.NewDecoder(bytes.NewBuffer(text), jsontext.AllowDuplicateNames(true))
	err := dec.SkipValue()
	if err == nil {
		rest := bytes.TrimLeft(text[dec.InputOffset():], spaces)
		if len(rest) == 0 {
			return nil
		}
		return problemf(codeMalformed, "unexpected data after the JSON value at byte %d", len(text)-len(rest))
	}
	if len(bytes.Trim(text, spaces)) == 0 {
		return problemf(codeMalformed, "the %s is empty: send a JSON object", what)
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return problemf(codeMalformed, "the %s is not well-formed JSON at byte %d: %v", what, syntactic.ByteOffset, syntactic.Err)
	}
	return problemf(codeMalformed, "the %s is not well-formed JSON: it ends early, at byte %d", what, len(text))
}

// checkFields reports the first required field that the struct to which v points does not have. If it is partial, only
// the id is required. The model checks all other rules.
func checkFields(v any, partial bool) error {
	value := reflect.ValueOf(v).Elem()
	for _, f := range jsonFields(value.Type()) {
		if f.required && (f.name == "id" || !partial) && value.FieldByIndex(f.index).IsZero() {
			return problemf(codeMissingOrType, "%s is required", f.name)
		}
	}
	return nil
}

// fieldName returns the name of the field at pointer: scopes.0 for the first item of scopes.
func fieldName(pointer jsontext.Pointer) string {
	return quoteName(strings.Join(slices.Collect(pointer.Tokens()), "."))
}

// quoteName returns a name that a client has chosen, for an error message: quoted if it has unusual
// characters, and cut if it is long.
func quoteName(name string) string {
	name = auth.Redact(name)
	if name == "" || strings.ContainsFunc(name, func(r rune) bool { return r > '~' || r <= ' ' || r == '"' }) {
		name = strconv.Quote(name)
	}
	if runes := []rune(name); len(runes) > 64 {
		name = string(runes[:64]) + "…"
	}
	return name
}

// kindOf returns the kind of a type, which may be nil, or of what it points to.
func kindOf(t reflect.Type) reflect.Kind {
	if t == nil {
		return reflect.Invalid
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t.Kind()
}

var goKinds = map[reflect.Kind]string{
	reflect.Int64: "an integer", reflect.String: "a string", reflect.Bool: "true or false", reflect.Slice: "an array",
	reflect.Float64: "a number that a float64 can hold", reflect.Struct: "a time of RFC 3339, as a string",
}
