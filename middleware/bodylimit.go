package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// BodyLimit stops the reading of a request's body after limit bytes with an
// *http.MaxBytesError.
func BodyLimit(limit int64) gin.HandlerFunc {
	return func(c *gin.Context) {
		switch length := c.Request.ContentLength; {
		case length > limit:
			Fail(c, &http.MaxBytesError{Limit: limit})
		case length < 0: // net/http reads no more than was announced
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
		}
	}
}
