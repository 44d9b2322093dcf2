package controllers

import (
	"net/http"
	"time"

	"github.com/gin-gonic/gin"

	"plantstore/middleware"
	"plantstore/models"
)

// NewToken asks for a bearer token.
type NewToken struct {
	// Whose token it is, or what it is for: 1 to 100 characters, no control characters, and not only blanks. Several may have the same name.
	Name *string `json:"name" binding:"required" minLength:"1" maxLength:"100" pattern:"^[^\\u0000-\\u001F\\u007F-\\u009F]*[^\\u0000-\\u0020\\u007F-\\u00A0\\u1680\\u2000-\\u200A\\u2028\\u2029\\u202F\\u205F\\u3000][^\\u0000-\\u001F\\u007F-\\u009F]*$" example:"greenhouse importer"`
	// What the token allows; admin implies the others.
	Scopes *[]string `json:"scopes" binding:"required" validate:"min=1" enums:"plants:read,plants:write,admin" example:"plants:read,plants:write"`
	// When the token ends, in the future. Where it is absent, the token does not end.
	ExpiresAt *string `json:"expires_at,omitzero" format:"date-time" example:"2099-12-31T00:00:00Z"`
} // @name NewToken

// Token is a bearer token that was issued, as far as it is shown.
type Token struct {
	// The beginning of the token, by which it is told from others.
	ID string `json:"id" binding:"required" pattern:"^pst_[a-z2-7]{8}$" example:"pst_abcdefgh"`
	// Whose token it is, or what it is for.
	Name string `json:"name" binding:"required" minLength:"1" maxLength:"100" example:"greenhouse importer"`
	// What the token allows.
	Scopes []string `json:"scopes" binding:"required" enums:"plants:read,plants:write,admin" example:"plants:read,plants:write"`
	// When the token was issued.
	CreatedAt time.Time `json:"created_at" binding:"required" format:"date-time" example:"2026-11-21T10:00:00.123456Z"`
	// When the token ends. Absent where it does not.
	ExpiresAt *time.Time `json:"expires_at,omitzero" format:"date-time" example:"2099-12-31T00:00:00Z"`
	// When the token was revoked. Absent where it was not.
	RevokedAt *time.Time `json:"revoked_at,omitzero" format:"date-time" example:"2026-11-21T11:00:00.123456Z"`
	// When the token was last used, to the minute. Absent where it was not.
	LastUsedAt *time.Time `json:"last_used_at,omitzero" format:"date-time" example:"2026-11-21T10:30:00.123456Z"`
} // @name Token

// IssuedToken is a new token, with what is shown only once.
type IssuedToken struct {
	// The token itself. It is not kept: this is the only answer that has it.
	Secret string `json:"token" binding:"required" pattern:"^pst_[a-z2-7]{47}$" example:"pst_abcdefghijklmnopqrstuvwxyz234567abcdefghijklmno"`
	Token
} // @name IssuedToken

func issued(t *models.Token) Token {
	return Token{
		ID: t.ID, Name: t.Name, Scopes: t.Scopes.Names(), CreatedAt: t.CreatedAt.UTC(),
		ExpiresAt: utc(t.ExpiresAt), RevokedAt: utc(t.RevokedAt), LastUsedAt: utc(t.LastUsedAt),
	}
}

func utc(t *time.Time) *time.Time {
	if t == nil {
		return nil
	}
	at := t.UTC()
	return &at
}

// Tokens handles the requests for issued tokens.
type Tokens struct{ store *models.TokenStore }

// NewTokens returns the handlers for the tokens in store.
func NewTokens(store *models.TokenStore) *Tokens { return &Tokens{store: store} }

// Create issues a token.
//
//	@Summary		Issue a token
//	@Description	The answer is the only one that has the token itself. It is good at once.
//	@ID				createToken
//	@Tags			tokens
//	@Accept			json
//	@Produce		json
//	@Param			token	body		NewToken	true	"The token to issue"
//	@Success		200		{object}	IssuedToken	"The token"
//	@Failure		400		{object}	Error		"The request failed: 40001, 40002, 40003, 40004, 40006, 41301 or 41501"
//	@Failure		401		{object}	Error		"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403		{object}	Error		"The token lacks the scope (40301)"
//	@Failure		429		{object}	Error		"Too many requests (42901)"
//	@Failure		500		{object}	Error		"A fault of the service (50001)"
//	@Failure		503		{object}	Error		"The database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			401,403	{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503	{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429	{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429	{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[admin]
//	@Router			/tokens [post]
func (h *Tokens) Create(c *gin.Context) {
	var in NewToken
	if err := bindJSON(c, &in); err != nil {
		middleware.Fail(c, err)
		return
	}
	token := models.Token{Name: *in.Name}
	for _, scope := range *in.Scopes {
		token.Scopes = append(token.Scopes, models.Scope(scope))
	}
	if in.ExpiresAt != nil {
		expires, err := time.Parse(time.RFC3339, *in.ExpiresAt)
		if err != nil {
			middleware.Fail(c, problemf(codeTextLimits, "expires_at must be a time of RFC 3339, such as 2099-12-31T00:00:00Z"))
			return
		}
		token.ExpiresAt = &expires
	}
	secret, err := h.store.Create(c.Request.Context(), &token)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	answer(c, http.StatusOK, IssuedToken{Secret: secret, Token: issued(&token)})
}

// List answers with the tokens that were issued.
//
//	@Summary		List tokens
//	@Description	The tokens that were issued, revoked and expired ones too, by ascending id, a page at a time. The header Link has the address of the next page, as long as there is one.
//	@ID				listTokens
//	@Tags			tokens
//	@Produce		json
//	@Param			limit	query		int		false	"How many tokens a page has at most"	minimum(1)	maximum(1000)	default(50)
//	@Param			after	query		string	false	"Only tokens with a greater id"
//	@Success		200		{array}		Token	"The tokens"
//	@Failure		400		{object}	Error	"A parameter is not valid (40007)"
//	@Failure		401		{object}	Error	"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403		{object}	Error	"The token lacks the scope (40301)"
//	@Failure		429		{object}	Error	"Too many requests (42901)"
//	@Failure		500		{object}	Error	"A fault of the service (50001)"
//	@Failure		503		{object}	Error	"The database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			200		{string}	Link				"The next page, if there is one (RFC 8288): <…>; rel=\"next\""
//	@Header			401,403	{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503	{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429	{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429	{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[admin]
//	@Router			/tokens [get]
func (h *Tokens) List(c *gin.Context) {
	query, err := queryOf(c, "limit", "after")
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	limit, err := parseLimit(query)
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	after := query.Get("after")
	if query.Has("after") && !models.IsTokenID(after) {
		middleware.Fail(c, noTokenID("after"))
		return
	}
	tokens, err := h.store.List(c.Request.Context(), after, limit+1) // one more tells whether there is a next page
	if err != nil {
		middleware.Fail(c, err)
		return
	}
	if len(tokens) > limit {
		tokens = tokens[:limit]
		linkNext(c, "/tokens", query, tokens[limit-1].ID)
	}
	page := make([]Token, len(tokens))
	for i := range tokens {
		page[i] = issued(&tokens[i])
	}
	answer(c, http.StatusOK, page)
}

// Revoke ends a token.
//
//	@Summary		Revoke a token
//	@Description	Ends a token for good, on every replica within 5 seconds.
//	@ID				revokeToken
//	@Tags			tokens
//	@Produce		json
//	@Param			id	path	string	true	"The id of the token: its beginning"	example(pst_abcdefgh)
//	@Success		204	"The token is revoked"
//	@Failure		400	{object}	Error	"A parameter is not valid (40007)"
//	@Failure		401	{object}	Error	"No bearer token (40101), or one that is not valid (40102)"
//	@Failure		403	{object}	Error	"The token lacks the scope (40301)"
//	@Failure		404	{object}	Error	"There is no such token, or it was revoked before (40403)"
//	@Failure		429	{object}	Error	"Too many requests (42901)"
//	@Failure		500	{object}	Error	"A fault of the service (50001)"
//	@Failure		503	{object}	Error	"The database cannot be reached in time (50302)"
//	@Header			all		{string}	X-Request-ID		"The id of the request: the client's, or a new one"
//	@Header			401,403	{string}	WWW-Authenticate	"The challenge of RFC 6750"
//	@Header			429,503	{integer}	Retry-After			"Seconds to wait before the next attempt"
//	@Header			429	{string}	RateLimit			"What is left, where the operator has set a limit (draft-ietf-httpapi-ratelimit-headers)"
//	@Header			429	{string}	RateLimit-Policy	"The limits"
//	@Security		BearerAuth[admin]
//	@Router			/tokens/{id} [delete]
func (h *Tokens) Revoke(c *gin.Context) {
	id := c.Param("id")
	if !models.IsTokenID(id) {
		middleware.Fail(c, noTokenID("id"))
		return
	}
	if err := h.store.Revoke(c.Request.Context(), id); err != nil {
		middleware.Fail(c, err)
		return
	}
	c.Status(http.StatusNoContent)
}

func noTokenID(name string) error {
	return problemf(codeParameter, "%s must be the id of a token, its first 12 characters, such as pst_abcdefgh, and never the whole of it", name)
}
