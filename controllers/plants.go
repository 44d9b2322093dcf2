// Package controllers holds the HTTP side of each resource: it binds a request, calls a
// store, and responds. Handlers return errors; errors.go alone turns errors into
// responses.
package controllers

import (
	"net/http"
	"net/url"
	"strconv"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// PlantContent is the content of a plant, in requests and responses.
type PlantContent struct {
	// The name: no control characters, and not only white space.
	Name *string `json:"name" binding:"required" extensions:"x-rule=plant.name" example:"Monstera deliciosa"`
	// Specifies the type of the plant: no control characters. No tag and an empty tag are not the same.
	Tag *string `json:"tag,omitzero" extensions:"x-rule=plant.tag" example:"houseplant"`
} // @name PlantContent

// NewPlant is a plant as a client sends it.
type NewPlant struct {
	// The id, chosen by the client: any int64, unique in the store. JavaScript numbers are exact only up to 2^53.
	ID *int64 `json:"id" binding:"required" format:"int64" example:"1"`
	PlantContent
} // @name NewPlant

// Plant is the response to the creation of a plant.
type Plant struct {
	PlantContent
} // @name Plant

// StoredPlant is a plant as it is stored.
type StoredPlant struct {
	// The id. Beyond 2^53, JavaScript's JSON.parse rounds it, perhaps to the id of another plant; read it as `JSON.parse(text, (key, value, context) => key === 'id' && typeof value === 'number' ? BigInt(context.source) : value)`.
	ID int64 `json:"id" binding:"required" format:"int64" example:"1"`
	PlantContent
	Timestamps
} // @name StoredPlant

// PlantReplacement is the content of a plant that a client replaces. It may be a
// StoredPlant, as it was read.
type PlantReplacement struct {
	// The id. If it is present, it must be the one in the path.
	ID *int64 `json:"id,omitzero" format:"int64" extensions:"x-echo"`
	PlantContent
	EchoedTimestamps
} // @name PlantReplacement

// ImportedPlant is a plant in an import. It may be a StoredPlant, as it was read.
type ImportedPlant struct {
	NewPlant
	EchoedTimestamps
}

// PlantPatch is a JSON Merge Patch (RFC 7396) of a plant.
type PlantPatch struct {
	PlantContent
} // @name PlantPatch

func (in *PlantContent) toPlant(id int64) *models.Plant {
	p := &models.Plant{ID: id, Tag: in.Tag}
	if in.Name != nil { // absent from a patch
		p.Name = *in.Name
	}
	return p
}

func toPlantContent(p *models.Plant) PlantContent {
	return PlantContent{Name: &p.Name, Tag: p.Tag}
}

func toNewPlant(p *models.Plant) NewPlant { return NewPlant{&p.ID, toPlantContent(p)} }

func toStoredPlant(p *models.Plant) StoredPlant {
	return StoredPlant{p.ID, toPlantContent(p), Timestamps{Timestamp(p.CreatedAt), Timestamp(p.UpdatedAt)}}
}

// Plants handles the requests for plants.
type Plants struct{ store *models.PlantStore }

// NewPlants returns the handlers for the plants in store.
func NewPlants(store *models.PlantStore) *Plants { return &Plants{store} }

// Create stores a new plant.
//
//	@ID				createPlant
//	@Summary		Create a plant
//	@Description	Stores a plant under the id that the client has chosen. A 200 means that it is on disk. After error 50302 or a lost response, send the same request again: a 200, or error 40902, means that the plant is stored.
//	@Param			plant	body		NewPlant	true	"The plant to create"
//	@Success		200		{object}	Plant		"The new plant"
//	@Failure		409		{object}	Error
//	@Header			200		{string}	Location	"The path of the resource"
//	@Header			200		{string}	ETag		"The version of the resource"
//	@Router			/plants [post]
func (h *Plants) Create(c *gin.Context) error {
	var in NewPlant
	if err := bindJSON(c, &in); err != nil {
		return err
	}
	plant := in.toPlant(*in.ID)
	middleware.SetCreatedID(c, strconv.FormatInt(plant.ID, 10))
	outcome, err := h.store.Create(contextOf(c), plant)
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	middleware.SetHeader(c, "Location", location(c, plant.ID))
	return respondVersion(c, http.StatusOK, plant.UpdatedAt, Plant{toPlantContent(plant)})
}

// Get responds with a plant.
//
//	@ID				getPlant
//	@Summary		Get a plant
//	@Description	With If-None-Match it responds with 304 and without a body if the plant still has that version.
//	@Param			id				path		int			true	"The id of the plant"	format(int64)	example(1)
//	@Param			If-None-Match	header		string		false	"The version that the client has: the ETag of an earlier response"
//	@Success		200				{object}	StoredPlant	"The plant"
//	@Success		304				"The plant still has the version in If-None-Match"
//	@Header			200,304			{string}	ETag	"The version of the resource"
//	@Router			/plants/{id} [get]
func (h *Plants) Get(c *gin.Context) error {
	id, err := pathID(c)
	if err != nil {
		return err
	}
	plant, err := h.store.Get(contextOf(c), id)
	if err != nil {
		return err
	}
	return respondVersion(c, http.StatusOK, plant.UpdatedAt, toStoredPlant(plant))
}

// List responds with plants by ascending id.
//
//	@ID				listPlants
//	@Summary		List or search plants
//	@Description	Returns plants by ascending id, one page at a time.
//	@Param			limit	query	int			false	"The maximum number of plants on a page"
//	@Param			after	query	int			false	"Only plants with a greater id"								format(int64)
//	@Param			tag		query	string		false	"Only plants with exactly this tag"							extensions(x-rule=plant.tag)
//	@Param			q		query	string		false	"Only plants with this text in their name, ignoring case (on SQLite, only that of ASCII letters)"	extensions(x-rule=plant.name.part)
//	@Success		200		{array}	StoredPlant	"The plants"
//	@Router			/plants [get]
func (h *Plants) List(c *gin.Context) error {
	q, err := parsePage(c)
	if err != nil {
		return err
	}
	filter, err := parsePlantFilter(q.Values)
	if err != nil {
		return err
	}
	filter.Limit = q.limit + 1 // one more tells whether there is a next page
	plants, err := h.store.List(contextOf(c), filter)
	if err != nil {
		return err
	}
	return respondPage(c, q, mapAll(plants, toStoredPlant), func(p StoredPlant) any { return p.ID })
}

// parsePlantFilter returns the filter that the parameters after, tag and q ask for.
func parsePlantFilter(query url.Values) (models.Filter[int64], error) {
	filter, err := parseAfter(query)
	if err != nil {
		return filter, err
	}
	rules := models.Plant{}.Rules()
	if query.Has("tag") {
		if filter.Equal["tag"], err = parseText(query, "tag", rules.Text("tag")); err != nil {
			return filter, err
		}
	}
	if query.Has("q") {
		filter.Contains["name"], err = parseText(query, "q", rules.Text("name").Part())
	}
	return filter, err
}

// Put creates or replaces a plant.
//
//	@ID				putPlant
//	@Summary		Create or replace a plant
//	@Description	With If-None-Match: * it only creates; with If-Match it only replaces a version that the client has seen. Without a tag, the plant has none afterwards. A plant can be sent back as it was read: its created_at and updated_at are ignored.
//	@Param			id				path		int				true	"The id of the plant"	format(int64)	example(1)
//	@Param			If-Match		header		string			false	"The plant must have one of these ETags; * means any"
//	@Param			If-None-Match	header		string			false	"Only *: the plant must not exist"	Enums(*)
//	@Param			plant			body		PlantReplacement	true	"The content of the plant"
//	@Success		200				{object}	StoredPlant			"The plant was replaced"
//	@Success		201				{object}	StoredPlant			"The plant was created"
//	@Header			201				{string}	Location			"The path of the resource"
//	@Header			200,201			{string}	ETag				"The version of the resource"
//	@Router			/plants/{id} [put]
func (h *Plants) Put(c *gin.Context) error {
	id, condition, err := parseTarget(c)
	if err != nil {
		return err
	}
	var in PlantReplacement
	if err := bindWhole(c, &in); err != nil {
		return err
	}
	if in.ID != nil && *in.ID != id {
		return problemf(codeInvalidValue, "id must be %d as in the path, or absent", id)
	}
	outcome, err := h.store.Put(contextOf(c), in.toPlant(id), condition)
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	status := http.StatusOK
	if outcome.Created {
		middleware.SetHeader(c, "Location", location(c, id))
		status = http.StatusCreated
	}
	return respondVersion(c, status, outcome.Row.UpdatedAt, toStoredPlant(outcome.Row))
}

// Patch changes a plant.
//
//	@ID				patchPlant
//	@Summary		Change a plant
//	@Description	Applies a JSON Merge Patch (RFC 7396): absent fields stay unchanged, and null removes an optional field. With If-Match it only changes a version that the client has seen.
//	@Accept			application/merge-patch+json,json
//	@Param			id				path		int			true	"The id of the plant"	format(int64)	example(1)
//	@Param			If-Match		header		string		false	"The plant must have one of these ETags; * means any"
//	@Param			If-None-Match	header		string		false	"Only *: the plant must not exist, so the change fails"	Enums(*)
//	@Param			patch			body		PlantPatch	true	"The fields to change"
//	@Success		200				{object}	StoredPlant	"The changed plant"
//	@Header			200				{string}	ETag		"The version of the resource"
//	@Router			/plants/{id} [patch]
func (h *Plants) Patch(c *gin.Context) error {
	id, condition, err := parseTarget(c)
	if err != nil {
		return err
	}
	var in PlantPatch
	fields, err := bindPatch(c, &in)
	if err != nil {
		return err
	}
	outcome, err := h.store.Patch(contextOf(c), in.toPlant(id), fields, condition)
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	return respondVersion(c, http.StatusOK, outcome.Row.UpdatedAt, toStoredPlant(outcome.Row))
}

// Delete removes a plant.
//
//	@ID				deletePlant
//	@Summary		Delete a plant
//	@Description	With If-Match it only deletes a version that the client has seen.
//	@Param			id				path	int		true	"The id of the plant"	format(int64)	example(1)
//	@Param			If-Match		header	string	false	"The plant must have one of these ETags; * means any"
//	@Param			If-None-Match	header	string	false	"Only *: the plant must not exist, so the deletion fails"	Enums(*)
//	@Success		204				"The plant is deleted"
//	@Router			/plants/{id} [delete]
func (h *Plants) Delete(c *gin.Context) error {
	id, condition, err := parseTarget(c)
	if err != nil {
		return err
	}
	outcome, err := h.store.Delete(contextOf(c), id, condition)
	if err != nil {
		return err
	}
	setPosition(c, outcome.Position)
	c.Status(http.StatusNoContent)
	return nil
}
