package controllers

import (
	"bufio"
	"encoding/csv"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-json-experiment/json"

	"plantstore/middleware"
	"plantstore/models"
)

// The media types of imports and exports.
const (
	TypeNDJSON = "application/x-ndjson"
	TypeCSV    = "text/csv"
)

// ImportReport says what became of an import.
type ImportReport struct {
	// How many rows there were.
	Rows int `json:"rows" binding:"required" minimum:"0" example:"5"`
	// How many plants were new.
	Created int `json:"created" binding:"required" minimum:"0" example:"4"`
	// How many were there before, with the same name and tag.
	Unchanged int `json:"unchanged" binding:"required" minimum:"0" example:"0"`
	// How many rows were refused.
	Refused int `json:"refused" binding:"required" minimum:"0" example:"1"`
	// Whether the created plants were kept: not in a dry run, and not where a row was refused without mode=partial.
	Stored bool `json:"stored" binding:"required" example:"true"`
	// Why rows were refused, by their lines: 1,000 of them at most.
	Errors []RowError `json:"errors" binding:"required"`
} // @name ImportReport

// RowError says why a row of an import was refused.
type RowError struct {
	// The line, from 1; in CSV, the header is line 1.
	Line int `json:"line" binding:"required" minimum:"1" example:"3"`
	// The error code, as that of an Error.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40005"`
	// What was wrong, as in an Error.
	Message string `json:"message" binding:"required" example:"id must be an integer literal"`
} // @name RowError

// ImportError is the Error of an import that refused a row, and so all of them.
type ImportError struct {
	// The code of the first row that is listed as refused.
	Code int32 `json:"error" binding:"required" format:"int32" example:"40005"`
	// What was wrong with that row, and its line.
	Message string `json:"message" binding:"required" example:"line 3: id must be an integer literal; nothing was stored"`
	// What became of every row. Absent where the import was not read to its end.
	Report *ImportReport `json:"report,omitzero"`
} // @name ImportError

// importRefused is the error of an import that refused rows and stored none.
type importRefused struct{ report *ImportReport }

func (e *importRefused) Error() string {
	return fmt.Sprintf("line %d: %s; nothing was stored", e.report.Errors[0].Line, e.report.Errors[0].Message)
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
func (h *Plants) Import(c *gin.Context) {
	query, err := queryOf(c, "mode", "dry_run")
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	mode, err := parseChoice(query, "mode", "all", "partial")
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	dryRun, err := parseChoice(query, "dry_run", "false", "true")
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	kind, err := contentType(c.Request.Header, TypeCSV, TypeNDJSON)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	rows := readNDJSON
	if kind == TypeCSV {
		rows = readCSV
	}
	done, err := h.store.Import(c.Request.Context(), rows(c.Request.Body), models.ImportOptions{Partial: mode == "partial", DryRun: dryRun == "true"})
	if p, ok := errors.AsType[*problem](err); ok {
		err = problemf(p.Code, "%s; nothing was stored", p.Message)
	}
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	report := newReport(c, done)
	if done.NRefused > 0 && mode == "all" {
		middleware.Fail(c, &importRefused{report})
		return
	}
	answer(c, http.StatusOK, report)
}

func newReport(c *gin.Context, done models.ImportReport) *ImportReport {
	report := &ImportReport{
		Rows: done.Rows, Created: done.Created, Unchanged: done.Unchanged, Refused: done.NRefused, Stored: done.Stored,
		Errors: make([]RowError, 0, len(done.Refused)),
	}
	slices.SortFunc(done.Refused, func(a, b models.ImportRow) int { return a.Line - b.Line })
	for _, row := range done.Refused {
		e := describe(c, row.Err)
		report.Errors = append(report.Errors, RowError{Line: row.Line, Code: e.Code, Message: e.Message})
	}
	return report
}

// Export answers with every plant.
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
func (h *Plants) Export(c *gin.Context) {
	c.Writer.Header().Add("Vary", "Accept") // beside what CORS has there
	write := h.exportNDJSON
	if c.NegotiateFormat(TypeNDJSON, TypeCSV) == TypeCSV {
		write = h.exportCSV
	}
	// The headers go with the first bytes, so that an error before them has its
	// own answer.
	out := bufio.NewWriterSize(c.Writer, 64<<10)
	err := write(c, out)
	if err == nil {
		err = out.Flush()
	}
	if err != nil {
		c.Writer.Header().Del("Content-Type")
		c.Writer.Header().Del("Content-Disposition")
		middleware.Fail(c, err)
	}
}

func (h *Plants) exportNDJSON(c *gin.Context, out *bufio.Writer) error {
	c.Header("Content-Type", TypeNDJSON)
	return h.store.Export(c.Request.Context(), func(p *models.Plant) error {
		if err := json.MarshalWrite(out, NewPlant{ID: &p.ID, Name: &p.Name, Tag: p.Tag}); err != nil {
			return err
		}
		return out.WriteByte('\n')
	})
}

func (h *Plants) exportCSV(c *gin.Context, out *bufio.Writer) error {
	c.Header("Content-Type", TypeCSV+"; charset=utf-8; header=present")
	c.Header("Content-Disposition", `attachment; filename="plants.csv"`)
	rows := csv.NewWriter(out)
	if err := rows.Write([]string{"id", "name", "tag"}); err != nil {
		return err
	}
	record := make([]string, 3)
	err := h.store.Export(c.Request.Context(), func(p *models.Plant) error {
		record[0], record[1], record[2] = strconv.FormatInt(p.ID, 10), toCell(p.Name), ""
		if p.Tag != nil {
			record[2] = toCell(*p.Tag)
		}
		return rows.Write(record)
	})
	if err != nil {
		return err
	}
	rows.Flush()
	return rows.Error()
}

// toCell returns a text as a cell of CSV, which a spreadsheet must not run as a
// formula, and which is not empty: with a ' before it where it begins with one of
// = + - @, or is empty; and where it would lose a ' in fromCell.
func toCell(text string) string {
	if isMarked(text) {
		return "'" + text
	}
	return text
}

// fromCell undoes toCell.
func fromCell(cell string) string {
	if strings.HasPrefix(cell, "'") && isMarked(cell) {
		return cell[1:]
	}
	return cell
}

// isMarked reports whether text, but for any ' at its start, is empty or begins as
// a formula does.
func isMarked(text string) bool {
	rest := strings.TrimLeft(text, "'")
	return rest == "" || strings.ContainsRune("=+-@", rune(rest[0]))
}
