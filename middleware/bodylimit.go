package middleware

import (
	"net/http"

	"github.com/gin-gonic/gin"
)

// BodyLimit rejects bodies of more than limit bytes with an *http.MaxBytesError, at
// once or when they are read.
func BodyLimit(limit int64) Handler {
	return func(c *gin.Context) error {
		switch length := c.Request.ContentLength; {
		case length > limit:
			return &http.MaxBytesError{Limit: limit}
		case length < 0: // net/http reads no more than the announced length
			c.Request.Body = http.MaxBytesReader(c.Writer, c.Request.Body, limit)
		}
		return nil
	}
}
