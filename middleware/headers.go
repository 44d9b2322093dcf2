package middleware

import (
	"github.com/gin-gonic/gin"
)

// Headers sets the headers that every answer has.
func Headers() gin.HandlerFunc {
	// The same for every answer: net/http copies headers before it writes them.
	nosniff, noStore := []string{"nosniff"}, []string{"no-store"}
	return func(c *gin.Context) {
		header := c.Writer.Header()
		header["X-Content-Type-Options"] = nosniff
		header["Cache-Control"] = noStore
	}
}
