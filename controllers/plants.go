// Package controllers holds the HTTP side of each resource: it binds a request,
// calls a model, and answers. A handler that fails hands its error to
// [middleware.Fail]; errors.go alone turns errors into answers.
package controllers

import (
	"context"
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

// PlantStore keeps plants. [models.PlantStore] is the one that is used; another
// stores nothing, to measure what the rest costs.
type PlantStore interface {
	Create(ctx context.Context, p *models.Plant) error
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
//	@Failure		409		{object}	Error		"The id is taken by a plant with other content (40901) or with the same (40902)"
//	@Failure		500		{object}	Error		"A fault of the service (50001)"
//	@Failure		503		{object}	Error		"Too many writes are waiting (50301), or the database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200		{string}	Location			"The path of the plant"
//	@Header			200		{string}	ETag				"The version of the plant"
//	@Header			401		{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			503		{integer}	Retry-After			"Seconds to wait before the next attempt"
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

// etag returns the strong entity tag (RFC 9110, section 8.8.3) of a row that was
// last written at updatedAt: the microseconds since 1970, which every write of a
// row moves forward.
func etag(updatedAt time.Time) string {
	return `"` + strconv.FormatInt(updatedAt.UnixMicro(), 36) + `"`
}
