package middleware

import (
	"net/http"
	"slices"

	"github.com/gin-gonic/gin"
)

// What a page of another origin may send and read (Fetch standard, section 3.3).
const (
	corsMethods = "GET, HEAD, POST, PUT, PATCH, DELETE"
	corsHeaders = "Authorization, Content-Type, If-Match, If-None-Match, X-Request-ID"
	corsExposed = "ETag, Link, Location, X-Request-ID, Retry-After, RateLimit, RateLimit-Policy"
	// corsMaxAge is for how many seconds a browser may keep the answer to a preflight:
	// as long as any does.
	corsMaxAge = "7200"
)

// CORS lets pages of origins call the API from a browser, without credentials: a
// page that has a token sends it itself. It answers preflights, which carry none.
// To all others it says nothing of this, and the browser keeps the answer from the
// page; whether they may have it the token decides, as for who is no browser.
func CORS(origins []string) gin.HandlerFunc {
	if len(origins) == 0 {
		return func(*gin.Context) {}
	}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header.Add("Vary", "Origin") // whoever asks, for caches
		origin := c.GetHeader("Origin")
		if !slices.Contains(origins, origin) {
			return
		}
		header.Set("Access-Control-Allow-Origin", origin)
		if c.Request.Method != http.MethodOptions || c.GetHeader("Access-Control-Request-Method") == "" {
			header.Set("Access-Control-Expose-Headers", corsExposed)
			return
		}
		header.Set("Access-Control-Allow-Methods", corsMethods)
		header.Set("Access-Control-Allow-Headers", corsHeaders)
		header.Set("Access-Control-Max-Age", corsMaxAge)
		c.AbortWithStatus(http.StatusNoContent)
	}
}
