package controllers

import (
	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// Import stores many plants.
//
//	@ID				importPlants
//	@Summary		Import plants
//	@Description	Reads a stream of plants: NDJSON with one NewPlant or StoredPlant per line, or CSV with a header row. The columns of CSV are the fields of a StoredPlant, in any order; those of fields that are not required in a NewPlant may be absent. created_at and updated_at are ignored, so plants can be imported as they were read. An empty cell means no value; a cell that is only ' means an empty tag. The export adds a ' before each part of a text that a spreadsheet would run as a formula, and to a cell for an empty text; the import removes it: at the start of a cell, or after a ; or a tab in it, if any more ' (there also ") and then = + - @ or a full-width ＝ ＋ － ＠ follow. A byte order mark is ignored.
//	@Description
//	@Description	If any row is rejected, nothing is stored; with mode=partial, all other rows are. A row that exists with the same content counts as unchanged and is no error, so an import can be repeated if its response was lost. A row that exists with different content is rejected; with on_conflict=replace, it replaces the stored plant, which keeps its created_at. An id that occurs twice belongs to its first valid row. The body may be much larger than that of other requests; a line may not.
//	@Description
//	@Description	With Content-Encoding: gzip, the body is compressed; its limit is that of the decompressed body.
//	@Accept			application/x-ndjson,text/csv
//	@Param			mode	query		string			false	"What to store if a row is rejected: nothing (all), or the other rows (partial)"	Enums(all, partial)	default(all)
//	@Param			on_conflict	query		string			false	"What to do with a row that exists with different content: reject it (refuse), or store it instead (replace)"	Enums(refuse, replace)	default(refuse)
//	@Param			dry_run	query		bool			false	"Store nothing, only report"														default(false)
//	@Param			plants	body		string			true	"The plants"
//	@Success		200		{object}	ImportReport	"The report. The imported plants are on disk."
//	@Failure		400		{object}	ImportError
//	@Failure		409		{object}	ImportError	"The first rejected row has an id that exists, or that an earlier row has, with different content (40901)"
//	@Router			/plants/import [post]
func (h *Plants) Import(c *gin.Context) error {
	rows, options, err := bindRows(c, func(in *ImportedPlant) models.Plant { return *in.toPlant(*in.ID) })
	if err != nil {
		return err
	}
	report, err := h.store.Import(contextOf(c), rows, options)
	return respondReport(c, &report, options, err)
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
	return respondRows(c, "plants", toNewPlant, func(yield func(*models.Plant) error) error {
		return h.store.Export(contextOf(c), filter, yield)
	})
}
