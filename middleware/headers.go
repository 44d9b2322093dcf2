package middleware

import (
	"maps"
	"net/http"

	"github.com/gin-gonic/gin"
)

// policy forbids a browser to load anything for a response, or to show it in a frame.
// Only browsers from before 2018 would need X-Frame-Options for the latter.
const policy = "default-src 'none'; frame-ancestors 'none'"

// Headers sets the headers of every response. overTLS means that it is sent by HTTPS.
func Headers(overTLS bool) gin.HandlerFunc {
	headers := http.Header{
		"X-Content-Type-Options":  {"nosniff"},
		"Cache-Control":           {"no-store"},
		"Referrer-Policy":         {"no-referrer"},
		"Content-Security-Policy": {policy},
	}
	if overTLS { // RFC 6797, section 7.2
		headers["Strict-Transport-Security"] = []string{"max-age=31536000"}
	}
	// Responses share the values: net/http copies headers before it writes them.
	return func(c *gin.Context) { maps.Copy(c.Writer.Header(), headers) }
}
