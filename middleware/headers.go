package middleware

import (
	"github.com/gin-gonic/gin"
)

// policy forbids a browser to load anything for a response, or to show it in a frame.
// Only browsers from before 2018 would need X-Frame-Options for the latter.
const policy = "default-src 'none'; frame-ancestors 'none'"

// Headers sets the headers of every response. overTLS means that it is sent by HTTPS.
func Headers(overTLS bool) gin.HandlerFunc {
	// Shared by all responses: net/http copies headers before it writes them.
	nosniff := []string{"nosniff"}
	noStore := []string{"no-store"}
	noReferrer := []string{"no-referrer"}
	nothing := []string{policy}
	onlyHTTPS := []string{"max-age=31536000"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Cache-Control"] = noStore
		header["Referrer-Policy"] = noReferrer
		header["Content-Security-Policy"] = nothing
		if overTLS { // RFC 6797, section 7.2
			header["Strict-Transport-Security"] = onlyHTTPS
		}
	}
}
