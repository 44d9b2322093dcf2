package controllers

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/auth"
	"plantstore/middleware"
	"plantstore/models"
)

// NewToken asks for a bearer token.
type NewToken struct {
	// The owner or purpose of the token: no control characters, and not only white space. Names need not be unique.
	Name *string `json:"name" binding:"required" extensions:"x-rule=token.name" example:"greenhouse importer"`
	// The scopes of the token; admin implies the others.
	Scopes *[]models.Scope `json:"scopes" binding:"required" validate:"min=1" example:"plants:read,plants:write"`
	// When the token expires, in the future. A token without it does not expire.
	ExpiresAt *Timestamp `json:"expires_at,omitzero" swaggertype:"string" format:"date-time" example:"2099-12-31T00:00:00Z"`
} // @name NewToken

// Token is an issued bearer token, without the token itself.
type Token struct {
	// The first characters of the token.
	ID string `json:"id" binding:"required" extensions:"x-rule=token.id" example:"pst_abcdefgh"`
	// The owner or purpose of the token.
	Name string `json:"name" binding:"required" extensions:"x-rule=token.name" example:"greenhouse importer"`
	// The scopes of the token.
	Scopes []models.Scope `json:"scopes" binding:"required" example:"plants:read,plants:write"`
	// When the token was issued.
	CreatedAt Timestamp `json:"created_at" binding:"required" swaggertype:"string" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
	// When the token expires. Absent if it does not.
	ExpiresAt *Timestamp `json:"expires_at,omitzero" swaggertype:"string" format:"date-time" example:"2099-12-31T00:00:00.000000Z"`
	// When the token was revoked. Absent if it was not.
	RevokedAt *Timestamp `json:"revoked_at,omitzero" swaggertype:"string" format:"date-time" example:"2026-11-21T11:00:00.123456Z"`
	// When the token was last used, recorded once a minute: up to a minute later than the use. Absent if it was not.
	LastUsedAt *Timestamp `json:"last_used_at,omitzero" swaggertype:"string" format:"date-time" example:"2026-11-21T10:30:00.123456Z"`
} // @name Token

// IssuedToken is a new token.
type IssuedToken struct {
	// The token itself. No other response has it.
	Secret string `json:"token" binding:"required" extensions:"x-rule=token.token" example:"pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"`
	Token
} // @name IssuedToken

// TokenOf returns t without its hash, as responses have it.
func TokenOf(t *models.Token) Token {
	return Token{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes, CreatedAt: Timestamp(t.CreatedAt),
		ExpiresAt: (*Timestamp)(t.ExpiresAt), RevokedAt: (*Timestamp)(t.RevokedAt), LastUsedAt: (*Timestamp)(t.LastUsedAt),
	}
}

// Tokens handles the requests for issued tokens.
type Tokens struct {
	store  *models.TokenStore
	issued *auth.IssuedTokens
}

// NewTokens returns the handlers for the tokens in store, which issued verifies.
func NewTokens(store *models.TokenStore, issued *auth.IssuedTokens) *Tokens {
	return &Tokens{store, issued}
}

// Create issues a token.
//
//	@ID				createToken
//	@Summary		Issue a token
//	@Description	Only this response contains the token itself. The token is valid immediately.
//	@Param			token	body		NewToken	true	"The token to issue"
//	@Success		200		{object}	IssuedToken	"The new token"
//	@Router			/tokens [post]
func (h *Tokens) Create(c *gin.Context) error {
	var in NewToken
	if err := bindJSON(c, &in); err != nil {
		return withFaults[NewToken](c, err, models.Token{}.Rules())
	}
	token := models.Token{Name: *in.Name, Scopes: *in.Scopes, ExpiresAt: (*time.Time)(in.ExpiresAt)}
	secret, err := h.store.Create(middleware.ContextOf(c), &token)
	middleware.RequestOf(c).CreatedID = token.ID
	if err != nil {
		return withFaults[NewToken](c, err, models.Token{}.Rules())
	}
	return respond(c, http.StatusOK, IssuedToken{Secret: secret, Token: TokenOf(&token)})
}

// List responds with the issued tokens.
//
//	@ID				listTokens
//	@Summary		List tokens
//	@Description	Returns all issued tokens, including revoked and expired ones, by ascending id, one page at a time.
//	@Param			limit	query	int		false	"The maximum number of tokens on a page"
//	@Param			after	query	string	false	"Only tokens with a greater id"	extensions(x-rule=token.id)
//	@Param			If-None-Match	header	string	false	"The version that the client has: the ETag of an earlier response"
//	@Success		200		{array}	Token	"The tokens"
//	@Success		304		"The page is still as it was at the ETag in If-None-Match"
//	@Header			200,304	{string}	ETag	"The version of the resource"
//	@Router			/tokens [get]
func (h *Tokens) List(c *gin.Context) error {
	q, err := parsePage(c)
	if err != nil {
		return err
	}
	after := q.Get("after")
	if q.Has("after") {
		if err := checkTokenID("after", after); err != nil {
			return err
		}
	}
	tokens, err := h.store.List(middleware.ContextOf(c), after, q.limit+1)
	if err != nil {
		return err
	}
	return respondPage(c, q, mapAll(tokens, TokenOf), func(last int) string { return tokens[last].ID })
}

// Revoke ends a token.
//
//	@ID				revokeToken
//	@Summary		Revoke a token
//	@Description	Revokes a token permanently: on the replica that responds at once, on the others within 5 seconds. A second DELETE gets a 404.
//	@Param			id	path	string	true	"The id of the token: its first characters"	extensions(x-rule=token.id)	example(pst_abcdefgh)
//	@Success		204	"The token is revoked"
//	@Router			/tokens/{id} [delete]
func (h *Tokens) Revoke(c *gin.Context) error {
	id := c.Param("id")
	if err := checkTokenID("id", id); err != nil {
		return err
	}
	if err := h.store.Revoke(middleware.ContextOf(c), id); err != nil {
		return err
	}
	_ = h.issued.Refresh() // otherwise, the token ends as it does on other replicas
	c.Status(http.StatusNoContent)
	return nil
}

// checkTokenID rejects a parameter that is not the id of a token.
func checkTokenID(name, id string) error {
	if !models.TokenID.MatchString(id) {
		return problemf(codeParameter, "%s must be the id of a token: its first %d characters, such as pst_abcdefgh, never the whole token",
			name, models.TokenIDLength)
	}
	return nil
}
