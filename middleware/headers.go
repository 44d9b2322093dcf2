package middleware

import (
	"github.com/gin-gonic/gin"
)

// Headers sets the headers that every answer has; overTLS tells that it goes out by
// HTTPS.
func Headers(overTLS bool) gin.HandlerFunc {
	// The same for every answer: net/http copies headers before it writes them.
	nosniff, noStore, onlyHTTPS := []string{"nosniff"}, []string{"no-store"}, []string{"max-age=31536000"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Cache-Control"] = noStore
		if overTLS { // of no meaning elsewhere: RFC 6797, section 7.2
			header["Strict-Transport-Security"] = onlyHTTPS
		}
	}
}
