package controllers

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
	"github.com/klauspost/compress/gzip"
	"go.uber.org/zap"

	"plantstore/database/fault"
	"plantstore/middleware"
	"plantstore/models"
)

// ImportReport is the result of an import, or of a write to the rows that a query selects.
type ImportReport struct {
	// The number of rows.
	Rows int `json:"rows" binding:"required" minimum:"0" example:"5"`
	// The number of rows that were new.
	Created int `json:"created" binding:"required" minimum:"0" example:"4"`
	// The number of rows that existed with different content, with on_conflict=replace or by a line of the feed.
	Replaced int `json:"replaced" binding:"required" minimum:"0" example:"0"`
	// The number of rows that exist with the same content, that were to be deleted and do not exist, or that have the id of a later line of the feed.
	Unchanged int `json:"unchanged" binding:"required" minimum:"0" example:"0"`
	// The number of rows of which fields were changed, with on_conflict=merge or by PATCH.
	Merged int `json:"merged" binding:"required" minimum:"0" example:"0"`
	// The number of rows that were deleted.
	Deleted int `json:"deleted" binding:"required" minimum:"0" example:"0"`
	// The number of rows that were rejected.
	Rejected int `json:"refused" binding:"required" minimum:"0" example:"1"`
	// Whether the rows were stored and deleted: not in a dry run, and not if a row was rejected without mode=partial.
	Stored bool `json:"stored" binding:"required" example:"true"`
	// Why rows were rejected, by line; of many, only the first ones.
	Errors []RowError `json:"errors" binding:"required"`
	// What a spreadsheet may have changed, by line; only the first ones. Absent if there is nothing. The rows are stored as they are.
	Warnings []RowWarning `json:"warnings,omitzero"`
} // @name ImportReport

// RowWarning says what may be wrong with a valid row.
type RowWarning struct {
	// The line, from 1; the header of CSV is line 1.
	Line int `json:"line" binding:"required" minimum:"1" example:"3"`
	// What may be wrong.
	Message string `json:"message" binding:"required" example:"id may be rounded: a spreadsheet keeps 15 digits of a number"`
} // @name RowWarning

// RowError says why a row of an import was rejected.
type RowError struct {
	// The line, from 1; the header of CSV is line 1.
	Line int `json:"line" binding:"required" minimum:"1" example:"3"`
	// The error code, as in an Error.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// The message, as in an Error.
	Message string `json:"message" binding:"required" example:"name is required"`
} // @name RowError

// ImportError is the Error of an import that stored nothing.
type ImportError struct {
	// The code of the first rejected row, or, without a report, of the whole request.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// What is wrong, with the line if it is a row.
	Message string `json:"message" binding:"required" example:"line 3: name is required; nothing was stored"`
	// The whole report. Absent if the import was not read to its end.
	Report *ImportReport `json:"report,omitzero"`
} // @name ImportError

// MaxReport is the size, in bytes, of the longest report. A row takes less than 512: see quoteName.
const MaxReport = (models.MaxRejected + maxWarnings) * 512

// parseImport returns the options in the query of an import, and what to do with a row whose key is taken.
func parseImport(query url.Values) (o models.ImportOptions, kind models.Kind, err error) {
	place := slices.Index([]string{"refuse", "replace", "merge"}, query.Get("on_conflict")) // in the order of models.Kind
	if place < 0 && query.Has("on_conflict") {
		err = problemf(codeParameter, "on_conflict must be refuse, replace or merge")
	}
	err = cmp.Or(
		parseSwitch(query, "mode", "all", "partial", &o.Partial),
		parseSwitch(query, "dry_run", "false", "true", &o.DryRun), err)
	return o, models.Kind(max(place, 0)), err
}

// openRows returns a reader of the rows in the body of an import, which have fields, and the reader of its lines, which
// has the warnings after the last row. name is the member of a line of the feed that has the row.
func openRows(c *gin.Context, name string, fields []jsonField) (rowReader, *lineReader, error) {
	if c.Request.ContentLength == 0 && c.Request.Header["Content-Type"] == nil { // not even an empty file
		return nil, nil, problemf(codeMalformed, "the body is absent: send the rows as %s or %s", TypeCSV, TypeNDJSON)
	}
	mediaType, err := contentType(c, TypeCSV, TypeNDJSON)
	if err != nil {
		return nil, nil, err
	}
	lines := newLineReader(c.Request.Body)
	if mediaType == TypeCSV {
		return newCSVReader(lines, fields, strings.Split(queryOf(c).Get("ignore_columns"), ",")), lines, nil
	}
	return ndjsonReader{lines, name}, lines, nil
}

// respondReport responds with r, the report of an import that ended with err. Rejected rows are an Error unless partial is
// set.
func respondReport(c *gin.Context, r *models.ImportReport, warnings []RowWarning, partial bool, err error) error {
	p, isProblem := errors.AsType[*problem](err)
	setPosition(c, r.Position)
	if fault.NothingStored(err) { // perhaps since its turn did not come within bulk.timeout
		return err
	}
	if err != nil && errors.Is(context.Cause(c.Request.Context()), middleware.ErrTooLong) {
		code, stored := int32(codeUnavailable), "rows that were stored count as unchanged"
		if isProblem { // the body was not received in time
			code, stored = codeBodyTooLarge, "nothing was stored"
		}
		advice := problemf(code, "%v: split the file; %s", middleware.ErrTooLong, stored)
		return fmt.Errorf("%w: %w", advice, err)
	}
	if isProblem {
		return problemf(p.Code, "%s; nothing was stored", p.Message)
	}
	if err != nil {
		return err
	}
	request := middleware.RequestOf(c)
	request.Replaced, request.Counts = r.Keys, []zap.Field{
		zap.Int("created", r.Created), zap.Int("replaced", r.Replaced), zap.Int("merged", r.Merged), zap.Int("deleted", r.Deleted),
		zap.Int("unchanged", r.Unchanged), zap.Int("refused", r.Rejected), zap.Bool("stored", r.Stored),
	}
	report := &ImportReport{
		Rows: r.Rows, Created: r.Created, Replaced: r.Replaced, Merged: r.Merged, Deleted: r.Deleted, Unchanged: r.Unchanged,
		Rejected: r.Rejected, Stored: r.Stored,
		Errors: mapAll(r.Errors, func(row *models.RejectedRow) RowError {
			e := describe(c, row.Err)
			return RowError{Line: row.Line, Code: e.Code, Message: e.Message}
		}),
		Warnings: warnings,
	}
	if r.Rejected == 0 || partial {
		return respond(c, http.StatusOK, report)
	}
	first := report.Errors[0]
	request.ErrorCode = first.Code
	message := fmt.Sprintf("line %d: %s; nothing was stored", first.Line, first.Message)
	return respond(c, statusOf(first.Code), ImportError{first.Code, message, report})
}

// respondRows responds with a file called name, of the rows that export yields, in CSV with columns or in NDJSON.
func respondRows[T, D any](c *gin.Context, mediaType, name string, columns []jsonField, convert func(*T) D, export func(yield func([]T) error) error) error {
	var marked bool
	if err := parseSwitch(queryOf(c), "bom", "false", "true", &marked); err != nil {
		return err
	}
	var encoded bytes.Buffer
	out := bufio.NewWriterSize(&encoded, 64<<10)
	var zip *gzip.Writer
	if acceptsGzip(c) {
		c.Header("Content-Encoding", "gzip")
		zip = gzipWriters.Get().(*gzip.Writer)
		defer gzipWriters.Put(zip)
		zip.Reset(&encoded)
		out.Reset(zip)
	}
	lines := jsontext.NewEncoder(out, asJSON...) // which ends each row with a line feed
	write, flush, extension := func(row any) error { return json.MarshalEncode(lines, row) }, out.Flush, ".ndjson"
	if mediaType == TypeCSV {
		if marked {
			_, _ = out.WriteString(byteOrderMark) // flush returns its error
		}
		rows := newCSVWriter(out, columns)
		write, flush = rows.write, rows.flush
		mediaType, extension = TypeCSV+"; charset=utf-8; header=present", ".csv"
	}
	c.Header("Content-Type", mediaType)
	c.Header("Content-Disposition", `attachment; filename="`+name+extension+`"`) // browsers show no rows in bulk
	if c.Request.Method == http.MethodHead {
		return nil
	}
	// send sends what encode has encoded. A turn does not last while the client reads.
	send := func(encode func() error) error {
		if err := middleware.Compute(c, encode); err != nil || encoded.Len() == 0 {
			return err
		}
		_, err := c.Writer.Write(encoded.Bytes())
		encoded.Reset()
		return err
	}
	err := export(func(chunk []T) error {
		return send(func() error {
			for i := range chunk {
				converted := convert(&chunk[i])
				if err := write(&converted); err != nil {
					return err
				}
			}
			return nil
		})
	})
	if err != nil {
		return err
	}
	return send(func() error { // only if the response is complete: otherwise, the client sees that the rest is missing
		err := flush()
		if err == nil && zip != nil {
			err = zip.Close()
		}
		return err
	})
}
