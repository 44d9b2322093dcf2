package middleware

import (
	"github.com/gin-gonic/gin"
)

// policy is what a browser may do with an answer that it is made to show: nothing,
// and not inside another page. Only browsers of before 2018 would need
// X-Frame-Options for the latter.
const policy = "default-src 'none'; frame-ancestors 'none'"

// Headers sets the headers that every answer has; overTLS tells that it goes out by
// HTTPS.
func Headers(overTLS bool) gin.HandlerFunc {
	// The same for every answer: net/http copies headers before it writes them.
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
		if overTLS { // of no meaning elsewhere: RFC 6797, section 7.2
			header["Strict-Transport-Security"] = onlyHTTPS
		}
	}
}
