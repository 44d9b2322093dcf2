package controllers

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json/jsontext"

	"plantstore/middleware"
	"plantstore/models"
)

// Fault is what is wrong with a field of a body.
type Fault struct {
	// The field.
	Field string `json:"field" binding:"required" example:"name"`
	// The error code, as in an Error.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// The message, as in an Error.
	Message string `json:"message" binding:"required" example:"name is required"`
} // @name Fault

// maxFaults is how many faults an Error has: a body may have thousands.
const maxFaults = 20

// withFaults returns err with the faults of all fields, if it says that c's body, a D whose fields have rules, was
// rejected for a fault of a field.
func withFaults[D any](c *gin.Context, err error, rules models.Rules) error {
	if err == nil {
		return nil
	}
	first, in := describe(c, err), new(D)
	if first.Code < codeUnknownField || first.Code > codeInvalidValue {
		return err
	}
	isPatch, given := c.Request.Method == http.MethodPatch, make(map[string]bool)
	add := func(field string, err error) {
		if err != nil {
			e, at := describe(c, err), len(first.Errors)
			if e.Message == first.Message {
				at = 0
			}
			first.Errors = slices.Insert(first.Errors, at, Fault{quoteName(field), e.Code, e.Message})
		}
	}
	dec := jsontext.NewDecoder(bytes.NewReader(middleware.RequestOf(c).Buffer.Bytes()), jsontext.AllowDuplicateNames(true))
	for _, _ = dec.ReadToken(); dec.PeekKind() == jsontext.KindString && len(first.Errors) < maxFaults; {
		name, _ := dec.ReadToken()
		field := name.String()
		value, _ := dec.ReadValue()
		if given[field] {
			add(field, problemf(codeDuplicateField, "duplicate field %s", quoteName(field)))
			continue
		}
		given[field] = true
		quoted, _ := jsontext.AppendQuote(nil, field)
		add(field, decodeJSON("body", fmt.Appendf(nil, "{%s:%s}", quoted, value), in, isPatch && value.Kind() == jsontext.KindNull))
	}
	row := reflect.ValueOf(in).Elem()
	for _, f := range jsonFields(row.Type()) {
		value, isFaulty := row.FieldByIndex(f.index), slices.ContainsFunc(first.Errors, func(fault Fault) bool { return fault.Field == f.name })
		switch {
		case isFaulty:
		case given[f.name] && f.required && value.IsZero():
			add(f.name, problemf(codeMissingOrType, "%s must not be null", f.name))
		case f.required && value.IsZero() && !isPatch:
			add(f.name, problemf(codeMissingOrType, "%s is required", f.name))
		case !value.IsZero() && rules.Server(f.name) && c.Request.Method != http.MethodPut:
			add(f.name, serverSets(f.name))
		case !value.IsZero() && f.kind != reflect.Struct:
			add(f.name, models.Check(rules[f.name], f.name, reflect.Indirect(value)))
		}
	}
	// The first fault may be of a check that follows these.
	isMissing := len(first.Errors) == 0 || first.Errors[0].Message != first.Message
	if invalid, ok := errors.AsType[*models.InvalidError](err); ok && isMissing {
		add(invalid.Field, err)
	}
	first.Errors = first.Errors[:min(len(first.Errors), maxFaults)]
	return (*problem)(&first)
}
