package controllers

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/gin-gonic/gin"

	"plantstore/database"
	"plantstore/middleware"
	"plantstore/models"
)

// ImportReport is the result of an import.
type ImportReport struct {
	// The number of rows.
	Rows int `json:"rows" binding:"required" minimum:"0" example:"5"`
	// The number of plants that were new.
	Created int `json:"created" binding:"required" minimum:"0" example:"4"`
	// The number of plants that existed with different content, with on_conflict=replace.
	Replaced int `json:"replaced" binding:"required" minimum:"0" example:"0"`
	// The number of plants that exist with the same content.
	Unchanged int `json:"unchanged" binding:"required" minimum:"0" example:"0"`
	// The number of rows that were rejected.
	Rejected int `json:"refused" binding:"required" minimum:"0" example:"1"`
	// Whether the created and replaced plants were stored: not in a dry run, and not if a row was rejected without mode=partial.
	Stored bool `json:"stored" binding:"required" example:"true"`
	// Why rows were rejected, by line: at most 1,000.
	Errors []RowError `json:"errors" binding:"required"`
} // @name ImportReport

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
	// The code of the first rejected row, or without a report that of the whole request.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40004"`
	// What is wrong, with the line if it is a row.
	Message string `json:"message" binding:"required" example:"line 3: name is required; nothing was stored"`
	// The whole report. Absent if the import was not read to its end.
	Report *ImportReport `json:"report,omitzero"`
} // @name ImportError

// importRejected is the error of an import that stored nothing because rows were
// rejected: that of the first row in the report.
type importRejected struct{ report *ImportReport }

func (e *importRejected) Error() string { return e.Unwrap().Error() }

func (e *importRejected) Unwrap() error {
	first := e.report.Errors[0]
	return problemf(first.Code, "line %d: %s; nothing was stored", first.Line, first.Message)
}

// Import stores many plants.
//
//	@ID				importPlants
//	@Summary		Import plants
//	@Description	Reads a stream of plants: NDJSON with one NewPlant or StoredPlant per line, or CSV with a header row. The columns of CSV are the fields of a StoredPlant, in any order; those of fields that are not required in a NewPlant may be absent. created_at and updated_at are ignored, so plants can be imported as they were read. An empty cell means no value; a cell that is only ' means an empty tag. A ' is removed where the export adds one: at the start of a cell, or after a ; or a tab in it, if any more ' and then = + - @ or a full-width ＝ ＋ － ＠ follow, and from a cell that consists of '. A byte order mark is ignored.
//	@Description
//	@Description	If any row is rejected, nothing is stored; with mode=partial, all other rows are. A row that exists with the same content counts as unchanged and is no error, so an import can be repeated if its response was lost. A row that exists with different content is rejected; with on_conflict=replace, it replaces the stored plant, which keeps its created_at. An id that occurs twice belongs to its first valid row. The body may be much larger than that of other requests; a line may not.
//	@Description
//	@Description	With Content-Encoding: gzip, the body is compressed; the limit is that of its content.
//	@Accept			application/x-ndjson,text/csv
//	@Param			mode	query		string			false	"What to store if a row is rejected: nothing (all), or the other rows (partial)"	Enums(all, partial)	default(all)
//	@Param			on_conflict	query		string			false	"What to do with a row that exists with different content: reject it (refuse), or store it instead (replace)"	Enums(refuse, replace)	default(refuse)
//	@Param			dry_run	query		bool			false	"Store nothing, only report"														default(false)
//	@Param			plants	body		string			true	"The plants"
//	@Success		200		{object}	ImportReport	"The report. The imported plants are on disk."
//	@Failure		400		{object}	ImportError
//	@Failure		409		{object}	ImportError	"The first rejected row has an id that exists with different content (40901)"
//	@Router			/plants/import [post]
func (h *Plants) Import(c *gin.Context) error {
	query := queryOf(c)
	var options models.ImportOptions
	err := cmp.Or(
		parseSwitch(query, "mode", "all", "partial", &options.Partial),
		parseSwitch(query, "dry_run", "false", "true", &options.DryRun),
		parseSwitch(query, "on_conflict", "refuse", "replace", &options.Replace))
	if err != nil {
		return err
	}
	if c.Request.ContentLength == 0 && c.Request.Header["Content-Type"] == nil { // not even an empty file
		return problemf(codeMalformed, "the body is absent: send the plants as %s or %s", TypeCSV, TypeNDJSON)
	}
	mediaType, err := contentType(c, TypeCSV, TypeNDJSON)
	if err != nil {
		return err
	}
	read := readNDJSON[ImportedPlant, models.Plant]
	if mediaType == TypeCSV {
		read = readCSV[ImportedPlant, models.Plant]
	}
	rows := read(c.Request.Body, func(in *ImportedPlant) models.Plant { return *in.toPlant(*in.ID) })
	result, err := h.store.Import(contextOf(c), inTurn(c, rows), options)
	err = h.wrote(c, err)
	p, isProblem := errors.AsType[*problem](err)
	if errors.Is(err, database.ErrOverloaded) { // perhaps since its turn did not come within bulk.timeout
		return err
	}
	if err != nil && errors.Is(context.Cause(c.Request.Context()), middleware.ErrTooLong) {
		code := int32(codeUnavailable)
		if isProblem { // the body was not received in time
			code = codeBodyTooLarge
		}
		advice := problemf(code, "%v: split the file; rows that were stored count as unchanged", middleware.ErrTooLong)
		return fmt.Errorf("%w: %w", advice, err)
	}
	if isProblem {
		return problemf(p.Code, "%s; nothing was stored", p.Message)
	}
	if err != nil {
		return err
	}
	report := toImportReport(c, &result)
	if result.Rejected > 0 && !options.Partial {
		return &importRejected{report}
	}
	return respond(c, http.StatusOK, report)
}

func toImportReport(c *gin.Context, r *models.ImportReport) *ImportReport {
	return &ImportReport{
		Rows: r.Rows, Created: r.Created, Replaced: r.Replaced, Unchanged: r.Unchanged, Rejected: r.Rejected, Stored: r.Stored,
		Errors: mapAll(r.Errors, func(row *models.RejectedRow) RowError {
			e := describe(c, row.Err)
			return RowError{Line: row.Line, Code: e.Code, Message: e.Message}
		}),
	}
}

// Export responds with plants as of one moment.
//
//	@ID				exportPlants
//	@Summary		Export plants
//	@Description	Returns all plants, or those that the parameters select, by ascending id, as of one moment: in NDJSON with one NewPlant per line, or in CSV if the client prefers text/csv. The import reads it back unchanged. In CSV, what a spreadsheet would run as a formula starts with ', also after a ; or a tab, at which some separate cells; an empty tag is a cell that is only '.
//	@Produce		application/x-ndjson,text/csv
//	@Param			after	query		int		false	"Only plants with a greater id"								format(int64)
//	@Param			tag		query		string	false	"Only plants with exactly this tag"							extensions(x-rule=plant.tag)
//	@Param			q		query		string	false	"Only plants with this text in their name, ignoring case (on SQLite, only that of ASCII letters)"	extensions(x-rule=plant.name.part)
//	@Success		200		{string}	string	"The plants. A response that ends early is incomplete."
//	@Header			200		{string}	Content-Disposition	"The name of a file"
//	@Router			/plants/export [get]
func (h *Plants) Export(c *gin.Context) error {
	filter, err := parsePlantFilter(queryOf(c))
	if err != nil {
		return err
	}
	ctx, err := readContext(c)
	if err != nil {
		return err
	}
	c.Writer.Header().Add("Vary", "Accept") // CORS adds Origin
	stream := &gzipStream{c: c, begun: !acceptsGzip(c)}
	out := bufio.NewWriterSize(stream, 64<<10)
	rows := newNDJSONWriter[NewPlant](out)
	c.Header("Content-Type", TypeNDJSON)
	c.Header("Content-Disposition", `attachment; filename="plants.ndjson"`) // browsers show no plants in bulk
	if preferred(c.Request.Header["Accept"], TypeNDJSON, TypeCSV) == TypeCSV {
		rows = newCSVWriter[NewPlant](out)
		c.Header("Content-Type", TypeCSV+"; charset=utf-8; header=present")
		c.Header("Content-Disposition", `attachment; filename="plants.csv"`)
	}
	if c.Request.Method == http.MethodHead {
		return nil
	}
	err = h.store.Export(ctx, filter, func(p *models.Plant) error { return rows.write(toNewPlant(p)) })
	if err != nil {
		return err
	}
	return errors.Join(rows.flush(), out.Flush(), stream.close())
}
