// Package controllers holds the HTTP side of each resource: it binds a request,
// calls a model, and answers. A handler that fails hands its error to
// [middleware.Fail]; errors.go alone turns errors into answers.
package controllers

import (
	"context"
	"iter"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// NewPlant is a plant as a client sends it.
type NewPlant struct {
	// The id, chosen by the client: any int64, unique in the store.
	ID *int64 `json:"id" binding:"required" format:"int64" minimum:"-9223372036854775808" maximum:"9223372036854775807" example:"1"`
	// The name: 1 to 255 characters, no control characters, and not only blanks.
	Name *string `json:"name" binding:"required" minLength:"1" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*[^\\u0000-\\u0020\\u007F-\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000][^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"Monstera deliciosa"`
	// Specifies the type of the plant: up to 255 characters, no control characters. An absent tag stays absent, an empty one stays empty.
	Tag *string `json:"tag,omitzero" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"houseplant"`
} // @name NewPlant

// Plant is a plant as the answer to its creation shows it.
type Plant struct {
	// The name, as it was sent.
	Name string `json:"name" binding:"required" minLength:"1" maxLength:"255" example:"Monstera deliciosa"`
	// Specifies the type of the plant. Absent where the plant has none.
	Tag *string `json:"tag,omitzero" maxLength:"255" example:"houseplant"`
} // @name Plant

// StoredPlant is a plant as it is stored.
type StoredPlant struct {
	// The id.
	ID int64 `json:"id" binding:"required" format:"int64" example:"1"`
	// The name, as it was sent.
	Name string `json:"name" binding:"required" minLength:"1" maxLength:"255" example:"Monstera deliciosa"`
	// Specifies the type of the plant. Absent where the plant has none.
	Tag *string `json:"tag,omitzero" maxLength:"255" example:"houseplant"`
	// When the plant was created, in UTC, to the microsecond.
	CreatedAt time.Time `json:"created_at" binding:"required" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
	// When the plant was last written.
	UpdatedAt time.Time `json:"updated_at" binding:"required" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
} // @name StoredPlant

func stored(p *models.Plant) StoredPlant {
	return StoredPlant{ID: p.ID, Name: p.Name, Tag: p.Tag, CreatedAt: p.CreatedAt.UTC(), UpdatedAt: p.UpdatedAt.UTC()}
}

// answerStored answers with a plant and its version.
func answerStored(c *gin.Context, p *models.Plant) {
	c.Header("ETag", etag(p.UpdatedAt))
	answer(c, 200, stored(p))
}

// PlantStore keeps plants. [models.PlantStore] is the one that is used; another
// stores nothing, to measure what the rest costs.
type PlantStore interface {
	Create(ctx context.Context, p *models.Plant) error
	Get(ctx context.Context, id int64) (*models.Plant, error)
	List(ctx context.Context, f models.PlantFilter) ([]models.Plant, error)
	Put(ctx context.Context, p *models.Plant, condition models.Condition) error
	Patch(ctx context.Context, id int64, patch models.PlantPatch, condition models.Condition) (*models.Plant, error)
	Delete(ctx context.Context, id int64, condition models.Condition) error
	Import(ctx context.Context, rows iter.Seq2[models.ImportRow, error], o models.ImportOptions) (models.ImportReport, error)
	Export(ctx context.Context, yield func(*models.Plant) error) error
}

// Plants handles the requests for plants.
type Plants struct{ store PlantStore }

// NewPlants returns the handlers for the plants in store.
func NewPlants(store PlantStore) *Plants { return &Plants{store: store} }

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
func (h *Plants) Create(c *gin.Context) {
	var in NewPlant
	if err := bindJSON(c, &in); err != nil {
		middleware.Fail(c, err)
		return
	}
	plant := models.Plant{ID: *in.ID, Name: *in.Name, Tag: in.Tag}
	if err := h.store.Create(c.Request.Context(), &plant); err != nil {
		middleware.Fail(c, err)
		return
	}
	c.Header("Location", "/plants/"+strconv.FormatInt(plant.ID, 10))
	c.Header("ETag", etag(plant.UpdatedAt))
	answer(c, 200, Plant{Name: plant.Name, Tag: plant.Tag})
}

// Get answers with a plant.
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
func (h *Plants) Get(c *gin.Context) {
	id, err := pathID(c)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	plant, err := h.store.Get(c.Request.Context(), id)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	same, err := unchanged(c, etag(plant.UpdatedAt))
	switch {
	case err != nil:
		middleware.Fail(c, err)
	case same:
		c.Header("ETag", etag(plant.UpdatedAt))
		c.Status(http.StatusNotModified)
	default:
		answerStored(c, plant)
	}
}

// List answers with plants by ascending id.
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
func (h *Plants) List(c *gin.Context) {
	query, filter, err := listParameters(c)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	limit := filter.Limit
	filter.Limit++ // one more tells whether there is a next page
	plants, err := h.store.List(c.Request.Context(), filter)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	if len(plants) > limit {
		plants = plants[:limit]
		linkNext(c, "/plants", query, strconv.FormatInt(plants[limit-1].ID, 10))
	}
	page := make([]StoredPlant, len(plants))
	for i := range plants {
		page[i] = stored(&plants[i])
	}
	answer(c, http.StatusOK, page)
}

// listParameters returns the query of a list, as it was given and as a filter.
func listParameters(c *gin.Context) (query url.Values, filter models.PlantFilter, err error) {
	if query, err = queryOf(c, "limit", "after", "tag", "q"); err != nil {
		return nil, filter, err
	}
	if filter.Limit, err = parseLimit(query); err != nil {
		return nil, filter, err
	}
	if query.Has("after") {
		after, err := parseID("after", query.Get("after"))
		if err != nil {
			return nil, filter, err
		}
		filter.After = &after
	}
	if query.Has("tag") {
		tag := query.Get("tag")
		if err := checkParameter("tag", tag, 0, models.MaxTagLength); err != nil {
			return nil, filter, err
		}
		filter.Tag = &tag
	}
	if query.Has("q") {
		filter.Name = query.Get("q")
		if err := checkParameter("q", filter.Name, 1, models.MaxNameLength); err != nil {
			return nil, filter, err
		}
	}
	return query, filter, nil
}

// PlantContent is what a plant can be replaced by.
type PlantContent struct {
	// The name: 1 to 255 characters, no control characters, and not only blanks.
	Name *string `json:"name" binding:"required" minLength:"1" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*[^\\u0000-\\u0020\\u007F-\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000][^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"Monstera deliciosa"`
	// Specifies the type of the plant: up to 255 characters, no control characters. Where it is absent, the plant has none.
	Tag *string `json:"tag,omitzero" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"houseplant"`
} // @name PlantContent

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
func (h *Plants) Put(c *gin.Context) {
	id, condition, err := target(c)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	var in PlantContent
	if err := bindJSON(c, &in); err != nil {
		middleware.Fail(c, err)
		return
	}
	plant := models.Plant{ID: id, Name: *in.Name, Tag: in.Tag}
	if err := h.store.Put(c.Request.Context(), &plant, condition); err != nil {
		middleware.Fail(c, err)
		return
	}
	answerStored(c, &plant)
}

// PlantPatch is a JSON Merge Patch (RFC 7396) of a plant.
type PlantPatch struct {
	// The name, if it is to change.
	Name *string `json:"name,omitzero" minLength:"1" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*[^\\u0000-\\u0020\\u007F-\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000][^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"Monstera deliciosa"`
	// The tag, if it is to change: null takes it away.
	Tag nullableText `json:"tag,omitzero" swaggertype:"string" extensions:"x-nullable" maxLength:"255" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"houseplant"`
} // @name PlantPatch

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
func (h *Plants) Patch(c *gin.Context) {
	id, condition, err := target(c)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	var in PlantPatch
	if err := bindJSON(c, &in, "application/merge-patch+json"); err != nil {
		middleware.Fail(c, err)
		return
	}
	patch := models.PlantPatch{Name: in.Name}
	if in.Tag.given {
		patch.Tag = &in.Tag.text
	}
	plant, err := h.store.Patch(c.Request.Context(), id, patch, condition)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	answerStored(c, plant)
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
func (h *Plants) Delete(c *gin.Context) {
	id, condition, err := target(c)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	if err := h.store.Delete(c.Request.Context(), id, condition); err != nil {
		middleware.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

// target returns which plant a request is to write, and on what condition.
func target(c *gin.Context) (int64, models.Condition, error) {
	id, err := pathID(c)
	if err != nil {
		return 0, models.Condition{}, err
	}
	condition, err := conditionOf(c)
	return id, condition, err
}
