// Package controllers holds the HTTP side of each resource: it binds a request, calls a
// store, and responds. Handlers return errors; errors.go alone turns errors into
// responses.
package controllers

import (
	"net/http"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/models"
)

// PlantContent is the content of a plant, in requests and responses.
type PlantContent struct {
	// The name: 1 to 255 characters, no control characters, and not only white space.
	Name *string `json:"name" binding:"required" extensions:"x-rule=plant.name" example:"Monstera deliciosa"`
	// Specifies the type of the plant: up to 255 characters, no control characters. An absent tag stays absent, an empty one stays empty.
	Tag *string `json:"tag,omitzero" extensions:"x-rule=plant.tag" example:"houseplant"`
} // @name PlantContent

// NewPlant is a plant as a client sends it.
type NewPlant struct {
	// The id, chosen by the client: any int64, unique in the store.
	ID *int64 `json:"id" binding:"required" format:"int64" minimum:"-9223372036854775808" maximum:"9223372036854775807" example:"1"`
	PlantContent
} // @name NewPlant

// Plant is the response to the creation of a plant.
type Plant struct {
	PlantContent
} // @name Plant

// StoredPlant is a plant as it is stored.
type StoredPlant struct {
	// The id.
	ID int64 `json:"id" binding:"required" format:"int64" example:"1"`
	PlantContent
	// When the plant was created, in UTC, to the microsecond.
	CreatedAt time.Time `json:"created_at" binding:"required" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
	// When the plant was last written.
	UpdatedAt time.Time `json:"updated_at" binding:"required" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
} // @name StoredPlant

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
	return StoredPlant{p.ID, toPlantContent(p), p.CreatedAt.UTC(), p.UpdatedAt.UTC()}
}

// respondStored writes a plant with its version.
func respondStored(c *gin.Context, p *models.Plant) error {
	c.Header("ETag", etag(p.UpdatedAt))
	return respond(c, http.StatusOK, toStoredPlant(p))
}

// Plants handles the requests for plants.
type Plants struct{ store *models.PlantStore }

// NewPlants returns the handlers for the plants in store.
func NewPlants(store *models.PlantStore) *Plants { return &Plants{store} }

// Create stores a new plant.
//
//	@Summary		Create a plant
//	@Description	Stores a plant under the id that the client has chosen. A 200 means that it is on disk. After a 503 the outcome is unknown: send the same request again, and error 40902 tells that the first one had won.
//	@ID				createPlant
//	@Tags			plants
//	@Accept			json
//	@Produce		json
//	@Param			plant	body		NewPlant	true	"The plant to create"
//	@Success		200		{object}	Plant		"Created: the plant"
//	@Failure		400		{object}	Error		"The request failed: 40001, 40002, 40003, 40004, 40005, 40006, 41301 or 41501"
//	@Failure		401		{object}	Error		"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403		{object}	Error		"The token lacks the scope (40301)"
//	@Failure		409		{object}	Error		"The id is taken by a plant with other content (40901) or with the same (40902)"
//	@Failure		429		{object}	Error		"Too many requests (42901)"
//	@Failure		500		{object}	Error		"A fault of the service (50001)"
//	@Failure		503		{object}	Error		"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200		{string}	Location			"The path of the plant"
//	@Header			200		{string}	ETag				"The version of the plant"
//	@Header			401,403		{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503		{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429		{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429		{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:write]
//	@Router			/plants [post]
func (h *Plants) Create(c *gin.Context) error {
	var in NewPlant
	if err := bindJSON(c, &in); err != nil {
		return err
	}
	plant := in.toPlant(*in.ID)
	if err := h.store.Create(c.Request.Context(), plant); err != nil {
		return err
	}
	c.Header("Location", "/plants/"+strconv.FormatInt(plant.ID, 10))
	c.Header("ETag", etag(plant.UpdatedAt))
	return respond(c, http.StatusOK, Plant{toPlantContent(plant)})
}

// Get responds with a plant.
//
//	@Summary		Get a plant
//	@ID				getPlant
//	@Tags			plants
//	@Produce		json
//	@Param			id				path		int			true	"The id of the plant"	format(int64) minimum(-9223372036854775808) maximum(9223372036854775807)	example(1)
//	@Param			If-None-Match	header		string		false	"The version that the client has: the ETag of an earlier answer"
//	@Success		200				{object}	StoredPlant	"The plant"
//	@Success		304				"The plant is still the version in If-None-Match"
//	@Failure		400				{object}	Error	"A parameter is not valid (40007)"
//	@Failure		401				{object}	Error	"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403				{object}	Error	"The token lacks the scope (40301)"
//	@Failure		404				{object}	Error	"There is no such plant (40401)"
//	@Failure		429				{object}	Error	"Too many requests (42901)"
//	@Failure		500				{object}	Error	"A fault of the service (50001)"
//	@Failure		503				{object}	Error	"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all				{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200,304			{string}	ETag				"The version of the plant"
//	@Header			401,403				{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503				{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429				{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429				{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:read]
//	@Router			/plants/{id} [get]
func (h *Plants) Get(c *gin.Context) error {
	id, err := pathID(c)
	if err != nil {
		return err
	}
	plant, err := h.store.Get(c.Request.Context(), id)
	if err != nil {
		return err
	}
	same, err := notModified(c, etag(plant.UpdatedAt))
	if err != nil {
		return err
	}
	if same {
		c.Header("ETag", etag(plant.UpdatedAt))
		c.Status(http.StatusNotModified)
		return nil
	}
	return respondStored(c, plant)
}

// List responds with plants by ascending id.
//
//	@Summary		List or search plants
//	@Description	Plants by ascending id, a page at a time. The header Link has the address of the next page, as long as there is one.
//	@ID				listPlants
//	@Tags			plants
//	@Produce		json
//	@Param			limit	query		int			false	"How many plants a page has at most"	minimum(1)	maximum(1000)	default(50)
//	@Param			after	query		int			false	"Only plants with a greater id"	format(int64) minimum(-9223372036854775808) maximum(9223372036854775807)
//	@Param			tag		query		string		false	"Only plants with exactly this tag"	maxlength(255)
//	@Param			q		query		string		false	"Only plants with this part in their name, in any case"	minlength(1) maxlength(255)
//	@Success		200		{array}		StoredPlant	"The plants"
//	@Failure		400		{object}	Error		"A parameter is not valid (40007)"
//	@Failure		401		{object}	Error		"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403		{object}	Error		"The token lacks the scope (40301)"
//	@Failure		429		{object}	Error		"Too many requests (42901)"
//	@Failure		500		{object}	Error		"A fault of the service (50001)"
//	@Failure		503		{object}	Error		"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200		{string}	Link				"The next page, if there is one (RFC 8288): <…>; rel=\"next\""
//	@Header			401,403		{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503		{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429		{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429		{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:read]
//	@Router			/plants [get]
func (h *Plants) List(c *gin.Context) error {
	q, err := parsePage(c, "tag", "q")
	if err != nil {
		return err
	}
	filter := models.Filter[int64]{Limit: q.limit + 1, Equal: map[string]any{}, Contains: map[string]string{}}
	if q.Has("after") {
		after, err := parseID("after", q.Get("after"))
		if err != nil {
			return err
		}
		filter.After = &after
	}
	rules := models.Plant{}.Rules()
	if q.Has("tag") {
		if filter.Equal["tag"], err = parseText(q.Values, "tag", rules["tag"]); err != nil {
			return err
		}
	}
	if q.Has("q") {
		if filter.Contains["name"], err = parseText(q.Values, "q", rules["name"].Part()); err != nil {
			return err
		}
	}
	plants, err := h.store.List(c.Request.Context(), filter)
	if err != nil {
		return err
	}
	return respondPage(c, q, mapAll(plants, toStoredPlant), func(p StoredPlant) string { return strconv.FormatInt(p.ID, 10) })
}

// Put creates or replaces a plant.
//
//	@Summary		Create or replace a plant
//	@Description	With If-None-Match: * it only creates, with If-Match it only replaces the version that the client has seen.
//	@ID				putPlant
//	@Tags			plants
//	@Accept			json
//	@Produce		json
//	@Param			id				path		int				true	"The id of the plant"	format(int64) minimum(-9223372036854775808) maximum(9223372036854775807)	example(1)
//	@Param			If-Match		header		string			false	"The ETags of which the plant must have one, or *"
//	@Param			If-None-Match	header		string			false	"Only *: there must be no such plant"	Enums(*)
//	@Param			plant			body		PlantContent	true	"What the plant is to be"
//	@Success		200				{object}	StoredPlant		"The plant, on disk"
//	@Failure		400				{object}	Error			"The request failed: 40001, 40002, 40003, 40004, 40006, 40007, 41301 or 41501"
//	@Failure		401				{object}	Error			"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403				{object}	Error			"The token lacks the scope (40301)"
//	@Failure		412				{object}	Error			"If-Match or If-None-Match does not hold (41201)"
//	@Failure		429				{object}	Error			"Too many requests (42901)"
//	@Failure		500				{object}	Error			"A fault of the service (50001)"
//	@Failure		503				{object}	Error			"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all				{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200				{string}	ETag				"The version of the plant"
//	@Header			401,403				{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503				{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429				{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429				{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:write]
//	@Router			/plants/{id} [put]
func (h *Plants) Put(c *gin.Context) error {
	id, condition, err := parseTarget(c)
	if err != nil {
		return err
	}
	var in PlantContent
	if err := bindJSON(c, &in); err != nil {
		return err
	}
	plant := in.toPlant(id)
	if err := h.store.Put(c.Request.Context(), plant, condition); err != nil {
		return err
	}
	return respondStored(c, plant)
}

// Patch changes a plant.
//
//	@Summary		Change a plant
//	@Description	A JSON Merge Patch (RFC 7396): what is absent stays, and a tag of null is taken away. With If-Match it only changes the version that the client has seen.
//	@ID				patchPlant
//	@Tags			plants
//	@Accept			application/merge-patch+json,json
//	@Produce		json
//	@Param			id				path		int			true	"The id of the plant"	format(int64) minimum(-9223372036854775808) maximum(9223372036854775807)	example(1)
//	@Param			If-Match		header		string		false	"The ETags of which the plant must have one, or *"
//	@Param			If-None-Match	header		string		false	"Only *, which no plant that is there fulfils"	Enums(*)
//	@Param			patch			body		PlantPatch	true	"The change"
//	@Success		200				{object}	StoredPlant	"The plant as it is then, on disk"
//	@Failure		400				{object}	Error		"The request failed: 40001, 40002, 40003, 40004, 40006, 40007, 41301 or 41501"
//	@Failure		401				{object}	Error		"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403				{object}	Error		"The token lacks the scope (40301)"
//	@Failure		404				{object}	Error		"There is no such plant (40401)"
//	@Failure		412				{object}	Error		"If-Match or If-None-Match does not hold (41201)"
//	@Failure		429				{object}	Error		"Too many requests (42901)"
//	@Failure		500				{object}	Error		"A fault of the service (50001)"
//	@Failure		503				{object}	Error		"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all				{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200				{string}	ETag				"The version of the plant"
//	@Header			401,403				{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503				{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429				{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429				{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:write]
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
	plant, err := h.store.Patch(c.Request.Context(), in.toPlant(id), fields, condition)
	if err != nil {
		return err
	}
	return respondStored(c, plant)
}

// Delete removes a plant.
//
//	@Summary		Delete a plant
//	@Description	With If-Match it only deletes the version that the client has seen.
//	@ID				deletePlant
//	@Tags			plants
//	@Produce		json
//	@Param			id				path	int		true	"The id of the plant"	format(int64) minimum(-9223372036854775808) maximum(9223372036854775807)	example(1)
//	@Param			If-Match		header	string	false	"The ETags of which the plant must have one, or *"
//	@Param			If-None-Match	header	string	false	"Only *, which no plant that is there fulfils"	Enums(*)
//	@Success		204				"The plant is gone"
//	@Failure		400				{object}	Error	"A parameter is not valid (40007)"
//	@Failure		401				{object}	Error	"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403				{object}	Error	"The token lacks the scope (40301)"
//	@Failure		404				{object}	Error	"There is no such plant (40401)"
//	@Failure		412				{object}	Error	"If-Match or If-None-Match does not hold (41201)"
//	@Failure		429				{object}	Error	"Too many requests (42901)"
//	@Failure		500				{object}	Error	"A fault of the service (50001)"
//	@Failure		503				{object}	Error	"Too much is waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all				{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			401,403				{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503				{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429				{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429				{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[plants:write]
//	@Router			/plants/{id} [delete]
func (h *Plants) Delete(c *gin.Context) error {
	id, condition, err := parseTarget(c)
	if err != nil {
		return err
	}
	if err := h.store.Delete(c.Request.Context(), id, condition); err != nil {
		return err
	}
	c.Status(http.StatusNoContent)
	return nil
}

// parseTarget returns the id of the row that a request writes, and the condition.
func parseTarget(c *gin.Context) (int64, models.Condition, error) {
	id, err := pathID(c)
	if err != nil {
		return 0, models.Condition{}, err
	}
	condition, err := parseCondition(c)
	return id, condition, err
}
