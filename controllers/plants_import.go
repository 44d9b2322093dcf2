package controllers

import (
	"bufio"
	"errors"
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// ImportReport is the result of an import.
type ImportReport struct {
	// The number of rows.
	Rows int `json:"rows" binding:"required" minimum:"0" example:"5"`
	// The number of plants that were new.
	Created int `json:"created" binding:"required" minimum:"0" example:"4"`
	// The number of plants that exist with the same content.
	Unchanged int `json:"unchanged" binding:"required" minimum:"0" example:"0"`
	// The number of rows that were rejected.
	Rejected int `json:"refused" binding:"required" minimum:"0" example:"1"`
	// Whether the created plants were stored: not in a dry run, and not if a row was rejected without mode=partial.
	Stored bool `json:"stored" binding:"required" example:"true"`
	// Why rows were rejected, by line: at most 1,000.
	Errors []RowError `json:"errors" binding:"required"`
} // @name ImportReport

// RowError says why a row of an import was rejected.
type RowError struct {
	// The line, from 1; the header of CSV is line 1.
	Line int `json:"line" binding:"required" minimum:"1" example:"3"`
	// The error code, as in an Error.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40005"`
	// The message, as in an Error.
	Message string `json:"message" binding:"required" example:"id must be an integer literal"`
} // @name RowError

// ImportError is the Error of an import that stored nothing because rows were rejected.
type ImportError struct {
	// The code of the first row in the report.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40005"`
	// The line and the message of that row.
	Message string `json:"message" binding:"required" example:"line 3: id must be an integer literal; nothing was stored"`
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
//	@Summary		Import plants
//	@Description	A stream of plants: NDJSON, a NewPlant a line, or CSV with a header row of id, name and tag, in any order and tag if you like. An empty cell is no tag; a cell of ' is an empty one. Of a cell that begins with one or more ' before one of = + - @, or has nothing else than ', the first ' is taken away, as the export has put it there. A byte order mark is ignored in CSV.
//	@Description
//	@Description	All plants are stored, or none where a row is refused; with mode=partial, those that are not refused. A row whose id is taken by the same content is counted as unchanged, and is no error: an import whose answer was lost can be sent again as it was. The body may be much larger than that of other requests, a line may not.
//	@ID				importPlants
//	@Tags			plants
//	@Accept			application/x-ndjson,text/csv
//	@Produce		json
//	@Param			mode	query		string			false	"What is stored when a row is refused: nothing (all), or the others (partial)"	Enums(all, partial)	default(all)
//	@Param			dry_run	query		bool			false	"Store nothing, only report"	default(false)
//	@Param			plants	body		string			false	"The plants: none where there is no body"
//	@Success		200		{object}	ImportReport	"The import is on disk, as far as it is stored"
//	@Failure		400		{object}	ImportError		"The request failed: 40001, 40002, 40003, 40004, 40005, 40006, 40007, 41301 or 41501"
//	@Failure		401		{object}	Error			"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403		{object}	Error			"The token lacks the scope (40301)"
//	@Failure		409		{object}	ImportError		"The id of the first row that is listed as refused is taken by a plant with other content (40901)"
//	@Failure		429		{object}	Error			"Too many requests (42901)"
//	@Failure		500		{object}	Error			"A fault of the service (50001)"
//	@Failure		503		{object}	Error			"Too many imports and exports are running (50301), or the database cannot be reached (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			401,403		{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503		{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429		{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429		{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:write]
//	@Router			/plants/import [post]
func (h *Plants) Import(c *gin.Context) error {
	query, err := parseQuery(c, "mode", "dry_run")
	if err != nil {
		return err
	}
	mode, err := parseChoice(query, "mode", "all", "partial")
	if err != nil {
		return err
	}
	dryRun, err := parseChoice(query, "dry_run", "false", "true")
	if err != nil {
		return err
	}
	mediaType, err := contentType(c.Request.Header, TypeCSV, TypeNDJSON)
	if err != nil {
		return err
	}
	read := readNDJSON[NewPlant, models.Plant]
	if mediaType == TypeCSV {
		read = readCSV[NewPlant, models.Plant]
	}
	rows := read(c.Request.Body, func(in *NewPlant) *models.Plant { return in.toPlant(*in.ID) })
	result, err := h.store.Import(c.Request.Context(), rows, models.ImportOptions{Partial: mode == "partial", DryRun: dryRun == "true"})
	if p, ok := errors.AsType[*problem](err); ok {
		return problemf(p.Code, "%s; nothing was stored", p.Message)
	}
	if err != nil {
		return err
	}
	report := toImportReport(c, &result)
	if result.Rejected > 0 && mode == "all" {
		return &importRejected{report}
	}
	return respond(c, http.StatusOK, report)
}

func toImportReport(c *gin.Context, r *models.ImportReport) *ImportReport {
	slices.SortFunc(r.Errors, func(a, b models.RejectedRow) int { return a.Line - b.Line })
	return &ImportReport{
		Rows: r.Rows, Created: r.Created, Unchanged: r.Unchanged, Rejected: r.Rejected, Stored: r.Stored,
		Errors: mapAll(r.Errors, func(row *models.RejectedRow) RowError {
			e := describe(c, row.Err)
			return RowError{Line: row.Line, Code: e.Code, Message: e.Message}
		}),
	}
}

// Export responds with every plant.
//
//	@Summary		Export plants
//	@Description	Every plant, by ascending id, as they are at one moment: in NDJSON, a NewPlant a line, or in CSV where the client accepts text/csv. The import takes it back unchanged. In CSV, a cell that a spreadsheet would run as a formula has a ' before it, as far as the spreadsheet separates cells by commas; an empty tag is a cell of '.
//	@ID				exportPlants
//	@Tags			plants
//	@Produce		application/x-ndjson,text/csv,json
//	@Success		200	{string}	string	"The plants. An answer that breaks off is not whole."
//	@Failure		401	{object}	Error	"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403	{object}	Error	"The token lacks the scope (40301)"
//	@Failure		429	{object}	Error	"Too many requests (42901)"
//	@Failure		500	{object}	Error	"A fault of the service (50001)"
//	@Failure		503	{object}	Error	"Too many imports and exports are running (50301), or the database cannot be reached (50302)"
//	@Header			all	{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			401,403	{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503	{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429	{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429	{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:read]
//	@Router			/plants/export [get]
func (h *Plants) Export(c *gin.Context) error {
	c.Writer.Header().Add("Vary", "Accept") // CORS adds Origin
	out := bufio.NewWriterSize(c.Writer, 64<<10)
	rows := newNDJSONWriter[NewPlant](out)
	c.Header("Content-Type", TypeNDJSON)
	if c.NegotiateFormat(TypeNDJSON, TypeCSV) == TypeCSV {
		rows = newCSVWriter[NewPlant](out)
		c.Header("Content-Type", TypeCSV+"; charset=utf-8; header=present")
		c.Header("Content-Disposition", `attachment; filename="plants.csv"`)
	}
	err := h.store.Export(c.Request.Context(), func(p *models.Plant) error { return rows.write(toNewPlant(p)) })
	if err = errors.Join(err, rows.flush()); err == nil {
		err = out.Flush()
	}
	if err != nil && !c.Writer.Written() { // nothing was sent yet, so the response can be an Error
		c.Writer.Header().Del("Content-Type")
		c.Writer.Header().Del("Content-Disposition")
	}
	return err
}
