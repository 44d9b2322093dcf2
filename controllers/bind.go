package controllers

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"reflect"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/gin-gonic/gin/binding"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/go-playground/validator/v10"

	"plantstore/middleware"
	"plantstore/models"
)

// bindJSON reads the body of the request into the struct to which v points, and
// checks its binding tags. It is strict where encoding/json is lenient: names
// are case-sensitive and given once, unknown ones are refused as null is, and
// the body is one JSON object in UTF-8 with nothing behind it (RFC 8259).
//
// Fields that may be absent, and required ones whose zero value is allowed, must
// be pointers. An error tells the client which field is at fault, or the byte at
// which the JSON is.
//
// The body may be of type application/json, or of another JSON type in types.
func bindJSON(c *gin.Context, v any, types ...string) error {
	body, err := readBody(c.Request)
	if err != nil {
		return bodyError(err)
	}
	if _, err := contentType(c.Request.Header, append(types, "application/json")...); err != nil {
		return err
	}
	if err := decodeJSON(body, v); err != nil {
		return err
	}
	return checkRequired(v)
}

// readBody reads the whole body, which the middleware has limited.
func readBody(r *http.Request) ([]byte, error) {
	if r.ContentLength < 0 {
		return io.ReadAll(r.Body)
	}
	body := make([]byte, r.ContentLength)
	_, err := io.ReadFull(r.Body, body)
	return body, err
}

// bodyError explains why a body could not be read. The client's own faults are
// problems of the request, and none of ours.
func bodyError(err error) error {
	if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
		return err
	}
	return problemf(codeMalformed, "body ended early or was badly framed: send as many bytes as announced, in time")
}

// contentType returns which of accepted a body has, said in UTF-8 or not said: it
// is the last of them where there is no Content-Type.
func contentType(header http.Header, accepted ...string) (string, error) {
	if len(header["Content-Encoding"]) > 0 {
		return "", problemf(codeContentType, "Content-Encoding is not supported: send the body as it is")
	}
	types := header["Content-Type"]
	if len(types) == 0 {
		return accepted[len(accepted)-1], nil
	}
	if len(types) == 1 && slices.Contains(accepted, types[0]) {
		return types[0], nil
	}
	kind, params, err := mime.ParseMediaType(types[0])
	charset, hasCharset := params["charset"]
	if len(types) > 1 || err != nil || !slices.Contains(accepted, kind) || hasCharset && !strings.EqualFold(charset, "utf-8") {
		return "", problemf(codeContentType, "Content-Type must be %s, in UTF-8", strings.Join(accepted, " or "))
	}
	return kind, nil
}

// errNull refuses null, which the decoder would take for an absent value.
var errNull = errors.New("null")

// refuseNull is called for every value of a document before the decoder's own
// way with it.
var refuseNull = json.UnmarshalFromFunc(func(dec *jsontext.Decoder, v any) error {
	if _, ok := v.(*nullableText); !ok && dec.PeekKind() == jsontext.KindNull {
		return errNull
	}
	return errors.ErrUnsupported // the decoder goes on by itself
})

// nullableText is a text that may be absent, null, or there.
type nullableText struct {
	given bool
	text  *string // nil where it was null
}

// UnmarshalJSONFrom is called where the text is there or null.
func (t *nullableText) UnmarshalJSONFrom(dec *jsontext.Decoder) error {
	t.given = true
	if dec.PeekKind() == jsontext.KindNull {
		return dec.SkipValue()
	}
	return json.UnmarshalDecode(dec, &t.text)
}

var (
	strict       = json.RejectUnknownMembers(true)
	strictNoNull = json.JoinOptions(strict, json.WithUnmarshalers(refuseNull))
)

func decodeJSON(body []byte, v any) error {
	options := strict
	if bytes.Contains(body, []byte("null")) { // most have none, and need not be searched value by value
		options = strictNoNull
	}
	err := json.Unmarshal(body, v, options)
	if err == nil {
		return nil
	}
	// Malformed JSON is reported before what the part that came before it says.
	if syntax := checkSyntax(body); syntax != nil {
		return syntax
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok {
		// The syntax is right, so that only a repeated name is left.
		return problemf(codeDuplicateField, "%s is given twice", fieldName(syntactic.JSONPointer))
	}
	semantic, ok := errors.AsType[*json.SemanticError](err)
	if !ok {
		return fmt.Errorf("decode the body: %w", err)
	}
	field := fieldName(semantic.JSONPointer)
	switch {
	case semantic.JSONPointer == "":
		return problemf(codeMalformed, "body must be a JSON object")
	case errors.Is(err, errNull):
		return problemf(codeMissingOrType, "%s must not be null", field)
	case errors.Is(err, json.ErrUnknownName):
		return problemf(codeUnknownField, "%s is not a field: names are case-sensitive", field)
	case isInteger(semantic.GoType) && (semantic.JSONKind == jsontext.KindNumber || semantic.JSONKind == jsontext.KindString):
		return problemf(codeNotInt64, "%s must be an integer literal from -9223372036854775808 to 9223372036854775807, "+
			"without fraction, exponent or quotes", field)
	}
	return problemf(codeMissingOrType, "%s must be %s, not %s", field, jsonType(semantic.GoType), jsonKind(semantic.JSONKind))
}

// checkSyntax reports the first byte at which body is not one well-formed JSON
// value, be its names repeated or not.
func checkSyntax(body []byte) error {
	const blanks = " \t\r\n"
	dec := jsontext.NewDecoder(bytes.NewBuffer(body), jsontext.AllowDuplicateNames(true))
	err := dec.SkipValue()
	if err == nil {
		rest := bytes.TrimLeft(body[dec.InputOffset():], blanks)
		if len(rest) == 0 {
			return nil
		}
		return problemf(codeMalformed, "body must end behind its JSON object, and goes on at byte %d", len(body)-len(rest))
	}
	if len(bytes.Trim(body, blanks)) == 0 {
		return problemf(codeMalformed, "body is empty: send a JSON object")
	}
	if syntactic, ok := errors.AsType[*jsontext.SyntacticError](err); ok && !errors.Is(err, io.ErrUnexpectedEOF) {
		return problemf(codeMalformed, "body is not well-formed JSON at byte %d: %v", syntactic.ByteOffset, syntactic.Err)
	}
	return problemf(codeMalformed, "body is not well-formed JSON: it ends at byte %d, too early", len(body))
}

// checkRequired reports the first field of the struct behind v that breaks a
// binding tag. The only one in use is required; other rules belong to the model.
func checkRequired(v any) error {
	err := binding.Validator.ValidateStruct(v)
	failed, ok := errors.AsType[validator.ValidationErrors](err)
	if !ok {
		return err
	}
	name := failed[0].StructField()
	if field, ok := reflect.TypeOf(v).Elem().FieldByName(name); ok {
		name, _, _ = strings.Cut(field.Tag.Get("json"), ",")
	}
	return problemf(codeMissingOrType, "%s is required", name)
}

// fieldName returns the name of the field to which pointer leads, as scopes.0 for the
// first item of scopes.
func fieldName(pointer jsontext.Pointer) string {
	return oddName(strings.Join(slices.Collect(pointer.Tokens()), "."))
}

// oddName returns a name that a client has made up: quoted where it is not one
// that it is likely to have meant, and cut where it is long.
func oddName(name string) string {
	const longest = 64
	name = models.HideTokens(name)
	if runes := []rune(name); len(runes) > longest {
		name = string(runes[:longest]) + "…"
	}
	for _, r := range name {
		if r > '~' || r <= ' ' || r == '"' {
			return fmt.Sprintf("%q", name)
		}
	}
	if name == "" {
		return `""`
	}
	return name
}

func isInteger(t reflect.Type) bool {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t != nil && t.Kind() == reflect.Int64
}

// jsonType names the JSON type that a Go type is read from.
func jsonType(t reflect.Type) string {
	for t != nil && t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch {
	case isInteger(t):
		return "an integer"
	case t != nil && t.Kind() == reflect.String:
		return "a string"
	case t != nil && t.Kind() == reflect.Bool:
		return "a boolean"
	case t != nil && t.Kind() == reflect.Slice:
		return "an array"
	}
	return "of another type"
}

// jsonKind names the JSON type that was sent.
func jsonKind(kind jsontext.Kind) string {
	switch kind {
	case jsontext.KindTrue, jsontext.KindFalse:
		return "a boolean"
	case jsontext.KindString:
		return "a string"
	case jsontext.KindNumber:
		return "a number"
	case jsontext.KindBeginArray:
		return "an array"
	}
	return "an object"
}

// answer writes v as JSON. Texts go out as they came in: nothing is escaped for
// HTML.
func answer(c *gin.Context, status int, v any) {
	body, err := json.Marshal(v)
	if err != nil {
		middleware.Fail(c, fmt.Errorf("encode the answer: %w", err))
		return
	}
	c.Data(status, "application/json", body)
}
