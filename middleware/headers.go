package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// Headers sets the headers that every answer has.
func Headers() gin.HandlerFunc {
	return func(c *gin.Context) {
		c.Header("X-Content-Type-Options", "nosniff")
		c.Header("Cache-Control", "no-store")
	}
}

// BodyLimit stops the reading of a request's body after limit bytes with an
// *http.MaxBytesError.
func BodyLimit(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		if c.Request.ContentLength > limit {
			// Known before a byte is read: the client is not asked to go on.
			Fail(c, &http.MaxBytesError{Limit: limit})
			return
		}
		c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
	}
}
